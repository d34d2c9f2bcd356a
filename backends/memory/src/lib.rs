//! The smallest honest backend of procession: a log and an offset store in this process's memory.
//!
//! It is two things: the reference for those who write a backend (read `log.rs` and `store.rs`
//! beside the trait pages), and a fast double for tests. It passes the whole suite of
//! `procession-conformance`.
//!
//! ```
//! use procession_core::{Batch, Log, Outcome, Partition, Record};
//! use procession_memory::MemoryLog;
//!
//! # futures::executor::block_on(async {
//! let log = MemoryLog::new(1);
//! let outcomes = log.append(Batch::one(Partition::new(0), Record::new("case-7", "opened"))).await;
//! assert!(matches!(outcomes.as_slice(), [Outcome::Stored(_)]));
//! # })
//! ```
//!
//! # Limits
//! Nothing survives the process: receipts say *buffered*, and so does
//! [`LogInfo::delivers`](procession_core::LogInfo::delivers). Clones share one state, so "reopen"
//! means: keep a clone.

mod builder;
mod log;
mod store;
mod waiters;

pub use builder::MemoryLogBuilder;
pub use log::MemoryLog;
pub use store::MemoryStore;
