//! `idle`: how often a process wakes up that has nothing to do.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::value_parser;
use futures::executor::block_on;
use procession::{FileLog, Tokio, Turn};

use crate::filled::{self, Fill, Groups};
use crate::process;
use crate::report::{choose, tokio_runtime};

/// Lets a log and its consumer stand still and counts how often their threads wake up.
///
/// First 1,000 records are handled and committed, so that everything has started that ever starts.
/// After two seconds of quiet, the voluntary context switches of all threads of the process are
/// counted for --seconds, but for the thread that counts.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How long to count
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
    seconds: u64,
    /// Partitions of the log
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..))]
    partitions: u32,
    /// Which contenders, separated by commas; all when absent
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Where the log is put, in a folder of its own, removed afterwards
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-data"))]
    #[arg(hide_default_value = true)]
    dir: PathBuf,
}

/// Whether the consumer's turns run on tokio.
const CONTENDERS: &[(&str, bool)] = &[("procession", false), ("procession-tokio", true)];
const RECORDS: u64 = 1_000;
const SETTLE: Duration = Duration::from_secs(2);

/// One contender after the other, a line for each.
pub(crate) fn run(args: &Args) -> Result<()> {
    println!("idle seconds={} partitions={}", args.seconds, args.partitions);
    for (name, on_tokio) in choose(CONTENDERS, args.contenders.as_deref())? {
        let woken = measure(args, on_tokio).with_context(|| format!("idle with {name}"))?;
        println!("contender={name} {woken}");
    }
    Ok(())
}

fn measure(args: &Args, on_tokio: bool) -> Result<String> {
    let folder = filled::folder(&args.dir, "idle")?;
    let log = FileLog::open(folder.path().join("log")).partitions(args.partitions);
    let log = log.open_blocking()?;
    Fill { records: RECORDS, payload: 100, groups: Groups::Drawn(100, 0.0), seed: 1 }
        .into_log(&log)?;
    let mut consumer = log.subscribe("idle");
    let runtime = if on_tokio { Some(tokio_runtime()?) } else { None };
    if let Some(runtime) = &runtime {
        consumer = consumer.runtime(Tokio::from(runtime.handle().clone())).workers(2);
    }
    let consumer = consumer.build()?;
    let handle = consumer.handle();
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    let running = thread::spawn(move || {
        let handler = move |_: Turn| {
            counter.fetch_add(1, Relaxed);
            std::future::ready(Ok::<_, Infallible>(()))
        };
        match runtime {
            None => block_on(consumer.run_local(handler)),
            Some(runtime) => runtime.block_on(consumer.run(handler)),
        }
    });
    let woken = count(args);
    block_on(handle.shutdown());
    running.join().map_err(|_| anyhow!("the consumer panicked"))??;
    let seen = seen.load(Relaxed);
    ensure!(seen == RECORDS, "{seen} records were handled of {RECORDS}, so it was not idle");
    block_on(log.close())?;
    woken
}

fn count(args: &Args) -> Result<String> {
    thread::sleep(SETTLE);
    let me = process::thread_id()?;
    let before = process::sleeps()?;
    let begun = Instant::now();
    thread::sleep(Duration::from_secs(args.seconds));
    let after = process::sleeps()?;
    let elapsed = begun.elapsed().as_secs_f64();
    let mut total = 0;
    let mut busiest = (String::from("none"), 0);
    for (id, (name, sleeps)) in after.iter().filter(|(id, _)| **id != me) {
        let woken = sleeps - before.get(id).map_or(0, |(_, sleeps)| *sleeps);
        total += woken;
        if woken > busiest.1 {
            busiest = (name.clone(), woken);
        }
    }
    Ok(format!(
        "wakeups_per_s={:.2} threads={} busiest={} busiest_wakeups_per_s={:.2}",
        total as f64 / elapsed,
        after.len() - 1,
        busiest.0,
        busiest.1 as f64 / elapsed,
    ))
}
