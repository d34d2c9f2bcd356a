//! What every contender runs on: producers' threads, the clock, the counters.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use super::{Args, Durability};
use crate::counters::Counters;
use crate::filled;
use crate::keys::Keys;
use crate::report::Bar;

const TICK: Duration = Duration::from_millis(100);
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// How many steps of the progress bar a run of so many seconds takes.
pub(super) fn ticks(seconds: f64) -> u64 {
    (seconds / TICK.as_secs_f64()).ceil() as u64
}

/// One write and one sync, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    /// Bytes written.
    pub(super) bytes: u64,
    /// Records in them.
    pub(super) records: f64,
}

/// What one run of one contender came to.
#[derive(Debug)]
pub(super) struct Tally {
    /// Records that have their receipt.
    pub(super) records: u64,
    /// From the start of all producers to the last receipt.
    pub(super) elapsed: Duration,
    /// From the call to the receipt, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// Syncs and bytes meanwhile.
    pub(super) counted: Counters,
    /// The average round, by those counts; `None` without syncs. A contender whose written bytes
    /// are not all records (it preallocates, say) puts its own figure here.
    pub(super) round: Option<Round>,
}

/// A workload, and an empty folder to run it in.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    /// What was asked for.
    pub(super) args: &'a Args,
    /// Empty, on the disk under test, removed afterwards.
    pub(super) folder: &'a Path,
    /// What a raw contender writes before it syncs.
    pub(super) round: Round,
    bar: &'a Bar,
}

impl<'a> Stage<'a> {
    pub(super) fn new(args: &'a Args, folder: &'a Path, round: Round, bar: &'a Bar) -> Self {
        Self { args, folder, round, bar }
    }

    /// Whether a receipt needs a sync.
    pub(super) fn synced(&self) -> bool {
        self.args.durability == Durability::Synced
    }

    /// Bytes that no file system or compressor can make less of.
    pub(super) fn noise(&self, bytes: u64) -> Vec<u8> {
        filled::noise(bytes, self.args.seed)
    }

    /// Runs `produce` in `lanes` threads that start together, and tells them to stop when the
    /// time is over; what is unanswered by then is still waited for, and counts with its time.
    pub(super) fn drive(
        &self,
        lanes: u32,
        produce: impl Fn(&mut Lane<'_>) -> Result<()> + Sync,
    ) -> Result<Tally> {
        let stop = AtomicBool::new(false);
        let start = Barrier::new(lanes as usize + 1);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..lanes)
                .map(|index| {
                    let mut lane = self.lane(index, lanes, &stop);
                    let (start, produce) = (&start, &produce);
                    scope.spawn(move || {
                        start.wait();
                        produce(&mut lane).map(|()| (lane.records, lane.latency))
                    })
                })
                .collect();

            let before = Counters::now();
            start.wait();
            let begun = Instant::now();
            self.wait(begun);
            stop.store(true, Relaxed);

            let mut records = 0;
            let mut latency = histogram();
            for thread in threads {
                let panic = |_| anyhow::anyhow!("a producer's thread panicked");
                let (of_lane, latency_of_lane) = thread.join().map_err(panic)??;
                records += of_lane;
                latency.add(latency_of_lane)?;
            }
            let elapsed = begun.elapsed();
            let counted = Counters::now().since(before);
            let round = average_round(records, counted);
            Ok(Tally { records, elapsed, latency, counted, round })
        })
    }

    fn lane<'l>(&self, index: u32, lanes: u32, stop: &'l AtomicBool) -> Lane<'l> {
        let keys = Keys::of_lane(self.args.seed, self.args.groups, self.args.zipf, index, lanes);
        Lane { keys, records: 0, latency: histogram(), stop }
    }

    fn wait(&self, begun: Instant) {
        let whole = Duration::from_secs_f64(self.args.seconds);
        while let Some(left) = whole.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            thread::sleep(left.min(TICK));
            self.bar.step(1);
        }
    }
}

/// One producer: its groups, and where it writes down its receipts.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    keys: Keys,
    records: u64,
    latency: Histogram<u64>,
    stop: &'a AtomicBool,
}

impl Lane<'_> {
    /// Whether to send more.
    pub(super) fn open(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    /// The group of the next record.
    pub(super) fn draw(&mut self) -> u32 {
        self.keys.draw()
    }

    /// So many records, all of them sent at `begun`, have their receipt.
    pub(super) fn confirmed(&mut self, begun: Instant, records: u64) {
        let waited = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record_n(waited, records);
        self.records += records;
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("bounds and precision that fit")
}

fn average_round(records: u64, counted: Counters) -> Option<Round> {
    let syncs = counted.syncs.filter(|syncs| *syncs > 0)?;
    Some(Round { bytes: counted.written_bytes? / syncs, records: records as f64 / syncs as f64 })
}
