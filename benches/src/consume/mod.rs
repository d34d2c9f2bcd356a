//! `consume`: how fast a log is read, ordered and handled when handling costs nothing; and with
//! `--slow-group`, how much of one slow group the others feel.

mod bare_read;
mod chains;
mod procession;
mod slow;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::procession::FileLog;
use anyhow::{Context, Result, ensure};
use clap::{ValueEnum, value_parser};
use futures::executor::block_on;

use crate::cache::Cache;
use crate::filled::{self, Fill, Groups};
use crate::process;
use crate::report::{Bar, OrNone, choose, median, per_second, ratios};

/// Consumes a file log that was filled beforehand, with a handler that does nothing.
///
/// The limits: executor-only takes the same records from memory through the executor, with no
/// log, no consumer and no commits; bare-read reads the same segment files one after the other in
/// blocks of 256 KiB and checks every byte with CRC-32C, and makes no records of them. Each
/// contender opens the log anew, and finds the page cache as --cache says.
///
/// With --slow-group, something else: one group of many is slow, and the time counts until the
/// last record of the others, beside the ideal of the durations that their turns really had.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many records; 1,000,000, with --slow-group 1,000
    #[arg(long, value_parser = value_parser!(u32).range(1..))]
    records: Option<u32>,
    /// Payload of a record, in bytes
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(1..))]
    payload: u32,
    /// How many groups there are
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..))]
    groups: u32,
    /// Partitions of the log
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..))]
    partitions: u32,
    /// Exponent of the Zipf distribution of groups; 0 is uniform
    #[arg(long, default_value_t = 0.0)]
    zipf: f64,
    /// How many turns are open at once; 256, with --slow-group 8
    #[arg(long, value_parser = value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// The most records of a turn
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    batch: u32,
    /// How procession is asked for its turns
    #[arg(long, default_value = "handler")]
    api: Api,
    /// Whether the log's pages are in the page cache
    #[arg(long, default_value = "warm")]
    cache: Cache,
    /// Seed of the keys and payloads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each contender runs, in turn (A B C A B C); medians are printed
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    runs: u32,
    /// Which contenders, separated by commas; all when absent
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Where the log is put, in a folder of its own, removed afterwards
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-data"))]
    #[arg(hide_default_value = true)]
    dir: PathBuf,
    #[command(flatten)]
    slow: slow::Args,
}

/// How turns come to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Api {
    /// A handler that the consumer calls
    Handler,
    /// A stream of deliveries, each acknowledged by the loop
    Stream,
}

impl Args {
    fn records(&self) -> u32 {
        self.records.unwrap_or(1_000_000)
    }

    fn concurrency(&self) -> u32 {
        self.concurrency.unwrap_or(256)
    }
}

/// A filled log, and a run over it.
#[derive(Debug)]
struct Stage<'a> {
    args: &'a Args,
    log: &'a Path,
    /// Names the subscription of this run: each starts at the first record.
    run: u32,
}

impl Stage<'_> {
    /// The log, open, with the page cache as it was asked for.
    fn open(&self) -> Result<FileLog> {
        let log = FileLog::open(self.log).open_blocking()?;
        self.args.cache.prepare(self.log)?;
        Ok(log)
    }

    /// Times `work`, which says how many records it saw.
    fn time(&self, work: impl FnOnce() -> Result<u64>) -> Result<Tally> {
        let (cpu, disk) = (process::cpu(), process::read_from_disk_bytes());
        let begun = Instant::now();
        let records = work()?;
        let elapsed = begun.elapsed();
        let read = process::read_from_disk_bytes().zip(disk).map(|(now, then)| now - then);
        Ok(Tally { records, elapsed, cpu: process::cpu() - cpu, read })
    }
}

/// What one run of one contender came to.
#[derive(Clone, Copy, Debug)]
struct Tally {
    records: u64,
    elapsed: Duration,
    /// Processor time of the whole process meanwhile.
    cpu: Duration,
    /// Bytes that came from the disk meanwhile.
    read: Option<u64>,
}

type Contender = fn(&Stage<'_>) -> Result<Tally>;

/// The contender whose rate stands on top of the ratios.
const OURS: &str = "procession";
const LIMIT: &str = "executor-only";

/// In the order in which they run.
const CONTENDERS: &[(&str, Contender)] = &[
    (OURS, procession::without_runtime),
    ("procession-tokio", procession::on_tokio),
    (LIMIT, chains::run),
    ("bare-read", bare_read::run),
];

/// Fills a log, runs every contender `--runs` times over it, in turn, and prints a line for each.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.slow.slow_group {
        return slow::run(args);
    }
    let chosen = choose(CONTENDERS, args.contenders.as_deref())?;
    let bar = Bar::new(u64::from(args.runs) * chosen.len() as u64);
    bar.name("filling");
    let folder = filled::folder(&args.dir, "consume")?;
    let log = folder.path().join("log");
    fill(args, &log)?;

    let mut tallies: Vec<Vec<Tally>> = chosen.iter().map(|_| Vec::new()).collect();
    for run in 0..args.runs {
        for ((name, contender), tallies) in chosen.iter().zip(&mut tallies) {
            bar.name(name);
            let stage = Stage { args, log: &log, run };
            let tally = contender(&stage).with_context(|| format!("consume with {name}"))?;
            check(args, tally).with_context(|| format!("consume with {name}"))?;
            tallies.push(tally);
            bar.step(1);
        }
    }
    bar.end();

    println!(
        "consume records={} payload={} groups={} partitions={} zipf={} concurrency={} batch={} \
         api={} cache={} runs={}",
        args.records(),
        args.payload,
        args.groups,
        args.partitions,
        args.zipf,
        args.concurrency(),
        args.batch,
        if args.api == Api::Stream { "stream" } else { "handler" },
        args.cache.word(),
        args.runs
    );
    let mut rates = Vec::new();
    for ((name, _), tallies) in chosen.iter().zip(&tallies) {
        println!("{}", line(name, tallies));
        rates.push((*name, tallies.iter().map(rate).collect()));
    }
    if let Some(line) = ratios(&rates, OURS, LIMIT) {
        println!("{line}");
    }
    Ok(())
}

fn fill(args: &Args, log: &Path) -> Result<()> {
    let log = FileLog::open(log).partitions(args.partitions).open_blocking()?;
    let fill = Fill {
        records: args.records().into(),
        payload: args.payload,
        groups: Groups::Drawn(args.groups, args.zipf),
        seed: args.seed,
    };
    fill.into_log(&log)?;
    Ok(block_on(log.close())?)
}

/// Nobody is fast by leaving records out, or fast twice.
fn check(args: &Args, tally: Tally) -> Result<()> {
    let (seen, there) = (tally.records, u64::from(args.records()));
    ensure!(seen == there, "{seen} records were seen of {there}");
    Ok(())
}

fn rate(tally: &Tally) -> f64 {
    per_second(tally.records, tally.elapsed)
}

/// The medians of a contender's runs, each figure by itself.
fn line(name: &str, tallies: &[Tally]) -> String {
    let over_runs = |figure: &dyn Fn(&Tally) -> f64| median(tallies.iter().map(figure));
    let read = tallies.iter().map(|t| Some(t.read? as f64 / 1e6)).collect::<Option<Vec<_>>>();
    format!(
        "contender={name} records_per_s={:.0} cpu_ns_per_record={:.0} read_from_disk_mb={}",
        over_runs(&rate),
        over_runs(&|t| t.cpu.as_secs_f64() * 1e9 / t.records as f64),
        OrNone(read.map(median), 0),
    )
}

#[cfg(test)]
mod tests;
