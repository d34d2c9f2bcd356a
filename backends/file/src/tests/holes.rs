//! Segments that go although an older one stays: a gap in the offsets.

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::MemoryDisk;
use crate::{FileLog, OpenOptions};

fn keeping(disk: &MemoryDisk) -> OpenOptions {
    options(disk).retain_bytes(64 << 10).groups_max(3)
}

/// A log in which record 1 of partition 0 is stuck and everything behind it is finished.
fn stuck(disk: &MemoryDisk) -> (FileLog, u64) {
    let log = keeping(disk).open_blocking().unwrap();
    let key = key(&log, "s", 0);
    block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    for i in 0..4 {
        stored(&log, 0, &format!("case-{i}"), "first");
    }
    let all = fill(&log, 0, "case-0", 7);
    let end = all.len() as u64 + 4;
    finish(&log, &key, 1, &[(2, end)]);
    (log, end)
}

fn offsets(log: &FileLog) -> Vec<u64> {
    read_from(log, 0, 0).unwrap().iter().map(|stored| stored.offset.get()).collect()
}

#[test]
fn what_is_finished_above_a_stuck_record_goes_and_leaves_a_gap() {
    let disk = MemoryDisk::new();
    let (log, end) = stuck(&disk);
    trim(&log);
    assert_eq!(segment_files(&disk), [1, 8]);
    assert_eq!(earliest(&log, 0), 0, "the lowest that can be read");
    let found = offsets(&log);
    assert!(found[..4] == [0, 1, 2, 3] && found.is_sorted_by(|a, b| a < b), "{found:?}");
    assert_eq!(*found.last().unwrap(), end - 1);
    assert!((found.len() as u64) < end, "there is a gap");
    // The stuck record is where it was.
    assert_eq!(trim(&log).pinned_by[0].offset.get(), 1);
}

#[test]
fn reading_inside_and_before_a_gap_goes_on_behind_it_and_next_leads_over_it() {
    let disk = MemoryDisk::new();
    let (log, end) = stuck(&disk);
    trim(&log);
    let found = offsets(&log);
    let at = found.windows(2).position(|pair| pair[0] + 1 < pair[1]).unwrap();
    let (before, behind) = (found[at], found[at + 1]);
    for from in [before + 1, behind - 1, behind] {
        let records = read_from(&log, 0, from).unwrap();
        assert_eq!(records[0].offset.get(), behind, "from {from}");
    }
    // One record at a time, with a want that has the gap before it.
    let (partition, max) = (Partition::new(0), Budget::new(1, u64::MAX));
    let want = Want { partition, from: Offset::new(before + 1), max };
    let chunk = block_on(log.read(&[want], Budget::MAX)).unwrap().remove(0);
    assert_eq!((chunk.records.len(), chunk.next.get()), (1, behind + 1));
    // Another partition's reads pass the gap without finding anything in it.
    stored(&log, 2, "b", "one");
    assert_eq!(contents(&log, 2).len(), 1);
    assert!(read_from(&log, 1, 0).unwrap().is_empty());
    assert!(end > behind);
}

/// Goal: who finds nothing in a read is led over a gap all the same. Method: another partition uses
/// the budget up, behind the gap.
#[test]
fn an_empty_chunk_leads_over_a_gap_when_another_partition_got_everything() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk).open_blocking().unwrap();
    let stuck = key(&log, "s", 0);
    block_on(log.store().claim(&stuck, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    stored(&log, 0, "a", "stuck");
    fill(&log, 1, "b", 3);
    stored(&log, 2, "c", "in the gap");
    fill(&log, 1, "b", 3);
    trim(&log);
    assert_eq!(segment_files(&disk), [1, 7]);
    let behind = log.shared().segments.all()[1].header.base[1];
    let want = |partition, from| Want {
        partition: Partition::new(partition),
        from: Offset::new(from),
        max: Budget::MAX,
    };
    let wants = [want(1, behind), want(2, 0)];
    let chunks = block_on(log.read(&wants, Budget::new(1, u64::MAX))).unwrap();
    let next: Vec<_> =
        chunks.iter().map(|c| (c.partition.get(), c.records.len(), c.next.get())).collect();
    assert_eq!(next, [(1, 1, behind + 1), (2, 0, 1)]);
}

#[test]
fn a_log_with_gaps_reopens_and_misses_nothing() {
    let disk = MemoryDisk::new();
    let (log, _) = stuck(&disk);
    trim(&log);
    let found = contents(&log, 0);
    block_on(log.close()).unwrap();
    let log = keeping(&disk).open_blocking().unwrap();
    assert!(log.recovery().clean && log.recovery().segments_missing.is_empty());
    assert_eq!(contents(&log, 0), found);
    // What is behind the gap is missed if it goes by itself.
    let mut left = image(&disk);
    let newest = format!("{:020}.seg", segment_files(&disk)[1]);
    left.retain(|(path, _)| !path.ends_with(&newest));
    let error = options(&disk_of(&left)).open_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.path().unwrap().ends_with(&newest), "{error}");
    // Without retention, which would go on.
    crash(log, &disk, 3);
    assert_eq!(contents(&open(&disk), 0), found);
}

/// Goal: a group whose last records lie in a gap goes on counting while an older record of it is
/// there. Method: the group is in the oldest segment, and in those that go; few groups fit into
/// memory; with and without a reopen, and without the indexes of the gap.
#[test]
fn a_group_with_records_in_a_gap_never_counts_twice() {
    for (reopened, indexes) in [(false, true), (true, true), (true, false)] {
        let disk = MemoryDisk::new();
        let (mut log, end) = stuck(&disk);
        trim(&log);
        for i in 0..9 {
            stored(&log, 0, &format!("other-{i}"), "pushes it out of memory");
        }
        // The last records of case-0 went with the gap, but for those of the active segment.
        let last = end - 4;
        if reopened {
            block_on(log.close()).unwrap();
            let mut files = image(&disk);
            let kept = [1, *segment_files(&disk).last().unwrap()];
            let is_kept = |path: &std::path::Path| {
                kept.iter().any(|id| path.ends_with(format!("{id:020}.idx")))
            };
            let is_index = |path: &std::path::Path| path.extension().is_some_and(|e| e == "idx");
            files.retain(|(path, _)| indexes || !is_index(path) || is_kept(path));
            log = keeping(&disk_of(&files)).open_blocking().unwrap();
        }
        let what = format!("reopened: {reopened}, indexes: {indexes}");
        // Its records of the active segment are known in any case.
        let next = stored(&log, 0, "case-0", "next").sequence.unwrap().get();
        assert_eq!(next, last + 1, "{what}");
        // Only in the oldest segment: known while the indexes of the gap are.
        let other = stored(&log, 0, "case-2", "next").sequence.unwrap().get();
        assert!(if indexes { other == 1 } else { other > end }, "{what}: {other}");
    }
}

#[test]
fn when_the_stuck_record_is_finished_the_rest_goes_and_the_gap_with_it() {
    let disk = MemoryDisk::new();
    let (log, end) = stuck(&disk);
    trim(&log);
    finish(&log, &key(&log, "s", 0), end, &[]);
    let trimmed = trim(&log);
    assert!(trimmed.pinned_by.is_empty());
    assert_eq!(segment_files(&disk), [8]);
    let low = earliest(&log, 0);
    assert!(low > 4);
    assert_eq!(read_from(&log, 0, 1).unwrap_err().kind(), ErrorKind::Trimmed);
    let indexes = disk.files().iter().filter(|p| p.extension().is_some_and(|e| e == "idx")).count();
    assert_eq!(indexes, 0, "the indexes of the gap went too");
    block_on(log.close()).unwrap();
    let log = keeping(&disk).open_blocking().unwrap();
    assert_eq!(earliest(&log, 0), low);
    let next = stored(&log, 0, "case-3", "again").sequence.unwrap().get();
    assert_eq!(next, end, "restarted at its log number");
}

#[test]
fn a_consumer_that_passes_a_gap_ends_its_run_with_nothing_left() {
    let disk = MemoryDisk::new();
    let (log, end) = stuck(&disk);
    trim(&log);
    let left = offsets(&log).len() as u64;
    let handled = |_: Turn| async { Ok::<_, Error>(()) };
    // A new one gets what can be read; the stuck record is all that is left for the other.
    let summary = block_on(log.subscribe("new").until_end().run(handled)).unwrap();
    assert_eq!(summary.turns_done, left);
    let summary = block_on(log.subscribe("s").until_end().run(handled)).unwrap();
    assert_eq!(summary.turns_done, 1);
    for state in block_on(log.subscriptions()).unwrap() {
        assert_eq!((state.partitions[0].next.get(), state.lag()), (end, 0), "{}", state.name);
    }
}

#[test]
fn gaps_are_bounded_and_the_segments_beyond_stay() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk).open_blocking().unwrap();
    let key = key(&log, "s", 0);
    block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    // Every second segment has an unfinished record: its first.
    let mut stuck = Vec::new();
    for i in 0..30 {
        let first = fill(&log, 0, "a", 1)[0];
        if i % 2 == 0 {
            stuck.push(first);
        }
    }
    let end = block_on(log.ends(Position::End)).unwrap()[0].get();
    let done: Vec<_> = stuck
        .iter()
        .enumerate()
        .map(|(i, at)| (at + 1, stuck.get(i + 1).copied().unwrap_or(end)))
        .collect();
    finish(&log, &key, stuck[0], &done);
    trim(&log);
    let found = offsets(&log);
    assert!(stuck.iter().all(|at| found.binary_search(at).is_ok()), "{stuck:?} {found:?}");
    let gaps = found.windows(2).filter(|pair| pair[0] + 1 < pair[1]).count();
    assert_eq!(gaps, 8, "as many as there may be in tests");
    crash(log, &disk, 1);
    // Without retention, which would go on.
    assert_eq!(offsets(&open(&disk)), found);
}
