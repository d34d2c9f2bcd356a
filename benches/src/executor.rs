//! `executor`: how many records a second can be routed to their groups, without any I/O.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use clap::value_parser;
use siphasher::sip::SipHasher13;

mod chains;

use crate::keys::{self, Keys};
use crate::report::{Bar, choose, median, per_second, ratios};

/// Feeds records to an executor and completes every turn at once.
///
/// The limit is map-lookups: for the same keys in the same order, find the group's counter in a
/// hash map that has them all, and add one. It hashes with SipHash-1-3 under a random seed, as
/// keys are hostile input; map-lookups-std does the same with the standard library's map, whose
/// default hasher is its own SipHash-1-3. Neither knows of concurrency.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many groups there are
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..))]
    groups: u32,
    /// How many turns are open at once
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(1..))]
    concurrency: u32,
    /// How many records go through
    #[arg(long, default_value_t = 5_000_000, value_parser = value_parser!(u32).range(1..))]
    records: u32,
    /// Exponent of the Zipf distribution of groups; 0 is uniform
    #[arg(long, default_value_t = 0.0)]
    zipf: f64,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each contender runs, in turn (A B C A B C); medians are printed
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    runs: u32,
    /// Which contenders, separated by commas; all when absent
    #[arg(long, value_delimiter = ',')]
    contenders: Option<Vec<String>>,
}

/// A way to take all records of a stream through; returns how long that took, set-up excluded.
type Contender = fn(&Args, &Stream) -> Result<Duration>;

/// The contender whose rate stands on top of the ratios.
const OURS: &str = "procession";
const LIMIT: &str = "map-lookups";

/// In the order in which they run.
const CONTENDERS: &[(&str, Contender)] =
    &[(OURS, chains::run), (LIMIT, map_lookups), ("map-lookups-std", map_lookups_std)];

/// Runs every contender `--runs` times, in turn, and prints a line for each.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = choose(CONTENDERS, args.contenders.as_deref())?;
    let stream = Stream::new(args);
    let mut rates: Vec<(&str, Vec<f64>)> =
        chosen.iter().map(|(name, _)| (*name, Vec::new())).collect();

    let bar = Bar::new(u64::from(args.runs) * chosen.len() as u64);
    for _ in 0..args.runs {
        for ((name, contender), (_, rates)) in chosen.iter().zip(&mut rates) {
            bar.name(name);
            rates.push(per_second(args.records.into(), contender(args, &stream)?));
            bar.step(1);
        }
    }
    bar.end();

    println!(
        "executor groups={} concurrency={} records={} zipf={} runs={}",
        args.groups, args.concurrency, args.records, args.zipf, args.runs
    );
    for (name, rates) in &rates {
        let rate = median(rates.iter().copied());
        println!("contender={name} records_per_s={rate:.0} ns_per_record={:.1}", 1e9 / rate);
    }
    if let Some(line) = ratios(&rates, OURS, LIMIT) {
        println!("{line}");
    }
    Ok(())
}

/// The keys of all records, one after the other in one buffer, as a read from a log gives them:
/// a key lies beside its neighbours in time, not beside its equals.
#[derive(Debug)]
pub(crate) struct Stream {
    keys: Bytes,
    key_bytes: usize,
}

impl Stream {
    fn new(args: &Args) -> Self {
        let key_bytes = keys::name(args.groups - 1).len().max(keys::NAME_BYTES);
        let mut groups = Keys::new(args.seed, args.groups, args.zipf);
        let mut keys = Vec::with_capacity(args.records as usize * key_bytes);
        for _ in 0..args.records {
            let name = keys::name(groups.draw());
            // A name beyond a million groups is longer; shorter ones are filled up.
            keys.extend_from_slice(name.as_bytes());
            keys.resize(keys.len() + key_bytes - name.len(), b'-');
        }
        Self { keys: keys.into(), key_bytes }
    }

    /// The key of every record, in order, as a slice of the shared buffer.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Bytes> {
        let starts = (0..self.keys.len()).step_by(self.key_bytes);
        starts.map(|start| self.keys.slice(start..start + self.key_bytes))
    }

    /// The same, borrowed.
    pub(crate) fn borrowed(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.chunks_exact(self.key_bytes)
    }
}

/// SipHash-1-3 with a seed of its own in every map.
#[derive(Debug)]
struct Sip13(u64, u64);

impl Sip13 {
    fn random() -> Self {
        let seeds = RandomState::new();
        Self(seeds.hash_one(0), seeds.hash_one(1))
    }
}

impl BuildHasher for Sip13 {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

fn map_lookups(args: &Args, stream: &Stream) -> Result<Duration> {
    let mut counts =
        hashbrown::HashMap::with_capacity_and_hasher(args.groups as usize, Sip13::random());
    // Not `collect`: it would make room for as many groups as there are records.
    for key in stream.keys() {
        counts.entry(key).or_insert(0_u64);
    }
    Ok(every_record(stream, |key| counts.get_mut(key).map(|count| *count += 1)))
}

fn map_lookups_std(args: &Args, stream: &Stream) -> Result<Duration> {
    let mut counts: HashMap<Bytes, u64> = HashMap::with_capacity(args.groups as usize);
    for key in stream.keys() {
        counts.entry(key).or_insert(0);
    }
    Ok(every_record(stream, |key| counts.get_mut(key).map(|count| *count += 1)))
}

fn every_record(stream: &Stream, mut count: impl FnMut(&[u8]) -> Option<()>) -> Duration {
    let begun = Instant::now();
    for key in stream.borrowed() {
        black_box(count(key));
    }
    begun.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_has_every_record_once() {
        let args = Args {
            groups: 3,
            concurrency: 1,
            records: 1_000,
            zipf: 0.0,
            seed: 1,
            runs: 1,
            contenders: None,
        };
        let stream = Stream::new(&args);
        assert_eq!(stream.keys().count(), 1_000);
        assert!(stream.keys().eq(stream.borrowed()));
        assert!(stream.borrowed().all(|key| key.starts_with(b"group-00000")));
    }
}
