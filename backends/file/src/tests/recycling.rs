//! A removed segment becomes the spare: what is in it never comes back, whatever interrupts it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::{fmt, io};

use futures::channel::oneshot;
use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::OpenOptions;
use crate::disk::{Disk, DiskFile, Fault, FaultOp, Kind, MemoryDisk};
use crate::keeper::Keeper;
use crate::reader::{Question, Reader};
use crate::segments::{Folder, SPARE};
use crate::worker::{Pace, Worker};

fn keeping(disk: &MemoryDisk, bytes: u64) -> OpenOptions {
    options(disk).retain_bytes(bytes)
}

fn has(disk: &MemoryDisk, name: &str) -> bool {
    disk.files().iter().any(|path| path.ends_with(name))
}

/// Goal: the room of a removed segment is used again without asking the disk for any. Method: a
/// disk without room, and no spare; trim.
#[test]
fn a_removed_segment_becomes_the_spare_where_there_is_none() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    fill(&log, 0, "a", 4);
    block_on(log.close()).unwrap();
    disk.unlink(&Path::new(FOLDER).join(SPARE)).unwrap();
    disk.space_left(Some(0));
    let log = keeping(&disk, 0).open_blocking().unwrap();
    trim(&log);
    let spare = disk.bytes(&Path::new(FOLDER).join(SPARE));
    assert!(spare.len() == 64 << 10 && spare.iter().all(|byte| *byte == 0));
    assert_eq!(segment_files(&disk), [5]);
    // At most one is kept; it takes records, and the next one that goes follows it.
    let low = earliest(&log, 0);
    for round in 0..3 {
        assert!(!fill(&log, 0, "a", 1).is_empty(), "round {round}");
        trim(&log);
        assert_eq!(segment_files(&disk).len(), 1);
    }
    assert!(earliest(&log, 0) > low);
    let left = read_from(&log, 0, earliest(&log, 0)).unwrap();
    crash(log, &disk, 4);
    disk.space_left(Some(0));
    let log = keeping(&disk, u64::MAX).open_blocking().unwrap();
    assert_eq!(read_from(&log, 0, earliest(&log, 0)).unwrap(), left);
}

/// Goal: a power cut at any step of a trim loses nothing that was kept, brings nothing back that
/// was removed, and leaves a log without stray files. Method: step the workers of a log without a
/// spare, cut after every number of changes, reopen twice; with a gap only, and with the oldest
/// segments gone too.
#[test]
fn a_power_cut_at_any_step_of_a_trim_leaves_a_whole_log() {
    for oldest_goes in [false, true] {
        let (mut undone, mut done) = (0, 0);
        for changes in 0.. {
            let what = format!("after {changes} changes, oldest goes: {oldest_goes}");
            let (through, found, all) = cut_while_trimming(oldest_goes, changes, &what);
            if found == all {
                undone += 1;
            } else {
                done += 1;
            }
            if through {
                break;
            }
            assert!(changes < 500, "the trim never ends");
        }
        assert!(undone > 0 && done > 10, "{undone} {done}");
    }
}

/// Whether the trim came to its end, how many records are left, how many there were.
fn cut_while_trimming(oldest_goes: bool, changes: u64, what: &str) -> (bool, usize, usize) {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let key = key(&log, "s", 0);
    block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    let all = fill(&log, 0, "a", 5);
    let end = all.len() as u64;
    // One is stuck in the fourth segment, and perhaps one in the first.
    let stuck = end * 3 / 5 + 3;
    let (next, done) = if oldest_goes {
        (stuck, vec![(stuck + 1, end)])
    } else {
        (1, vec![(2, stuck), (stuck + 1, end)])
    };
    finish(&log, &key, next, &done);
    block_on(log.close()).unwrap();
    disk.unlink(&Path::new(FOLDER).join(SPARE)).unwrap();
    disk.sync_dir(Path::new(FOLDER)).unwrap();
    let options = keeping(&disk, 0).clock(Arc::new(TestClock::default()));
    let mut parts = options.open_parts().unwrap();
    let mut keeper = Keeper::new(Arc::clone(&parts.shared), Arc::clone(&parts.filing));
    let until = disk.changes() + changes;
    disk.power_off_after(changes);
    while [keeper.step(), parts.desk.step()].contains(&Pace::More) {}
    let through = disk.changes() < until;
    disk.crash(changes * 31 + 7);
    drop((keeper, parts));
    let mut before = None;
    for life in 0..2 {
        let log = keeping(&disk, u64::MAX).open_blocking().expect(what);
        assert!(log.recovery().segments_missing.is_empty(), "{what}, life {life}");
        let low = earliest(&log, 0);
        let found: Vec<u64> =
            read_from(&log, 0, low).unwrap().iter().map(|stored| stored.offset.get()).collect();
        assert!(found.contains(&stuck) && found.contains(&(next + 1)), "{what}: {found:?}");
        assert!(found.is_sorted_by(|a, b| a < b), "{what}, life {life}: {found:?}");
        assert_eq!(*found.last().unwrap(), end - 1, "{what}, life {life}");
        let there = log.shared().segments.all();
        let there: Vec<u64> = there.iter().map(|segment| segment.id()).collect();
        assert_eq!(segment_files(&disk), there, "{what}, life {life}");
        let stale = |id| has(&disk, &format!("{id:020}.idx"));
        assert!(!(0..there[0]).any(stale), "{what}, life {life}: a stale index");
        let count = found.len();
        assert!(before.is_none_or(|before| before == found), "{what}: something came or went");
        before = Some(found);
        block_on(log.close()).unwrap();
        assert!(has(&disk, SPARE) && !has(&disk, "spare.new"), "{what}, life {life}");
        if life == 1 {
            return (through, count, all.len());
        }
    }
    unreachable!("it returns in its second life")
}

#[test]
fn a_file_that_cannot_be_removed_is_an_error_and_goes_at_the_next_open() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk, 0).open_blocking().unwrap();
    let key = key(&log, "s", 0);
    block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    let all = fill(&log, 0, "a", 4);
    let (op, kind) = (FaultOp::Unlink, io::ErrorKind::PermissionDenied);
    disk.fail(Fault { op, path: ".seg".into(), after: 0, kind, stays: true });
    let committed = finish(&log, &key, all.len() as u64, &[]);
    assert!(matches!(committed, Committed::Done));
    // The trim that runs by itself may be the one that meets it.
    let first = block_on(log.trim());
    if let Err(error) = &first {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.path().is_some_and(|path| path.extension().is_some_and(|e| e == "seg")));
    }
    assert!(earliest(&log, 0) > 0, "it is removed all the same");
    assert!(segment_files(&disk).len() > 1, "its file is not");
    stored(&log, 0, "a", "goes on");
    block_on(log.close()).unwrap();
    disk.heal();
    let log = keeping(&disk, 0).open_blocking().unwrap();
    let there = log.shared().segments.all();
    let there: Vec<u64> = there.iter().map(|segment| segment.id()).collect();
    assert_eq!(segment_files(&disk), there);
}

/// Goal: a reader in the middle of a segment that is removed, and used again, gets its records or
/// is told; never anything else, and it never hangs. Method: readers chase a log whose disk has no
/// room but for its own segments, so that every file is used again and again.
#[test]
fn readers_of_removed_segments_get_their_records_or_are_told() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk, 64 << 10).open_blocking().unwrap();
    let last = std::sync::atomic::AtomicU64::new(0);
    let (mut told, mut read) = (0_u64, 0_u64);
    std::thread::scope(|scope| {
        let reading: Vec<_> = (0..3_u64)
            .map(|reader| {
                let (log, last) = (&log, &last);
                scope.spawn(move || {
                    let (mut told, mut read, mut from) = (0_u64, 0_u64, Offset::ZERO);
                    while last.load(std::sync::atomic::Ordering::SeqCst) == 0 {
                        let max = Budget::new(1 + reader * 7, u64::MAX);
                        let want = Want { partition: Partition::new(0), from, max };
                        match block_on(log.read(&[want], Budget::MAX)) {
                            Ok(chunks) => {
                                let records = chunks.iter().flat_map(|chunk| &chunk.records);
                                for (at, stored) in records.enumerate() {
                                    assert_eq!(stored.offset.get(), from.get() + at as u64);
                                    let text = stored.record.payload().unwrap();
                                    let text = std::str::from_utf8(text).unwrap();
                                    assert_eq!(text.trim_end(), stored.offset.to_string());
                                    read += 1;
                                }
                                from = chunks.first().map_or(from, |chunk| chunk.next);
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Trimmed, "{error}");
                                told += 1;
                                // Far behind on purpose: at the oldest that is left.
                                from = block_on(log.ends(Position::Earliest)).unwrap()[0];
                            }
                        }
                        if reader == 2 {
                            from = block_on(log.ends(Position::Earliest)).unwrap()[0];
                            let at = Position::Time(Timestamp::from_millis(0));
                            block_on(log.ends(at)).unwrap();
                        }
                    }
                    (told, read)
                })
            })
            .collect();
        for i in 0..1500_u64 {
            assert_eq!(stored(&log, 0, "a", &format!("{i:<3000}")).offset.get(), i);
        }
        last.store(1, std::sync::atomic::Ordering::SeqCst);
        for reader in reading {
            let (t, r) = reader.join().unwrap();
            (told, read) = (told + t, read + r);
        }
    });
    assert!(read > 100, "{read} read, {told} told");
    // The chores may be behind.
    trim(&log);
    assert!(segment_files(&disk).len() < 6);
}

/// A disk that does something else in the middle of a read of a segment.
struct Interrupted {
    disk: MemoryDisk,
    /// After so many reads.
    hook: Arc<Mutex<Option<(u64, Hook)>>>,
}

type Hook = Box<dyn FnOnce() + Send>;

struct InterruptedFile(Arc<dyn DiskFile>, Arc<Mutex<Option<(u64, Hook)>>>);

impl Disk for Interrupted {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, create)?;
        let segment = path.extension().is_some_and(|extension| extension == "seg");
        let hook = Arc::clone(&self.hook);
        Ok(if segment { Arc::new(InterruptedFile(file, hook)) } else { file })
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        self.disk.kind(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.disk.unlink(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
}

impl DiskFile for InterruptedFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let due = {
            let mut hook = self.1.lock().unwrap();
            match &mut *hook {
                Some((0, _)) => hook.take(),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
                None => None,
            }
        };
        if let Some((_, hook)) = due {
            hook();
        }
        self.0.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(buf, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.set_size(size)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.0.try_lock()
    }
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupted")
    }
}

impl fmt::Debug for InterruptedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InterruptedFile")
    }
}

/// Goal: a segment that is removed in the middle of a read, and wiped to be the spare, gives its
/// records or an error that says so. Method: trim between any two reads of the file, by hand; with
/// everything removed, and with a gap where the reader is.
#[test]
fn a_segment_removed_in_the_middle_of_a_read_is_read_whole_or_said_to_be_trimmed() {
    for gap in [false, true] {
        let (mut whole, mut told, mut led_over) = (0, 0, 0);
        for after in 0..12 {
            let disk = MemoryDisk::new();
            let log = open(&disk);
            let key = key(&log, "s", 0);
            let end = fill(&log, 0, "a", 3).len() as u64;
            if gap {
                finish(&log, &key, 0, &[(1, end)]);
            }
            block_on(log.close()).unwrap();
            disk.unlink(&Path::new(FOLDER).join(SPARE)).unwrap();
            let hook = Arc::default();
            let interrupted = Interrupted { disk: disk.clone(), hook: Arc::clone(&hook) };
            let options = keeping(&disk, 0).clock(Arc::new(TestClock::default()));
            let parts = options.disk(Arc::new(interrupted)).open_parts().unwrap();
            let mut keeper = Keeper::new(Arc::clone(&parts.shared), Arc::clone(&parts.filing));
            let mut reader = Reader::new(Arc::clone(&parts.shared));
            let mut desk = parts.desk;
            let trim = move || while [keeper.step(), desk.step()].contains(&Pace::More) {};
            *hook.lock().unwrap() = Some((after, Box::new(trim) as Hook));
            let (answer, mut answered) = oneshot::channel();
            // The first one that goes, which becomes the spare.
            let from = parts.shared.segments.all()[usize::from(gap)].header.base[0];
            let want =
                Want { partition: Partition::new(0), from: Offset::new(from), max: Budget::MAX };
            parts.shared.reading.ask(Question::Read(vec![want], Budget::MAX, answer));
            assert_eq!(reader.step(), Pace::More);
            match answered.try_recv().unwrap().expect("it was answered") {
                Ok(chunks) => {
                    let found: Vec<u64> =
                        chunks[0].records.iter().map(|stored| stored.offset.get()).collect();
                    assert!(found.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{found:?}");
                    if found[0] == from {
                        whole += 1;
                    } else {
                        assert!(gap, "{found:?} of {from} on");
                        led_over += 1;
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Trimmed, "after {after} reads: {error}");
                    told += 1;
                }
            }
            // Whoever removes them holds the workers.
            hook.lock().unwrap().take();
        }
        assert!(whole > 0 && told + led_over > 1, "{gap}: {whole} {told} {led_over}");
        assert_eq!(gap, told == 0);
    }
}

/// Goal: no frame of an earlier life of the file is ever read. Method: a disk that keeps old bytes
/// where zeros were not synced; use segments again, cut the power, look at everything.
#[test]
fn stale_frames_of_a_file_that_is_used_again_never_decode() {
    for seed in 0..30_u64 {
        let disk = MemoryDisk::new();
        let (mut sent, mut known) = (0_u64, 0);
        for life in 0..4 {
            disk.heal();
            let log = keeping(&disk, 0).open_blocking().unwrap();
            trim(&log);
            let low = earliest(&log, 0);
            let found = read_from(&log, 0, low).unwrap();
            for (at, stored) in found.iter().enumerate() {
                let what = format!("seed {seed} life {life}");
                assert_eq!(stored.offset.get(), low + at as u64, "{what}");
                let text = std::str::from_utf8(stored.record.payload().unwrap()).unwrap();
                let number: u64 = text.trim_end().parse().unwrap();
                assert!(number >= stored.offset.get(), "{what}: {number} at {}", stored.offset);
            }
            let end = block_on(log.ends(Position::End)).unwrap()[0].get();
            assert!(end >= known, "seed {seed} life {life}: {end} {known}");
            known = end;
            disk.power_off_after(60 + (seed * 13 + life * 29) % 90);
            for _ in 0..150 {
                match send(&log, 0, "a", &format!("{sent:<3000}")) {
                    Outcome::Stored(receipt) => known = receipt.offset.get() + 1,
                    _ => break,
                }
                sent += 1;
            }
            sent += 1;
            crash(log, &disk, seed * 17 + life);
        }
    }
}

#[test]
fn a_spare_that_was_being_made_of_a_segment_is_finished_at_the_next_open() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    fill(&log, 0, "a", 3);
    let unproven = stored(&log, 0, "a", "unproven").offset.get();
    crash(log, &disk, 2);
    // As a crash in the middle of it leaves it: a segment under the spare's first name.
    let dirty = disk.bytes(&Folder::new(Arc::new(disk.clone()), FOLDER.into(), 0).segment(1));
    disk.put(&Path::new(FOLDER).join("spare.new"), &dirty);
    for path in disk.files().iter().filter(|path| path.ends_with(SPARE)) {
        disk.unlink(path).unwrap();
    }
    disk.space_left(Some(0));
    let log = open(&disk);
    assert_eq!(read_from(&log, 0, 0).unwrap().len() as u64, unproven + 1);
    assert!(log.recovery().cut_bytes == 0, "{:?}", log.recovery());
    // It took the rewritten tail: in a fresh segment, not in place.
    assert_eq!(*segment_files(&disk).last().unwrap(), 5);
}
