//! A full disk, a subscription that is stuck, and what retention gives back.

use std::path::Path;

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::{Disk, Fault, FaultOp, MemoryDisk};
use crate::segments::SPARE;
use crate::{FileLog, OpenOptions};

fn keeping(disk: &MemoryDisk) -> OpenOptions {
    options(disk).retain_bytes(0)
}

/// Appends until the disk is full; gives the number of records.
fn until_full(log: &FileLog) -> u64 {
    let mut kept = block_on(log.ends(Position::End)).unwrap()[0].get();
    loop {
        match send(log, 0, "a", &"x".repeat(3000)) {
            Outcome::Stored(receipt) => kept = receipt.offset.get() + 1,
            Outcome::Refused(_, error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                return kept;
            }
            other => panic!("{other:?}"),
        }
        assert!(kept < 1000, "the disk never fills");
    }
}

/// Goal: a full disk with a stuck subscription stops appends alone, and freeing it lets them go on
/// without a reopen. Method: a disk with room for four more segments.
#[test]
fn reads_commits_and_trims_go_on_when_a_stuck_subscription_has_filled_the_disk() {
    for removed in [false, true] {
        let disk = MemoryDisk::new();
        let log = keeping(&disk).open_blocking().unwrap();
        let stuck = key(&log, "stuck", 0);
        block_on(log.store().claim(&stuck, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
        let other = key(&log, "other", 0);
        block_on(log.store().claim(&other, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
        disk.space_left(Some(300 << 10));
        let kept = until_full(&log);
        assert_eq!(contents(&log, 0).len() as u64, kept);
        for next in 1..=kept {
            assert!(matches!(finish(&log, &other, next, &[]), Committed::Done), "{next}");
        }
        let trimmed = trim(&log);
        assert_eq!((trimmed.segments, &*trimmed.pinned_by[0].subscription), (0, "stuck"));
        assert_eq!(until_full(&log), kept, "still full");
        if removed {
            block_on(log.remove_subscription("stuck")).unwrap();
        } else {
            finish(&log, &stuck, kept, &[]);
        }
        assert!(trim(&log).pinned_by.is_empty());
        // No room was made but by trimming.
        for i in 0..60 {
            let receipt = stored(&log, 0, "a", &"y".repeat(3000));
            assert_eq!(receipt.sequence, Some(Sequence::new(kept + i)), "removed: {removed}");
            if !removed {
                finish(&log, &stuck, receipt.offset.get() + 1, &[]);
            }
            finish(&log, &other, receipt.offset.get() + 1, &[]);
        }
        let low = earliest(&log, 0);
        let left = read_from(&log, 0, low).unwrap();
        crash(log, &disk, 6);
        disk.space_left(Some(0));
        // Without retention, which would go on.
        assert_eq!(read_from(&open(&disk), 0, low).unwrap(), left);
    }
}

/// Goal: a log that took its last spare on a full disk opens again after a crash, without any
/// room. Method: fill it to the last byte, crash, open again and again without room.
#[test]
fn a_log_without_a_spare_is_recovered_in_place_on_a_full_disk() {
    let mut cut = 0;
    for seed in 0..200_u64 {
        // What a cut leaves depends on how far the threads have come: twenty nearly always tear
        // something, and none of the promises may rest on a run that tore nothing.
        if seed >= 20 && cut > 0 {
            break;
        }
        let disk = MemoryDisk::new();
        let log = open(&disk);
        disk.space_left(Some(64 << 10));
        let mut kept = until_full(&log);
        crash(log, &disk, seed);
        for life in 0..4_u64 {
            let what = format!("seed {seed} life {life}");
            disk.heal();
            disk.space_left(Some(0));
            let log = open(&disk);
            let found = contents(&log, 0);
            assert!(found.len() as u64 >= kept, "{what}: {} of {kept}", found.len());
            for (at, (offset, ..)) in found.iter().enumerate() {
                assert_eq!(*offset, at as u64, "{what}");
            }
            kept = found.len() as u64;
            // What was cut does not lie in the way of an orderly close.
            cut += log.recovery().cut_bytes;
            block_on(log.close()).unwrap();
            let log = open(&disk);
            assert!(log.recovery().clean, "{what}: {:?}", log.recovery());
            // The last segment takes what it has room for.
            disk.power_off_after(2 + (seed + life) % 7);
            for _ in 0..5 {
                match send(&log, 0, "a", &format!("small {life}")) {
                    Outcome::Stored(receipt) => kept = receipt.offset.get() + 1,
                    _ => break,
                }
            }
            crash(log, &disk, seed * 5 + life);
        }
        let log = open(&disk);
        assert!(contents(&log, 0).len() as u64 >= kept, "seed {seed}");
        stored(&log, 0, "a", &"room again".repeat(300));
    }
    assert!(cut > 0, "nothing was ever torn");
}

#[test]
fn pages_of_a_failed_sync_are_rewritten_in_place_before_anything_is_built_on_them() {
    let disk = MemoryDisk::new();
    block_on(open(&disk).close()).unwrap();
    disk.unlink(&Path::new(FOLDER).join(SPARE)).unwrap();
    disk.space_left(Some(0));
    let log = open(&disk);
    stored(&log, 0, "a", "before");
    let fault = Fault {
        op: FaultOp::Sync,
        path: ".seg".into(),
        after: 0,
        kind: std::io::ErrorKind::Other,
        stays: false,
    };
    disk.fail(fault);
    let unclear = "unclear".repeat(500);
    assert!(matches!(send(&log, 0, "a", &unclear), Outcome::Unknown(_)));
    drop(log);
    // The pages read well and are clean, but they are not on the disk.
    let log = open(&disk);
    assert_eq!(contents(&log, 0).len(), 2);
    stored(&log, 0, "a", "after");
    crash(log, &disk, 5);
    disk.space_left(Some(0));
    let payloads: Vec<_> = contents(&open(&disk), 0).into_iter().map(|(_, _, p)| p).collect();
    assert!(payloads == ["before", &unclear, "after"], "{} of 3 are left", payloads.len());
}

/// Goal: a power cut in the middle of a recovery in place loses nothing that was acknowledged.
/// Method: cut it after every number of changes, then open with the disk still full.
#[test]
fn a_power_cut_at_any_step_of_a_recovery_in_place_loses_nothing_acknowledged() {
    for changes in 0..40_u64 {
        let disk = MemoryDisk::new();
        let log = open(&disk);
        disk.space_left(Some(64 << 10));
        until_full(&log);
        for i in 0..3 {
            // Too many for the last round, which is torn.
            send(&log, 0, "a", &format!("{i:0>200}"));
        }
        let acknowledged = contents(&log, 0);
        crash(log, &disk, changes + 3);
        disk.space_left(Some(0));
        disk.power_off_after(changes);
        let opened = options(&disk).open_blocking();
        let done = opened.is_ok();
        disk.crash(changes * 7 + 1);
        drop(opened);
        disk.space_left(Some(0));
        let log = open(&disk);
        let found = contents(&log, 0);
        assert_eq!(found[..acknowledged.len()], acknowledged[..], "after {changes} changes");
        if done {
            return;
        }
    }
    panic!("the recovery never ended");
}
