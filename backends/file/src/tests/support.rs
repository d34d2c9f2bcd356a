//! Logs on a disk in memory, and short ways to use them.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use procession_core::*;

use crate::disk::{Clock, MemoryDisk};
use crate::segments::Folder;
use crate::{FileLog, OpenOptions, Trimmed};

pub(super) const FOLDER: &str = "/log";

/// Clocks that a test moves.
#[derive(Debug, Default)]
pub(super) struct TestClock {
    pub(super) wall: AtomicI64,
    pub(super) now: AtomicU64,
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.now.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.wall.load(Ordering::SeqCst))
    }
}

pub(super) fn options(disk: &MemoryDisk) -> OpenOptions {
    FileLog::open(FOLDER)
        .disk(Arc::new(disk.clone()))
        .partitions(3)
        .segment_bytes(64 << 10)
        .round_bytes_max(16 << 10)
        .record_bytes_max(4 << 10)
}

pub(super) fn open(disk: &MemoryDisk) -> FileLog {
    options(disk).open_blocking().unwrap()
}

/// Opens the log with compression, in builds that have it.
pub(super) fn open_packed(disk: &MemoryDisk, packed: bool) -> FileLog {
    let options = options(disk);
    #[cfg(feature = "lz4")]
    let options = if packed { options.compression(crate::Compression::Lz4) } else { options };
    #[cfg(not(feature = "lz4"))]
    let _ = packed;
    options.open_blocking().unwrap()
}

pub(super) fn record(key: &str, payload: &str) -> Record {
    Record::new(key, payload.to_owned())
}

pub(super) fn send(log: &FileLog, partition: u32, key: &str, payload: &str) -> Outcome {
    let batch = Batch::one(Partition::new(partition), record(key, payload));
    block_on(log.append(batch)).into_iter().next().unwrap()
}

#[track_caller]
pub(super) fn stored(log: &FileLog, partition: u32, key: &str, payload: &str) -> Receipt {
    match send(log, partition, key, payload) {
        Outcome::Stored(receipt) => receipt,
        other => panic!("{other:?}"),
    }
}

pub(super) fn read_from(log: &FileLog, partition: u32, from: u64) -> Result<Vec<Stored>, Error> {
    let end = block_on(log.ends(Position::End)).unwrap()[partition as usize];
    let (mut from, mut all) = (Offset::new(from), Vec::new());
    while from < end {
        let want = Want { partition: Partition::new(partition), from, max: Budget::MAX };
        let chunks = block_on(log.read(&[want], Budget::MAX))?;
        for chunk in chunks {
            assert!(chunk.next > from, "reading gets on");
            from = chunk.next;
            all.extend(chunk.records);
        }
    }
    Ok(all)
}

/// Everything in a partition: offset, key, payload.
pub(super) fn contents(log: &FileLog, partition: u32) -> Vec<(u64, String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    read_from(log, partition, 0)
        .unwrap()
        .into_iter()
        .map(|stored| {
            let key = text(stored.record.key().unwrap().as_ref());
            (stored.offset.get(), key, text(stored.record.payload().unwrap()))
        })
        .collect()
}

pub(super) fn key(log: &FileLog, subscription: &str, partition: u32) -> Key {
    let partition = Partition::new(partition);
    Key { subscription: subscription.into(), log: log.info().uuid, partition }
}

/// Appends to a partition until the log has begun `segments` more segments; gives the offsets.
pub(super) fn fill(log: &FileLog, partition: u32, key: &str, segments: usize) -> Vec<u64> {
    let active = || log.shared().segments.all().last().unwrap().id();
    let until = active() + segments as u64;
    let mut offsets = Vec::new();
    while active() < until {
        offsets.push(stored(log, partition, key, &"x".repeat(3000)).offset.get());
        assert!(offsets.len() < 2000, "the log never rolls");
    }
    offsets
}

/// What a consumer of the subscription would have committed.
pub(super) fn finish(log: &FileLog, key: &Key, next: u64, done: &[(u64, u64)]) -> Committed {
    let store = log.store();
    let (epoch, _) = block_on(store.claim(key, Epoch::FIRST, Some(Offset::ZERO))).unwrap().unwrap();
    let mut ranges = Ranges::default();
    done.iter().for_each(|(from, to)| ranges.push(Offset::new(*from), Offset::new(*to)));
    let progress = Progress::with_done(Offset::new(next), ranges);
    block_on(store.commit(&[Commit { key, epoch, progress: &progress }])).unwrap().remove(0)
}

pub(super) fn trim(log: &FileLog) -> Trimmed {
    block_on(log.trim()).unwrap()
}

pub(super) fn earliest(log: &FileLog, partition: usize) -> u64 {
    block_on(log.ends(Position::Earliest)).unwrap()[partition].get()
}

/// Segment files in the folder, by number.
pub(super) fn segment_files(disk: &MemoryDisk) -> Vec<u64> {
    let name = |path: &Path| Folder::parse(&path.file_name()?.to_string_lossy());
    disk.files().iter().filter_map(|path| name(path)).collect()
}

/// Closes without the mark of an orderly close: the power goes first.
pub(super) fn crash(log: FileLog, disk: &MemoryDisk, seed: u64) {
    disk.crash(seed);
    drop(log);
}

/// Counts the bytes that permits give back.
#[derive(Debug, Default)]
pub(super) struct Home(pub(super) Mutex<u64>);

impl Credit for Home {
    fn give_back(&self, bytes: u64) {
        *self.0.lock().unwrap() += bytes;
    }
}

impl Home {
    pub(super) fn permit(self: &Arc<Self>, bytes: u64) -> Permit {
        Permit::new(Arc::clone(self) as Arc<dyn Credit>, bytes)
    }
}

/// All files of a disk.
pub(super) type Image = Vec<(std::path::PathBuf, Vec<u8>)>;

pub(super) fn image(disk: &MemoryDisk) -> Image {
    disk.image()
}

/// A disk with these files, all durable.
pub(super) fn disk_of(image: &Image) -> MemoryDisk {
    let disk = MemoryDisk::new();
    for (path, bytes) in image {
        disk.put(path, bytes);
    }
    disk
}

pub(super) fn file_of<'a>(image: &'a mut Image, name: &str) -> &'a mut Vec<u8> {
    let ends = |path: &Path| path.to_string_lossy().ends_with(name);
    &mut image.iter_mut().find(|(path, _)| ends(path)).unwrap().1
}
