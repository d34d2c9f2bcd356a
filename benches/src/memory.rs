//! `memory`: what a million live groups take beside their records, and what a long log takes.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use clap::{Subcommand, value_parser};
use futures::executor::block_on;
use procession::{
    Budget, Chains, ChainsOptions, Chunk, Claim, Epoch, FileLog, GroupExecutor, GroupKey, Headers,
    Offset, Partition, PartitionId, Progress, Record, RoutingEpoch, Sequence, Stored, Timestamp,
    Turn,
};

use crate::cache::Cache;
use crate::report::choose;
use crate::{child, filled, keys, process};

/// Takes the resident memory of a process that does one thing.
///
/// chains: an executor in which every group has one waiting record. waiting: the same in a running
/// consumer over a file log. Both count above the payload, which is keys and payloads. consume: a
/// consumer that goes through a log of --log-gb from its start to its end; all of its resident
/// memory counts. Each runs in a process of its own, as does the filling of the logs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many live groups
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u32).range(1..))]
    groups: u32,
    /// Payload of a record of these, in bytes
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(1..))]
    payload: u32,
    /// Size of the log that is consumed, in gigabytes
    #[arg(long, default_value_t = 1.0)]
    log_gb: f64,
    /// Partitions of the logs
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..))]
    partitions: u32,
    /// Which measurements, separated by commas; all when absent
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
    /// Where the logs are put, in a folder of their own, removed afterwards
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-data"))]
    #[arg(hide_default_value = true)]
    dir: PathBuf,
}

type Measurement = fn(&Args, &Path) -> Result<()>;

const MEASUREMENTS: &[(&str, Measurement)] =
    &[("chains", chains), ("waiting", waiting), ("consume", consume)];

/// Payload of a record of the long log, and its groups.
const LONG_PAYLOAD: u32 = 1024;
const LONG_GROUPS: u32 = 100_000;

/// One measurement after the other, a line for each.
pub(crate) fn run(args: &Args) -> Result<()> {
    println!(
        "memory groups={} payload={} log_gb={} partitions={}",
        args.groups, args.payload, args.log_gb, args.partitions
    );
    for (name, measure) in choose(MEASUREMENTS, args.contenders.as_deref())? {
        let folder = filled::folder(&args.dir, "memory")?;
        measure(args, folder.path()).with_context(|| format!("measure memory of {name}"))?;
    }
    Ok(())
}

fn chains(args: &Args, _: &Path) -> Result<()> {
    let numbers = [args.groups, args.payload].map(|number| number.to_string());
    line("chains", &process::output(&arguments("chains", &numbers))?)
}

fn waiting(args: &Args, folder: &Path) -> Result<()> {
    let path = folder.join("log");
    let path = path.to_str().context("a folder whose name is UTF-8")?;
    let groups = args.groups;
    process::output(&child::fill(path, groups.into(), args.payload, 0, args.partitions))?;
    let more = [path.to_owned(), groups.to_string(), args.payload.to_string()];
    line("waiting", &process::output(&arguments("waiting", &more))?)
}

fn consume(args: &Args, folder: &Path) -> Result<()> {
    let path = folder.join("log");
    let text = path.to_str().context("a folder whose name is UTF-8")?;
    let frame = filled::FRAME_HEADER + keys::NAME_BYTES as u64 + u64::from(LONG_PAYLOAD);
    let records = (args.log_gb * 1e9) as u64 / frame;
    process::output(&child::fill(text, records, LONG_PAYLOAD, LONG_GROUPS, args.partitions))?;
    Cache::Cold.prepare(&path)?;
    let more = [text.to_owned(), records.to_string()];
    line("consume", &process::output(&arguments("consume", &more))?)
}

fn arguments(part: &str, more: &[String]) -> Vec<String> {
    let first = ["child", "memory", part].map(str::to_owned);
    first.into_iter().chain(more.iter().cloned()).collect()
}

fn line(name: &str, printed: &str) -> Result<()> {
    println!("contender={name} {}", figures(printed)?);
    Ok(())
}

/// A child that ended early, or said something else, is not taken for one that measured.
fn figures(printed: &str) -> Result<&str> {
    let printed = printed.trim();
    let one_line = printed.lines().count() == 1 && printed.contains("resident_mb=");
    ensure!(one_line, "the child printed no figures: {printed}");
    Ok(printed)
}

/// What a child measures.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// An executor of so many groups
    Chains { groups: u32, payload: u32 },
    /// A consumer of so many groups, over a log that has one record of each
    Waiting { path: PathBuf, groups: u32, payload: u32 },
    /// A consumer that goes through the whole log
    Consume { path: PathBuf, records: u64 },
}

impl Part {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Chains { groups, payload } => chains_alone(groups, payload),
            Self::Waiting { path, groups, payload } => waiting_alone(&path, groups, payload),
            Self::Consume { path, records } => consume_alone(&path, records),
        }
    }
}

/// Bytes of keys and payloads that lie in one buffer, as in a block that a log reads.
const BLOCK: usize = 256 << 10;

fn chains_alone(groups: u32, payload: u32) -> Result<()> {
    let before = process::resident_bytes()?;
    let now = Instant::now();
    let claim = Claim { partition: PartitionId::default(), epoch: Epoch::FIRST };
    let mut chains = Chains::new(ChainsOptions::new().budget(Budget::MAX));
    chains.assign(claim, &Progress::default(), now);
    let noise = filled::noise(payload.into(), 1);
    let mut bytes = 0;
    let mut next = 0_u32;
    while next < groups {
        let first = next;
        let mut block = BytesMut::with_capacity(BLOCK);
        let mut records = Vec::new();
        let mut cuts = Vec::new();
        while next < groups && block.len() + noise.len() + 16 <= BLOCK.max(noise.len() + 16) {
            let key = keys::name(next);
            block.extend_from_slice(key.as_bytes());
            block.extend_from_slice(&noise);
            cuts.push(key.len());
            next += 1;
        }
        let mut block = block.freeze();
        bytes += block.len() as u64;
        for (key, n) in cuts.into_iter().zip(u64::from(first)..) {
            let key = Some(GroupKey::from(block.split_to(key)));
            let payload = Some(block.split_to(noise.len()));
            records.push(Stored {
                offset: Offset::new(n),
                sequence: Some(Sequence::new(n)),
                log_time: Timestamp::from_millis(0),
                routing: RoutingEpoch::new(1),
                record: Record::from_parts(key, payload, Headers::default(), None),
            });
        }
        let next = Offset::new(next.into());
        chains.admit(claim, Chunk { partition: Partition::new(0), records, next }, now);
    }
    let load = chains.load();
    ensure!(load.groups == groups as usize, "{} groups are live of {groups}", load.groups);
    print(before, bytes)
}

fn waiting_alone(path: &Path, groups: u32, payload: u32) -> Result<()> {
    let before = process::resident_bytes()?;
    let log = FileLog::open(path).open_blocking()?;
    let opened = process::resident_bytes()?;
    let budget = Budget::new(u64::MAX / 2, u64::MAX / 2);
    let consumer = log.subscribe("memory").budget(budget).build()?;
    let handle = consumer.handle();
    // Turns that never end: of 256 groups the one record runs, of the others it waits.
    let never = |_: Turn| std::future::pending::<Result<(), Infallible>>();
    thread::spawn(move || block_on(consumer.run_local(never)));
    let begun = Instant::now();
    while handle.load().groups < groups as usize {
        let patient = begun.elapsed() < Duration::from_secs(300);
        ensure!(patient, "only {} groups came of {groups}", handle.load().groups);
        thread::sleep(Duration::from_millis(20));
    }
    let bytes = u64::from(groups) * (keys::NAME_BYTES as u64 + u64::from(payload));
    print!("opened_mb={} ", opened.saturating_sub(before) / 1_000_000);
    print(before, bytes)?;
    // The consumer is in the middle of its turns, for ever.
    std::process::exit(0);
}

fn print(before: u64, payload: u64) -> Result<()> {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let now = process::resident_bytes()?;
    let above = |bytes: u64| mb(bytes) - mb(before) - mb(payload);
    println!(
        "above_payload_mb={:.0} peak_above_payload_mb={:.0} payload_mb={:.0} resident_mb={:.0}",
        above(now),
        above(process::resident_bytes_max()?),
        mb(payload),
        mb(now),
    );
    Ok(())
}

fn consume_alone(path: &Path, records: u64) -> Result<()> {
    let log = FileLog::open(path).open_blocking()?;
    let seen = Arc::new(AtomicU64::new(0));
    let count = |_: Turn| {
        seen.fetch_add(1, Relaxed);
        std::future::ready(Ok::<_, Infallible>(()))
    };
    let begun = Instant::now();
    let summary = block_on(log.subscribe("memory").until_end().build()?.run_local(count))?;
    let elapsed = begun.elapsed().as_secs_f64();
    let seen = seen.load(Relaxed);
    ensure!(seen == records && summary.records_done == records, "{seen} records of {records}");
    println!(
        "peak_mb={:.0} resident_mb={:.0} records={records} records_per_s={:.0}",
        process::resident_bytes_max()? as f64 / 1e6,
        process::resident_bytes()? as f64 / 1e6,
        records as f64 / elapsed,
    );
    Ok(block_on(log.close())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_of_figures_is_taken_for_one() {
        assert!(figures("").is_err());
        assert!(figures("resident_mb=1\nresident_mb=2").is_err());
        assert!(figures("peak_mb=1").is_err());
        assert_eq!(figures("peak_mb=1 resident_mb=2\n").ok(), Some("peak_mb=1 resident_mb=2"));
    }

    #[test]
    fn every_group_of_the_executor_is_live() -> Result<()> {
        chains_alone(1_000, 0)?;
        chains_alone(1_000, 300_000)?;
        chains_alone(10_001, 100)
    }

    #[test]
    fn a_log_of_another_length_is_refused() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("log");
        let log = FileLog::open(&path).partitions(2).open_blocking()?;
        let groups = filled::Groups::Each;
        filled::Fill { records: 700, payload: 10, groups, seed: 1 }.into_log(&log)?;
        block_on(log.close())?;
        assert!(consume_alone(&path, 701).is_err());
        Ok(())
    }
}
