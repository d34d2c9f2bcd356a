//! A file log with records in it, made before a measurement; and its files.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::executor::block_on;
use procession::{Appending, Batch, FileLog, GroupKey, Log, Outcome, Partition, Record};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::keys::{self, Keys};

/// Bytes of a frame beside key, headers and payload: the log's format.
pub(crate) const FRAME_HEADER: u64 = 56;

/// What to put into a log. The same values give the same records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// How many records.
    pub(crate) records: u64,
    /// Bytes of each payload.
    pub(crate) payload: u32,
    /// How many groups.
    pub(crate) groups: Groups,
    /// Seed of keys and payloads.
    pub(crate) seed: u64,
}

/// Whose records.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Groups {
    /// So many groups, drawn uniformly, or by a Zipf distribution of this exponent if above 0.
    Drawn(u32, f64),
    /// Every record is the only one of its group.
    Each,
}

/// Bytes of one append, at the most: a log that many producers fill has batches like that.
const BATCH_BYTES: u64 = 64 << 10;
/// Appends without an answer: enough for full rounds.
const IN_FLIGHT: usize = 64;

impl Fill {
    /// Appends the records and waits for all receipts.
    pub(crate) fn into_log(self, log: &FileLog) -> Result<()> {
        let info = log.info();
        let payload = Bytes::from(noise(self.payload.into(), self.seed));
        let mut draw = self.draw();
        let mut appends = VecDeque::with_capacity(IN_FLIGHT);
        let frame = FRAME_HEADER + keys::NAME_BYTES as u64 + u64::from(self.payload);
        let batch = (BATCH_BYTES / frame).max(1);
        let mut left = self.records;
        while left > 0 {
            let now = left.min(batch);
            left -= now;
            let records = (0..now).map(|_| {
                let key = GroupKey::from(keys::name(draw()));
                let partition = Partition::new(info.router.route(key.as_ref(), info.partitions));
                (partition, Record::new(key, payload.clone()))
            });
            appends.push_back(log.append(Batch::many(records)));
            if appends.len() == IN_FLIGHT {
                appends.pop_front().map_or(Ok(()), stored)?;
            }
        }
        appends.into_iter().try_for_each(stored)
    }

    fn draw(&self) -> Box<dyn FnMut() -> u32> {
        match self.groups {
            Groups::Drawn(groups, zipf) => {
                let mut keys = Keys::new(self.seed, groups, zipf);
                Box::new(move || keys.draw())
            }
            Groups::Each => {
                let mut next = 0..;
                Box::new(move || next.next().unwrap_or_default())
            }
        }
    }
}

fn stored(append: Appending) -> Result<()> {
    for outcome in block_on(append) {
        ensure!(matches!(outcome, Outcome::Stored(_)), "fill a log: {outcome:?}");
    }
    Ok(())
}

/// Bytes that no file system or compressor can make less of.
pub(crate) fn noise(bytes: u64, seed: u64) -> Vec<u8> {
    let mut noise = vec![0; bytes as usize];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut noise);
    noise
}

/// A folder of its own under `dir`, removed with the value.
pub(crate) fn folder(dir: &Path, name: &str) -> Result<tempfile::TempDir> {
    fs::create_dir_all(dir).with_context(|| format!("create folder {}", dir.display()))?;
    tempfile::Builder::new()
        .prefix(&format!("{name}-"))
        .tempdir_in(dir)
        .with_context(|| format!("create a folder in {}", dir.display()))
}

/// The segments of a log, oldest first, each with the number of bytes up to its last one that is
/// not zero: what is behind is preallocated, and no reader goes there.
pub(crate) fn segments(log: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(log).with_context(|| format!("list {}", log.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".seg") && name.starts_with(|first: char| first.is_ascii_digit()) {
            let used = used_bytes(&path)?;
            segments.push((path, used));
        }
    }
    segments.sort();
    Ok(segments)
}

fn used_bytes(path: &Path) -> Result<u64> {
    let file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut block = vec![0; 256 << 10];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let block = &mut block[..(end - start) as usize];
        file.read_exact_at(block, start)?;
        if let Some(last) = block.iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_log_holds_every_record_and_its_segments_say_how_many_bytes() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("log");
        let log = FileLog::open(&path).partitions(3).open_blocking()?;
        let fill = Fill { records: 1_234, payload: 100, groups: Groups::Drawn(10, 0.99), seed: 1 };
        fill.into_log(&log)?;
        let ends = block_on(log.ends(procession::Position::End))?;
        assert_eq!(ends.iter().map(|end| end.get()).sum::<u64>(), 1_234);
        block_on(log.close())?;

        let used: u64 = segments(&path)?.iter().map(|(_, used)| used).sum();
        let frames = 1_234 * (FRAME_HEADER + 100 + keys::NAME_BYTES as u64);
        assert!((frames..frames + 20_000).contains(&used), "{used} beside {frames}");
        Ok(())
    }
}
