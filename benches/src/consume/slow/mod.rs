//! `consume --slow-group`: how long the others need while one group is slow.

#[cfg(feature = "peers-consume")]
mod beavers;
mod procession;
#[cfg(feature = "peers-consume")]
mod ruststream;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::value_parser;

use crate::report::{Bar, choose, median};

/// The workload of --slow-group: every tenth record is of the slow group.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// Measure what one slow group does to the others; payload, groups, zipf, batch, api and cache
    /// play no part
    #[arg(long)]
    pub(super) slow_group: bool,
    /// How long a turn of the slow group takes, in milliseconds
    #[arg(long, default_value_t = 50, requires = "slow_group")]
    slow_ms: u64,
    /// How long a turn of every other group takes, in milliseconds
    #[arg(long, default_value_t = 1, requires = "slow_group")]
    fast_ms: u64,
    /// How many other groups there are
    #[arg(long, default_value_t = 90, requires = "slow_group")]
    #[arg(value_parser = value_parser!(u32).range(1..))]
    fast_groups: u32,
}

/// What every contender gets.
#[derive(Debug)]
pub(super) struct Load {
    /// The group of every record, in order; 0 is the slow one.
    groups: Vec<u32>,
    /// How many turns may be open at once.
    concurrency: usize,
    partitions: u32,
    slow: Duration,
    fast: Duration,
    dir: std::path::PathBuf,
}

/// Where turns are written down, by whoever runs them.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Vec<TurnTaken>>);

#[derive(Clone, Copy, Debug)]
struct TurnTaken {
    group: u32,
    /// The record's place in the load.
    record: u32,
    begin: Instant,
    end: Instant,
}

impl Load {
    fn new(args: &super::Args) -> Self {
        let mut fast = (1..=args.slow.fast_groups).cycle();
        let mut group = |n| if n % 10 == 0 { 0 } else { fast.next().unwrap_or(1) };
        Self {
            groups: (0..args.records.unwrap_or(1_000)).map(&mut group).collect(),
            concurrency: args.concurrency.unwrap_or(8).max(2) as usize,
            partitions: args.partitions,
            slow: Duration::from_millis(args.slow.slow_ms),
            fast: Duration::from_millis(args.slow.fast_ms),
            dir: args.dir.clone(),
        }
    }

    /// The work of a turn of this group.
    fn work(&self, group: u32) -> Duration {
        if group == 0 { self.slow } else { self.fast }
    }

    #[cfg(feature = "peers-consume")]
    fn records(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        self.groups.clone().into_iter().zip(0..)
    }
}

impl Turns {
    /// The turn of one record, which works by waiting.
    async fn take(&self, group: u32, record: u32, work: impl Future<Output = ()>) {
        let begin = Instant::now();
        work.await;
        let end = Instant::now();
        let turn = TurnTaken { group, record, begin, end };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
    }

    /// What is written down so far, and no more: a worker may keep its handler a little longer.
    fn taken(&self) -> Self {
        Self(Mutex::new(std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))))
    }

    #[cfg(feature = "peers-consume")]
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// What one run of one contender came to.
#[derive(Clone, Copy, Debug)]
struct Tally {
    /// From the begin of the first turn to the end of the last one of another group.
    others: Duration,
    /// The least that takes, with turns as long as these were.
    ideal: Duration,
    /// To the end of the last turn of all.
    all: Duration,
}

impl Tally {
    /// Refuses a run that left a record out, ran one twice, or broke the order of a group.
    fn of(load: &Load, turns: &Turns) -> Result<Self> {
        let mut turns = turns.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        turns.sort_by_key(|turn| turn.record);
        let records = turns.iter().map(|turn| (turn.group, turn.record));
        let (seen, there) = (turns.len(), load.groups.len());
        ensure!(
            records.eq(load.groups.iter().copied().zip(0..)),
            "{seen} turns were not each of the {there} records once"
        );
        let groups = load.groups.iter().copied().max().unwrap_or(0) as usize + 1;
        let mut last: Vec<Option<TurnTaken>> = vec![None; groups];
        let mut busy = vec![Duration::ZERO; groups];
        for turn in &turns {
            let group = turn.group as usize;
            if let Some(last) = last[group].replace(*turn) {
                ensure!(last.end <= turn.begin, "group {group}: {last:?}, then {turn:?}");
            }
            busy[group] += turn.end - turn.begin;
        }
        let first = turns.iter().map(|turn| turn.begin).min().context("turns")?;
        let ends = |of: fn(&&TurnTaken) -> bool| turns.iter().filter(of).map(|turn| turn.end).max();
        let others = ends(|turn| turn.group > 0).context("other groups have records")?;
        let all = ends(|_| true).context("turns")?;
        // The slow group takes one place all the time; the others share the rest, and none of them
        // is done before its own turns are, one after the other.
        let shared = busy[1..].iter().sum::<Duration>() / (load.concurrency as u32 - 1);
        let longest = busy[1..].iter().copied().max().unwrap_or_default();
        Ok(Self { others: others - first, ideal: shared.max(longest), all: all - first })
    }

    fn over_ideal(&self) -> f64 {
        self.others.as_secs_f64() / self.ideal.as_secs_f64()
    }
}

type Contender = fn(&Load) -> Result<Turns>;

const CONTENDERS: &[(&str, Contender)] = &[
    ("procession", procession::without_runtime),
    ("procession-tokio", procession::on_tokio),
    #[cfg(feature = "peers-consume")]
    ("ruststream", ruststream::run),
    #[cfg(feature = "peers-consume")]
    ("beavers", beavers::run),
];

/// Runs every contender `--runs` times, in turn, and prints a line for each.
pub(super) fn run(args: &super::Args) -> Result<()> {
    let chosen = choose(CONTENDERS, args.contenders.as_deref())?;
    let load = Load::new(args);
    let mut tallies: Vec<Vec<Tally>> = chosen.iter().map(|_| Vec::new()).collect();
    let bar = Bar::new(u64::from(args.runs) * chosen.len() as u64);
    for _ in 0..args.runs {
        for ((name, contender), tallies) in chosen.iter().zip(&mut tallies) {
            bar.name(name);
            let turns = contender(&load).with_context(|| format!("consume with {name}"))?;
            tallies.push(Tally::of(&load, &turns).with_context(|| format!("consume with {name}"))?);
            bar.step(1);
        }
    }
    bar.end();

    println!(
        "consume slow_group=true records={} fast_groups={} slow_ms={} fast_ms={} concurrency={} \
         partitions={} runs={}",
        load.groups.len(),
        args.slow.fast_groups,
        args.slow.slow_ms,
        args.slow.fast_ms,
        load.concurrency,
        load.partitions,
        args.runs
    );
    let mut ratios = String::from("ratio others/ideal");
    for ((name, _), tallies) in chosen.iter().zip(&tallies) {
        let millis = |figure: &dyn Fn(&Tally) -> Duration| {
            median(tallies.iter().map(|tally| figure(tally).as_secs_f64() * 1e3))
        };
        let over = median(tallies.iter().map(Tally::over_ideal));
        println!(
            "contender={name} others_ms={:.1} ideal_ms={:.1} others_over_ideal={over:.2} all_ms={:.0}",
            millis(&|t| t.others),
            millis(&|t| t.ideal),
            millis(&|t| t.all),
        );
        ratios += &format!(" {name}={over:.2}");
    }
    println!("{ratios}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load {
            groups: (0..40).map(|n| if n % 10 == 0 { 0 } else { n % 3 + 1 }).collect(),
            concurrency: 3,
            partitions: 2,
            slow: Duration::from_millis(8),
            fast: Duration::from_millis(1),
            dir: tempfile::env::temp_dir(),
        }
    }

    #[test]
    fn every_contender_takes_every_record_once_and_in_order() -> Result<()> {
        for (name, contender) in CONTENDERS {
            let load = load();
            let tally = Tally::of(&load, &contender(&load)?).with_context(|| (*name).to_owned())?;
            assert!(tally.others <= tally.all, "{name}: {tally:?}");
            // The slow group leaves its place between two turns, so the ideal can be passed, but
            // never by more than that place.
            assert!(tally.over_ideal() >= 2.0 / 3.0, "{name}: {tally:?}");
        }
        Ok(())
    }

    #[test]
    fn a_turn_that_is_missing_twice_there_or_out_of_order_is_refused() {
        let load = load();
        let begun = Instant::now();
        let at = |n: u32| begun + Duration::from_millis(u64::from(n));
        let turns = |records: &mut dyn Iterator<Item = (u32, u32)>| {
            let turn = |(n, record): (u32, u32)| {
                let group = load.groups[record as usize];
                TurnTaken { group, record, begin: at(n), end: at(n + 1) }
            };
            Turns(Mutex::new(records.map(turn).collect()))
        };
        assert!(Tally::of(&load, &turns(&mut (0..40).zip(0..40))).is_ok());
        assert!(Tally::of(&load, &turns(&mut (0..39).zip(0..39))).is_err());
        assert!(Tally::of(&load, &turns(&mut (0..41).zip((0..40).chain([5])))).is_err());
        assert!(Tally::of(&load, &turns(&mut (0..40).zip((0..40).rev()))).is_err());
    }
}
