//! Copies of a log that is in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::{Disk, Kind, MemoryDisk};
use crate::{FileLog, OpenOptions};

fn copy_of(disk: &MemoryDisk, dest: &Path) -> OpenOptions {
    FileLog::open(dest)
        .disk(Arc::new(disk.clone()))
        .partitions(3)
        .segment_bytes(64 << 10)
        .round_bytes_max(16 << 10)
        .record_bytes_max(4 << 10)
}

/// Goal: a backup is the log at one moment, with progress that belongs to it, whatever goes on
/// meanwhile. Method: one thread appends, one commits all that is readable, one makes backups; each
/// opens as a log that was closed in order, holds a prefix, and progress that names nothing beyond.
#[test]
fn a_backup_under_appends_and_commits_is_a_prefix_with_progress_that_fits() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let producer = block_on(Producer::builder(log.clone()).id("orders").build()).unwrap();
    let over = AtomicBool::new(false);
    let committed = AtomicU64::new(0);
    let mut copies: Vec<(PathBuf, crate::BackupReport, u64)> = Vec::new();
    std::thread::scope(|scope| {
        let stop = Stop(&over);
        scope.spawn(|| {
            for i in 0.. {
                // One more when it is over: whoever waits for the next record is woken, and sees
                // that it is over.
                let last = over.load(Ordering::SeqCst);
                block_on(producer.send(record("case-7", &format!("{i:0>700}")))).unwrap();
                if last {
                    break;
                }
            }
        });
        scope.spawn(|| {
            let partition = log.info().router.route(b"case-7", log.info().partitions);
            let (store, key) = (log.store(), key(&log, "archive", partition));
            let start = Some(Offset::ZERO);
            let (epoch, _) = block_on(store.claim(&key, Epoch::FIRST, start)).unwrap().unwrap();
            let mut seen = Version::NEVER;
            while !over.load(Ordering::SeqCst) {
                seen = block_on(log.changed(seen)).unwrap();
                let next = block_on(log.ends(Position::End)).unwrap()[partition as usize];
                let progress = Progress::at(next);
                let commit = Commit { key: &key, epoch, progress: &progress };
                assert!(matches!(
                    block_on(store.commit(&[commit])).unwrap()[..],
                    [Committed::Done]
                ));
                committed.store(next.get(), Ordering::SeqCst);
            }
        });
        for number in 0..8 {
            // Each a while after the last one: by records, not by time.
            let enough = committed.load(Ordering::SeqCst) + 40;
            while committed.load(Ordering::SeqCst) < enough {
                std::thread::yield_now();
            }
            let dest = PathBuf::from(format!("/copy-{number}"));
            let before = committed.load(Ordering::SeqCst);
            let report = block_on(log.backup(&dest)).unwrap();
            copies.push((dest, report, before));
        }
        drop(stop);
    });
    let partition = log.info().router.route(b"case-7", log.info().partitions);
    let all = read_from(&log, partition, 0).unwrap();
    for (dest, report, before) in copies {
        let copy = copy_of(&disk, &dest).open_blocking().unwrap();
        assert!(copy.recovery().clean, "{:?}", copy.recovery());
        assert!(copy.recovery().progress_ahead.is_empty());
        assert_eq!(copy.info().uuid, log.info().uuid);
        let found = read_from(&copy, partition, 0).unwrap();
        assert_eq!(found, all[..found.len()]);
        assert!(found.len() as u64 >= before, "all that was committed when it began");
        assert_eq!(report.ends[partition as usize].get(), found.len() as u64);
        let key = key(&copy, "archive", partition);
        let claimed = block_on(copy.store().claim(&key, Epoch::FIRST, None)).unwrap().unwrap();
        let next = claimed.1.next.get();
        assert!(next >= before && next <= found.len() as u64, "{next} of {}", found.len());
        assert!(claimed.0.get() > 1, "the epochs of the log go on");
        assert_eq!(block_on(copy.enlist("orders")).unwrap().next, found.len() as u64);
        let receipt = stored(&copy, partition, "case-7", "goes on");
        assert_eq!(receipt.sequence, Some(Sequence::new(found.len() as u64)));
    }
}

/// A test that fails ends its threads too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Goal: half a backup is never taken for a log. Method: cut the power at every step of one; what is
/// there afterwards is nothing, is refused, or is whole.
#[test]
fn a_backup_interrupted_at_any_step_is_nothing_or_refused_or_whole() {
    let (mut nothing, mut refused, mut whole) = (0, 0, 0);
    let dest = Path::new("/copy");
    for changes in 0.. {
        let disk = MemoryDisk::new();
        let log = open(&disk);
        for i in 0..120 {
            stored(&log, 0, "case", &format!("{i:0>900}"));
        }
        block_on(log.close()).unwrap();
        let log = open(&disk);
        // Its threads have nothing left to do.
        while !disk.files().iter().any(|path| path.ends_with("spare.seg")) {
            std::thread::yield_now();
        }
        disk.power_off_after(changes);
        let done = block_on(log.backup(dest)).is_ok();
        crash(log, &disk, changes * 7 + 3);
        let empty =
            disk.kind(dest).unwrap() == Kind::Missing || disk.list(dest).unwrap().is_empty();
        match copy_of(&disk, dest).open_blocking() {
            _ if empty => nothing += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Mismatch, "{changes}: {error}");
                assert!(error.to_string().contains("interrupted"), "{error}");
                let read_only = copy_of(&disk, dest).read_only().open_blocking().unwrap_err();
                assert_eq!(read_only.kind(), ErrorKind::Mismatch, "{changes}: {read_only}");
                refused += 1;
            }
            Ok(copy) => {
                assert_eq!(contents(&copy, 0).len(), 120, "{changes}");
                assert!(copy.recovery().clean, "{changes}");
                whole += 1;
            }
        }
        if done {
            break;
        }
        assert!(changes < 500, "the backup never ends");
    }
    assert!(nothing > 0 && refused > 5 && whole > 0, "{nothing} {refused} {whole}");
}

/// Goal: a backup while segments are removed holds what was left when it ended, or says that it
/// could not. Method: a subscription keeps everything until the backup has begun; then it finishes,
/// and retention removes what it can while the backup reads.
#[test]
fn a_backup_while_segments_are_removed_is_whole_or_says_so() {
    let (mut made, disk) = (0, MemoryDisk::new());
    let log = options(&disk).retain_bytes(0).open_blocking().unwrap();
    let (mut next, key) = (0_u64, key(&log, "keeps", 0));
    finish(&log, &key, 0, &[]);
    for number in 0..20 {
        for _ in 0..300 {
            stored(&log, 0, "case", &format!("{next:0>1000}"));
            next += 1;
        }
        let dest = PathBuf::from(format!("/copy-{number}"));
        let outcome = std::thread::scope(|scope| {
            let backup = scope.spawn(|| block_on(log.backup(&dest)));
            let begun = |path: &PathBuf| {
                path.starts_with(&dest) && path.extension().is_some_and(|e| e == "seg")
            };
            while !disk.files().iter().any(begun) && !backup.is_finished() {
                std::thread::yield_now();
            }
            // Some are copied and some are not: from the beginning, and one in the middle.
            if number % 2 == 0 {
                finish(&log, &key, next, &[]);
            } else {
                finish(&log, &key, next - 290, &[(next - 200, next - 20)]);
            }
            trim(&log);
            backup.join().unwrap()
        });
        match outcome {
            Ok(report) => {
                made += 1;
                let copy = copy_of(&disk, &dest).open_blocking().unwrap();
                let from = block_on(copy.ends(Position::Earliest)).unwrap()[0].get();
                let found = read_from(&copy, 0, from).unwrap();
                // Whatever was not finished when the progress in the copy was taken.
                let end = report.ends[0].get();
                assert_eq!(found.last().unwrap().offset.get() + 1, end);
                let kept = |offset: u64| {
                    (offset < next - 200 && offset >= next - 290) || offset >= next - 20
                };
                let has = |offset| found.iter().any(|stored| stored.offset.get() == offset);
                let unfinished = (next - 290..end).filter(|offset| kept(*offset));
                if number % 2 == 1 {
                    assert!(
                        unfinished.into_iter().all(has),
                        "an unfinished record is not in the copy"
                    );
                }
                assert!(copy.recovery().segments_missing.is_empty());
                // The log may have removed more since; what it still has is in the copy, as it is.
                let still = read_from(&log, 0, from).unwrap_or_default();
                let same = |stored: &Stored| stored.offset.get() >= end || found.contains(stored);
                assert!(still.iter().all(same), "the copy differs");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
    // Some went by themselves.
    let trimmed = log.shared().segments.all()[0].id() - 1;
    assert!(made > 0 && trimmed > 20, "no evidence: {made} made, {trimmed} trimmed");
}

#[test]
fn a_backup_goes_into_nothing_but_an_empty_folder_and_carries_no_damage_on() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..120 {
        stored(&log, 0, "case", &format!("{i:0>900}"));
    }
    let kind = |dest: &str| block_on(log.backup(dest)).unwrap_err().kind();
    assert_eq!(kind(FOLDER), ErrorKind::Mismatch);
    assert_eq!(kind("/log/meta"), ErrorKind::Mismatch);
    assert_eq!(kind("/missing/copy"), ErrorKind::NotFound);
    disk.create_dir(Path::new("/empty")).unwrap();
    assert_eq!(block_on(log.backup("/empty")).unwrap().ends[0], Offset::new(120));
    assert_eq!(kind("/empty"), ErrorKind::Mismatch);
    let clone = log.clone();
    block_on(log.close()).unwrap();
    let error = block_on(clone.backup("/closed")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    drop(clone);
    let mut image = image(&disk);
    file_of(&mut image, "log/00000000000000000001.seg")[9000] ^= 1;
    let disk = disk_of(&image);
    let log = open(&disk);
    let error = block_on(log.backup("/copy")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.path().unwrap().ends_with("00000000000000000001.seg"));
    let log = {
        drop(log);
        options(&disk).skip_corruption(true).open_blocking().unwrap()
    };
    block_on(log.backup("/as-it-is")).unwrap();
}

#[cfg(feature = "lz4")]
#[test]
fn a_backup_of_compressed_batches_is_checked_and_opens_like_any_other() {
    let disk = MemoryDisk::new();
    let log = open_packed(&disk, true);
    for i in 0..300 {
        stored(&log, 0, "case", &format!("{i:0>900}"));
    }
    block_on(log.backup("/copy")).unwrap();
    let copy = copy_of(&disk, Path::new("/copy")).open_blocking().unwrap();
    assert!(copy.recovery().clean);
    assert_eq!(contents(&copy, 0), contents(&log, 0));
}
