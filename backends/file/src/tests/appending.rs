//! Receipts, order, limits, levels.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use futures::FutureExt;
use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::MemoryDisk;

#[test]
fn refused_records_come_back_and_the_others_are_stored() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let big = Record::new("big", vec![0; 5000]);
    let batch = Batch::many([
        (Partition::new(0), record("a", "1")),
        (Partition::new(9), record("b", "2")),
        (Partition::new(1), big.clone()),
        (Partition::new(2), record("c", "3")),
    ]);
    let outcomes: Vec<_> = block_on(log.append(batch)).into_iter().collect();
    assert!(matches!(&outcomes[0], Outcome::Stored(r) if r.partition == Partition::new(0)));
    assert!(matches!(&outcomes[1], Outcome::Refused(r, e)
        if e.kind() == ErrorKind::NotFound && r.key().unwrap().as_ref() == b"b"));
    assert!(matches!(&outcomes[2], Outcome::Refused(r, e)
        if e.kind() == ErrorKind::TooLarge && *r == big));
    assert!(matches!(&outcomes[3], Outcome::Stored(r) if r.partition == Partition::new(2)));
}

#[test]
fn a_batch_of_nothing_or_of_many_rounds_is_answered_whole() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    assert!(block_on(log.append(Batch::many([]))).is_empty());
    let home = Arc::new(Home::default());
    let records = (0..500).map(|i| (Partition::new(i % 3), record("a", &format!("{i:0>400}"))));
    let mut batch = Batch::many(records);
    batch.permit = Some(home.permit(77));
    let outcomes = block_on(log.append(batch));
    assert_eq!(outcomes.len(), 500);
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Stored(_))));
    let total: usize = (0..3).map(|p| contents(&log, p).len()).sum();
    assert_eq!(total, 500);
    block_on(log.close()).unwrap();
    assert_eq!(*home.0.lock().unwrap(), 77);
}

#[test]
fn permits_come_back_whatever_becomes_of_the_batch() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let home = Arc::new(Home::default());
    for (partition, size) in [(0, 10), (9, 10), (0, 5000)] {
        let mut batch = Batch::one(Partition::new(partition), Record::new("a", vec![0; size]));
        batch.permit = Some(home.permit(1));
        block_on(log.append(batch));
    }
    let mut last = Batch::one(Partition::new(0), record("a", "b"));
    last.permit = Some(home.permit(1));
    drop(log.append(last));
    block_on(log.close()).unwrap();
    assert_eq!(*home.0.lock().unwrap(), 4);
}

#[test]
fn an_append_dropped_at_any_point_tears_nothing() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let mut sent = Vec::new();
    for i in 0..2000 {
        // A small one would find room before a large one that waits.
        let width = if i % 5 == 0 { 3800 } else { 10 };
        let mut appending =
            log.append(Batch::one(Partition::new(0), record("a", &format!("{i:0>width$}"))));
        match i % 3 {
            0 => drop(appending),
            1 => drop((&mut appending).now_or_never()),
            _ => sent.push((i, appending)),
        }
    }
    for (i, appending) in sent {
        let outcome = block_on(appending).into_iter().next().unwrap();
        assert!(matches!(outcome, Outcome::Stored(_)), "{i}: {outcome:?}");
    }
    let found: Vec<u32> = contents(&log, 0).iter().map(|(_, _, p)| p.parse().unwrap()).collect();
    assert!(found.is_sorted_by(|a, b| a < b));
    assert!((0..2000).filter(|i| i % 3 == 2).all(|i| found.binary_search(&i).is_ok()));
}

#[test]
fn reads_waits_claims_and_commits_dropped_at_any_point_leave_the_log_usable() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let (store, key) = (log.store(), key(&log, "s", 0));
    let claim = || store.claim(&key, Epoch::FIRST, Some(Offset::ZERO));
    block_on(claim()).unwrap();
    let want = [Want { partition: Partition::new(0), from: Offset::ZERO, max: Budget::MAX }];
    let mut dropped = 0;
    for i in 0..300_u64 {
        stored(&log, 0, "a", &i.to_string());
        let (progress, epoch) = (Progress::at(Offset::new(i)), Epoch::LAST);
        let batch = [Commit { key: &key, epoch, progress: &progress }];
        let time = Position::Time(Timestamp::from_millis(0));
        // Each is asked and given up at its first await, or never polled at all.
        let asked = [
            log.read(&want, Budget::MAX).map(drop).boxed(),
            log.changed(Version(u64::MAX - 1)).map(drop).boxed(),
            log.ends(time).map(drop).boxed(),
            claim().map(drop).boxed(),
            store.commit(&batch).map(drop).boxed(),
            store.list().map(drop).boxed(),
            store.forget(&key).map(drop).boxed(),
        ];
        for (number, mut future) in asked.into_iter().enumerate() {
            if !(i + number as u64).is_multiple_of(3) {
                dropped += usize::from((&mut future).now_or_never().is_none());
            }
        }
    }
    assert!(dropped > 300, "{dropped} were in the middle of something");
    assert_eq!(contents(&log, 0).len(), 300);
    let (epoch, _) = block_on(claim()).unwrap().unwrap();
    let progress = Progress::at(Offset::new(300));
    let batch = [Commit { key: &key, epoch, progress: &progress }];
    assert!(matches!(block_on(store.commit(&batch)).unwrap()[..], [Committed::Done]));
    drop(store);
    block_on(log.close()).unwrap();
    assert_eq!(contents(&open(&disk), 0).len(), 300);
}

#[test]
fn concurrent_appends_keep_the_order_of_each_thread() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    thread::scope(|scope| {
        for t in 0..4 {
            let log = &log;
            scope.spawn(move || {
                let mut waiting = Vec::new();
                for i in 0..300 {
                    let record = record(&format!("t{t}"), &i.to_string());
                    waiting.push(log.append(Batch::one(Partition::new(t % 2), record)));
                }
                for appending in waiting {
                    assert!(matches!(
                        block_on(appending).into_iter().next().unwrap(),
                        Outcome::Stored(_)
                    ));
                }
            });
        }
    });
    for t in 0..4_u32 {
        let key = format!("t{t}");
        let mine: Vec<u32> = contents(&log, t % 2)
            .into_iter()
            .filter(|(_, k, _)| *k == key)
            .map(|(_, _, p)| p.parse().unwrap())
            .collect();
        assert_eq!(mine, (0..300).collect::<Vec<_>>());
    }
}

#[test]
fn lower_levels_are_answered_sooner_and_delivered_only_once_synced() {
    let disk = MemoryDisk::new();
    let clock = Arc::new(TestClock::default());
    let log = options(&disk).clock(Arc::clone(&clock) as _).open_blocking().unwrap();
    let send = |level, payload: &str| {
        let mut batch = Batch::one(Partition::new(0), record("a", payload));
        batch.durability = Some(level);
        block_on(log.append(batch)).into_iter().next().unwrap()
    };
    for level in [Durability::Buffered, Durability::Flushed] {
        assert!(matches!(send(level, "low"), Outcome::Stored(r) if r.durability == level));
    }
    // The clock stands still, so nothing is due to be synced.
    assert_eq!(block_on(log.ends(Position::End)).unwrap()[0], Offset::ZERO);
    let synced = send(Durability::Synced, "high");
    assert!(matches!(synced, Outcome::Stored(r) if r.durability == Durability::Synced));
    assert_eq!(contents(&log, 0).len(), 3);
    let replicated = send(Durability::Replicated, "higher");
    assert!(matches!(replicated, Outcome::Refused(_, e) if e.kind() == ErrorKind::Unsupported));
}

#[test]
fn an_orderly_close_syncs_the_lower_levels_too() {
    let disk = MemoryDisk::new();
    let log = options(&disk).durability(Durability::Buffered).open_blocking().unwrap();
    for i in 0..10 {
        stored(&log, 0, "a", &i.to_string());
    }
    block_on(log.close()).unwrap();
    disk.crash(3);
    assert_eq!(contents(&open(&disk), 0).len(), 10);
}

#[test]
fn log_time_never_falls_when_the_clock_jumps_back() {
    let disk = MemoryDisk::new();
    let clock = Arc::new(TestClock::default());
    for (life, walls) in [[5000, 9000, 100], [50, 7000, 12_000]].into_iter().enumerate() {
        let log = options(&disk).clock(Arc::clone(&clock) as _).open_blocking().unwrap();
        for wall in walls {
            clock.wall.store(wall, Ordering::SeqCst);
            stored(&log, 0, "a", &format!("{life} {wall}"));
        }
        block_on(log.close()).unwrap();
    }
    let log = open(&disk);
    let times: Vec<i64> =
        read_from(&log, 0, 0).unwrap().iter().map(|s| s.log_time.as_millis()).collect();
    assert_eq!(times, [5000, 9000, 9000, 9000, 9000, 12_000]);
    let at =
        |time| block_on(log.ends(Position::Time(Timestamp::from_millis(time)))).unwrap()[0].get();
    assert_eq!([at(0), at(5000), at(5001), at(9001), at(12_001)], [0, 0, 1, 5, 6]);
}

#[test]
fn sequences_count_each_group_across_rolls_evictions_and_reopens() {
    let disk = MemoryDisk::new();
    let mut expected = std::collections::HashMap::new();
    let mut state = 7_u64;
    for life in 0..4 {
        let log = options(&disk).groups_max(5).open_blocking().unwrap();
        for i in 0..150 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, partition) =
                (format!("case-{}", (state >> 33) % 40), (state >> 40) as u32 % 3);
            let next: &mut u64 = expected.entry((partition, key.clone())).or_default();
            let receipt = stored(&log, partition, &key, &format!("{i:0>900}"));
            assert_eq!(receipt.sequence, Some(Sequence::new(*next)), "life {life} {key}");
            *next += 1;
        }
        if life % 2 == 0 {
            block_on(log.close()).unwrap();
        } else {
            crash(log, &disk, life);
        }
    }
}

#[test]
fn a_record_without_a_key_has_no_sequence_and_every_part_survives() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let headers = Headers::default().with("a", None).with("b", Some(b"")).with("a", Some(b"x"));
    let records = [
        Record::from_parts(None, None, Headers::default(), None),
        Record::from_parts(
            Some("".into()),
            Some("".into()),
            headers,
            Some(Timestamp::from_millis(-5)),
        ),
        Record::from_parts(Some("k".into()), None, Headers::default(), None),
        Record::from_parts(None, Some("p".into()), Headers::default(), None),
    ];
    for record in records.clone() {
        block_on(log.append(Batch::one(Partition::new(0), record)));
    }
    let found = read_from(&log, 0, 0).unwrap();
    let sequences: Vec<_> = found.iter().map(|s| s.sequence.map(Sequence::get)).collect();
    assert_eq!(sequences, [None, Some(0), Some(0), None]);
    for (found, sent) in found.iter().zip(&records) {
        assert_eq!(found.record.key(), sent.key());
        assert_eq!(found.record.payload(), sent.payload());
        assert_eq!(found.record.headers(), sent.headers());
        assert!(found.record.timestamp().is_some());
    }
    assert_eq!(found[1].record.timestamp(), Some(Timestamp::from_millis(-5)));
}
