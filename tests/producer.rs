//! What a producer promises, over a log whose answers can be held back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use async_trait::async_trait;
use futures::executor::block_on;
use procession::{
    AbsentKey, Appending, Batch, Budget, Chunk, Error, ErrorKind, Log, LogInfo, Offset, Partition,
    Permit, Position, Producer, Record, Sending, Version, Want,
};
use procession_memory::MemoryLog;
use support::poll_once;

/// A memory log that keeps the permits until it is told to give them back: a slow disk.
#[derive(Clone)]
struct Slow {
    inner: MemoryLog,
    permits: Arc<Mutex<VecDeque<Permit>>>,
}

impl Slow {
    fn new(inner: MemoryLog) -> Self {
        Self { inner, permits: Arc::default() }
    }

    fn in_flight(&self) -> usize {
        self.permits.lock().unwrap().len()
    }

    /// The disk has written the oldest append.
    fn write_one(&self) {
        let permit = self.permits.lock().unwrap().pop_front();
        drop(permit.expect("something is in flight"));
    }
}

#[async_trait]
impl Log for Slow {
    fn info(&self) -> Arc<LogInfo> {
        self.inner.info()
    }

    fn append(&self, mut batch: Batch) -> Appending {
        self.permits.lock().unwrap().extend(batch.permit.take());
        self.inner.append(batch)
    }

    async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        self.inner.read(wants, max).await
    }

    async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> {
        self.inner.ends(at).await
    }

    async fn changed(&self, seen: Version) -> Result<Version, Error> {
        self.inner.changed(seen).await
    }
}

fn record(number: u64) -> Record {
    Record::new("group", format!("{number:095}")) // 100 bytes with its key
}

/// The payloads of the one partition, in order.
fn stored(log: &MemoryLog) -> Vec<u64> {
    let want = Want { partition: Partition::new(0), from: Offset::ZERO, max: Budget::MAX };
    let chunks = block_on(log.read(&[want], Budget::MAX)).unwrap();
    let records = chunks.into_iter().flat_map(|chunk| chunk.records);
    records
        .map(|r| std::str::from_utf8(r.record.payload().unwrap()).unwrap().parse().unwrap())
        .collect()
}

#[test]
fn the_order_is_that_of_the_calls_however_the_futures_are_polled() {
    let log = MemoryLog::new(1);
    let producer = Producer::new(log.clone());
    let mut sends: Vec<_> = (0..100).map(|n| producer.send(record(n))).collect();
    sends.reverse();
    for sending in sends {
        block_on(sending).unwrap();
    }
    assert_eq!(stored(&log), (0..100).collect::<Vec<_>>());
}

#[test]
fn bytes_in_flight_are_bounded_and_later_sends_wait_their_turn() {
    let log = Slow::new(MemoryLog::new(1));
    let producer = Producer::builder(log.clone()).bytes_in_flight_max(250).build();
    let mut sends: Vec<_> = (0..6).map(|n| Box::pin(producer.send(record(n)))).collect();
    assert_eq!(log.in_flight(), 2, "two of 100 bytes fit into 250");
    assert!(poll_once(sends[5].as_mut()).is_pending());
    for written in 1..=4 {
        log.write_one();
        assert_eq!(log.in_flight(), 2);
        assert_eq!(stored(&log.inner), (0..2 + written).collect::<Vec<_>>());
    }
    for sending in sends {
        block_on(sending).unwrap();
    }
}

#[test]
fn a_small_send_does_not_pass_a_large_one_that_waits() {
    let log = Slow::new(MemoryLog::new(1));
    let producer = Producer::builder(log.clone()).bytes_in_flight_max(150).build();
    let _first = producer.send(record(0));
    let _large = producer.send(record(1));
    let _small = producer.send(Record::new("", "2"));
    assert_eq!(log.in_flight(), 1, "the small one would fit, and waits all the same");
    log.write_one();
    assert_eq!(stored(&log.inner), [0, 1, 2]);
}

#[test]
fn a_record_larger_than_the_bound_is_sent_when_nothing_else_is_in_flight() {
    let log = Slow::new(MemoryLog::new(1));
    let producer = Producer::builder(log.clone()).bytes_in_flight_max(10).build();
    let _first = producer.send(record(0));
    let _second = producer.send(record(1));
    assert_eq!(stored(&log.inner), [0]);
    log.write_one();
    assert_eq!(stored(&log.inner), [0, 1]);
}

/// What blocked it is gone: nothing needs to be waited for, so a lost wake-up is no hang.
#[track_caller]
fn assert_ready(sending: Sending) {
    assert!(matches!(poll_once(pin!(sending)), Poll::Ready(Ok(_))), "it waits for ever");
}

#[test]
fn a_send_dropped_while_it_waits_is_not_sent_and_blocks_nobody() {
    let log = Slow::new(MemoryLog::new(1));
    let producer = Producer::builder(log.clone()).bytes_in_flight_max(100).build();
    let _first = producer.send(record(0));
    let dropped = producer.send(record(1));
    let kept = producer.send(record(2));
    drop(dropped);
    log.write_one();
    assert_ready(kept);
    assert_eq!(stored(&log.inner), [0, 2]);
}

#[test]
fn a_send_dropped_after_it_was_queued_is_stored_all_the_same() {
    let log = MemoryLog::new(1);
    drop(Producer::new(log.clone()).send(record(7)));
    assert_eq!(stored(&log), [7]);
}

#[test]
fn many_dropped_sends_leave_nothing_behind() {
    let log = Slow::new(MemoryLog::new(1));
    let producer = Producer::builder(log.clone()).bytes_in_flight_max(100).build();
    let _first = producer.send(record(0));
    for number in 1..1000 {
        drop(producer.send(record(number)));
    }
    let last = producer.send(record(1000));
    log.write_one();
    assert_ready(last);
    assert_eq!(stored(&log.inner), [0, 1000]);
}

#[test]
fn a_refused_record_comes_back_whole() {
    let log = MemoryLog::builder().partitions(1).record_bytes_max(50).build().unwrap();
    let producer = Producer::new(log);
    let error = block_on(producer.send(record(5).with_header("name", "value"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let (back, error) = error.into_parts();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let back = back.expect("refused, so it comes back");
    assert_eq!(back.headers().get("name"), Some(&b"value"[..]));
    assert_eq!(back.payload(), record(5).payload());
}

#[test]
fn absent_keys_are_refused_spread_or_serial_as_declared() {
    let keyless = || Record::from_parts(None, Some("x".into()), Default::default(), None);
    let partitions_of = |policy: AbsentKey| {
        let producer = Producer::builder(MemoryLog::new(4)).absent_key(policy).build();
        (0..8).map(|_| block_on(producer.send(keyless())).map(|r| r.partition.get())).collect()
    };
    let spread: Result<Vec<_>, _> = partitions_of(AbsentKey::Spread);
    assert_eq!(spread.unwrap(), [0, 1, 2, 3, 0, 1, 2, 3]);
    let serial: Result<Vec<_>, _> = partitions_of(AbsentKey::Serial);
    let serial = serial.unwrap();
    assert!(serial.iter().all(|partition| *partition == serial[0]));
    let refused: Result<Vec<_>, _> = partitions_of(AbsentKey::Reject);
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.into_record().is_some());
}

#[test]
fn flush_waits_for_everything_in_flight() {
    let log = Slow::new(MemoryLog::new(1));
    let producer = Producer::builder(log.clone()).bytes_in_flight_max(100).build();
    let _sends: Vec<_> = (0..3).map(|n| producer.send(record(n))).collect();
    let mut flush = pin!(producer.flush());
    for _ in 0..3 {
        assert!(poll_once(flush.as_mut()).is_pending());
        log.write_one();
    }
    assert!(matches!(poll_once(flush.as_mut()), Poll::Ready(())));
}

#[test]
fn records_without_a_single_byte_are_bounded_and_waited_for_like_others() {
    let log = Slow::new(MemoryLog::new(1));
    let producer = Producer::builder(log.clone()).bytes_in_flight_max(2).build();
    let _sends: Vec<_> = (0..3).map(|_| producer.send(Record::new("", ""))).collect();
    assert_eq!(log.in_flight(), 2, "the third waits");
    let mut flush = pin!(producer.flush());
    for _ in 0..3 {
        assert!(poll_once(flush.as_mut()).is_pending());
        log.write_one();
    }
    assert!(matches!(poll_once(flush.as_mut()), Poll::Ready(())));
}

#[test]
fn every_record_gets_a_timestamp_and_keeps_its_own() {
    let log = MemoryLog::new(1);
    let producer = Producer::new(log.clone());
    let own = procession::Timestamp::from_millis(-5);
    block_on(producer.send(record(0))).unwrap();
    block_on(producer.send(record(1).with_timestamp(own))).unwrap();
    let want = Want { partition: Partition::new(0), from: Offset::ZERO, max: Budget::MAX };
    let chunks = block_on(log.read(&[want], Budget::MAX)).unwrap();
    let times: Vec<_> = chunks[0].records.iter().map(|r| r.record.timestamp()).collect();
    assert!(times[0].unwrap().as_millis() > 0);
    assert_eq!(times[1], Some(own));
}
