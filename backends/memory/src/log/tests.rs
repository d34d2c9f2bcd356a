use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::executor::block_on;
use procession_core::{Durability, Permit};

use super::*;

const P0: Partition = Partition::new(0);

fn append(log: &MemoryLog, key: &str, payload: &str) -> Outcome {
    let record = Record::new(key, payload.to_owned());
    block_on(log.append(Batch::one(P0, record))).into_iter().next().unwrap()
}

fn stored(outcome: Outcome) -> Receipt {
    match outcome {
        Outcome::Stored(receipt) => receipt,
        other => panic!("not stored: {other:?}"),
    }
}

fn refused(outcome: Outcome) -> (Record, ErrorKind) {
    match outcome {
        Outcome::Refused(record, error) => (record, error.kind()),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_full_log_hands_records_back_until_it_is_trimmed() {
    let two = 2 * (RECORD_COST_BYTES + 2);
    let log = MemoryLog::builder().partitions(1).capacity_bytes(two).build().unwrap();
    stored(append(&log, "a", "1"));
    stored(append(&log, "a", "2"));
    let (record, kind) = refused(append(&log, "a", "3"));
    assert_eq!((record, kind), (Record::new("a", "3"), ErrorKind::Full));
    log.trim(P0, Offset::new(1)).unwrap();
    assert_eq!(stored(append(&log, "a", "3")).offset, Offset::new(2));
}

#[test]
fn nothing_of_a_batch_overtakes_a_record_that_found_no_room() {
    let log = MemoryLog::builder().partitions(1).capacity_bytes(300).build().unwrap();
    let batch = [Record::new("a", vec![0; 200]), Record::new("a", "small")];
    let outcomes = block_on(log.append(Batch::many(batch.map(|record| (P0, record)))));
    let kinds: Vec<_> = outcomes.into_iter().map(|outcome| refused(outcome).1).collect();
    assert_eq!(kinds, [ErrorKind::Full, ErrorKind::Full]);
}

#[test]
fn what_was_trimmed_is_an_error_of_its_own() {
    let log = MemoryLog::new(1);
    for _ in 0..3 {
        stored(append(&log, "a", ""));
    }
    log.trim(P0, Offset::new(2)).unwrap();
    let read = |from| {
        let want = Want { partition: P0, from: Offset::new(from), max: Budget::MAX };
        block_on(log.read(&[want], Budget::MAX))
    };
    assert_eq!(read(1).unwrap_err().kind(), ErrorKind::Trimmed);
    assert_eq!(read(2).unwrap()[0].records.len(), 1);
    log.trim(P0, Offset::new(99)).unwrap();
    assert_eq!(block_on(log.ends(Position::Earliest)).unwrap(), [Offset::new(3)]);
    assert_eq!(log.trim(Partition::new(1), Offset::ZERO).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_sequence_of_a_forgotten_group_still_grows() {
    let log = MemoryLog::new(1);
    let sequence = |key| stored(append(&log, key, "")).sequence.map(Sequence::get);
    assert_eq!([sequence("a"), sequence("a"), sequence("b")], [Some(0), Some(1), Some(0)]);
    log.trim(P0, Offset::new(2)).unwrap();
    assert_eq!([sequence("a"), sequence("b")], [Some(2), Some(1)]);
    log.trim(P0, Offset::new(5)).unwrap();
    assert!(log.lock().sequences.is_empty() && log.lock().held_bytes == 0);
}

#[test]
fn log_time_stands_still_while_the_clock_falls() {
    let millis = Arc::new(AtomicU64::new(5));
    let clock = Arc::clone(&millis);
    let clock =
        move || SystemTime::UNIX_EPOCH + Duration::from_millis(clock.load(Ordering::SeqCst));
    let log = MemoryLog::builder().partitions(1).clock(clock).build().unwrap();
    for now in [5, 3, 9] {
        millis.store(now, Ordering::SeqCst);
        stored(append(&log, "a", ""));
    }
    let times: Vec<_> =
        log.lock().partitions[0].records.iter().map(|r| r.log_time.as_millis()).collect();
    assert_eq!(times, [5, 5, 9]);
}

#[test]
fn more_than_buffered_is_refused() {
    let log = MemoryLog::new(1);
    let mut batch = Batch::one(P0, Record::new("a", "1"));
    batch.durability = Some(Durability::Synced);
    let outcome = block_on(log.append(batch)).into_iter().next().unwrap();
    assert_eq!(refused(outcome).1, ErrorKind::Unsupported);
}

#[test]
fn a_permit_that_comes_home_may_append_again() {
    struct Again(MemoryLog);
    impl procession_core::Credit for Again {
        fn give_back(&self, _bytes: u64) {
            stored(append(&self.0, "a", "again"));
        }
    }
    let log = MemoryLog::new(1);
    let mut batch = Batch::one(P0, Record::new("a", "1"));
    batch.permit = Some(Permit::new(Arc::new(Again(log.clone())), 1));
    stored(block_on(log.append(batch)).into_iter().next().unwrap());
    assert_eq!(block_on(log.ends(Position::End)).unwrap(), [Offset::new(2)]);
}

#[test]
fn a_dropped_wait_leaves_no_waker_behind() {
    let log = MemoryLog::new(1);
    let seen = block_on(log.changed(Version::NEVER)).unwrap();
    for _ in 0..3 {
        assert!(log.changed(seen).now_or_never().is_none());
    }
    assert_eq!(log.lock().waiters.len(), 0);
}

#[test]
fn no_partitions_make_no_log() {
    assert_eq!(MemoryLog::builder().partitions(0).build().unwrap_err().kind(), ErrorKind::Config);
}
