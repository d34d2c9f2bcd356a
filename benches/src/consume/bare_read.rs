//! The limit of the disk and the checksum: the same files, block by block.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;

use anyhow::{Context, Result, ensure};

use super::{Stage, Tally};
use crate::filled;

/// The size of the file backend's own reads.
const BLOCK: usize = 256 << 10;

/// Counts the log's records as seen once every byte was read that they lie in.
pub(super) fn run(stage: &Stage<'_>) -> Result<Tally> {
    let segments = filled::segments(stage.log)?;
    // Closed again before the clock starts; the files' state in the cache is what is wanted.
    drop(stage.open()?);
    let mut block = vec![0; BLOCK];
    stage.time(|| {
        for (path, used) in &segments {
            let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
            let mut left = *used;
            while left > 0 {
                let now = left.min(BLOCK as u64);
                file.read_exact(&mut block[..now as usize])?;
                black_box(crc32c::crc32c(&block[..now as usize]));
                left -= now;
            }
        }
        let bytes: u64 = segments.iter().map(|(_, used)| used).sum();
        let records = u64::from(stage.args.records());
        let least = records * (filled::FRAME_HEADER + u64::from(stage.args.payload));
        ensure!(bytes >= least, "{bytes} bytes cannot hold {records} records");
        Ok(records)
    })
}
