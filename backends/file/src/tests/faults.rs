//! Writes and syncs that fail, and disks that are full.

use std::io::ErrorKind as Io;

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::{Fault, FaultOp, MemoryDisk};

fn fault(op: FaultOp, path: &str, kind: Io) -> Fault {
    Fault { op, path: path.into(), after: 0, kind, stays: false }
}

#[test]
fn a_failed_write_or_sync_poisons_the_log_and_tells_every_waiter() {
    for op in [FaultOp::Write, FaultOp::Sync] {
        let disk = MemoryDisk::new();
        let log = open(&disk);
        stored(&log, 0, "a", "before");
        disk.fail(fault(op, ".seg", Io::Other));
        let waiting: Vec<_> = (0..50)
            .map(|i| log.append(Batch::one(Partition::new(0), record("a", &i.to_string()))))
            .collect();
        for appending in waiting {
            let outcome = block_on(appending).into_iter().next().unwrap();
            match outcome {
                Outcome::Unknown(e) => assert_eq!(e.kind(), ErrorKind::Poisoned),
                Outcome::Refused(record, e) => {
                    assert_eq!(e.kind(), ErrorKind::Poisoned);
                    assert_eq!(record.key().unwrap().as_ref(), b"a");
                }
                other => panic!("{op:?}: {other:?}"),
            }
        }
        let seen = block_on(log.changed(Version(u64::MAX - 1)));
        assert_eq!(seen.unwrap_err().kind(), ErrorKind::Poisoned);
        // What was durable can still be read.
        assert_eq!(contents(&log, 0).len(), 1);
        assert_eq!(block_on(log.close()).unwrap_err().kind(), ErrorKind::Poisoned);
        let log = open(&disk);
        let found = contents(&log, 0);
        assert_eq!(found[0].2, "before");
        assert_eq!(stored(&log, 0, "a", "again").sequence, Some(Sequence::new(found.len() as u64)));
    }
}

#[test]
fn pages_of_a_failed_sync_are_rewritten_before_anything_is_built_on_them() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    stored(&log, 0, "a", "before");
    disk.fail(fault(FaultOp::Sync, ".seg", Io::Other));
    // Over several pages, most of which nothing later writes to.
    let unclear = "unclear".repeat(500);
    assert!(matches!(send(&log, 0, "a", &unclear), Outcome::Unknown(_)));
    drop(log);
    // The page reads well and is clean, but it is not on the disk.
    let log = open(&disk);
    assert_eq!(contents(&log, 0).len(), 2);
    stored(&log, 0, "a", "after");
    crash(log, &disk, 5);
    let payloads: Vec<_> = contents(&open(&disk), 0).into_iter().map(|(_, _, p)| p).collect();
    assert!(payloads == ["before", &unclear, "after"], "{} of 3 are left", payloads.len());
}

#[test]
fn a_failed_folder_sync_or_rename_while_rolling_loses_nothing_acknowledged() {
    for op in [FaultOp::SyncDir, FaultOp::Rename] {
        for after in 0..3 {
            let disk = MemoryDisk::new();
            let log = open(&disk);
            let mut acknowledged = 0;
            for i in 0..200_u64 {
                if i == 5 {
                    disk.fail(Fault { after, ..fault(op, "", Io::Other) });
                }
                match send(&log, 0, "a", &format!("{i:0>1000}")) {
                    Outcome::Stored(_) => acknowledged += 1,
                    _ => break,
                }
            }
            crash(log, &disk, after + 9);
            let found = contents(&open(&disk), 0);
            assert!(found.len() >= acknowledged, "{op:?} {after}: {} {acknowledged}", found.len());
        }
    }
}

#[test]
fn a_full_disk_hands_records_back_and_the_log_goes_on_when_there_is_room() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let key = key(&log, "s", 0);
    let store = log.store();
    let (epoch, _) =
        block_on(store.claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap().unwrap();
    disk.space_left(Some(0));
    let mut kept = 0;
    let mut refused = 0;
    for i in 0..400_u64 {
        match send(&log, 0, "a", &format!("{i:0>1000}")) {
            Outcome::Stored(receipt) => {
                assert_eq!(receipt.sequence, Some(Sequence::new(kept)));
                kept += 1;
            }
            Outcome::Refused(record, error) => {
                assert_eq!(error.kind(), ErrorKind::Full);
                assert_eq!(record.payload().unwrap()[..], *format!("{i:0>1000}").as_bytes());
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
        if refused == 20 {
            break;
        }
    }
    assert!(refused == 20 && kept > 30, "{kept} {refused}");
    // Reads and acknowledgements go on.
    assert_eq!(contents(&log, 0).len() as u64, kept);
    for next in 1..200 {
        let progress = Progress::at(Offset::new(next % kept));
        let commit = Commit { key: &key, epoch, progress: &progress };
        assert!(matches!(block_on(store.commit(&[commit])).unwrap()[..], [Committed::Done]));
    }
    disk.space_left(None);
    assert_eq!(stored(&log, 0, "a", "room").sequence, Some(Sequence::new(kept)));
    drop(store);
    crash(log, &disk, 2);
    assert_eq!(contents(&open(&disk), 0).len() as u64, kept + 1);
}

#[test]
fn no_space_in_the_middle_of_a_write_leaves_no_trace() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    stored(&log, 0, "a", "1");
    // The handle knows the file by the name it was opened under. A file system that copies on write can be full even inside a file.
    disk.fail(fault(FaultOp::Write, "/spare.seg", Io::StorageFull));
    assert!(
        matches!(send(&log, 0, "a", "2"), Outcome::Refused(_, e) if e.kind() == ErrorKind::Full)
    );
    // Half of the bytes: whole records among them, which were handed back.
    disk.fail(fault(FaultOp::TornWrite, "/spare.seg", Io::StorageFull));
    let records = (0..10).map(|i| (Partition::new(0), record("a", &format!("{i:0>300}"))));
    for outcome in block_on(log.append(Batch::many(records))) {
        assert!(matches!(outcome, Outcome::Refused(_, e) if e.kind() == ErrorKind::Full));
    }
    assert_eq!(contents(&open(&disk_of(&image(&disk))), 0).len(), 1);
    let receipt = stored(&log, 0, "a", "3");
    assert_eq!((receipt.offset, receipt.sequence), (Offset::new(1), Some(Sequence::new(1))));
    crash(log, &disk, 8);
    let payloads: Vec<_> = contents(&open(&disk), 0).into_iter().map(|(_, _, p)| p).collect();
    assert_eq!(payloads, ["1", "3"]);
}

#[test]
fn opening_and_acknowledging_need_no_free_space() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..20 {
        stored(&log, 0, "a", &i.to_string());
    }
    // The spare is made in the background: an orderly close waits for it.
    block_on(log.close()).unwrap();
    let log = open(&disk);
    stored(&log, 0, "a", "unproven");
    crash(log, &disk, 4);
    // Not even for the index of the segment that the recovery seals.
    disk.space_left(Some(0));
    let log = open(&disk);
    assert_eq!(contents(&log, 0).len(), 21);
    assert_eq!(stored(&log, 0, "a", "goes on counting").sequence, Some(Sequence::new(21)));
    let key = key(&log, "s", 0);
    let claimed = block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO)));
    assert!(claimed.unwrap().is_some());
}

#[test]
fn a_failed_sync_of_a_commit_leaves_it_unknown_and_stops_the_store() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let (store, key) = (log.store(), key(&log, "s", 0));
    let (epoch, _) =
        block_on(store.claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap().unwrap();
    disk.fail(fault(FaultOp::Sync, "progress", Io::Other));
    let progress = Progress::at(Offset::new(3));
    let commit = [Commit { key: &key, epoch, progress: &progress }];
    let answer = block_on(store.commit(&commit)).unwrap();
    assert!(matches!(&answer[..], [Committed::Unknown(e)] if e.kind() == ErrorKind::Poisoned));
    let again = block_on(store.commit(&commit));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Poisoned);
    // The log itself goes on.
    stored(&log, 0, "a", "b");
}
