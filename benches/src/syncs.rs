//! What a write and a sync take on this disk: the unit of everything durable.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::filled;

/// Zeros that are written before the clock starts; from its start again at the end.
const PREALLOCATED_BYTES: u64 = 16 << 20;

/// Times of `count` writes of `bytes` with a sync each, in nanoseconds, over zeros that are there
/// already: no length changes, no block is new.
pub(crate) fn preallocated(folder: &Path, bytes: u64, count: u32) -> Result<Histogram<u64>> {
    let mut file = create(folder, "sync-preallocated")?;
    file.write_all(&vec![0; PREALLOCATED_BYTES as usize])?;
    file.sync_all()?;
    file.rewind()?;
    times(&mut file, bytes, count, PREALLOCATED_BYTES)
}

/// The same at the end of a growing file: each sync records the new length as well.
pub(crate) fn append(folder: &Path, bytes: u64, count: u32) -> Result<Histogram<u64>> {
    let mut file = create(folder, "sync-append")?;
    times(&mut file, bytes, count, u64::MAX)
}

fn create(folder: &Path, name: &str) -> Result<File> {
    Ok(OpenOptions::new().write(true).create(true).truncate(true).open(folder.join(name))?)
}

fn times(file: &mut File, bytes: u64, count: u32, rewind_at: u64) -> Result<Histogram<u64>> {
    let noise = filled::noise(bytes, 1);
    let mut histogram = histogram();
    let mut at = 0;
    for _ in 0..count {
        if at + bytes > rewind_at {
            file.rewind()?;
            at = 0;
        }
        let begun = Instant::now();
        file.write_all(&noise)?;
        file.sync_data()?;
        histogram.saturating_record(begun.elapsed().as_nanos() as u64);
        at += bytes;
    }
    Ok(histogram)
}

/// Nanoseconds, up to a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000_000, 3).expect("bounds and precision that fit")
}
