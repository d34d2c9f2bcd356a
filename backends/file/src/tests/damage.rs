//! Bytes that change on the disk: an error or a cut, never a wrong record.

use std::ops::Range;
use std::sync::Arc;

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::MemoryDisk;
use crate::{FileLog, FileStore, OpenOptions};

fn small(disk: &MemoryDisk) -> OpenOptions {
    options(disk).segment_bytes(24 << 10).round_bytes_max(8 << 10)
}

/// A log that was not closed, its bytes, and what was in partition 0.
fn unclean() -> (Image, Vec<(u64, String, String)>) {
    let disk = MemoryDisk::new();
    // The clock stands still: no mark proves the last round.
    let clock = Arc::new(TestClock::default());
    let log = small(&disk).clock(clock).open_blocking().unwrap();
    for i in 0..6 {
        stored(&log, 0, &format!("case-{}", i % 2), &format!("payload-{i}"));
    }
    let image = image(&disk);
    (image, contents(&log, 0))
}

fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// Opens a damaged log: what it gives must be a prefix of what was there.
#[track_caller]
fn opens_to_a_prefix(image: &Image, whole: &[(u64, String, String)], what: &str) -> Option<usize> {
    let disk = disk_of(image);
    match small(&disk).open_blocking() {
        Err(error) => {
            let known = [ErrorKind::Corrupt, ErrorKind::Version, ErrorKind::Mismatch];
            assert!(known.contains(&error.kind()), "{what}: {error:?}");
            assert!(error.path().is_some(), "{what}: {error:?}");
            None
        }
        Ok(log) => {
            let found = contents(&log, 0);
            assert_eq!(found[..], whole[..found.len()], "{what}");
            let next = stored(&log, 0, "case-0", "after");
            assert_eq!(next.offset, Offset::new(found.len() as u64), "{what}");
            Some(found.len())
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_segment_is_corruption_or_a_cut_of_the_unproven_tail() {
    let (image, whole) = unclean();
    let mut clean = image.clone();
    let end = used(file_of(&mut clean, "1.seg"));
    let (mut corrupt, mut cut) = (0, 0);
    // The header has 100 bytes, the batches begin at 4,096.
    for at in (0..100).chain(4096..end) {
        let mut damaged = image.clone();
        file_of(&mut damaged, "1.seg")[at] ^= 1 << (at % 8);
        match opens_to_a_prefix(&damaged, &whole, &format!("byte {at}")) {
            None => corrupt += 1,
            Some(n) => {
                // Five rounds are proven by the headers of the rounds behind them.
                assert!(n >= 5, "byte {at}: only {n} records are left");
                cut += 1;
            }
        }
    }
    assert!(corrupt > 100 && cut > 50, "{corrupt} {cut}");
}

#[test]
fn a_tail_cut_at_any_byte_leaves_what_is_before_it() {
    let (image, whole) = unclean();
    let bytes = file_of(&mut image.clone(), "1.seg").clone();
    let end = used(&bytes);
    // One round a record: where the rounds end is where the next ones begin.
    let starts = bytes.windows(4).enumerate().filter(|(_, magic)| magic == b"BTCH");
    let mut ends: Vec<usize> = starts.map(|(at, _)| at - 4).skip(1).collect();
    ends.push(end);
    assert_eq!(ends.len(), whole.len());
    // Torn writes leave zeros, or a shorter file.
    for shorter in [false, true] {
        for keep in ends[2]..=end {
            let mut torn = image.clone();
            let file = file_of(&mut torn, "1.seg");
            file[keep..].fill(0);
            if shorter {
                file.truncate(keep);
            }
            let what = format!("cut at {keep}");
            let left = opens_to_a_prefix(&torn, &whole, &what);
            let expected = ends.iter().filter(|end| **end <= keep).count();
            assert_eq!(left, Some(expected), "{what}");
        }
    }
}

/// A log whose subscription "archive" has committed 1, 2 and 3 in partition 0.
fn committed_three_times(disk: &MemoryDisk) -> (FileLog, FileStore, Key) {
    let log = small(disk).open_blocking().unwrap();
    let (store, key) = (log.store(), key(&log, "archive", 0));
    let (epoch, _) =
        block_on(store.claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap().unwrap();
    for next in 1..4 {
        let progress = Progress::at(Offset::new(next));
        block_on(store.commit(&[Commit { key: &key, epoch, progress: &progress }])).unwrap();
    }
    (log, store, key)
}

#[test]
fn a_tail_of_progress_cut_at_any_byte_leaves_the_commit_before_it() {
    let disk = MemoryDisk::new();
    let (_log, _store, key) = committed_three_times(&disk);
    let image = image(&disk);
    let name = ["progress.a", "progress.b"]
        .into_iter()
        .find(|name| file_of(&mut image.clone(), name)[..8] == *b"PRCNPROG")
        .unwrap();
    let bytes = file_of(&mut image.clone(), name).clone();
    let magics = bytes.windows(4).enumerate().filter(|(_, magic)| magic == b"PRGF");
    let length = |at: usize| u32::from_le_bytes(bytes[at - 4..at].try_into().unwrap()) as usize;
    let frames: Vec<_> = magics.map(|(at, _)| at - 8..at - 8 + length(at)).collect();
    // The claim, and three commits.
    assert_eq!(frames.len(), 4);
    for shorter in [false, true] {
        for keep in frames[0].end..=frames[3].end {
            let mut torn = image.clone();
            let file = file_of(&mut torn, name);
            file[keep..].fill(0);
            if shorter {
                file.truncate(keep);
            }
            let is_whole =
                |frame: &&Range<usize>| file.get((*frame).clone()) == bytes.get((*frame).clone());
            let whole = frames.iter().filter(is_whole).count() as u64;
            let log = small(&disk_of(&torn)).open_blocking().unwrap();
            let claimed = block_on(log.store().claim(&key, Epoch::FIRST, None)).unwrap();
            assert_eq!(claimed.unwrap().1.next, Offset::new(whole - 1), "cut at {keep}");
        }
    }
}

#[test]
fn a_flipped_bit_in_metadata_or_index_never_goes_unnoticed() {
    let disk = MemoryDisk::new();
    let log = small(&disk).open_blocking().unwrap();
    for i in 0..80 {
        // The first groups are in the first segment alone.
        let group = if i < 30 { format!("case-{}", i % 7) } else { format!("later-{}", i % 5) };
        stored(&log, 0, &group, &format!("payload-{i:0>200}"));
    }
    let whole = contents(&log, 0);
    block_on(log.close()).unwrap();
    let image = image(&disk);
    for name in ["meta", "1.idx"] {
        let length = file_of(&mut image.clone(), name).len();
        for at in 0..length {
            let mut damaged = image.clone();
            file_of(&mut damaged, name)[at] ^= 1 << (at % 8);
            let disk = disk_of(&damaged);
            match small(&disk).open_blocking() {
                Err(error) => assert_eq!(name, "meta", "{error:?}"),
                // An index is rebuilt, or its groups are checked when they are looked up.
                Ok(log) => {
                    assert_ne!(name, "meta", "byte {at} went unnoticed");
                    assert_eq!(contents(&log, 0), whole, "byte {at}");
                    groups_go_on(&log, &whole, &format!("byte {at}"));
                }
            }
        }
    }
}

/// Every group counts on, or its next record is refused because the index is damaged.
#[track_caller]
fn groups_go_on(log: &FileLog, whole: &[(u64, String, String)], what: &str) {
    for group in (0..7).map(|i| format!("case-{i}")) {
        let next = whole.iter().filter(|(_, key, _)| *key == group).count() as u64;
        match send(log, 0, &group, "next") {
            Outcome::Stored(receipt) => {
                assert_eq!(receipt.sequence, Some(Sequence::new(next)), "{what} {group}");
            }
            Outcome::Refused(_, e) => assert_eq!(e.kind(), ErrorKind::Corrupt, "{what} {group}"),
            other => panic!("{what} {group}: {other:?}"),
        }
    }
}

#[test]
fn skipping_corruption_sets_the_bytes_aside_and_reports_them() {
    let (mut image, whole) = unclean();
    // In the second round: a payload byte.
    let bytes = file_of(&mut image, "1.seg");
    let at = bytes.windows(9).position(|w| w == b"payload-1").unwrap();
    bytes[at] ^= 1;
    let disk = disk_of(&image);
    let error = small(&disk).open_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("skip_corruption"), "{error}");
    let log = small(&disk).skip_corruption(true).open_blocking().unwrap();
    let left: Vec<_> = whole.iter().filter(|(offset, ..)| *offset != 1).cloned().collect();
    assert_eq!(contents(&log, 0), left);
    let [quarantined] = &log.recovery().quarantined[..] else { panic!("{:?}", log.recovery()) };
    assert!(disk.bytes(&quarantined.copy).windows(8).any(|w| w == b"ayload-1"));
    // Recover, write, crash, recover again.
    stored(&log, 0, "case-0", "after");
    crash(log, &disk, 3);
    let log = small(&disk).open_blocking().unwrap();
    assert_eq!(contents(&log, 0).len(), left.len() + 1);
}

#[test]
fn a_flipped_bit_in_a_sealed_segment_is_an_error_of_the_read() {
    let disk = MemoryDisk::new();
    let log = small(&disk).open_blocking().unwrap();
    for i in 0..200 {
        stored(&log, 0, "case", &format!("payload-{i:0>200}"));
    }
    block_on(log.close()).unwrap();
    let mut damaged = image(&disk);
    // Every byte of a batch and its frame.
    let batches = file_of(&mut damaged, "1.seg").windows(4).enumerate();
    let batches: Vec<_> = batches.filter(|(_, magic)| magic == b"BTCH").map(|(at, _)| at).collect();
    for at in batches[20] - 4..batches[21] - 4 {
        let mut damaged = damaged.clone();
        file_of(&mut damaged, "1.seg")[at] ^= 1 << (at % 8);
        let log = small(&disk_of(&damaged)).open_blocking().unwrap();
        let error = read_from(&log, 0, 0).map(|records| records.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}");
    }
    file_of(&mut damaged, "1.seg")[9000] ^= 4;
    let disk = disk_of(&damaged);
    let log = small(&disk).open_blocking().unwrap();
    let error = read_from(&log, 0, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("00000000000000000001.seg"), "{error}");
    drop(log);
    // Reads step over it by choice, and the group goes on counting although its index is gone.
    let mut without = image(&disk);
    without.retain(|(path, _)| !path.to_string_lossy().ends_with("1.idx"));
    let disk = disk_of(&without);
    assert_eq!(small(&disk).open_blocking().unwrap_err().kind(), ErrorKind::Corrupt);
    let log = small(&disk).skip_corruption(true).open_blocking().unwrap();
    assert_eq!(contents(&log, 0).len(), 199);
    assert_eq!(stored(&log, 0, "case", "next").sequence, Some(Sequence::new(200)));
}

#[test]
fn a_flipped_bit_in_the_progress_store_is_noticed_where_it_was_proven() {
    let disk = MemoryDisk::new();
    let (log, store, key) = committed_three_times(&disk);
    drop(store);
    block_on(log.close()).unwrap();
    let image = image(&disk);
    let name = ["progress.a", "progress.b"]
        .into_iter()
        .find(|name| file_of(&mut image.clone(), name)[..8] == *b"PRCNPROG")
        .unwrap();
    let end = used(file_of(&mut image.clone(), name));
    for at in (0..44).chain(4096..end) {
        let mut damaged = image.clone();
        file_of(&mut damaged, name)[at] ^= 1 << (at % 8);
        let disk = disk_of(&damaged);
        match small(&disk).open_blocking() {
            Err(error) => {
                let known = [ErrorKind::Corrupt, ErrorKind::Version];
                assert!(known.contains(&error.kind()), "byte {at}: {error:?}");
            }
            // Only the mark of the close itself may go unnoticed: everything before is proven.
            Ok(log) => {
                let claimed = block_on(log.store().claim(&key, Epoch::FIRST, None)).unwrap();
                assert_eq!(claimed.unwrap().1.next, Offset::new(3), "byte {at}");
            }
        }
    }
}

#[test]
fn segments_and_progress_of_another_log_are_refused() {
    let (image, _) = unclean();
    let (mut other, _) = unclean();
    for name in ["1.seg", "progress.a"] {
        let mut mixed = image.clone();
        *file_of(&mut mixed, name) = file_of(&mut other, name).clone();
        let error = small(&disk_of(&mixed)).open_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error:?}");
    }
}
