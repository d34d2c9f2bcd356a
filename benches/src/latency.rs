//! `latency`: how long after an append the record's turn begins.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::value_parser;
use futures::executor::block_on;
use hdrhistogram::Histogram;
use procession::{FileLog, Handle, Record, Tokio, Turn};

use crate::filled;
use crate::keys;
use crate::report::{Bar, choose, median, tokio_runtime};
use crate::syncs;

/// Sends records to a running consumer and takes the time until the turn of each begins.
///
/// One at a time: the next record is sent when the turn of the last one has ended and its receipt
/// is here. With --rate, so many a second, whether or not the last ones are through; the time then
/// counts from the moment at which a record was due. The limit is one write of as many bytes and
/// one fdatasync, in a file of zeros (sync-preallocated) and at the end of a growing one
/// (sync-append), one after the other, before each run of a contender and after it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Payload of a record, in bytes
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(16..))]
    payload: u32,
    /// How many records each contender handles in a run
    #[arg(long, default_value_t = 2_000, value_parser = value_parser!(u32).range(1..))]
    records: u32,
    /// Records a second; one at a time when absent
    #[arg(long, value_parser = value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// How many groups there are
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u32).range(1..))]
    groups: u32,
    /// Partitions of the log
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..))]
    partitions: u32,
    /// How often each contender runs, in turn (A B A B); medians of each figure are printed
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..))]
    runs: u32,
    /// Which contenders, separated by commas; all when absent
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Where the log is put, in a folder of its own, removed afterwards
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-data"))]
    #[arg(hide_default_value = true)]
    dir: PathBuf,
}

/// What one run of one contender came to, in nanoseconds.
#[derive(Debug)]
struct Tally {
    /// From the append to the begin of the turn.
    begin: Histogram<u64>,
    /// From the append to the receipt; empty with a rate.
    receipt: Histogram<u64>,
    /// The median of a write and a sync in the same minute.
    preallocated_ns: u64,
    append_ns: u64,
}

/// Told when a turn begins, and the moment that its record carries.
#[derive(Clone, Debug)]
struct Seen {
    base: Instant,
    turns: mpsc::Sender<u64>,
}

impl Seen {
    fn turn(&self, turn: &Turn) {
        let now = self.base.elapsed().as_nanos() as u64;
        let payload = turn.record().record.payload().and_then(|payload| payload.first_chunk());
        let sent = payload.map_or(0, |sent| u64::from_le_bytes(*sent));
        // Nobody listens any more when the run is over.
        let _ = self.turns.send(now.saturating_sub(sent));
    }
}

const CONTENDERS: &[(&str, Runner)] =
    &[("procession", Runner::Alone), ("procession-tokio", Runner::Tokio)];

/// What the consumer runs on: one thread, or two worker tasks of tokio.
#[derive(Clone, Copy, Debug)]
enum Runner {
    Alone,
    Tokio,
}

/// Runs every contender `--runs` times, in turn, and prints a line for each.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = choose(CONTENDERS, args.contenders.as_deref())?;
    let mut tallies: Vec<Vec<Tally>> = chosen.iter().map(|_| Vec::new()).collect();
    let bar = Bar::new(u64::from(args.runs) * chosen.len() as u64);
    for _ in 0..args.runs {
        for ((name, runner), tallies) in chosen.iter().zip(&mut tallies) {
            bar.name(name);
            let tally = measure(args, *runner).with_context(|| format!("latency of {name}"))?;
            tallies.push(tally);
            bar.step(1);
        }
    }
    bar.end();

    println!(
        "latency payload={} records={} rate={} groups={} partitions={} runs={}",
        args.payload,
        args.records,
        args.rate.map_or_else(|| "one-at-a-time".to_owned(), |rate| rate.to_string()),
        args.groups,
        args.partitions,
        args.runs
    );
    let mut ratios = String::from("ratio p50");
    for ((name, _), tallies) in chosen.iter().zip(&tallies) {
        let micros =
            |ns: &dyn Fn(&Tally) -> u64| median(tallies.iter().map(|t| ns(t) as f64 / 1e3));
        let over = |ns: &dyn Fn(&Tally) -> u64| {
            median(tallies.iter().map(|t| t.begin.value_at_quantile(0.5) as f64 / ns(t) as f64))
        };
        print!(
            "contender={name} p50_us={:.0} p99_us={:.0} max_us={:.0}",
            micros(&|t| t.begin.value_at_quantile(0.5)),
            micros(&|t| t.begin.value_at_quantile(0.99)),
            micros(&|t| t.begin.max()),
        );
        if args.rate.is_none() {
            print!(" receipt_p50_us={:.0}", micros(&|t| t.receipt.value_at_quantile(0.5)));
        }
        println!(
            " sync_preallocated_p50_us={:.0} sync_append_p50_us={:.0}",
            micros(&|t| t.preallocated_ns),
            micros(&|t| t.append_ns),
        );
        ratios += &format!(
            " {name}/sync-preallocated={:.2} {name}/sync-append={:.2}",
            over(&|t| t.preallocated_ns),
            over(&|t| t.append_ns),
        );
    }
    println!("{ratios}");
    Ok(())
}

fn measure(args: &Args, runner: Runner) -> Result<Tally> {
    let folder = filled::folder(&args.dir, "latency")?;
    let bytes = filled::FRAME_HEADER + keys::NAME_BYTES as u64 + u64::from(args.payload);
    let count = args.records / 2 + 1;
    let mut preallocated = syncs::preallocated(folder.path(), bytes, count)?;
    let mut append = syncs::append(folder.path(), bytes, count)?;

    let log = FileLog::open(folder.path().join("log")).partitions(args.partitions);
    let log = log.open_blocking()?;
    let (turns, seen) = mpsc::channel();
    let base = Instant::now();
    let seen_by = Seen { base, turns };
    let mut consumer = log.subscribe("latency");
    let tokio = match runner {
        Runner::Alone => None,
        Runner::Tokio => {
            let runtime = tokio_runtime()?;
            consumer = consumer.runtime(Tokio::from(runtime.handle().clone())).workers(2);
            Some(runtime)
        }
    };
    let consumer = consumer.build()?;
    let handle = consumer.handle();
    let running = thread::spawn(move || {
        let handler = move |turn: Turn| {
            seen_by.turn(&turn);
            std::future::ready(Ok::<_, Infallible>(()))
        };
        match tokio {
            None => block_on(consumer.run_local(handler)),
            Some(runtime) => runtime.block_on(consumer.run(handler)),
        }
    });

    let sender = Sender { args, log: &log, base, seen };
    let sent = match args.rate {
        None => sender.one_at_a_time(),
        Some(rate) => sender.at_rate(rate),
    };
    let done = stop(&handle);
    running.join().map_err(|_| anyhow!("the consumer panicked"))??;
    let (begin, receipt) = sent?;
    let there = begin.len() + u64::from(WARM_UP);
    ensure!(done == there, "{done} records were finished of {there}");
    block_on(log.close())?;
    preallocated.add(syncs::preallocated(folder.path(), bytes, count)?)?;
    append.add(syncs::append(folder.path(), bytes, count)?)?;
    let middle = |histogram: Histogram<u64>| histogram.value_at_quantile(0.5);
    Ok(Tally { begin, receipt, preallocated_ns: middle(preallocated), append_ns: middle(append) })
}

/// Ends the run; how many records it had finished.
fn stop(handle: &Handle) -> u64 {
    block_on(handle.shutdown());
    handle.counts().records_done
}

struct Sender<'a> {
    args: &'a Args,
    log: &'a FileLog,
    base: Instant,
    seen: mpsc::Receiver<u64>,
}

/// So many records go first and are not counted: the consumer joins, files are opened.
const WARM_UP: u32 = 100;
/// A turn that has not begun by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

impl Sender<'_> {
    fn one_at_a_time(&self) -> Result<(Histogram<u64>, Histogram<u64>)> {
        let (mut begin, mut receipt) = (syncs::histogram(), syncs::histogram());
        let producer = self.log.producer();
        for n in 0..self.args.records + WARM_UP {
            let record = self.record(n, self.now());
            let sent = Instant::now();
            block_on(producer.send(record))?;
            let received = sent.elapsed();
            let began = self.seen.recv_timeout(PATIENCE).context("wait for a turn")?;
            if n >= WARM_UP {
                begin.saturating_record(began);
                receipt.saturating_record(received.as_nanos() as u64);
            }
        }
        self.all(begin, receipt)
    }

    fn at_rate(&self, rate: u32) -> Result<(Histogram<u64>, Histogram<u64>)> {
        let producer = self.log.producer();
        for n in 0..WARM_UP {
            block_on(producer.send(self.record(n, self.now())))?;
            self.seen.recv_timeout(PATIENCE).context("wait for a turn")?;
        }
        let begun = Instant::now();
        let mut sends = Vec::with_capacity(self.args.records as usize);
        for n in 0..self.args.records {
            let due = begun + Duration::from_secs(1) / rate * n;
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                thread::sleep(early);
            }
            let due = due.duration_since(self.base).as_nanos() as u64;
            sends.push(producer.send(self.record(n, due)));
        }
        for send in sends {
            block_on(send)?;
        }
        let mut begin = syncs::histogram();
        for _ in 0..self.args.records {
            begin.saturating_record(self.seen.recv_timeout(PATIENCE).context("wait for a turn")?);
        }
        self.all(begin, syncs::histogram())
    }

    /// Both, if no record was left out.
    fn all(
        &self,
        begin: Histogram<u64>,
        receipt: Histogram<u64>,
    ) -> Result<(Histogram<u64>, Histogram<u64>)> {
        let records = u64::from(self.args.records);
        ensure!(begin.len() == records, "{} turns began for {records} records", begin.len());
        Ok((begin, receipt))
    }

    fn now(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    fn record(&self, n: u32, moment: u64) -> Record {
        let group = n.wrapping_mul(2_654_435_761) % self.args.groups;
        let mut payload = filled::noise(self.args.payload.into(), n.into());
        payload[..8].copy_from_slice(&moment.to_le_bytes());
        Record::new(keys::name(group), payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_begins_its_turn_after_it_was_sent() -> Result<()> {
        let dir = tempfile::tempdir()?;
        for rate in [None, Some(2_000)] {
            for (name, runner) in CONTENDERS {
                let args = Args {
                    payload: 100,
                    records: 50,
                    rate,
                    groups: 7,
                    partitions: 2,
                    runs: 1,
                    contenders: None,
                    dir: dir.path().into(),
                };
                let tally = measure(&args, *runner)?;
                assert_eq!(tally.begin.len(), 50, "{name}");
                // A turn is begun only for what is synced.
                assert!(tally.begin.min() > 1_000, "{name}: {} ns", tally.begin.min());
            }
        }
        Ok(())
    }
}
