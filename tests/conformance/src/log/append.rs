//! Writing: order, receipts, refusals.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::task::noop_waker;
use procession_core::{
    Batch, Durability, ErrorKind, GroupKey, Headers, Outcome, Partition, Record, Timestamp,
};

use super::LogFactory;
use super::tools::*;
use crate::declared;
use crate::patience::soon;

/// Sixty-four appends whose futures are polled from the last to the first, or never: stored in the
/// order of the calls.
///
/// # Panics
/// If the log breaks the contract.
pub async fn appends_in_call_order_however_futures_are_polled(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let mut appends: Vec<_> = (0..64)
        .map(|n| log.append(Batch::one(P0, numbered(["a", "b", "c"][n % 3], n))))
        .enumerate()
        .collect();
    // Every third is dropped unpolled, the others are awaited last call first.
    appends.retain(|(n, _)| n % 3 != 2);
    let mut offsets = Vec::new();
    for (n, append) in appends.into_iter().rev() {
        let outcomes = soon(append, "an append was never answered").await;
        let outcome = outcomes.into_iter().next().expect("one outcome per record");
        offsets.push((n, stored(outcome).offset));
    }
    offsets.reverse();
    assert!(
        offsets.is_sorted_by(|a, b| a.1 < b.1),
        "offsets {offsets:?} do not follow the calls: \"inside a partition, the order of offsets \
         is the order of the calls to `append`\""
    );
    assert_eq!(
        numbers(&read_all(&*log, P0, 64).await),
        (0..64).collect::<Vec<_>>(),
        "records are not stored in the order of the calls: the order is taken *at the call*, \
         before any await, however the futures are polled or dropped"
    );
}

/// One batch for three partitions: each partition has its records, in the order of the batch, and
/// the outcomes are in that order too.
///
/// # Panics
/// If the log breaks the contract.
pub async fn a_batch_keeps_its_order_and_its_partitions(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let partition = |n: usize| [P0, P2, P1, P0, P2][n % 5];
    for batch in 0..3 {
        let records = (0..40).map(|n| (partition(n), numbered("a", batch * 40 + n)));
        let receipts = append(&*log, records).await;
        for (n, receipt) in receipts.iter().enumerate() {
            assert_eq!(
                receipt.partition,
                partition(n),
                "outcome {n} of a batch is not that of record {n}: outcomes are in order"
            );
        }
    }
    for p in [P0, P1, P2] {
        let expected: Vec<_> = (0..120).filter(|n| partition(n % 40) == p).collect();
        assert_eq!(
            numbers(&read_all(&*log, p, expected.len()).await),
            expected,
            "partition {p}: \"inside a batch, the order of offsets is the order of the batch\""
        );
    }
}

/// A receipt leads to its record and names a level that was reached. A level above the one the log
/// delivers at is either reached or refused as unsupported, never answered with less.
///
/// # Panics
/// If the log breaks the contract.
pub async fn receipts_name_the_place_and_the_level(factory: &dyn LogFactory) {
    use Durability::{Buffered, Flushed, Replicated, Synced};
    let log = new_log(factory).await;
    let info = log.info();
    let asked = [None, Some(Buffered), Some(Flushed), Some(Synced), Some(Replicated)];
    for (n, durability) in asked.into_iter().enumerate() {
        let mut batch = Batch::many([(P1, numbered("a", n)), (P1, numbered("b", n + 100))]);
        batch.durability = durability;
        for (i, outcome) in outcomes(&*log, batch).await.into_iter().enumerate() {
            let receipt = match outcome {
                Outcome::Stored(receipt) => receipt,
                Outcome::Refused(_, error)
                    if durability > Some(info.delivers)
                        && error.kind() == ErrorKind::Unsupported =>
                {
                    continue;
                }
                other => panic!("asked for {durability:?}, a plain record came to {other:?}"),
            };
            assert!(
                durability.is_none_or(|asked| receipt.durability >= asked),
                "asked for {durability:?}, the receipt says {}: a receipt waits for the level \
                 asked for; refuse what cannot be reached as `Unsupported`",
                receipt.durability
            );
            let record = &read_from(&*log, receipt.partition, receipt.offset, 1).await[0];
            assert_eq!(
                (receipt.partition, record.offset, number(record)),
                (P1, receipt.offset, n + 100 * i),
                "another record lies at the place the receipt names"
            );
            assert_eq!(
                record.sequence, receipt.sequence,
                "the sequence of the receipt is that of the stored record"
            );
        }
    }
}

/// Every combination of absent, empty and binary parts comes back as it was; a record without a
/// timestamp comes back with one.
///
/// # Panics
/// If the log breaks the contract.
pub async fn reads_back_every_part_of_a_record(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let keys = [None, Some(GroupKey::default()), Some(GroupKey::from(&[0, 0xff, b'\n']))];
    let payloads = [None, Some(vec![]), Some((0..=255).collect::<Vec<u8>>())];
    let some = Headers::default()
        .with("trace", Some(b"00-1"))
        .with("absent", None)
        .with("", Some(b""))
        .with("trace", Some(&[0xfe, 0]));
    let times = [None, Some(0), Some(-86_400_000), Some(1_700_000_000_123)];
    let mut records = Vec::new();
    for key in &keys {
        for payload in &payloads {
            for headers in [Headers::default(), some.clone()] {
                for time in times.map(|t| t.map(Timestamp::from_millis)) {
                    let payload = payload.clone().map(Into::into);
                    records.push(Record::from_parts(key.clone(), payload, headers.clone(), time));
                }
            }
        }
    }
    append(&*log, records.iter().map(|record| (P0, record.clone()))).await;
    let read = read_all(&*log, P0, records.len()).await;
    let routing = log.info().routing;
    for (was, is) in records.iter().zip(&read) {
        let rule = "absent and empty are two things, and every byte comes back";
        assert_eq!(is.record.key(), was.key(), "the key of {was:?}: {rule}");
        assert_eq!(is.record.payload(), was.payload(), "the payload of {was:?}: {rule}");
        assert_eq!(is.record.headers(), was.headers(), "the headers of {was:?}: {rule}");
        assert_eq!(is.routing, routing, "a record carries the routing epoch it was placed under");
        match was.timestamp() {
            Some(time) => assert_eq!(is.record.timestamp(), Some(time), "the producer's time"),
            None => assert!(
                is.record.timestamp().is_some(),
                "\"a record that was appended always has a timestamp\": give it the log's time"
            ),
        }
    }
}

/// A record for a partition that does not exist comes back; the others of its batch are stored.
///
/// # Panics
/// If the log breaks the contract.
pub async fn an_unknown_partition_is_refused(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let unknown = Partition::new(log.info().partitions.get());
    let bad = numbered("b", 1).with_header("h", "v");
    refuses_only_the_second(&*log, (unknown, bad), ErrorKind::NotFound).await;
    let read =
        read_one(&*log, unknown, procession_core::Offset::ZERO, procession_core::Budget::MAX);
    let error = read.await.expect_err("reading a partition that does not exist must fail");
    assert_eq!(error.kind(), ErrorKind::NotFound, "reading an unknown partition: {error:?}");
}

/// A record of the largest size is stored; one byte more and it comes back, while the others of
/// its batch are stored.
///
/// # Panics
/// If the log breaks the contract.
pub async fn an_oversize_record_comes_back(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let max = log.info().record_bytes_max;
    if max > 64 << 20 {
        return declared("an_oversize_record_comes_back", "no limit below 64 MiB");
    }
    let of_size = |bytes: usize| {
        let small = Record::new("key", "").with_header("header", "value");
        let payload = vec![7; bytes - small.size_bytes()];
        Record::new("key", payload).with_header("header", "value")
    };
    let largest = of_size(max);
    append(&*log, [(P1, largest.clone())]).await;
    let read = read_all(&*log, P1, 1).await;
    assert_eq!(
        read[0].record.payload(),
        largest.payload(),
        "a record of exactly `record_bytes_max` (key, payload and headers) fits"
    );
    refuses_only_the_second(&*log, (P0, of_size(max + 1)), ErrorKind::TooLarge).await;
}

async fn refuses_only_the_second(
    log: &dyn procession_core::Log,
    bad: (Partition, Record),
    kind: ErrorKind,
) {
    let batch = [(P0, numbered("a", 0)), bad.clone(), (P0, numbered("a", 2))];
    let mut outcomes = outcomes(log, Batch::many(batch)).await.into_iter();
    let mut next = || outcomes.next().expect("an outcome per record");
    stored(next());
    match next() {
        Outcome::Refused(record, error) => {
            assert_eq!(record, bad.1, "a refused record is handed back as it was");
            assert_eq!(error.kind(), kind, "the reason for the refusal: {error:?}");
        }
        other => panic!("the record must be refused ({kind:?}), but came to {other:?}"),
    }
    stored(next());
    let read = read_all(log, P0, 2).await;
    assert_eq!(
        numbers(&read),
        [0, 2],
        "the others of the batch are stored, the refused one is not"
    );
}

/// Where the log says that it mints sequences: every group counts from 0 without a gap, over
/// batches and single records; a record without a key has none.
///
/// # Panics
/// If the log breaks the contract.
pub async fn sequences_count_each_group_without_gaps(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let info = log.info();
    let groups = ["a", "b", "c", "d", ""];
    // One partition per group, as a router would place them.
    let place = |group: usize| Partition::new(group as u32 % info.partitions.get());
    let mut counts = [0; 5];
    for round in 0..20 {
        let groups_now = (0..=round % 7).map(|i| (round * 3 + i * i) % 5);
        let groups_now: Vec<usize> = groups_now.collect();
        let batch = groups_now.iter().map(|&g| (place(g), numbered(groups[g], round)));
        let receipts = append(&*log, batch).await;
        for (group, receipt) in groups_now.into_iter().zip(receipts) {
            let expected = info.sequences.then_some(counts[group]);
            counts[group] += 1;
            assert_eq!(
                receipt.sequence.map(procession_core::Sequence::get),
                expected,
                "the next sequence of group \"{}\": `LogInfo::sequences` is {}",
                groups[group],
                info.sequences
            );
        }
    }
    let keyless = Record::from_parts(None, Some("x".into()), Headers::default(), None);
    let receipt = append(&*log, [(P0, keyless)]).await[0];
    assert_eq!(receipt.sequence, None, "a record without a key is of no group and has no sequence");
    if !info.sequences {
        declared("sequences_count_each_group_without_gaps", "no sequences");
    }
}

/// Futures that are dropped unpolled, or after one poll: their records are stored all the same,
/// before those of later calls.
///
/// # Panics
/// If the log breaks the contract.
pub async fn dropping_an_append_cancels_nothing(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    for n in 0..30 {
        let mut appending = log.append(Batch::one(P0, numbered("a", n)));
        if n % 2 == 0 {
            let _: Poll<_> = appending.poll_unpin(&mut Context::from_waker(&noop_waker()));
        }
        drop(appending);
    }
    append(&*log, [(P0, numbered("a", 30))]).await;
    assert_eq!(
        numbers(&read_all(&*log, P0, 31).await),
        (0..31).collect::<Vec<_>>(),
        "\"dropping an `Appending` cancels nothing\": the record is on its way since the call"
    );
}
