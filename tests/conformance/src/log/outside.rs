//! What reaches beyond one open handle: reopening, trimming, permits.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use procession_core::{Batch, Budget, Credit, ErrorKind, Outcome, Partition, Permit, Position};

use super::LogFactory;
use super::tools::*;
use crate::declared;
use crate::patience::{patience, soon};

/// After a reopen the log is the same log: identity, partitions, router, records. The next offset
/// is above every offset ever read, and sequences go on.
///
/// # Panics
/// If the log breaks the contract.
pub async fn survives_a_reopen(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    append(&*log, (0..30).map(|n| ([P0, P1][n % 2], numbered("a", n)))).await;
    let before = [read_all(&*log, P0, 15).await, read_all(&*log, P1, 15).await];
    // The handle is dropped while an append may be under way: it ends stored or unknown.
    drop(log.append(Batch::one(P2, numbered("z", 0))));
    let info = log.info();
    let Some(reopening) = factory.reopen(log) else {
        return declared("survives_a_reopen", "no reopening");
    };
    let log = expect(soon(reopening, "the log was never reopened").await, "reopen");
    let again = log.info();
    assert_eq!(again.uuid, info.uuid, "a log keeps its identity for ever");
    assert_eq!(again.partitions, info.partitions, "a log keeps its partitions");
    assert_eq!(again.router.id(), info.router.id(), "a log keeps its router");
    assert_eq!(again.routing, info.routing, "a log keeps its routing epoch");
    assert_eq!(read_all(&*log, P0, 15).await, before[0], "what was read once is still there");
    assert_eq!(read_all(&*log, P1, 15).await, before[1], "what was read once is still there");
    let receipt = append(&*log, [(P1, numbered("b", 30))]).await[0];
    assert!(
        receipt.offset > before[1][14].offset,
        "offset {} was given out before the reopen: the next offset is above every offset that was \
         ever read",
        receipt.offset
    );
    let receipt = append(&*log, [(P0, numbered("a", 31))]).await[0];
    if info.sequences {
        let highest = before.iter().flatten().filter_map(|record| record.sequence).max();
        assert!(receipt.sequence > highest, "inside one group the sequence only grows");
    }
    let records = read_from(&*log, P0, before[0][14].offset, 2).await;
    assert_eq!(numbers(&records), [28, 31], "appending goes on after what was there");
}

struct Home(Sender<u64>);

impl Credit for Home {
    fn give_back(&self, bytes: u64) {
        // The check may have failed already: nobody waits then.
        let _ = self.0.send(bytes);
    }
}

/// The permit of a batch comes home: stored, refused, or its future dropped unpolled.
///
/// # Panics
/// If the log breaks the contract.
pub async fn a_permit_comes_home_whatever_became_of_its_batch(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let (sender, home) = channel();
    let credit: Arc<dyn Credit> = Arc::new(Home(sender));
    let unknown = Partition::new(log.info().partitions.get());
    let cases = [(P0, "stored"), (unknown, "refused"), (P0, "dropped")];
    for (bytes, (partition, became)) in (1..).zip(cases) {
        let mut batch = Batch::one(partition, numbered("a", 0));
        batch.permit = Some(Permit::new(Arc::clone(&credit), bytes));
        let appending = log.append(batch);
        if became != "dropped" {
            let outcomes = soon(appending, "an append was never answered").await;
            let is_stored = matches!(outcomes.as_slice(), [Outcome::Stored(_)]);
            assert_eq!(is_stored, became == "stored", "a batch that should be {became}");
        }
        let back = home.recv_timeout(patience()).unwrap_or_else(|_| {
            panic!(
                "the permit of a batch that was {became} never came home: it is dropped when \
                    the log holds the batch no longer, whatever became of it"
            )
        });
        assert_eq!(back, bytes, "a permit comes home whole");
    }
}

/// Below the earliest offset lies what was trimmed: an error of its own, not an empty read.
///
/// # Panics
/// If the log breaks the contract.
pub async fn reading_below_the_earliest_is_trimmed(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    append(&*log, (0..20).map(|n| (P0, numbered("a", n)))).await;
    let all = read_all(&*log, P0, 20).await;
    let Some(trimming) = factory.trim(&log, P0, all[10].offset) else {
        return declared("reading_below_the_earliest_is_trimmed", "no trimming on demand");
    };
    expect(soon(trimming, "the log was never trimmed").await, "trim");
    let earliest = ends(&*log, Position::Earliest).await[0];
    assert!(
        earliest > all[0].offset && earliest <= all[10].offset,
        "trimmed below {}, the earliest offset is {earliest}",
        all[10].offset
    );
    let read = read_one(&*log, P0, all[0].offset, Budget::MAX).await;
    let error = read.expect_err("reading what was trimmed must fail, or records are lost unseen");
    assert_eq!(error.kind(), ErrorKind::Trimmed, "reading below the earliest: {error:?}");
    let left: Vec<_> = all.iter().filter(|r| r.offset >= earliest).cloned().collect();
    assert_eq!(read_all(&*log, P0, left.len()).await, left, "the others are still there");
    let receipt = append(&*log, [(P0, numbered("a", 20))]).await[0];
    assert!(receipt.offset > all[19].offset, "an offset is never reused");
}
