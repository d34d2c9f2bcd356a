//! Keys: independence, listing, forgetting.

use procession_core::Committed;

use super::StoreFactory;
use super::tools::*;

/// Keys that differ in one part only share neither epochs nor progress.
///
/// # Panics
/// If the store breaks the contract.
pub async fn keys_are_independent(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let keys = [
        key("s", 1, 0),
        key("s", 1, 1),
        key("s", 2, 0),
        key("s", 1 << 64 | 1, 0),
        key("t", 1, 0),
        key("", 1, 0),
        key("s/1", 1, 0),
        key("S", 1, 0),
        key("s ", 1, 0),
    ];
    let mut epochs = Vec::new();
    for (n, key) in (0..).zip(&keys) {
        let floor = 10 + n;
        let claimed = try_claim(&*store, key, floor, Some(100 + n)).await;
        let (epoch, progress) = claimed.expect("a claim with a start is never `None`");
        assert_eq!(progress, at(100 + n), "{key} is new, though {} keys are not", n);
        epochs.push(epoch);
    }
    for (n, key) in (0..).zip(&keys) {
        done(&commit_one(&*store, key, epochs[n as usize], &at(1_000 + n)).await);
    }
    for (n, key) in (0..).zip(&keys) {
        assert_eq!(claim(&*store, key, 0).await.1, at(1_000 + n), "the progress of {key}");
    }
}

/// Every key with progress is listed once, however often it was claimed and committed.
///
/// # Panics
/// If the store breaks the contract.
pub async fn lists_every_key_once(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    assert_eq!(list(&*store).await, [], "a new store has no keys");
    let mut keys: Vec<_> = (0..20).map(|n| key(["a", "b"][n % 2], 1, n as u32 / 2)).collect();
    for key in keys.iter().chain(&keys) {
        let (epoch, _) = claim(&*store, key, 0).await;
        done(&commit_one(&*store, key, epoch, &at(1)).await);
    }
    keys.sort();
    assert_eq!(list(&*store).await, keys, "every key that has progress, once");
}

/// A forgotten key is not listed and needs a start again; its epochs go on above the old ones, so
/// that members of before stay fenced.
///
/// # Panics
/// If the store breaks the contract.
pub async fn a_forgotten_key_is_new_again_but_never_reuses_an_epoch(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let (gone, stays) = (key("s", 1, 0), key("s", 1, 1));
    claim(&*store, &stays, 5).await;
    let mut last = epoch(1);
    for round in 0..3 {
        let claimed = try_claim(&*store, &gone, 1, Some(20 + round)).await;
        let (before, progress) = claimed.expect("a claim with a start is never `None`");
        assert_eq!(progress, at(20 + round), "a forgotten key begins at the new start");
        assert!(
            round == 0 || before > last,
            "epoch {before} after {last}: the epoch of a forgotten key stays as a floor"
        );
        done(&commit_one(&*store, &gone, before, &at(99)).await);
        forget(&*store, &gone).await;
        forget(&*store, &gone).await;
        assert_eq!(try_claim(&*store, &gone, 1, None).await, None, "a forgotten key is new");
        let listed = list(&*store).await;
        assert_eq!(listed, std::slice::from_ref(&stays), "a forgotten key is not listed");
        last = before;
    }
    let (newest, _) = claim(&*store, &gone, 0).await;
    let answer = commit_one(&*store, &gone, last, &at(99)).await;
    assert!(
        matches!(answer, Committed::Fenced(by) if by == newest),
        "a member from before the forgetting is fenced by {newest}, got {answer:?}"
    );
    forget(&*store, &key("unknown", 9, 9)).await;
    assert_eq!(claim(&*store, &stays, 0).await.1, at(5), "the other key is untouched");
}
