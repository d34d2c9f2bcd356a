//! The contract of an offset store: who owns a partition, and how far its subscription got.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::Error;
use crate::types::{Epoch, LogUuid, Offset, Partition, Progress};

/// Which progress: one subscription in one partition of one log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The subscription's name.
    pub subscription: Arc<str>,
    /// The log.
    pub log: LogUuid,
    /// The partition.
    pub partition: Partition,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "subscription \"{}\" log {} partition {}",
            self.subscription, self.log, self.partition
        )
    }
}

/// Progress to be made durable under an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// Of which subscription and partition.
    pub key: &'a Key,
    /// The epoch under which the partition is owned.
    pub epoch: Epoch,
    /// One immutable snapshot.
    pub progress: &'a Progress,
}

/// What became of one commit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Committed {
    /// It is durable.
    Done,
    /// Refused: this newer epoch owns the partition.
    Fenced(Epoch),
    /// It may or may not be durable.
    Unknown(Error),
}

/// Keeps the epoch and the progress of each subscription and partition.
///
/// It is independent of [`Log`](crate::Log), so progress can live where the effects live: in the
/// user's own database. To a store, progress is opaque bytes
/// ([`Progress::to_bytes`]); what it must understand is the epoch: a claim raises it, and
/// a commit under an older one is refused. That single comparison is what keeps a member that
/// lost a partition, and does not know it yet, from moving the progress backwards.
///
/// ```
/// # use procession_core::*;
/// # async fn f(store: &dyn OffsetStore, key: Key) -> Result<(), Error> {
/// let start = Some(Offset::ZERO); // used only if there is no progress yet
/// let Some((epoch, progress)) = store.claim(&key, Epoch::FIRST, start).await? else {
///     unreachable!("a start was given")
/// };
/// // Wrong: committing under the epoch of an earlier claim, "since it is the same member".
/// // Right: the epoch of this claim, until the next one.
/// store.commit(&[Commit { key: &key, epoch, progress: &progress }]).await?;
/// # Ok(()) }
/// ```
///
/// # Durability
/// A claim and a commit that answered are durable, at the level the store promises; the answer
/// comes after the sync, never before.
///
/// # Cancel safety
/// A dropped `claim`, `commit` or `forget` may or may not have happened; all may be repeated. `list`
/// changes nothing.
///
/// # For implementors
/// Each bullet is the name of a check in `procession-conformance`, `store_suite!`:
/// - `a_new_key_needs_a_start`: `claim` without one answers `None` and stores nothing
/// - `the_start_of_a_new_key_is_kept`: later starts are ignored
/// - `every_claim_raises_the_epoch`, and never below the floor
/// - `a_claim_returns_what_was_committed`, done ranges and marks included
/// - `an_older_epoch_is_fenced`, and changes nothing
/// - `a_commit_without_a_claim_is_refused`: it answers `Unknown` with
///   [`NotFound`](crate::ErrorKind::NotFound)
/// - `commits_of_a_batch_are_answered_one_by_one`, in order
/// - `keys_are_independent`: subscriptions, logs, partitions
/// - `lists_every_key_once`
/// - `a_forgotten_key_is_new_again_but_never_reuses_an_epoch`
/// - `concurrent_claims_get_different_epochs`
/// - `survives_a_reopen`: where the factory can reopen
/// - `no_epoch_is_above_the_last_one`
#[async_trait]
pub trait OffsetStore: Send + Sync {
    /// Takes the partition over: raises the epoch to at least `floor` and above the stored one,
    /// durably, and returns it with the progress so far. A new key starts at `start`; without
    /// one the answer is `None` and nothing is stored.
    ///
    /// # Errors
    /// If the store cannot be read or written; [`Exhausted`](crate::ErrorKind::Exhausted) above
    /// [`Epoch::LAST`].
    async fn claim(
        &self,
        key: &Key,
        floor: Epoch,
        start: Option<Offset>,
    ) -> Result<Option<(Epoch, Progress)>, Error>;

    /// Makes progress durable: one answer per commit, in order.
    ///
    /// # Errors
    /// If nothing was written at all; what is unclear for single commits is answered as
    /// [`Committed::Unknown`].
    async fn commit(&self, batch: &[Commit<'_>]) -> Result<Vec<Committed>, Error>;

    /// Every key that has progress, in no particular order.
    ///
    /// # Errors
    /// If the store cannot be read.
    async fn list(&self) -> Result<Vec<Key>, Error>;

    /// Forgets the progress of a key; its epoch stays as a floor. Unknown keys are fine.
    ///
    /// # Errors
    /// If the store cannot be written.
    async fn forget(&self, key: &Key) -> Result<(), Error>;
}

macro_rules! forward_store {
    ($($ty:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<S: OffsetStore + ?Sized> OffsetStore for $ty {
            async fn claim(
                &self, key: &Key, floor: Epoch, start: Option<Offset>,
            ) -> Result<Option<(Epoch, Progress)>, Error> {
                (**self).claim(key, floor, start).await
            }
            async fn commit(&self, batch: &[Commit<'_>]) -> Result<Vec<Committed>, Error> {
                (**self).commit(batch).await
            }
            async fn list(&self) -> Result<Vec<Key>, Error> { (**self).list().await }
            async fn forget(&self, key: &Key) -> Result<(), Error> { (**self).forget(key).await }
        }
    )*};
}
forward_store!(Arc<S>, Box<S>);

/// A sink that refuses effects of the past: told the epoch after a claim and before the first
/// turn.
///
/// # For implementors
/// Answer the highest epoch you know of the key. If it is higher than the one raised, the consumer
/// claims again, above it.
#[async_trait]
pub trait Fence: Send + Sync {
    /// From now on, refuse effects of `key` below `epoch`. Dropped, it may or may not have happened;
    /// it may be repeated.
    ///
    /// # Errors
    /// If the sink cannot be reached: the claim fails, no turn starts.
    async fn raise(&self, key: &Key, epoch: Epoch) -> Result<Epoch, Error>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<F: Fence + ?Sized> Fence for Arc<F> {
    async fn raise(&self, key: &Key, epoch: Epoch) -> Result<Epoch, Error> {
        (**self).raise(key, epoch).await
    }
}
