//! Claims: starts, epochs, floors.

use std::sync::Arc;

use futures::executor::block_on;
use procession_core::{Epoch, ErrorKind, Offset};

use super::StoreFactory;
use super::tools::*;

/// Without a start, a claim of a new key answers `None` and stores nothing.
///
/// # Panics
/// If the store breaks the contract.
pub async fn a_new_key_needs_a_start(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let key = key("s", 1, 0);
    for _ in 0..2 {
        let claimed = try_claim(&*store, &key, 50, None).await;
        assert_eq!(claimed, None, "a new key has no progress, and no start was given");
    }
    assert_eq!(list(&*store).await, [], "a claim that answered `None` stores nothing");
    let (epoch, _) = claim(&*store, &key, 0).await;
    assert!(
        epoch < self::epoch(50),
        "a claim that answered `None` stores nothing, not even its floor; got epoch {epoch}"
    );
}

/// The first start is kept; those of later claims are ignored.
///
/// # Panics
/// If the store breaks the contract.
pub async fn the_start_of_a_new_key_is_kept(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let key = key("s", 1, 0);
    let (_, progress) = claim(&*store, &key, 42).await;
    assert_eq!(progress, at(42), "a new key starts at its start, with nothing done above it");
    for start in [Some(7), Some(99), None] {
        let claimed = try_claim(&*store, &key, 1, start).await;
        let (_, progress) = claimed.expect("a claimed key has progress, though none was committed");
        assert_eq!(progress, at(42), "a later start ({start:?}) is ignored");
    }
}

/// Every claim answers an epoch above all earlier ones, and at least the floor.
///
/// # Panics
/// If the store breaks the contract.
pub async fn every_claim_raises_the_epoch(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let key = key("s", 1, 0);
    let mut last: Option<Epoch> = None;
    for floor in [1, 1, 1_000, 1, 5, 1_000, 2_000, (1 << 53) - 100, 1] {
        let claimed = try_claim(&*store, &key, floor, Some(0)).await;
        let (raised, _) = claimed.expect("a claim with a start is never `None`");
        assert!(
            last.is_none_or(|last| raised > last),
            "a claim raises the epoch above the stored one: {last:?} -> {raised}"
        );
        assert!(raised >= epoch(floor), "the epoch {raised} is below the floor {floor}");
        last = Some(raised);
    }
}

/// A hundred claims from four threads: no two get the same epoch.
///
/// # Panics
/// If the store breaks the contract.
pub async fn concurrent_claims_get_different_epochs(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let one = || block_on(claim(&*store, &key("s", 1, 0), 0)).0;
                (0..25).map(|_| one()).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut epochs = Vec::new();
    for thread in threads {
        let claimed = thread.join().expect("a claim on another thread succeeds");
        assert!(claimed.is_sorted(), "epochs grow from claim to claim: {claimed:?}");
        epochs.extend(claimed);
    }
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 100, "two members were given the same epoch: neither is fenced");
}

/// Above the last epoch a claim fails; it never wraps around.
///
/// # Panics
/// If the store breaks the contract.
pub async fn no_epoch_is_above_the_last_one(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let key = key("s", 1, 0);
    let claimed = try_claim(&*store, &key, Epoch::LAST.get(), Some(0)).await;
    assert_eq!(claimed.map(|(epoch, _)| epoch), Some(Epoch::LAST), "the floor is an epoch too");
    let claim = store.claim(&key, Epoch::FIRST, Some(Offset::ZERO)).await;
    let error = claim.expect_err("there is no epoch above the last one");
    assert_eq!(error.kind(), ErrorKind::Exhausted, "a claim above the last epoch: {error:?}");
}
