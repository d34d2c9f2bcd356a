//! The traits and the engine of procession: records strictly in order per group, in parallel
//! across groups, on any runtime.
//!
//! Most users want the facade crate, `procession`. This one is for those who write a backend, an
//! executor or a runtime.

mod consumer;
mod error;
mod executor;
mod log;
mod membership;
mod producer;
mod router;
mod runtime;
mod signal;
mod store;
mod types;

pub use consumer::{
    BoxError, Class, Consumer, ConsumerBuilder, Deliveries, Delivery, Drain, Failure, Handle,
    OutOfRange, Policy, Retry, Start, Summary, Warning,
};
pub use error::{Error, ErrorKind};
pub use executor::{
    Chains, ChainsOptions, Completed, Explain, GroupExecutor, GroupState, Hold, Load, Next,
    OffsetWindow, Order, Rest, Revoke, Scope, Turn, TurnId, Verdict,
};
pub use log::{
    Appending, Batch, Chunk, Durability, Log, LogInfo, Outcome, Position, Receipt, Receipts,
    Version, Want,
};
pub use membership::{Drained, Event, Inlet, LocalMembership, Membership, Seat, Subscription};
pub use producer::{
    Enlisted, IdentityBuilder, Producer, ProducerBuilder, SendError, Sending, Stamp,
};
pub use router::{Router, RouterId, SipRouter, router};
pub use runtime::{Bare, BoxFuture, Runtime, Timer};
pub use store::{Commit, Committed, Fence, Key, OffsetStore};
pub use types::{
    Budget, Claim, Credit, Epoch, GroupKey, Headers, HeadersIter, LogId, LogUuid, Offset,
    OneOrMany, OneOrManyIntoIter, Partition, PartitionId, Permit, ProducerId, Progress, Ranges,
    Record, RoutingEpoch, Sequence, Stored, Timestamp,
};

/// What becomes of records whose key is absent. Declared by the producer and by the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AbsentKey {
    /// Refused: a producer hands the record back, a consumer stops at it with an error.
    #[default]
    Reject,
    /// Each is a group of its own: no order among them. A producer spreads them over the
    /// partitions in turn.
    Spread,
    /// All of a partition are one group. A producer sends them to the partition of the empty key.
    Serial,
}
