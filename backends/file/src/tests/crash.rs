//! Power cuts: what was acknowledged is there, in order; what was not may be.

use std::sync::Arc;

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::MemoryDisk;

#[test]
fn a_power_cut_at_any_step_of_the_first_open_leaves_something_that_opens() {
    for changes in 0.. {
        let disk = MemoryDisk::new();
        disk.power_off_after(changes);
        let opened = options(&disk).open_blocking();
        let done = opened.is_ok();
        let log = opened.ok();
        disk.crash(changes + 77);
        drop(log);
        let log = open(&disk);
        stored(&log, 0, "a", "1");
        block_on(log.close()).unwrap();
        if done && changes > 30 {
            break;
        }
        assert!(changes < 500, "the first open never ends");
    }
}

/// Goal: no acknowledged record is lost, none appears twice, none out of order, and offsets and
/// sequences go on, whatever the power cut interrupts, several times in a row on one disk. Method:
/// cut the power after every number of changes, lose a random half of the unsynced pages, reopen.
#[test]
fn acknowledged_records_survive_power_cuts_in_a_row() {
    for seed in 0..40_u64 {
        let disk = MemoryDisk::new();
        let mut acknowledged: Vec<String> = Vec::new();
        let mut sent = 0;
        for life in 0..5_u64 {
            disk.heal();
            let log = open(&disk);
            let found: Vec<String> = contents(&log, 0).into_iter().map(|(_, _, p)| p).collect();
            assert!(
                is_subsequence(&acknowledged, &found),
                "seed {seed}: {acknowledged:?} {found:?}"
            );
            let numbers: Vec<u64> = found.iter().map(|p| p.parse().unwrap()).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "seed {seed}: {numbers:?}");
            let stored = read_from(&log, 0, 0).unwrap();
            for (i, record) in stored.iter().enumerate() {
                assert_eq!(record.sequence, Some(Sequence::new(i as u64)), "seed {seed}");
            }
            // What was read once is there for ever.
            acknowledged = found;
            disk.power_off_after(1 + (seed * 7 + life * 13) % 60);
            for _ in 0..200 {
                let (payload, big) = (sent.to_string(), sent % 5 == 0);
                sent += 1;
                let mut record = record("case-7", &payload);
                if big {
                    record = record.with_header("fill", vec![7; 1500]);
                }
                let batch = Batch::one(Partition::new(0), record);
                match block_on(log.append(batch)).into_iter().next().unwrap() {
                    Outcome::Stored(_) => acknowledged.push(payload),
                    Outcome::Refused(..) | Outcome::Unknown(_) => break,
                    other => panic!("{other:?}"),
                }
            }
            crash(log, &disk, seed * 31 + life);
        }
    }
}

#[test]
fn stale_bytes_behind_the_tail_never_decode() {
    // The flushed level leaves many rounds unsynced; a cut keeps some of their pages.
    for seed in 0..60 {
        let disk = MemoryDisk::new();
        let mut floor = 0;
        for life in 0..3_u64 {
            disk.heal();
            let log = options(&disk).durability(Durability::Flushed).open_blocking().unwrap();
            let found = contents(&log, 0);
            for (i, (offset, _, payload)) in found.iter().enumerate() {
                assert_eq!(*offset, i as u64, "seed {seed}");
                assert!(payload.starts_with("life"), "seed {seed}: {payload}");
            }
            let lives: Vec<&str> = found.iter().map(|(_, _, p)| &p[..6]).collect();
            assert!(lives.is_sorted(), "seed {seed}: {lives:?}");
            assert!(found.len() >= floor, "seed {seed}");
            floor = found.len();
            disk.power_off_after(4 + seed % 17);
            for i in 0..30 {
                let sent = send(&log, 0, "case", &format!("life-{life} {i:0>300}"));
                if !matches!(sent, Outcome::Stored(_)) {
                    break;
                }
            }
            crash(log, &disk, seed * 3 + life + 1);
        }
    }
}

/// Goal: bytes that were in a file before it was ours do not decode, however well they fit. Method:
/// behind the tail of one log put the rounds of another, of the same size at the same place.
#[test]
fn rounds_of_another_log_behind_the_tail_never_decode() {
    let unclean = |records: u64, whose: &str| {
        let disk = MemoryDisk::new();
        let log = options(&disk).clock(Arc::new(TestClock::default())).open_blocking().unwrap();
        for i in 0..records {
            stored(&log, 0, "case", &format!("{whose}-{i}"));
        }
        image(&disk)
    };
    let (mut mine, mut theirs) = (unclean(3, "mine"), unclean(6, "them"));
    let bytes = file_of(&mut mine, "1.seg");
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes[end..].copy_from_slice(&file_of(&mut theirs, "1.seg")[end..]);
    let disk = disk_of(&mine);
    for _ in 0..2 {
        let log = open(&disk);
        let payloads: Vec<_> = contents(&log, 0).into_iter().map(|(_, _, p)| p).collect();
        assert_eq!(payloads, ["mine-0", "mine-1", "mine-2"]);
        crash(log, &disk, 1);
    }
}

#[test]
fn an_offset_that_progress_names_is_never_given_again() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let (store, key) = (log.store(), key(&log, "s", 1));
    let (epoch, _) =
        block_on(store.claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap().unwrap();
    let progress = Progress::at(Offset::new(41));
    block_on(store.commit(&[Commit { key: &key, epoch, progress: &progress }])).unwrap();
    drop(store);
    crash(log, &disk, 1);
    let log = open(&disk);
    let ahead = &log.recovery().progress_ahead[..];
    let named = |a: &crate::ProgressAhead| (a.partition, a.end.get(), a.named.get());
    assert_eq!(ahead.iter().map(named).collect::<Vec<_>>(), [(1, 0, 41)], "it is reported");
    assert_eq!(block_on(log.ends(Position::End)).unwrap()[1], Offset::new(41));
    assert!(read_from(&log, 1, 41).unwrap().is_empty());
    assert_eq!(stored(&log, 1, "a", "b").offset, Offset::new(41));
}

fn is_subsequence(part: &[String], whole: &[String]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|wanted| whole.any(|found| found == wanted))
}
