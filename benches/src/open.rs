//! `open`: how long opening a log takes, after a clean end and after a kill.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::value_parser;
use futures::executor::block_on;
use procession::{FileLog, RecoveryReport};

use crate::cache::Cache;
use crate::report::{Bar, median};
use crate::{child, filled, keys, process};

/// Opens logs of several sizes, closed in order or left by a killed process.
///
/// For a kill, a child appends to the log and gets SIGKILL some tenths of a second after its first
/// receipt, another moment each time. The unit beside it is one segment: reading the last one in
/// blocks of 256 KiB and checking it with CRC-32C.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Sizes of the logs in gigabytes, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "0.1,1,4")]
    sizes_gb: Vec<f64>,
    /// Payload of a record, in bytes
    #[arg(long, default_value_t = 1024, value_parser = value_parser!(u32).range(1..))]
    payload: u32,
    /// How many groups there are
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u32).range(1..))]
    groups: u32,
    /// Partitions of the log
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..))]
    partitions: u32,
    /// How often each case is measured; medians and maxima are printed
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    runs: u32,
    /// Where the logs are put, in a folder of their own, removed afterwards
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-data"))]
    #[arg(hide_default_value = true)]
    dir: PathBuf,
}

/// One opening.
#[derive(Debug)]
struct Opened {
    took: Duration,
    report: RecoveryReport,
}

/// One size after the other, a line for each case.
pub(crate) fn run(args: &Args) -> Result<()> {
    println!(
        "open payload={} groups={} partitions={} runs={}",
        args.payload, args.groups, args.partitions, args.runs
    );
    let bar = Bar::new(args.sizes_gb.len() as u64 * 4);
    for size_gb in &args.sizes_gb {
        bar.name(&format!("{size_gb} GB"));
        let folder = filled::folder(&args.dir, "open")?;
        let path = folder.path().join("log");
        let text = path.to_str().context("a folder whose name is UTF-8")?;
        let frame = filled::FRAME_HEADER + keys::NAME_BYTES as u64 + u64::from(args.payload);
        let records = (size_gb * 1e9) as u64 / frame;
        let fill = child::fill(text, records, args.payload, args.groups, args.partitions);
        process::output(&fill)?;
        for killed in [false, true] {
            for cache in [Cache::Warm, Cache::Cold] {
                let cases = (0..args.runs).map(|run| case(args, &path, killed, cache, run));
                let cases = cases.collect::<Result<Vec<_>>>()?;
                bar.step(1);
                print(*size_gb, killed, cache, &cases, segment(&path, cache)?)?;
            }
        }
    }
    bar.end();
    Ok(())
}

fn case(args: &Args, path: &Path, killed: bool, cache: Cache, run: u32) -> Result<Opened> {
    if killed {
        kill(args, path, Duration::from_millis(200 + 170 * u64::from(run)))?;
    }
    cache.prepare(path)?;
    let begun = Instant::now();
    let log = FileLog::open(path).open_blocking()?;
    let took = begun.elapsed();
    let report = log.recovery().clone();
    ensure!(report.clean != killed, "killed: {killed}, and yet {report:?}");
    block_on(log.close())?;
    Ok(Opened { took, report })
}

/// Lets a child append for so long, and kills it.
fn kill(args: &Args, path: &Path, after: Duration) -> Result<()> {
    let text = path.to_str().context("a folder whose name is UTF-8")?;
    let arguments = ["child", "append-for-ever", text, &args.payload.to_string()];
    let mut child = process::start(&arguments.map(str::to_owned))?;
    let mut line = String::new();
    let printed = child.stdout.take().context("a pipe from the child")?;
    BufReader::new(printed).read_line(&mut line)?;
    thread::sleep(after);
    child.kill()?;
    let status = child.wait()?;
    ensure!(line.trim() == "synced", "the child ended before it appended: {status}");
    Ok(())
}

/// The unit: the last segment that is full, read and checked.
fn segment(path: &Path, cache: Cache) -> Result<Duration> {
    let segments = filled::segments(path)?;
    let full = segments.iter().max_by_key(|(_, used)| *used).context("a log has segments")?;
    cache.prepare(path)?;
    let mut file = File::open(&full.0)?;
    let mut block = vec![0; 256 << 10];
    let begun = Instant::now();
    loop {
        match file.read(&mut block)? {
            0 => return Ok(begun.elapsed()),
            read => drop(black_box(crc32c::crc32c(&block[..read]))),
        }
    }
}

fn print(
    size_gb: f64,
    killed: bool,
    cache: Cache,
    cases: &[Opened],
    segment: Duration,
) -> Result<()> {
    let millis = |took: Duration| took.as_secs_f64() * 1e3;
    let took = cases.iter().map(|case| millis(case.took));
    let most = |figure: fn(&RecoveryReport) -> u64| {
        cases.iter().map(|case| figure(&case.report)).max().unwrap_or_default()
    };
    println!(
        "size_gb={size_gb} end={} cache={} open_ms={:.1} max_open_ms={:.1} segment_read_ms={:.1} \
         max_rewritten_records={} max_cut_bytes={}",
        if killed { "killed" } else { "clean" },
        cache.word(),
        median(took.clone()),
        took.fold(0.0, f64::max),
        millis(segment),
        most(|report| report.rewritten_records),
        most(|report| report.cut_bytes),
    );
    Ok(())
}
