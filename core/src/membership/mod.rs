//! The contract of membership: who owns which partition, and how records arrive.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::Error;
use crate::log::{Chunk, Log};
use crate::types::{Budget, Claim, Offset, PartitionId, Progress};

mod local;

pub use local::LocalMembership;

/// Decides which member of a subscription owns which partition, and brings the records.
///
/// Events are *pushed* into the consumer's [`Inlet`], from any thread: a pulled stream of events
/// could not answer a drain while nobody polls it.
///
/// # Ordering
/// A partition is owned by one live member at a time. A planned handoff goes
/// [`revoking`](Inlet::revoking) → drained → committed → released → [`Event::Assigned`]; only a
/// forced one skips the drain.
#[async_trait]
pub trait Membership: Send + Sync {
    /// Becomes a member. Assignments and records arrive at `inlet` until the seat is left or
    /// dropped.
    ///
    /// # Errors
    /// If the subscription cannot be joined.
    async fn join(
        &self,
        subscription: &Subscription,
        inlet: Arc<dyn Inlet>,
    ) -> Result<Box<dyn Seat>, Error>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Membership + ?Sized> Membership for Arc<M> {
    async fn join(
        &self,
        subscription: &Subscription,
        inlet: Arc<dyn Inlet>,
    ) -> Result<Box<dyn Seat>, Error> {
        (**self).join(subscription, inlet).await
    }
}

/// Who reads what.
#[derive(Clone)]
pub struct Subscription {
    /// The name: an independent position over the logs, shared by its members.
    pub name: Arc<str>,
    /// The logs, in the order of their [`LogId`](crate::LogId)s.
    pub logs: Vec<Arc<dyn Log>>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let logs: Vec<_> = self.logs.iter().map(|log| log.info()).collect();
        f.debug_struct("Subscription").field("name", &self.name).field("logs", &logs).finish()
    }
}

/// A member's side of the membership. Dropping it is a crash: the partitions are taken over
/// without a drain.
#[async_trait]
pub trait Seat: Send + Sync {
    /// The claim was accepted: read from here on.
    fn start(&self, claim: Claim, from: Offset);

    /// The claim may have delivered this much in total since it was started. Totals only grow;
    /// a smaller one than before is ignored.
    fn credit(&self, claim: Claim, window: Budget);

    /// Asked before turns are taken: was the coordinator heard from within the session? Called
    /// under the consumer's short lock: a look at an atomic, nothing that waits.
    fn live(&self) -> bool;

    /// Polled beside the turns; ends only with an error. In-process members read here; pending for
    /// ever if the backend has a thread of its own.
    async fn drive(&self) -> Error;

    /// Gives everything up that is left, and is gone.
    ///
    /// # Errors
    /// If the coordinator could not be told by the deadline; it will find out by itself.
    async fn leave(&self, deadline: Instant) -> Result<(), Error>;
}

/// The consumer's side: takes only the executor's short lock, so any thread may call it, a C
/// library's callback too.
pub trait Inlet: Send + Sync {
    /// Something has happened.
    fn event(&self, event: Event);

    /// These partitions will be taken away: starts nothing more of them at once, and resolves when
    /// their turns have ended, or at the deadline.
    fn revoking(&self, partitions: &[PartitionId], deadline: Instant) -> crate::consumer::Drain;

    /// Whether the run is over: no turn starts any more. One that is blocked inside a poll may
    /// still run; the consumer drops its seat when the last one has ended.
    fn is_over(&self) -> bool;
}

/// What a membership tells a member.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// These partitions are ours: claim them.
    Assigned(Vec<PartitionId>),
    /// Records of a started claim, ascending.
    Records(Claim, Chunk),
    /// These partitions are somebody else's already: fence, commit nothing.
    Lost(Vec<PartitionId>),
    /// The membership is over.
    Failed(Error),
}

/// A partition that was drained, or whose deadline has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The claim that ends.
    pub claim: Claim,
    /// What is finished.
    pub progress: Option<Progress>,
    /// Turns still open: they are zombies from now on.
    pub open: usize,
}
