//! What the checks of a store share.

use std::sync::Arc;

use bytes::Bytes;
use procession_core::{
    Commit, Committed, Epoch, Error, Key, LogUuid, Offset, OffsetStore, Partition, Progress, Ranges,
};

use super::StoreFactory;
use crate::patience::soon;

pub(super) async fn new_store(factory: &dyn StoreFactory) -> Arc<dyn OffsetStore> {
    expect(soon(factory.create(), "the factory made no store").await, "create a store")
}

#[track_caller]
pub(super) fn expect<T>(result: Result<T, Error>, doing: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{doing}: {error:?}"),
    }
}

pub(super) fn key(subscription: &str, log: u128, partition: u32) -> Key {
    Key {
        subscription: subscription.into(),
        log: LogUuid::from_u128(log),
        partition: Partition::new(partition),
    }
}

pub(super) fn epoch(value: u64) -> Epoch {
    Epoch::new(value).expect("the checks' epochs are in range")
}

pub(super) fn at(offset: u64) -> Progress {
    Progress::at(Offset::new(offset))
}

/// Progress with everything in it: ranges, large numbers, marks.
pub(super) fn rich(next: u64) -> Progress {
    let mut done = Ranges::default();
    for range in [(1, 2), (5, 300), (1 << 40, (1 << 40) + 7), (1 << 53, 1 << 60)] {
        done.push(Offset::new(next + range.0), Offset::new(next + range.1));
    }
    let mut progress = Progress::with_done(Offset::new(next), done);
    progress.marks = Bytes::from_static(&[0, 0xff, b'"', b'\n']);
    progress
}

pub(super) async fn try_claim(
    store: &dyn OffsetStore,
    key: &Key,
    floor: u64,
    start: Option<u64>,
) -> Option<(Epoch, Progress)> {
    let claim = store.claim(key, epoch(floor), start.map(Offset::new));
    expect(soon(claim, "a claim was never answered").await, "claim")
}

/// A claim that must be given.
pub(super) async fn claim(store: &dyn OffsetStore, key: &Key, start: u64) -> (Epoch, Progress) {
    let claimed = try_claim(store, key, 1, Some(start)).await;
    claimed.expect("a claim with a start is never answered with `None`")
}

pub(super) async fn commit(store: &dyn OffsetStore, batch: &[Commit<'_>]) -> Vec<Committed> {
    let answers = soon(store.commit(batch), "a commit was never answered").await;
    let answers = expect(answers, "commit");
    assert_eq!(answers.len(), batch.len(), "one answer per commit, in order");
    answers
}

pub(super) async fn commit_one(
    store: &dyn OffsetStore,
    key: &Key,
    epoch: Epoch,
    progress: &Progress,
) -> Committed {
    let answers = commit(store, &[Commit { key, epoch, progress }]).await;
    answers.into_iter().next().expect("one answer per commit")
}

#[track_caller]
pub(super) fn done(answer: &Committed) {
    assert!(
        matches!(answer, Committed::Done),
        "a commit under the epoch of the latest claim must be `Done`, got {answer:?}"
    );
}

pub(super) async fn list(store: &dyn OffsetStore) -> Vec<Key> {
    let mut keys = expect(soon(store.list(), "a list was never answered").await, "list");
    keys.sort();
    keys
}

pub(super) async fn forget(store: &dyn OffsetStore, key: &Key) {
    expect(soon(store.forget(key), "a forget was never answered").await, "forget");
}
