//! How fast this disk takes records, beside a bare write and sync of the same bytes.
//!
//! ```text
//! cargo run --release -p procession-file --example rates -- <an empty folder>
//! ```

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use procession_core::{
    Batch, Budget, Error, Log, Offset, Outcome, Partition, Record, Version, Want,
};
use procession_file::FileLog;

const PAYLOAD: usize = 256;
const RUN: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("which folder?")?);
    let one = raw(&folder, PAYLOAD)?;
    println!("raw write + fdatasync of {PAYLOAD} B:          {one:>9.0} /s");
    let (alone, _) = producers(&folder.join("alone"), 1, 1)?;
    println!("one producer, one at a time:            {alone:>9.0} /s ({:.2} of raw)", alone / one);
    let (many, _) = producers(&folder.join("many"), 16, 1)?;
    println!("16 producers, one at a time:            {many:>9.0} /s");
    let path = folder.join("window");
    let (windowed, round) = producers(&path, 1, 1024)?;
    let window = raw(&folder, round * PAYLOAD)? * round as f64;
    println!("raw, {round} x {PAYLOAD} B a round:               {window:>9.0} records/s");
    println!(
        "one producer, 1,024 in flight:          {windowed:>9.0} /s ({:.2} of raw)",
        windowed / window
    );
    println!("read back, warm:                        {:>9.0} /s", read(&path)?);
    Ok(())
}

fn raw(folder: &Path, bytes: usize) -> std::io::Result<f64> {
    let path = folder.join("raw");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    let size = 256 << 20;
    let zeros = vec![0; 1 << 20];
    for at in 0..256 {
        file.write_all_at(&zeros, at << 20)?;
    }
    file.sync_all()?;
    let buf = vec![7; bytes];
    let (begin, mut rounds) = (Instant::now(), 0_u64);
    while begin.elapsed() < RUN {
        file.write_all_at(&buf, rounds * bytes as u64 % size)?;
        file.sync_data()?;
        rounds += 1;
    }
    let rate = rounds as f64 / begin.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

fn open(path: &Path) -> Result<FileLog, Error> {
    FileLog::open(path).segment_bytes(768 << 20).open_blocking()
}

/// Records a second, and records a round.
fn producers(path: &Path, threads: usize, in_flight: usize) -> Result<(f64, usize), Error> {
    let log = open(path)?;
    // The spare is filled in the background, and would be measured too.
    while !path.join("spare.seg").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let keys: Vec<_> = (0..1000).map(|i| bytes::Bytes::from(format!("case-{i}"))).collect();
    let payload = bytes::Bytes::from(vec![7; PAYLOAD]);
    let info = log.info();
    let partitions: Vec<_> =
        keys.iter().map(|key| Partition::new(info.router.route(key, info.partitions))).collect();
    let begin = Instant::now();
    let total: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (log, keys, partitions, payload) = (&log, &keys, &partitions, &payload);
                scope.spawn(move || {
                    let (mut waiting, mut at, mut done) = (VecDeque::new(), thread * 61, 0_u64);
                    while begin.elapsed() < RUN {
                        for _ in 0..in_flight.min(256) {
                            at = (at + 1) % keys.len();
                            let record = Record::new(keys[at].clone(), payload.clone());
                            waiting.push_back(log.append(Batch::one(partitions[at], record)));
                            if waiting.len() >= in_flight
                                && let Some(oldest) = waiting.pop_front()
                            {
                                done += stored(block_on(oldest));
                            }
                        }
                    }
                    done + waiting.into_iter().map(|w| stored(block_on(w))).sum::<u64>()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum()
    });
    let rate = total as f64 / begin.elapsed().as_secs_f64();
    let syncs = block_on(log.changed(Version::NEVER))?.0;
    Ok((rate, (total / syncs.max(1)) as usize))
}

fn stored(outcomes: procession_core::OneOrMany<Outcome>) -> u64 {
    outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Stored(_))).count() as u64
}

fn read(path: &Path) -> Result<f64, Error> {
    let log = open(path)?;
    let mut next = vec![Offset::ZERO; log.info().partitions.get() as usize];
    let (begin, mut count) = (Instant::now(), 0);
    loop {
        let wants: Vec<Want> = (0_u32..)
            .zip(&next)
            .map(|(p, from)| Want { partition: Partition::new(p), from: *from, max: Budget::MAX })
            .collect();
        let chunks = block_on(log.read(&wants, Budget::new(2_000, 8 << 20)))?;
        if chunks.is_empty() {
            return Ok(f64::from(count) / begin.elapsed().as_secs_f64());
        }
        for chunk in chunks {
            count += chunk.records.len() as u32;
            next[chunk.partition.get() as usize] = chunk.next;
        }
    }
}
