//! One group's past, by following its chain.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::MemoryDisk;
use crate::{FileLog, History, HistoryEnd};

fn payloads(records: &[Stored]) -> Vec<String> {
    let text = |s: &Stored| String::from_utf8(s.record.payload().unwrap().to_vec()).unwrap();
    records.iter().map(text).collect()
}

fn all(mut history: History) -> (Vec<Stored>, HistoryEnd, usize) {
    let (mut records, mut pages) = (Vec::new(), 0);
    while history.end().is_none() {
        records.extend(block_on(history.next_page()).unwrap());
        pages += 1;
    }
    assert!(block_on(history.next_page()).unwrap().is_empty(), "nothing behind the end");
    (records, history.end().unwrap(), pages)
}

/// Appends 400 records of 8 groups in turn, over several segments.
fn fill(log: &FileLog) {
    for i in 0..400 {
        stored(log, i % 3, &format!("case-{}", i % 8), &format!("{i:0>700}"));
    }
}

#[test]
fn history_gives_a_group_newest_first_across_segments_and_reopens() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    fill(&log);
    assert!(log.shared().segments.all().len() > 3);
    let check = |log: &FileLog| {
        for group in 0..8_u32 {
            for partition in 0..3_u32 {
                let expected: Vec<String> = (0..400_u32)
                    .rev()
                    .filter(|i| i % 8 == group && i % 3 == partition)
                    .map(|i| format!("{i:0>700}"))
                    .collect();
                let history = log
                    .history(format!("case-{group}"))
                    .in_partition(Partition::new(partition))
                    .page(Budget::new(7, u64::MAX));
                let (records, end, pages) = all(history);
                assert_eq!(payloads(&records), expected);
                assert_eq!(end, HistoryEnd::First);
                assert!(pages >= expected.len() / 7);
                let scanned = read_from(log, partition, 0).unwrap();
                for stored in &records {
                    assert!(scanned.contains(stored), "as a read of the log gives it");
                }
            }
        }
    };
    check(&log);
    block_on(log.close()).unwrap();
    let log = options(&disk).groups_max(2).open_blocking().unwrap();
    check(&log);
    crash(log, &disk, 7);
    check(&open(&disk));
}

#[test]
fn a_page_of_history_stays_within_its_bound_and_holds_one_record_at_least() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for size in [10, 4000, 10, 10, 10] {
        stored(&log, 0, "case", &"x".repeat(size));
    }
    let mut history = log.history("case").in_partition(Partition::new(0)).page(Budget::new(9, 50));
    let mut sizes = Vec::new();
    while history.end().is_none() {
        let page = block_on(history.next_page()).unwrap();
        sizes.push(page.iter().map(|s| s.record.payload().unwrap().len()).collect::<Vec<_>>());
    }
    assert_eq!(sizes, [vec![10, 10, 10], vec![4000], vec![10]]);
}

#[test]
fn oldest_first_gives_the_newest_records_up_to_its_bound_in_their_order() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..50 {
        stored(&log, 1, "case", &i.to_string());
    }
    let history = || log.history("case").in_partition(Partition::new(1)).page(Budget::new(4, 999));
    let past = block_on(history().oldest_first(Budget::new(10, u64::MAX))).unwrap();
    assert_eq!(payloads(&past.records), (40..50).map(|i| i.to_string()).collect::<Vec<_>>());
    assert_eq!(past.end, None, "there is more");
    let past = block_on(history().oldest_first(Budget::MAX)).unwrap();
    assert_eq!(payloads(&past.records), (0..50).map(|i| i.to_string()).collect::<Vec<_>>());
    assert_eq!(past.end, Some(HistoryEnd::First));
    let past = block_on(log.history("nobody").oldest_first(Budget::MAX)).unwrap();
    assert_eq!((past.records.len(), past.end), (0, Some(HistoryEnd::First)));
}

/// Goal: where the log's beginning is gone, a chain ends and says so. Method: remove the oldest
/// segment, as trimming does, from a closed log and from a log that is open.
#[test]
fn a_history_that_leads_into_a_trimmed_part_ends_there_and_says_so() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    fill(&log);
    let segments = log.shared().segments.all().len() as u64;
    block_on(log.close()).unwrap();
    let whole = image(&disk);
    let retain = |disk: &MemoryDisk| {
        let log = options(disk).retain_bytes((segments - 2) * (64 << 10)).open_blocking().unwrap();
        trim(&log);
        assert!(earliest(&log, 0) > 0 && log.shared().segments.all().len() > 1);
        log
    };
    let log = retain(&disk_of(&whole));
    let earliest = block_on(log.ends(Position::Earliest)).unwrap()[0];
    assert!(earliest > Offset::ZERO);
    let (records, end, _) = all(log.history("case-0").in_partition(Partition::new(0)));
    assert_eq!(end, HistoryEnd::Trimmed);
    assert!(records.iter().all(|s| s.offset >= earliest) && records.len() > 5);
    // A group whose past is trimmed away restarts, and its history says that there was a past.
    let (records, end, _) = all(log.history("never-here").in_partition(Partition::new(0)));
    assert_eq!((records.len(), end), (0, HistoryEnd::Trimmed));
    stored(&log, 0, "new", "first after the cut");
    let (records, end, _) = all(log.history("new").in_partition(Partition::new(0)));
    assert_eq!((records.len(), end), (1, HistoryEnd::Trimmed));

    // Also where one in the middle is gone.
    let log = open(&disk);
    let segments = log.shared().segments.all();
    let without = segments.iter().enumerate().filter(|(at, _)| *at != 2);
    log.shared().segments.replace(without.map(|(_, segment)| Arc::clone(segment)).collect());
    let (records, end, _) = all(log.history("case-0").in_partition(Partition::new(0)));
    assert_eq!(end, HistoryEnd::Trimmed);
    let first = &segments[3].header.base;
    assert!(records.iter().all(|s| s.offset.get() >= first[0]) && !records.is_empty());
    block_on(log.close()).unwrap();

    // And behind a reader that has begun: the file is another one by now.
    let log = open(&disk);
    let mut history = log.history("case-0").in_partition(Partition::new(0));
    assert!(!block_on(history.next_page()).unwrap().is_empty());
    block_on(log.close()).unwrap();
    let log = retain(&disk);
    let (records, end, _) = all(log.history("case-0").in_partition(Partition::new(0)));
    assert_eq!(end, HistoryEnd::Trimmed);
    assert!(records.len() > 5);
}

#[test]
fn a_history_gives_only_records_that_are_synced() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..3 {
        stored(&log, 0, "case", &i.to_string());
    }
    block_on(log.close()).unwrap();
    let never = Duration::from_secs(3600);
    let options = options(&disk).durability(Durability::Flushed).sync_lag(never);
    let log = options.open_blocking().unwrap();
    stored(&log, 0, "case", "flushed only");
    stored(&log, 0, "other", "flushed only");
    let history = |key: &str| log.history(key.to_owned()).in_partition(Partition::new(0));
    assert_eq!(payloads(&all(history("case")).0), ["2", "1", "0"]);
    assert!(all(history("other")).0.is_empty());
}

#[test]
fn a_history_of_an_unknown_partition_or_a_closed_log_is_refused() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let mut history = log.history("case").in_partition(Partition::new(7));
    assert_eq!(block_on(history.next_page()).unwrap_err().kind(), ErrorKind::NotFound);
    let mut history = log.history("case");
    block_on(log.close()).unwrap();
    assert_eq!(block_on(history.next_page()).unwrap_err().kind(), ErrorKind::Closed);
}

/// A log of whose segments all but the first and the newest were removed by retention: record 0 is
/// stuck. `below` is in the first, `both` in the first and the removed, `inside` in a removed one
/// only.
fn with_a_gap(disk: &MemoryDisk) -> FileLog {
    let log = options(disk).retain_bytes(64 << 10).open_blocking().unwrap();
    let key = key(&log, "s", 0);
    block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    for group in ["stuck", "below", "both"] {
        stored(&log, 0, group, "first");
    }
    super::support::fill(&log, 0, "filler", 2);
    for group in ["inside", "both"] {
        stored(&log, 0, group, "second");
    }
    super::support::fill(&log, 0, "filler", 4);
    let end = block_on(log.ends(Position::End)).unwrap()[0].get();
    finish(&log, &key, 0, &[(1, end)]);
    trim(&log);
    assert_eq!(segment_files(disk), [1, 7], "there is a gap");
    // A reader sees a round when the next one begins.
    stored(&log, 1, "proves", "what is before it");
    log
}

/// Goal: a history never passes over a gap unseen, for whoever reads it. Method: real trims leave a
/// gap; its groups are asked for by the writer and by readers, with the indexes of the gap and
/// without.
#[test]
fn a_history_never_passes_over_a_gap_without_saying_so() {
    let disk = MemoryDisk::new();
    let log = with_a_gap(&disk);
    let zero = Partition::new(0);
    let first = ["first".to_owned()];
    let expected: [(&str, &[String], HistoryEnd); 5] = [
        ("below", &first, HistoryEnd::First),
        ("stuck", &first, HistoryEnd::First),
        ("both", &[], HistoryEnd::Trimmed),
        ("inside", &[], HistoryEnd::Trimmed),
        ("nobody", &[], HistoryEnd::First),
    ];
    for (group, records, end) in &expected {
        let (found, ended, _) = all(log.history(*group).in_partition(zero));
        assert_eq!((&payloads(&found)[..], ended), (*records, *end), "{group}, to the writer");
    }
    let reader = options(&disk).read_only().open_blocking().unwrap();
    for (group, records, end) in &expected {
        let (found, ended, _) = all(reader.history(*group).in_partition(zero));
        assert_eq!((&payloads(&found)[..], ended), (*records, *end), "{group}, to a reader");
    }
    let (found, ended, _) = all(log.history("filler").in_partition(zero));
    assert_eq!(ended, HistoryEnd::Trimmed);
    let same = all(reader.history("filler").in_partition(zero));
    assert_eq!((&found, ended), (&same.0, same.1));
    drop(reader);
    block_on(log.close()).unwrap();

    // Without the indexes of the gap nobody knows what was in it.
    let without: Vec<_> = image(&disk)
        .into_iter()
        .filter(|(path, _)| !(2..7).any(|id| path.ends_with(format!("{id:020}.idx"))))
        .collect();
    let disk = disk_of(&without);
    let reader = options(&disk).read_only().open_blocking().unwrap();
    for group in ["below", "both", "inside", "nobody"] {
        let (found, ended, _) = all(reader.history(group).in_partition(zero));
        assert_eq!((found.len(), ended), (0, HistoryEnd::Trimmed), "{group}, to a reader");
    }
    let log = open(&disk);
    for group in ["both", "inside", "nobody"] {
        let (found, ended, _) = all(log.history(group).in_partition(zero));
        assert_eq!((found.len(), ended), (0, HistoryEnd::Trimmed), "{group}, to the writer");
    }
}
