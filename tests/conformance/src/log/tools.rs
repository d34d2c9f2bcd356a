//! What the checks of a log share.

use std::sync::Arc;

use procession_core::{
    Batch, Budget, Error, Log, Offset, Outcome, Partition, Position, Receipt, Record, Stored,
    Version, Want,
};

use super::{LogFactory, LogSetup};
use crate::patience::soon;

pub(super) const P0: Partition = Partition::new(0);
pub(super) const P1: Partition = Partition::new(1);
pub(super) const P2: Partition = Partition::new(2);

/// A new log of the default setup.
pub(super) async fn new_log(factory: &dyn LogFactory) -> Arc<dyn Log> {
    let setup = LogSetup::default();
    let log = expect(soon(factory.create(setup), "the factory made no log").await, "create a log");
    let got = log.info().partitions.get();
    assert_eq!(got, setup.partitions, "the factory must make a log of the partitions asked for");
    log
}

#[track_caller]
pub(super) fn expect<T>(result: Result<T, Error>, doing: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{doing}: {error:?}"),
    }
}

/// A record whose payload is `n` in decimal.
pub(super) fn numbered(key: &str, n: usize) -> Record {
    Record::new(key.to_owned(), n.to_string())
}

pub(super) fn number(stored: &Stored) -> usize {
    let payload = stored.record.payload().expect("the checks' records have a payload");
    let text = std::str::from_utf8(payload).expect("the checks' payloads are numbers");
    text.parse().expect("the checks' payloads are numbers")
}

pub(super) fn numbers(records: &[Stored]) -> Vec<usize> {
    records.iter().map(number).collect()
}

/// Appends a batch; every outcome, in order.
pub(super) async fn outcomes(log: &dyn Log, batch: Batch) -> Vec<Outcome> {
    let count = batch.records.len();
    let outcomes = soon(log.append(batch), "an append was never answered").await;
    assert_eq!(outcomes.len(), count, "an append answers one outcome per record, in order");
    outcomes.into_iter().collect()
}

/// Appends records that must be stored.
pub(super) async fn append(
    log: &dyn Log,
    records: impl IntoIterator<Item = (Partition, Record)>,
) -> Vec<Receipt> {
    outcomes(log, Batch::many(records)).await.into_iter().map(stored).collect()
}

#[track_caller]
pub(super) fn stored(outcome: Outcome) -> Receipt {
    match outcome {
        Outcome::Stored(receipt) => receipt,
        other => panic!("a plain record must be stored, but the log answered {other:?}"),
    }
}

pub(super) async fn read_one(
    log: &dyn Log,
    partition: Partition,
    from: Offset,
    max: Budget,
) -> Result<Vec<procession_core::Chunk>, Error> {
    let wants = [Want { partition, from, max }];
    soon(log.read(&wants, Budget::MAX), "a read was never answered").await
}

/// Reads on from `from` until there are `count` records, waiting for them where need be.
pub(super) async fn read_from(
    log: &dyn Log,
    partition: Partition,
    from: Offset,
    count: usize,
) -> Vec<Stored> {
    let (mut records, mut next, mut seen) = (Vec::new(), from, Version::NEVER);
    while records.len() < count {
        let chunks = expect(read_one(log, partition, next, Budget::MAX).await, "read");
        let before = next;
        for chunk in chunks {
            assert_eq!(chunk.partition, partition, "a chunk of a partition nobody asked for");
            next = chunk.next;
            records.extend(chunk.records);
        }
        if next == before && records.len() < count {
            let lost = format!(
                "{} of {count} appended records can be read in partition {partition}, and no \
                 change is announced: a record at the delivery level must become readable",
                records.len()
            );
            seen = expect(soon(log.changed(seen), &lost).await, "wait for a change");
        }
    }
    records
}

/// All `count` records of a partition.
pub(super) async fn read_all(log: &dyn Log, partition: Partition, count: usize) -> Vec<Stored> {
    let earliest = ends(log, Position::Earliest).await[partition.get() as usize];
    read_from(log, partition, earliest, count).await
}

pub(super) async fn ends(log: &dyn Log, at: Position) -> Vec<Offset> {
    let ends = expect(soon(log.ends(at), "`ends` was never answered").await, "ask for the ends");
    assert_eq!(
        ends.len(),
        log.info().partitions.get() as usize,
        "`ends` answers one offset per partition"
    );
    ends
}
