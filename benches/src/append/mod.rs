//! `append`: how many records a second end with a receipt, and how long each waits for it.
//!
//! A contender is one file here that implements [`Contender`]; [`contenders`] lists them all.

mod okaywal;
mod persistent_queue;
mod procession;
mod raft_engine;
mod raw;
mod stage;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{ValueEnum, value_parser};

use crate::filled::folder;
use crate::report::{Bar, OrNone, median, per_second, ratios};
use stage::{Round, Stage, Tally};

/// Appends records from several producers and waits for their receipts.
///
/// Producers share no group, and each keeps `--in-flight` records unanswered. Peers that block
/// until a record is safe have no such thing; they get what suits them best instead: raft-engine
/// and okaywal run one thread a producer and put `--in-flight` records into every batch,
/// persistent-queue has no batches and runs producers × in-flight threads, 256 at the most.
/// Partitions and groups mean something to procession; raft-engine takes a group as its region,
/// the others have neither.
///
/// The limits, raw-append and raw-preallocated, are one thread that writes as many bytes a round
/// as procession did in the same run and syncs: at the end of a growing file, or in a zero-filled
/// one from its start again and again. Where procession did not run, a round is payload ×
/// producers × in-flight.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Payload of a record, in bytes
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(1..))]
    payload: u32,
    /// How many producers send at once
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(1..))]
    producers: u32,
    /// How many records each producer has sent and not yet been answered for
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    in_flight: u32,
    /// Partitions of the log
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    partitions: u32,
    /// What a receipt stands for
    #[arg(long, default_value = "synced")]
    durability: Durability,
    /// Groups over all producers
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u32).range(1..))]
    groups: u32,
    /// Exponent of the Zipf distribution of groups; 0 is uniform
    #[arg(long, default_value_t = 0.0)]
    zipf: f64,
    /// Seed of the keys and payloads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long each contender runs, in seconds
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How often each contender runs, in turn (A B C A B C); medians are printed
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    runs: u32,
    /// Which contenders, separated by commas; all when absent
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Bytes of a round of the raw contenders, instead of what procession wrote
    #[arg(long, requires = "round_records")]
    round_bytes: Option<u64>,
    /// Records in those bytes
    #[arg(long, requires = "round_bytes")]
    round_records: Option<f64>,
    /// Where the contenders put their files; each has a folder of its own, removed afterwards
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-data"))]
    #[arg(hide_default_value = true)]
    dir: PathBuf,
}

/// What a receipt stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Durability {
    /// Handed to the operating system: survives the process
    Flushed,
    /// Synced to the disk: survives a power cut
    Synced,
}

impl Durability {
    fn word(self) -> &'static str {
        match self {
            Self::Flushed => "flushed",
            Self::Synced => "synced",
        }
    }
}

/// Something that appends records.
trait Contender {
    /// Its name, in `--contenders` and in the lines.
    fn name(&self) -> &'static str;

    /// Whether its receipts can stand for that. If not, it is left out, with a word on stderr.
    fn offers(&self, durability: Durability) -> bool;

    /// Opens in the stage's folder, which is empty, appends through [`Stage::drive`], closes.
    fn run(&self, stage: &Stage<'_>) -> Result<Tally>;
}

/// The contender whose rounds the raw ones repeat, and whose rate stands on top of the ratios.
const OURS: &str = "procession";

/// In the order in which they run: [`OURS`] first, because its rounds size those of the limits.
fn contenders() -> Vec<Box<dyn Contender>> {
    vec![
        Box::new(procession::Procession),
        Box::new(raft_engine::RaftEngine),
        Box::new(okaywal::OkayWal),
        Box::new(persistent_queue::PersistentQueue),
        Box::new(raw::Raw::Append),
        Box::new(raw::Raw::Preallocated),
    ]
}

/// Runs every contender `--runs` times, in turn, and prints a line for each.
pub(crate) fn run(args: Args) -> Result<()> {
    ensure!(
        args.groups >= args.producers,
        "--groups {} is below --producers {}: a group belongs to one producer",
        args.groups,
        args.producers
    );
    let chosen = choose(&args)?;
    let mut tallies: Vec<Vec<Tally>> = chosen.iter().map(|_| Vec::new()).collect();

    let ticks = stage::ticks(args.seconds) * u64::from(args.runs) * chosen.len() as u64;
    let bar = Bar::new(ticks);
    for _ in 0..args.runs {
        let mut round = first_round(&args);
        for (contender, tallies) in chosen.iter().zip(&mut tallies) {
            bar.name(contender.name());
            let folder = folder(&args.dir, contender.name())?;
            let stage = Stage::new(&args, folder.path(), round, &bar);
            let tally = contender
                .run(&stage)
                .with_context(|| format!("append with contender {}", contender.name()))?;
            if contender.name() == OURS && args.round_bytes.is_none() {
                round = tally.round.unwrap_or(round);
            }
            tallies.push(tally);
        }
    }
    bar.end();

    println!(
        "append payload={} producers={} in_flight={} partitions={} durability={} groups={} \
         zipf={} seconds={} runs={}",
        args.payload,
        args.producers,
        args.in_flight,
        args.partitions,
        args.durability.word(),
        args.groups,
        args.zipf,
        args.seconds,
        args.runs
    );
    let mut rates = Vec::new();
    for (contender, tallies) in chosen.iter().zip(&tallies) {
        println!("{}", line(contender.name(), tallies));
        rates.push((contender.name(), tallies.iter().map(rate).collect()));
    }
    if let Some(line) = ratios(&rates, OURS, raw::Raw::Append.name()) {
        println!("{line}");
    }
    Ok(())
}

fn choose(args: &Args) -> Result<Vec<Box<dyn Contender>>> {
    let mut chosen = contenders();
    if let Some(wanted) = &args.contenders {
        let names: Vec<_> = chosen.iter().map(|contender| contender.name()).collect();
        for name in wanted {
            ensure!(names.contains(&&**name), "no contender {name}; there are {}", names.join(","));
        }
        chosen.retain(|contender| wanted.iter().any(|name| name == contender.name()));
    }
    chosen.retain(|contender| {
        let offers = contender.offers(args.durability);
        if !offers {
            eprintln!(
                "{} is left out: its receipts are not {}",
                contender.name(),
                args.durability.word()
            );
        }
        offers
    });
    Ok(chosen)
}

fn first_round(args: &Args) -> Round {
    let records = f64::from(args.producers) * f64::from(args.in_flight);
    Round {
        bytes: args.round_bytes.unwrap_or_else(|| (records * f64::from(args.payload)) as u64),
        records: args.round_records.unwrap_or(records),
    }
}

fn rate(tally: &Tally) -> f64 {
    per_second(tally.records, tally.elapsed)
}

/// The medians of a contender's runs, each figure by itself.
fn line(name: &str, tallies: &[Tally]) -> String {
    let over_runs = |figure: &dyn Fn(&Tally) -> f64| median(tallies.iter().map(figure));
    let known = |figure: &dyn Fn(&Tally) -> Option<f64>| {
        tallies.iter().map(figure).collect::<Option<Vec<_>>>().map(median)
    };
    let micros = |quantile: f64| over_runs(&|t| t.latency.value_at_quantile(quantile) as f64 / 1e3);
    let syncs = |t: &Tally| t.counted.syncs.map(|syncs| syncs as f64);
    let per_sync = |t: &Tally, what: f64| syncs(t).filter(|syncs| *syncs > 0.0).map(|n| what / n);
    let mut line = format!(
        "contender={name} records_per_s={:.0} p50_us={:.0} p99_us={:.0} records={:.0} syncs={} \
         records_per_sync={} bytes_per_sync={}",
        over_runs(&rate),
        micros(0.5),
        micros(0.99),
        over_runs(&|t| t.records as f64),
        OrNone(known(&syncs), 0),
        OrNone(known(&|t| per_sync(t, t.records as f64)), 1),
        OrNone(known(&|t| per_sync(t, t.counted.written_bytes? as f64)), 0),
    );
    if tallies.len() > 1 {
        let rates = || tallies.iter().map(rate);
        line += &format!(
            " min_records_per_s={:.0} max_records_per_s={:.0}",
            rates().fold(f64::INFINITY, f64::min),
            rates().fold(0.0, f64::max),
        );
    }
    line
}

#[cfg(test)]
mod tests;
