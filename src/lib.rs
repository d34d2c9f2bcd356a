//! Records of one group walk in procession; groups walk side by side.
//!
//! A **group queue**: records are handled strictly in order per entity (an order, a permit, a
//! device, an account) and in parallel across entities, through retries, crashes and handoffs. The
//! parallelism is the number of active groups, not of partitions, consumers or threads.
//!
//! ```no_run
//! use procession::{FileLog, Record, Turn};
//!
//! # async fn archive(turn: Turn) -> Result<(), std::io::Error> { Ok(()) }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # futures::executor::block_on(async {
//! let log = FileLog::open("permits.log").await?;
//!
//! let receipt = log.producer().send(Record::new("case-10011", "submitted")).await?;
//! println!("synced at offset {}", receipt.offset);
//!
//! log.subscribe("archive")
//!     .concurrency(256)
//!     .run(|turn| async move { archive(turn).await })
//!     .await?;
//! # Ok(()) })
//! # }
//! ```
//!
//! # Concepts
//! A [`Record`] has a key: its *group*. A [`Log`] keeps records in partitions, by offset; a
//! [`Router`] says which group goes where. A *subscription* reads a log at its own pace: a
//! [`Consumer`] runs a handler for one [`Turn`] after the other, never two of one group at a time,
//! or yields the turns as a stream of [`Deliveries`]; an [`OffsetStore`] keeps what is finished. A
//! [`GroupExecutor`] decides what may run. Several members of a subscription share its partitions
//! ([`LocalMembership`]).
//!
//! # Where to look
//! | to | look at |
//! |---|---|
//! | send | [`Producer`], [`Record`], [`Receipt`], [`SendError`] |
//! | handle | [`ConsumerBuilder`] (all settings, with their defaults), [`Turn`], [`Failure`], [`Retry`] |
//! | write a loop of your own, `select!` | [`Deliveries`], [`Delivery`] |
//! | end a run, look into it | [`Handle`], [`Summary`], [`Explain`], [`Warning`] |
//! | know what went wrong | [`Error`], [`ErrorKind`] |
//! | keep progress in your own database | [`OffsetStore`], [`Fence`] |
//! | bring a log, a runtime, another order of things | [`Log`], [`Runtime`], [`Membership`], [`GroupExecutor`] |
//!
//! The rest is reached from these pages; most of it only a backend or an executor meets.
//!
//! # Guarantees
//! - **Order.** A record's turn starts only after its predecessor in the group is finished.
//! - **Independence.** A slow, failing or backing-off group delays only itself.
//! - **Nothing lost.** A record whose receipt said *synced* survives a power cut; progress never
//!   passes a record that is not finished.
//! - **At least once.** After a crash, what had no durable progress runs again, and no more.
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `file` (default) | `FileLog`: embedded, durable, no server; four threads of its own per log |
//! | `memory` | `MemoryLog`, `MemoryStore`: survives nothing; for tests |
//! | `lz4` | `Compression::Lz4` for the file log; what it wrote opens only in builds that have it |
//! | `tokio` | `Tokio`: a [`Runtime`] value |
//! | `smol` | `Smol`: a [`Runtime`] value |
//! | `tower` | `run_service`: a tower service as the handler |
//! | `full` | all of these |
//!
//! No feature excludes another. Without a runtime value everything runs inside the future you
//! poll, on any executor.
//!
//! # Limits
//! One process writes a file log, with all its members; others may open it for reading only. A log
//! keeps its partition count.
//! Handlers see a record again after a crash: make effects idempotent, by the turn's offset or the
//! record's sequence.

pub use procession_core::{
    AbsentKey, Appending, Bare, Batch, BoxError, BoxFuture, Budget, Chains, ChainsOptions, Chunk,
    Claim, Class, Commit, Committed, Completed, Consumer, ConsumerBuilder, Credit, Deliveries,
    Delivery, Drain, Drained, Durability, Enlisted, Epoch, Error, ErrorKind, Event, Explain,
    Failure, Fence, GroupExecutor, GroupKey, GroupState, Handle, Headers, HeadersIter, Hold,
    IdentityBuilder, Inlet, Key, Load, LocalMembership, Log, LogId, LogInfo, LogUuid, Membership,
    Next, Offset, OffsetStore, OffsetWindow, OneOrMany, OneOrManyIntoIter, Order, OutOfRange,
    Outcome, Partition, PartitionId, Permit, Policy, Position, Producer, ProducerBuilder,
    ProducerId, Progress, Ranges, Receipt, Receipts, Record, Rest, Retry, Revoke, Router, RouterId,
    RoutingEpoch, Runtime, Scope, Seat, SendError, Sending, Sequence, SipRouter, Stamp, Start,
    Stored, Subscription, Summary, Timer, Timestamp, Turn, TurnId, Verdict, Version, Want, Warning,
    router,
};

#[cfg(feature = "file")]
pub use procession_file::{
    BackupReport, Compression, FileLog, FileReader, FileStore, History, HistoryEnd, OpenOptions,
    PartitionState, Past, Pin, ProgressAhead, Quarantined, ReadOnlyOptions, RecoveryReport,
    SubscriptionState, Trimmed, disk as file_disk,
};
#[cfg(feature = "memory")]
pub use procession_memory::{MemoryLog, MemoryLogBuilder, MemoryStore};
#[cfg(feature = "smol")]
pub use procession_smol::Smol;
#[cfg(feature = "tokio")]
pub use procession_tokio::Tokio;
