//! The contract of membership: who owns which partition, and how records arrive.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::Error;
use crate::log::{Chunk, Log};
use crate::types::{Budget, Claim, Offset, PartitionId, Progress};

mod local;

pub use local::LocalMembership;

use crate::consumer::OutOfRange;
use crate::runtime::BoxFuture;

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
#[non_exhaustive]
pub struct Subscription {
    /// The name: an independent position over the logs, shared by its members.
    pub name: Arc<str>,
    /// The logs, in the order of their [`LogId`](crate::LogId)s.
    pub logs: Vec<Arc<dyn Log>>,
    /// What to do when a position lies below what the log still has.
    pub out_of_range: OutOfRange,
}

impl Subscription {
    /// Of these logs; a position that is out of range is an error.
    pub fn new(name: impl Into<Arc<str>>, logs: Vec<Arc<dyn Log>>) -> Self {
        Self { name: name.into(), logs, out_of_range: OutOfRange::default() }
    }
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
///
/// A planned handoff, by whoever takes over:
/// ```text
///  revoking ──> Drain ──> settle ──> Event::Lost ──> (claimed by the next owner)
///     │ starts nothing    │ commits     │ lets go at the call
///     └ turns end ────────┘             └ a return to the same member comes after it
/// ```
pub trait Inlet: Send + Sync {
    /// Something has happened. What is [`Lost`](Event::Lost) is let go before this returns.
    fn event(&self, event: Event);

    /// These partitions will be taken away: starts nothing more of them at once, and resolves when
    /// their turns have ended. After `within`, or the consumer's own
    /// [`drain_within`](crate::ConsumerBuilder::drain_within) if that is shorter, their futures are
    /// dropped at their await points; what is open then cannot be dropped. May be called again, to
    /// wait for that.
    fn revoking(&self, partitions: &[PartitionId], within: Duration) -> crate::consumer::Drain;

    /// Makes what is finished durable, through the consumer's own store: whoever polls this does
    /// the work, so that it is done also while nobody polls the consumer. Claims of these
    /// partitions that are under way are finished first.
    fn settle(&self, partitions: &[PartitionId]) -> BoxFuture<'static, Result<(), Error>>;

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
    /// These partitions are ours no longer. After a drain nothing is left of them; otherwise they
    /// are fenced: nothing of them is committed any more.
    Lost(Vec<PartitionId>),
    /// Retention has removed records below `to` that the claim had not read; see
    /// [`OutOfRange`].
    Skipped {
        /// Whose.
        claim: Claim,
        /// The first that is gone.
        from: Offset,
        /// Where reading goes on.
        to: Offset,
    },
    /// The membership is over.
    Failed(Error),
}

/// A partition that was drained, or whose deadline has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Which partition.
    pub partition: PartitionId,
    /// The claim that ends; `None` if there was none.
    pub claim: Option<Claim>,
    /// What is finished and not yet durable.
    pub progress: Option<Progress>,
    /// Turns still open: blocked inside a poll, or deliveries that the user holds. They are zombies
    /// once somebody else has claimed the partition.
    pub open: usize,
}
