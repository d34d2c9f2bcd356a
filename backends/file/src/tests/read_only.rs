//! Logs that are open for reading only, beside the one who writes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::{Disk, Fault, FaultOp, MemoryDisk};
use crate::format::batch::BATCH_HEADER;
use crate::keeper::Keeper;
use crate::options::Parts;
use crate::progress::Request;
use crate::reader::{Follower, Reader};
use crate::segments::Folder;
use crate::shared::Shared;
use crate::worker::{Pace, Worker};
use crate::{FileLog, FileReader, HistoryEnd};

/// A reader whose steps the test makes.
struct Stepped {
    shared: Arc<Shared>,
    follower: Follower,
    reader: Reader,
    /// What it has given: partition, offset, payload.
    seen: Vec<(u32, u64, Vec<u8>)>,
    next: Vec<u64>,
    /// What was not there: partition, offset.
    passed: Vec<(u32, u64)>,
}

impl Stepped {
    fn open(disk: &MemoryDisk) -> Result<Self, Error> {
        let (shared, follower) = options(disk).read_only().open_parts()?;
        let reader = Reader::new(Arc::clone(&shared));
        let next = shared.tail().earliest.clone();
        let (seen, passed) = (Vec::new(), Vec::new());
        Ok(Self { shared, follower, reader, seen, next, passed })
    }

    /// Reads the earliest record that it knows of, which may be gone by now.
    fn read_only_what_is_left(&mut self) {
        let from = Offset::new(self.shared.tail().earliest[0]);
        let want = Want { partition: Partition::new(0), from, max: Budget::new(1, u64::MAX) };
        match self.ask(&want) {
            Ok(chunks) => assert!(chunks.iter().all(|chunk| chunk.records[0].offset == from)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Trimmed, "{error:?}"),
        }
    }

    fn ask(&mut self, want: &Want) -> Result<Vec<Chunk>, Error> {
        let shared = Arc::clone(&self.shared);
        let mut reading = Box::pin(shared.read(std::slice::from_ref(want), want.max));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        loop {
            match reading.as_mut().poll(&mut context) {
                std::task::Poll::Ready(chunks) => return chunks,
                std::task::Poll::Pending => drop(self.reader.step()),
            }
        }
    }

    /// Looks, and reads everything that is new to it; what was trimmed before it was read is passed.
    fn read(&mut self) {
        self.follower.look().unwrap();
        for partition in 0..3 {
            let mut looks = 0;
            loop {
                looks += 1;
                assert!(looks < 1000, "it never ends");
                let at = partition as usize;
                let (earliest, end) = {
                    let tail = self.shared.tail();
                    (tail.earliest[at], tail.ends[at])
                };
                self.next[at] = self.next[at].max(earliest);
                if self.next[at] >= end {
                    break;
                }
                let from = Offset::new(self.next[at]);
                let max = Budget::new(7, u64::MAX);
                let want = Want { partition: Partition::new(partition), from, max };
                let chunks = match self.ask(&want) {
                    Ok(chunks) => chunks,
                    Err(error) if error.kind() == ErrorKind::Trimmed => {
                        self.follower.look().unwrap();
                        continue;
                    }
                    Err(error) => panic!("{error:?}"),
                };
                for stored in &chunks[0].records {
                    assert!(stored.offset.get() >= self.next[at], "in order");
                    let gap = self.next[at]..stored.offset.get();
                    self.passed.extend(gap.map(|offset| (partition, offset)));
                    let payload = stored.record.payload().unwrap().to_vec();
                    self.seen.push((partition, stored.offset.get(), payload));
                    self.next[at] = stored.offset.get() + 1;
                }
                self.next[at] = self.next[at].max(chunks[0].next.get());
            }
        }
    }
}

fn parts(disk: &MemoryDisk, clock: &Arc<TestClock>) -> Parts {
    options(disk).clock(Arc::clone(clock) as _).open_parts().unwrap()
}

/// A writer with its chores and its progress store, whose steps the test makes.
struct Life {
    parts: Parts,
    keeper: Keeper,
}

impl Life {
    fn begin(disk: &MemoryDisk, clock: &Arc<TestClock>) -> Self {
        let options = options(disk).clock(Arc::clone(clock) as _).retain_bytes(128 << 10);
        let parts = options.open_parts().unwrap();
        let keeper = Keeper::new(Arc::clone(&parts.shared), Arc::clone(&parts.filing));
        Self { parts, keeper }
    }

    /// What a consumer would have committed.
    fn finish(&mut self, key: &Key, next: u64, done: &[(u64, u64)]) {
        let mut ranges = Ranges::default();
        done.iter().for_each(|(from, to)| ranges.push(Offset::new(*from), Offset::new(*to)));
        let progress = Progress::with_done(Offset::new(next), ranges).to_bytes();
        let (answer, claimed) = oneshot::channel();
        self.parts.filing.add(Request::Claim(
            key.clone(),
            Epoch::FIRST,
            Some(Offset::ZERO),
            answer,
        ));
        while self.parts.desk.step() == Pace::More {}
        let Some(Ok(Ok(Some((epoch, _))))) = claimed.now_or_never() else { return };
        let (answer, _) = oneshot::channel();
        self.parts.filing.add(Request::Commit(vec![(key.clone(), epoch, progress.into())], answer));
        while self.parts.desk.step() == Pace::More {}
    }

    /// Removes what retention lets go, with the files of the removed used again or not.
    fn trim(&mut self) {
        self.parts.shared.keeping.look_again();
        while [self.keeper.step(), self.parts.desk.step()].contains(&Pace::More) {}
    }
}

/// Goal: a reader that is opened at any moment, and looks at any moment, gives only what was synced,
/// in order and as it is; nothing that it gave is ever gone, or another record. Method: one thread
/// drives a writer and some readers step by step, at random: appends of all levels, rolls, marks,
/// trims, full disks and failed syncs, crashes of the writer's process, orderly closes. All that is
/// durable is noted from what the writer lets its own readers have, and from what recovery leaves.
#[test]
fn readers_opened_at_any_moment_give_only_what_is_synced_and_stays() {
    let (mut given, mut stayed, mut passed) = (0, 0, 0);
    for seed in 0..40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut chance = move |below: u64| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
        };
        let disk = MemoryDisk::new();
        let clock = Arc::new(TestClock::default());
        let mut log = Life::begin(&disk, &clock);
        let key = Key {
            subscription: "keeps".into(),
            log: log.parts.shared.info.uuid,
            partition: Partition::new(0),
        };
        let mut readers: Vec<Stepped> = Vec::new();
        let mut sent = 0_u64;
        for _ in 0..250 {
            match chance(20) {
                0..8 => {
                    for _ in 0..=chance(4) {
                        sent += 1;
                        let fill = vec![7; chance(3000) as usize];
                        let payload = [&sent.to_le_bytes()[..], &fill].concat();
                        let record = Record::new(sent.to_le_bytes().to_vec(), payload);
                        let partition = Partition::new((sent % 3) as u32);
                        let mut batch = Batch::one(partition, record);
                        batch.durability = [None, Some(Durability::Flushed)][chance(2) as usize];
                        drop(log.parts.shared.append(batch));
                    }
                }
                8..12 => while chance(4) > 0 && log.parts.writer.step() == Pace::More {},
                12 => {
                    clock.now.fetch_add(chance(300), Ordering::SeqCst);
                }
                13..17 if !readers.is_empty() => {
                    let which = chance(readers.len() as u64) as usize;
                    let reader = &mut readers[which];
                    reader.read();
                    let (writer, reader) = (log.parts.shared.tail(), reader.shared.tail());
                    for (synced, given) in writer.ends.iter().zip(&reader.ends) {
                        assert!(given <= synced, "seed {seed}: more than the writer has synced");
                    }
                }
                17 if readers.len() < 4 => readers.push(Stepped::open(&disk).unwrap()),
                18 if chance(4) == 0 => {
                    // What a subscription has not finished stays: the oldest, or one in the middle.
                    let end = log.parts.shared.tail().ends[0];
                    let next = end.saturating_sub(chance(60));
                    let done = [(next + 1, next + 2 + chance(60))];
                    log.finish(&key, next, if done[0].1 < end { &done } else { &[] });
                    log.trim();
                    // While somebody reads the oldest: looks first, then finds it gone.
                    for reader in &mut readers {
                        reader.read_only_what_is_left();
                    }
                }
                19 => {
                    match chance(6) {
                        0 => {
                            let (op, kind) = (FaultOp::Sync, io::ErrorKind::Other);
                            let path = ".seg".to_owned();
                            disk.fail(Fault { op, path, after: 0, kind, stays: false });
                            while log.parts.writer.step() == Pace::More {}
                        }
                        1 => {
                            let (op, kind) = (FaultOp::TornWrite, io::ErrorKind::StorageFull);
                            let path = ".seg".to_owned();
                            disk.fail(Fault { op, path, after: 0, kind, stays: false });
                            while log.parts.writer.step() == Pace::More {}
                            disk.heal();
                            continue;
                        }
                        2 => {
                            log.parts.shared.front().state = crate::front::State::Closing;
                            while log.parts.writer.step() == Pace::More {}
                        }
                        _ => {}
                    }
                    // The process is gone, the page cache is not.
                    drop(log);
                    disk.heal();
                    log = Life::begin(&disk, &clock);
                }
                _ => {}
            }
        }
        disk.heal();
        while log.parts.writer.step() == Pace::More {}
        drop(log);
        let log = open(&disk);
        for mut reader in readers.into_iter().chain([Stepped::open(&disk).unwrap()]) {
            reader.read();
            let earliest = block_on(log.ends(Position::Earliest)).unwrap();
            let ends = block_on(log.ends(Position::End)).unwrap();
            let at = |partition: u32, offset: u64| {
                let (of, from) = (Partition::new(partition), Offset::new(offset));
                if from < earliest[partition as usize] || from >= ends[partition as usize] {
                    return None;
                }
                let want = Want { partition: of, from, max: Budget::new(1, u64::MAX) };
                let chunks = block_on(log.read(&[want], Budget::MAX)).unwrap();
                // Behind a gap, if it was removed.
                chunks.first()?.records.first().filter(|stored| stored.offset == from).cloned()
            };
            for (partition, offset) in reader.passed {
                assert!(at(partition, offset).is_none(), "seed {seed}: {offset} was left out");
                passed += 1;
            }
            for (partition, offset, payload) in reader.seen {
                given += 1;
                // What was removed since is gone; what is there is the same.
                let Some(stored) = at(partition, offset) else { continue };
                stayed += 1;
                assert_eq!(stored.record.payload().unwrap(), &payload, "seed {seed}: another");
            }
        }
    }
    assert!(given > 4_000 && stayed > 1_000, "only {given} records were given, {stayed} stayed");
    assert!(passed > 10, "no evidence: {passed} records lay in gaps");
}

/// Waits until the reader has as much as the log.
fn catch_up(log: &FileLog, reader: &FileReader) {
    let mut seen = Version::NEVER;
    while block_on(reader.ends(Position::End)).unwrap()
        != block_on(log.ends(Position::End)).unwrap()
    {
        seen = block_on(reader.changed(seen)).unwrap();
    }
}

fn real(path: &Path) -> crate::OpenOptions {
    FileLog::open(path)
        .partitions(3)
        .segment_bytes(64 << 10)
        .round_bytes_max(16 << 10)
        .record_bytes_max(4 << 10)
}

#[test]
fn a_reader_is_woken_for_what_is_synced_and_follows_the_writer_through_its_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = real(&path).open_blocking().unwrap();
    let reader = real(&path).read_only().open_blocking().unwrap();
    let mut all = Vec::new();
    let mut append = |log: &FileLog, count: usize| {
        for _ in 0..count {
            all.push(format!("{:0>900}", all.len()));
            stored(log, 0, "case", &all[all.len() - 1]);
        }
        catch_up(log, &reader);
        let want = |from: usize| {
            let (partition, from) = (Partition::new(0), Offset::new(from as u64));
            [Want { partition, from, max: Budget::MAX }]
        };
        let mut found = Vec::new();
        while found.len() < all.len() {
            for chunk in block_on(reader.read(&want(found.len()), Budget::MAX)).unwrap() {
                let text = |s: &Stored| s.record.payload().unwrap().to_vec();
                found.extend(chunk.records.iter().map(text));
            }
        }
        assert!(found.iter().eq(all.iter().map(String::as_bytes)));
    };
    // One at a time: the mark of the quiet log tells of the last one.
    append(&log, 1);
    append(&log, 1);
    append(&log, 300);
    block_on(log.close()).unwrap();
    // It goes on without a writer, and with the next one.
    let log = real(&path).open_blocking().unwrap();
    append(&log, 150);
    let past =
        block_on(reader.history("case").in_partition(Partition::new(0)).oldest_first(Budget::MAX));
    let past = past.unwrap();
    assert_eq!((past.records.len(), past.end), (452, Some(HistoryEnd::First)));
    let info = reader.info();
    assert_eq!((info.uuid, info.partitions), (log.info().uuid, log.info().partitions));
    assert!(!info.absorbs);
    // Somebody who waits is told when the reader goes.
    let seen = block_on(reader.changed(Version::NEVER)).unwrap();
    let waiting = reader.changed(seen);
    drop(waiting);
    drop(reader);
    block_on(log.close()).unwrap();
}

#[test]
fn a_reader_takes_no_lock_and_refuses_appends_and_hands_them_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let missing = real(&path).read_only().open_blocking().unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(!path.exists(), "nothing was made");
    block_on(real(&path).open_blocking().unwrap().close()).unwrap();
    let lock = std::fs::read(path.join("lock")).unwrap();
    let reader = real(&path).read_only().open_blocking().unwrap();
    let log = real(&path).open_blocking().unwrap();
    let second = real(&path).read_only().open_blocking().unwrap();
    assert_eq!(std::fs::read(path.join("lock")).unwrap(), lock);
    for reader in [&reader, &second] {
        let batch = Batch::one(Partition::new(0), record("case", "x"));
        match block_on(reader.append(batch)).into_iter().next().unwrap() {
            Outcome::Refused(back, error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains("reading only"), "{error}");
                assert_eq!(back.payload().unwrap(), "x");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(block_on(reader.enlist("p")).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    stored(&log, 0, "case", "y");
    catch_up(&log, &reader);
    std::fs::remove_dir_all(&path).unwrap();
    let mut seen = Version::NEVER;
    let error = loop {
        match block_on(reader.changed(seen)) {
            Ok(version) => seen = version,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Goal: the last round of a segment is proven while the log is quiet, however little room is left
/// behind it. Method: fill segments so that between none and two marks fit behind the last round.
#[test]
fn the_last_record_is_proven_while_the_log_is_quiet_however_full_its_segment_is() {
    for left in 0..=2 * BATCH_HEADER {
        let disk = MemoryDisk::new();
        let clock = Arc::new(TestClock::default());
        let mut log = parts(&disk, &clock);
        let send = |log: &mut Parts, bytes: usize| {
            let record =
                Record::from_parts(None, Some(vec![7; bytes].into()), Headers::EMPTY, None);
            drop(log.shared.append(Batch::one(Partition::new(0), record)));
            while log.writer.step() == Pace::More {}
        };
        let overhead = BATCH_HEADER + crate::format::frame::FRAME_HEADER;
        let room = |log: &Parts| {
            let plan = log.shared.front().plan;
            (64 << 10) - plan.byte as usize - 2 * overhead
        };
        while room(&log) > 8000 {
            send(&mut log, 3000);
        }
        let half = room(&log) / 2;
        send(&mut log, half);
        // Behind it there is room for the mark of an orderly close, and `left` bytes more.
        let last = room(&log) + overhead - BATCH_HEADER - left;
        send(&mut log, last);
        assert_eq!(log.shared.segments.all().len(), 1, "{left} bytes left");
        clock.now.fetch_add(200, Ordering::SeqCst);
        while log.writer.step() == Pace::More {}
        let mut reader = Stepped::open(&disk).unwrap();
        reader.read();
        assert_eq!(reader.seen.len() as u64, log.shared.tail().ends[0], "{left} bytes left");
        log.shared.front().state = crate::front::State::Closing;
        while log.writer.step() == Pace::More {}
        drop(log);
        let log = open(&disk);
        assert!(log.recovery().clean, "{left} bytes left");
        assert_eq!(read_from(&log, 0, 0).unwrap().len(), reader.seen.len());
    }
}

#[test]
fn a_disk_that_cannot_be_watched_is_looked_at_now_and_then() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let reader = options(&disk).read_only().open_blocking().unwrap();
    stored(&log, 0, "case", "x");
    catch_up(&log, &reader);
    let quick = crate::disk::TimedWatch::default();
    crate::disk::Watch::wake(&quick);
    crate::disk::Watch::wait(&quick, Some(Duration::from_secs(3600)));
}

#[test]
fn damage_below_what_is_proven_ends_a_reader_with_corruption() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..40 {
        stored(&log, 0, "case", &format!("{i:0>300}"));
    }
    block_on(log.close()).unwrap();
    let mut image = image(&disk);
    file_of(&mut image, "1.seg")[9000] ^= 1;
    let error = options(&disk_of(&image)).read_only().open_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let skip = options(&disk_of(&image)).skip_corruption(true).read_only();
    let reader = skip.open_blocking().unwrap();
    assert_eq!(block_on(reader.ends(Position::End)).unwrap()[0], Offset::new(40));
}

/// Goal: a reader takes a gap for no damage, and a lost segment for no gap. Method: a log with a
/// real gap, then one of its segments removed behind everybody's back: beside a reader that is open,
/// and before one opens.
#[test]
fn a_reader_passes_gaps_and_takes_no_lost_segment_for_one() {
    let disk = MemoryDisk::new();
    let log = options(&disk).retain_bytes(192 << 10).open_blocking().unwrap();
    let stuck = key(&log, "s", 0);
    block_on(log.store().claim(&stuck, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    fill(&log, 0, "case", 7);
    let end = block_on(log.ends(Position::End)).unwrap()[0].get();
    finish(&log, &stuck, 0, &[(1, end)]);
    trim(&log);
    let there = segment_files(&disk);
    let gap = there.windows(2).position(|pair| pair[0] + 1 < pair[1]).expect("there is a gap");
    let (first, last) = (there[gap + 1], *there.last().unwrap());
    assert!(there[0] == 1 && first + 1 < last, "segments on both sides of the one to lose");
    let expected = read_from(&log, 0, 0).unwrap();
    block_on(log.close()).unwrap();

    let mut reader = Stepped::open(&disk).unwrap();
    reader.read();
    let offsets: Vec<u64> = reader.seen.iter().map(|(_, offset, _)| *offset).collect();
    assert!(offsets.iter().copied().eq(expected.iter().map(|stored| stored.offset.get())));
    let gone = reader.passed.len() as u64;
    assert_eq!(offsets.len() as u64 + gone, end, "what was not given is what was removed");

    let lost = first + 1;
    disk.unlink(&Folder::new(Arc::new(disk.clone()), "/log".into(), 64 << 10).segment(lost))
        .unwrap();
    let says = |error: &Error| {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.path().unwrap().ends_with(format!("{lost:020}.seg")), "{error}");
        assert!(error.to_string().contains("not removed by retention"), "{error}");
    };
    says(&reader.follower.look().unwrap_err());
    says(&Stepped::open(&disk).map(drop).unwrap_err());
    // Whoever gives it up reads the rest.
    let skip = options(&disk).skip_corruption(true).read_only().open_blocking().unwrap();
    let want = Want { partition: Partition::new(0), from: Offset::ZERO, max: Budget::MAX };
    let left = block_on(skip.read(&[want], Budget::MAX)).unwrap().remove(0).records;
    assert!(!left.is_empty() && left.iter().all(|stored| expected.contains(stored)));
}
