//! Batches with a stamp: who sent them, numbered.

use procession_core::{Batch, Epoch, ErrorKind, Log, Outcome, ProducerId, Receipt, Stamp};

use super::LogFactory;
use super::tools::{P0, P1, expect, new_log, numbered, numbers, outcomes, read_all, stored};
use crate::declared;
use crate::patience::soon;

/// A log whose `LogInfo::absorbs` is set stores each number of a producer once and answers a repeat
/// with the first receipt; it refuses gaps, older epochs and other bytes under a number that is
/// taken. Any other log refuses stamped batches and hands them back: to ignore a stamp would store
/// a repeat twice.
///
/// # Panics
/// If the log breaks the contract.
pub async fn a_stamped_batch_is_absorbed_or_refused(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let records = || [(P0, numbered("a", 0)), (P1, numbered("b", 1)), (P0, numbered("a", 2))];
    if !log.info().absorbs {
        let enlisted = soon(log.enlist("check"), "enlisting was never answered").await;
        let error = enlisted.expect_err("`LogInfo::absorbs` is false");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        let (producer, epoch) = (ProducerId::new(1), Epoch::FIRST);
        let mut batch = Batch::many(records());
        batch.stamp = Some(Stamp { producer, epoch, base: Some(0) });
        for (outcome, (_, sent)) in outcomes(&*log, batch).await.into_iter().zip(records()) {
            refused(outcome, ErrorKind::Unsupported, &sent);
        }
        append_plain(&*log).await;
        return declared("a_stamped_batch_is_absorbed_or_refused", "no stamps");
    }
    let first = expect(soon(log.enlist("check"), "enlisting was never answered").await, "enlist");
    assert_eq!(first.next, 0, "a new producer has stored nothing");
    let stamp = Stamp { producer: first.producer, epoch: first.epoch, base: Some(0) };
    let once = send(&*log, stamp, records()).await;
    let again = send(&*log, stamp, records()).await;
    assert_eq!(once, again, "a repeat is answered with the receipts of the first time");
    let part = Stamp { base: Some(2), ..stamp };
    let longer = send(&*log, part, [(P0, numbered("a", 2)), (P1, numbered("b", 3))]).await;
    assert_eq!(longer[0], once[2], "what was stored of a batch is absorbed, the rest is stored");
    let refuse = async |stamp: Stamp, n: usize, kind: ErrorKind| {
        let record = numbered("a", n);
        let mut batch = Batch::one(P0, record.clone());
        batch.stamp = Some(stamp);
        for outcome in outcomes(&*log, batch).await {
            refused(outcome, kind, &record);
        }
    };
    refuse(Stamp { base: Some(5), ..stamp }, 5, ErrorKind::NotYetWritten).await;
    refuse(Stamp { base: Some(0), ..stamp }, 99, ErrorKind::Mismatch).await;
    let second = expect(soon(log.enlist("check"), "enlisting was never answered").await, "enlist");
    assert!(second.epoch > first.epoch, "every enlisting raises the epoch");
    assert_eq!((second.producer, second.next), (first.producer, 4), "the numbers go on");
    refuse(Stamp { base: Some(4), ..stamp }, 4, ErrorKind::Fenced).await;
    let stamp = Stamp { epoch: second.epoch, ..stamp };
    assert_eq!(send(&*log, stamp, records()).await, once, "also in a later life");
    send(&*log, Stamp { base: None, ..stamp }, [(P0, numbered("a", 4))]).await;
    assert_eq!(numbers(&read_all(&*log, P0, 3).await), [0, 2, 4], "each is stored once");
    assert_eq!(numbers(&read_all(&*log, P1, 2).await), [1, 3], "each is stored once");
}

async fn append_plain(log: &dyn Log) {
    let kept = super::tools::append(log, [(P0, numbered("a", 7))]).await;
    assert_eq!(kept.len(), 1);
    assert_eq!(numbers(&read_all(log, P0, 1).await), [7], "nothing of a refused batch is stored");
}

async fn send<const N: usize>(
    log: &dyn Log,
    stamp: Stamp,
    records: [(procession_core::Partition, procession_core::Record); N],
) -> Vec<Receipt> {
    let mut batch = Batch::many(records);
    batch.stamp = Some(stamp);
    outcomes(log, batch).await.into_iter().map(stored).collect()
}

#[track_caller]
fn refused(outcome: Outcome, kind: ErrorKind, sent: &procession_core::Record) {
    match outcome {
        Outcome::Refused(record, error) => {
            assert_eq!(record, *sent, "a refused record is handed back as it was");
            assert_eq!(error.kind(), kind, "the reason for the refusal: {error:?}");
        }
        other => panic!("the record must be refused ({kind:?}), but came to {other:?}"),
    }
}
