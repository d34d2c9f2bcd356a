//! Commits: what is kept, what is fenced.

use procession_core::{Commit, Committed, ErrorKind};

use super::StoreFactory;
use super::tools::*;
use crate::declared;
use crate::patience::soon;

/// Progress comes back byte for byte: ranges and marks too.
///
/// # Panics
/// If the store breaks the contract.
pub async fn a_claim_returns_what_was_committed(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let key = key("s", 1, 0);
    let (mut epoch, _) = claim(&*store, &key, 3).await;
    // Also backwards: an explicit reset commits a lower offset, and a store does not judge.
    for progress in [at(4), rich(10), rich(1 << 40), at(u64::MAX), at(2)] {
        done(&commit_one(&*store, &key, epoch, &rich(9)).await);
        done(&commit_one(&*store, &key, epoch, &progress).await);
        let (next, stored) = claim(&*store, &key, 0).await;
        assert_eq!(
            stored, progress,
            "a claim returns the last commit, done ranges and marks included"
        );
        epoch = next;
    }
}

/// After a newer claim, a commit under the older epoch is refused with the newer one, and changes
/// nothing.
///
/// # Panics
/// If the store breaks the contract.
pub async fn an_older_epoch_is_fenced(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let key = key("s", 1, 0);
    let (old, _) = claim(&*store, &key, 0).await;
    done(&commit_one(&*store, &key, old, &at(5)).await);
    let (new, progress) = claim(&*store, &key, 0).await;
    assert_eq!(progress, at(5), "the new owner goes on where the old one committed");
    for committed in [Some(at(5)), Some(rich(7)), None] {
        match commit_one(&*store, &key, old, &at(99)).await {
            Committed::Fenced(by) => assert_eq!(by, new, "it was fenced by the newest epoch"),
            other => panic!(
                "epoch {old} was superseded by {new}, yet its commit came to {other:?}: a member \
                 that lost the partition would move the progress"
            ),
        }
        if let Some(progress) = committed {
            done(&commit_one(&*store, &key, new, &progress).await);
        }
    }
    let (_, progress) = claim(&*store, &key, 0).await;
    assert_eq!(progress, rich(7), "a fenced commit changes nothing");
}

/// A commit for a key that nobody claimed, or that was forgotten, answers `Unknown` with
/// `NotFound`, and stores nothing.
///
/// # Panics
/// If the store breaks the contract.
pub async fn a_commit_without_a_claim_is_refused(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let (never, forgotten) = (key("s", 1, 0), key("s", 1, 1));
    let (forgotten_epoch, _) = claim(&*store, &forgotten, 0).await;
    forget(&*store, &forgotten).await;
    for (key, epoch, said) in [
        (&never, epoch(1), "that was never claimed"),
        (&forgotten, forgotten_epoch, "that was forgotten"),
    ] {
        match commit_one(&*store, key, epoch, &at(5)).await {
            Committed::Unknown(error) if error.kind() == ErrorKind::NotFound => {}
            other => panic!(
                "a commit for a key {said} must answer `Unknown` with `NotFound`, got {other:?}"
            ),
        }
        assert_eq!(list(&*store).await, [], "a refused commit stores nothing");
        let claimed = try_claim(&*store, key, 1, None).await;
        assert_eq!(claimed, None, "a refused commit makes no progress");
    }
}

/// One batch with a good, a fenced, an unknown and another good commit: each has its own answer.
///
/// # Panics
/// If the store breaks the contract.
pub async fn commits_of_a_batch_are_answered_one_by_one(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let keys = [key("s", 1, 0), key("s", 1, 1), key("s", 1, 2), key("s", 1, 3)];
    let (one, _) = claim(&*store, &keys[0], 0).await;
    let (old, _) = claim(&*store, &keys[1], 0).await;
    claim(&*store, &keys[1], 0).await;
    let (four, _) = claim(&*store, &keys[3], 0).await;
    let progress = [at(10), at(11), at(12), rich(13)];
    let commit_of = |n: usize, epoch| Commit { key: &keys[n], epoch, progress: &progress[n] };
    let batch = [commit_of(0, one), commit_of(1, old), commit_of(2, one), commit_of(3, four)];
    let answers = commit(&*store, &batch).await;
    assert!(
        matches!(
            answers.as_slice(),
            [Committed::Done, Committed::Fenced(_), Committed::Unknown(_), Committed::Done]
        ),
        "good, fenced, never claimed, good: one answer per commit, in order; got {answers:?}"
    );
    assert_eq!(claim(&*store, &keys[0], 0).await.1, at(10), "the first was good");
    assert_eq!(claim(&*store, &keys[1], 0).await.1, at(0), "the second was fenced");
    assert_eq!(claim(&*store, &keys[3], 0).await.1, rich(13), "the last was good");
    assert_eq!(commit(&*store, &[]).await.len(), 0, "an empty batch has no answers");
}

/// After a reopen, epochs, progress and the floors of forgotten keys are what they were.
///
/// # Panics
/// If the store breaks the contract.
pub async fn survives_a_reopen(factory: &dyn StoreFactory) {
    let store = new_store(factory).await;
    let (kept, fresh, forgotten) = (key("s", 1, 0), key("t", 2, 1), key("s", 1, 2));
    let (old, _) = claim(&*store, &kept, 0).await;
    let (new, _) = claim(&*store, &kept, 0).await;
    done(&commit_one(&*store, &kept, new, &rich(8)).await);
    claim(&*store, &fresh, 77).await;
    let (floor, _) = claim(&*store, &forgotten, 0).await;
    forget(&*store, &forgotten).await;
    let Some(reopening) = factory.reopen(store) else {
        return declared("survives_a_reopen", "no reopening");
    };
    let store = expect(soon(reopening, "the store was never reopened").await, "reopen");
    assert_eq!(list(&*store).await, [kept.clone(), fresh.clone()], "the keys that have progress");
    let answer = commit_one(&*store, &kept, old, &at(99)).await;
    assert!(
        matches!(answer, Committed::Fenced(by) if by == new),
        "an old epoch is fenced after a reopen too, got {answer:?}"
    );
    let (next, progress) = claim(&*store, &kept, 0).await;
    assert!(next > new, "the epoch {new} was given before the reopen: it is never given again");
    assert_eq!(progress, rich(8), "what was committed is durable");
    assert_eq!(claim(&*store, &fresh, 0).await.1, at(77), "a claim that answered is durable");
    let (again, _) = claim(&*store, &forgotten, 0).await;
    assert!(again > floor, "the epoch of a forgotten key stays as a floor");
}
