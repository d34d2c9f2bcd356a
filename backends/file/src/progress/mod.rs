//! The progress store: who owns a partition, and how far its subscription got.
//!
//! Two preallocated files, `progress.a` and `progress.b`. One is in use: frames are appended to it,
//! one sync for everything that came in meanwhile. When it is full, what counts is written into
//! the other one, whose header is written last: that single sector is the switch. So neither a
//! commit nor a compaction needs free space, until the live entries outgrow half a file.
//!
//! The same files keep what retention removed: it is durable before the first segment goes.

mod care;
mod file;
mod format;
mod store;

pub(crate) use care::Care;
pub(crate) use file::{NAMES, removed_segments};
pub use store::FileStore;
pub(crate) use store::{Desk, Filing, Request};
