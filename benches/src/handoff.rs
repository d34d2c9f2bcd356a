//! `handoff`: how long a partition stands still when it moves from one member to another.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::value_parser;
use futures::executor::block_on;
use hdrhistogram::Histogram;
use procession::{
    Bare, Claim, Error, FileLog, Handle, Log, Position, Runtime as _, Summary, Tokio, Turn,
};
use tokio::runtime::Runtime;

use crate::filled::{self, Fill, Groups};
use crate::report::{Bar, choose, tokio_runtime};
use crate::syncs;

/// Lets members of one subscription join and leave while all of them work through a backlog.
///
/// Every group has a record waiting at any time, and a place to run on any member: what a moved
/// partition waits for is its handoff, not a queue. (With more groups than places it also queues
/// behind the groups that its new owner has already.)
///
/// Every --every-ms one member joins or, when there are --members, the oldest leaves. Of each
/// partition that got another owner, the pause counts from the end of the last turn under the old
/// one to the begin of the first under the new one. Beside it: one turn and two syncs (a commit
/// and a claim), as measured in the same run. Every record is handled exactly once, or the run
/// fails.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The most members at a time; one less every other while
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(2..))]
    members: u32,
    /// How long a turn takes, in milliseconds
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(1..))]
    work_ms: u64,
    /// How often a member joins or leaves, in milliseconds
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u64).range(1..))]
    every_ms: u64,
    /// How long members join and leave
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
    seconds: u64,
    /// Partitions of the log
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(1..))]
    partitions: u32,
    /// How many groups there are, and how many turns each member may have open
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u32).range(1..))]
    groups: u32,
    /// Which contenders, separated by commas; all when absent
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Where the log is put, in a folder of its own, removed afterwards
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-data"))]
    #[arg(hide_default_value = true)]
    dir: PathBuf,
}

/// Whether the members' turns run on tokio.
const CONTENDERS: &[(&str, bool)] = &[("procession", false), ("procession-tokio", true)];
/// What is left of the backlog at the end is handled without work, within this time.
const PATIENCE: Duration = Duration::from_secs(120);

/// One contender after the other, a line for each.
pub(crate) fn run(args: &Args) -> Result<()> {
    println!(
        "handoff members={} work_ms={} every_ms={} seconds={} partitions={} groups={}",
        args.members, args.work_ms, args.every_ms, args.seconds, args.partitions, args.groups
    );
    let chosen = choose(CONTENDERS, args.contenders.as_deref())?;
    let bar = Bar::new(chosen.len() as u64);
    for (name, on_tokio) in chosen {
        bar.name(name);
        let line = measure(args, on_tokio).with_context(|| format!("handoff with {name}"))?;
        bar.step(1);
        println!("contender={name} {line}");
    }
    bar.end();
    Ok(())
}

fn measure(args: &Args, on_tokio: bool) -> Result<String> {
    let folder = filled::folder(&args.dir, "handoff")?;
    let mut sync = syncs::preallocated(folder.path(), 256, 500)?;
    let log = FileLog::open(folder.path().join("log")).partitions(args.partitions);
    let log = log.open_blocking()?;
    // As many turns as a group can have in that time, and more, because not all get equally many.
    let turns = (args.seconds * 1_000 + args.every_ms) / args.work_ms + 100;
    let records = turns * u64::from(args.groups) * 6 / 5;
    let groups = Groups::Drawn(args.groups, 0.0);
    Fill { records, payload: 100, groups, seed: 1 }.into_log(&log)?;
    let ends = block_on(log.ends(Position::End))?;
    let watch = Arc::new(Watch::new(ends.iter().map(|end| end.get()), args.work_ms));

    let runtime = if on_tokio { Some(Arc::new(tokio_runtime()?)) } else { None };
    let join = || Member::join(&log, args, &watch, runtime.clone());
    let mut members: VecDeque<Member> = (0..args.members).map(|_| join()).collect::<Result<_>>()?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(args.seconds) {
        thread::sleep(Duration::from_millis(args.every_ms));
        if members.len() < args.members as usize {
            members.push_back(join()?);
        } else if let Some(oldest) = members.pop_front() {
            oldest.leave()?;
        }
    }
    let in_time = watch.handled.load(Relaxed);
    ensure!(in_time < records, "all {records} records were handled: pauses mean nothing");
    watch.work_ms.store(0, Relaxed);
    let ending = Instant::now();
    while watch.handled.load(Relaxed) < records {
        let handled = watch.handled.load(Relaxed);
        ensure!(ending.elapsed() < PATIENCE, "{handled} records were handled of {records}");
        thread::sleep(Duration::from_millis(10));
    }
    members.into_iter().try_for_each(Member::leave)?;
    block_on(log.close())?;
    sync.add(syncs::preallocated(folder.path(), 256, 500)?)?;
    let watched = watch.figures();
    ensure!(watched.repeats == 0, "{} records were handled twice", watched.repeats);
    ensure!(
        !watched.pauses.is_empty(),
        "no partition moved; let members join and leave more often"
    );
    Ok(line(&watched, &sync, in_time))
}

fn line(watched: &Figures, sync: &Histogram<u64>, in_time: u64) -> String {
    let ms =
        |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
    let (pauses, turns) = (&watched.pauses, &watched.turns);
    let bound = |quantile| ms(turns, quantile) + 2.0 * ms(sync, quantile);
    format!(
        "moved={} pause_p50_ms={:.2} pause_p99_ms={:.2} pause_max_ms={:.2} turn_p50_ms={:.2} \
         sync_p50_ms={:.3} turn_and_2_syncs_p50_ms={:.2} turn_and_2_syncs_p99_ms={:.2} \
         p50_over={:.2} p99_over={:.2} let_go_p50_ms={:.2} \
         claimed_p50_ms={:.2} first_turn_p50_ms={:.2} records={in_time} repeats={}",
        pauses.len(),
        ms(pauses, 0.5),
        ms(pauses, 0.99),
        ms(pauses, 1.0),
        ms(turns, 0.5),
        ms(sync, 0.5),
        bound(0.5),
        bound(0.99),
        ms(pauses, 0.5) / bound(0.5),
        ms(pauses, 0.99) / bound(0.99),
        ms(&watched.parts[0], 0.5),
        ms(&watched.parts[1], 0.5),
        ms(&watched.parts[2], 0.5),
        watched.repeats,
    )
}

/// A member on a thread of its own, with its turns there or on tokio.
struct Member {
    handle: Handle,
    running: JoinHandle<Result<Summary, Error>>,
}

impl Member {
    fn join(
        log: &FileLog,
        args: &Args,
        watch: &Arc<Watch>,
        runtime: Option<Arc<Runtime>>,
    ) -> Result<Self> {
        let (assigned, revoked) = (Arc::clone(watch), Arc::clone(watch));
        let mut consumer = log
            .subscribe("handoff")
            .concurrency(args.groups as usize)
            .on_assigned(move |claims| assigned.assigned(claims))
            .on_revoked(move |claims| revoked.revoked(claims));
        if let Some(runtime) = &runtime {
            consumer = consumer.runtime(Tokio::from(runtime.handle().clone())).workers(2);
        }
        let consumer = consumer.build()?;
        let handle = consumer.handle();
        let watch = Arc::clone(watch);
        let running = thread::spawn(move || match runtime {
            None => block_on(consumer.run_local(|turn| watch.turn(turn, false))),
            Some(runtime) => runtime.block_on(consumer.run(move |turn| {
                let watch = Arc::clone(&watch);
                async move { watch.turn(turn, true).await }
            })),
        });
        Ok(Self { handle, running })
    }

    fn leave(self) -> Result<()> {
        block_on(self.handle.shutdown());
        self.running.join().map_err(|_| anyhow!("a member panicked"))??;
        Ok(())
    }
}

/// Sees every turn of every member.
struct Watch {
    seats: Vec<Mutex<Seat>>,
    handled: AtomicU64,
    work_ms: AtomicU64,
}

/// One partition.
struct Seat {
    epoch: u64,
    last_end: Option<Instant>,
    seen: Vec<bool>,
    repeats: u64,
    /// When the last owner had let go, and when the present one was assigned.
    revoked: Option<Instant>,
    assigned: Option<Instant>,
    pauses: Histogram<u64>,
    parts: [Histogram<u64>; 3],
    turns: Histogram<u64>,
}

/// What all partitions came to.
struct Figures {
    repeats: u64,
    pauses: Histogram<u64>,
    /// Of the pauses: until it was let go, until it was claimed, until the first turn.
    parts: [Histogram<u64>; 3],
    turns: Histogram<u64>,
}

impl Watch {
    fn new(ends: impl Iterator<Item = u64>, work_ms: u64) -> Self {
        let seat = |end| Seat {
            epoch: 0,
            last_end: None,
            seen: vec![false; end as usize],
            repeats: 0,
            revoked: None,
            assigned: None,
            pauses: syncs::histogram(),
            parts: [(); 3].map(|()| syncs::histogram()),
            turns: syncs::histogram(),
        };
        Self {
            seats: ends.map(|end| Mutex::new(seat(end))).collect(),
            handled: AtomicU64::new(0),
            work_ms: AtomicU64::new(work_ms),
        }
    }

    async fn turn(&self, turn: Turn, on_tokio: bool) -> Result<(), Infallible> {
        let work = Duration::from_millis(self.work_ms.load(Relaxed));
        let partition = turn.partition().partition.get() as usize;
        let begun = Instant::now();
        self.seat(partition).begin(begun, &turn, !work.is_zero());
        if !work.is_zero() {
            wait(work, on_tokio).await;
        }
        let end = Instant::now();
        self.seat(partition).end(end, &turn, end - begun, !work.is_zero());
        self.handled.fetch_add(1, Relaxed);
        Ok(())
    }

    fn assigned(&self, claims: &[Claim]) {
        for claim in claims {
            let mut seat = self.seat(claim.partition.partition.get() as usize);
            seat.assigned = Some(Instant::now());
        }
    }

    fn revoked(&self, claims: &[Claim]) {
        for claim in claims {
            let mut seat = self.seat(claim.partition.partition.get() as usize);
            seat.revoked = Some(Instant::now());
        }
    }

    fn seat(&self, partition: usize) -> MutexGuard<'_, Seat> {
        self.seats[partition].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn figures(&self) -> Figures {
        let mut all = Figures {
            repeats: 0,
            pauses: syncs::histogram(),
            parts: [(); 3].map(|()| syncs::histogram()),
            turns: syncs::histogram(),
        };
        for partition in 0..self.seats.len() {
            let seat = self.seat(partition);
            all.repeats += seat.repeats;
            all.pauses.add(&seat.pauses).expect("histograms of one shape");
            for (all, part) in all.parts.iter_mut().zip(&seat.parts) {
                all.add(part).expect("histograms of one shape");
            }
            all.turns.add(&seat.turns).expect("histograms of one shape");
        }
        all
    }
}

impl Seat {
    fn begin(&mut self, now: Instant, turn: &Turn, counts: bool) {
        let seen = &mut self.seen[turn.offset().get() as usize];
        self.repeats += u64::from(std::mem::replace(seen, true));
        let epoch = turn.epoch().get();
        if epoch > self.epoch {
            self.epoch = epoch;
            // None before the first turn of all, which follows no handoff.
            if let Some(last_end) = self.last_end.filter(|_| counts) {
                let pause = now.saturating_duration_since(last_end);
                self.pauses.saturating_record(pause.as_nanos() as u64);
                let (revoked, assigned) =
                    (self.revoked.unwrap_or(last_end), self.assigned.unwrap_or(now));
                let ends = [last_end, revoked, assigned, now];
                for (part, ends) in self.parts.iter_mut().zip(ends.windows(2)) {
                    let took = ends[1].saturating_duration_since(ends[0]);
                    part.saturating_record(took.as_nanos() as u64);
                }
            }
        }
    }

    fn end(&mut self, now: Instant, turn: &Turn, took: Duration, counts: bool) {
        if turn.epoch().get() == self.epoch {
            self.last_end = Some(now);
        }
        if counts {
            self.turns.saturating_record(took.as_nanos() as u64);
        }
    }
}

async fn wait(time: Duration, on_tokio: bool) {
    if on_tokio {
        return tokio::time::sleep(time).await;
    }
    let until = Instant::now() + time;
    let mut timer = Bare.timer();
    poll_fn(|cx| timer.poll_at(until, cx)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of joining and leaving: partitions move, and nothing runs twice or is left out
    /// (else `measure` fails).
    #[test]
    fn partitions_move_and_every_record_is_handled_once() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let args = Args {
            members: 2,
            work_ms: 2,
            every_ms: 100,
            seconds: 1,
            partitions: 4,
            groups: 16,
            contenders: None,
            dir: dir.path().into(),
        };
        for (_, on_tokio) in CONTENDERS {
            let line = measure(&args, *on_tokio)?;
            assert!(line.contains("repeats=0") && !line.starts_with("moved=0 "), "{line}");
        }
        Ok(())
    }
}
