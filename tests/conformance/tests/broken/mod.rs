//! Backends that are wrong in one way each, and one that only looks wrong.

mod gaps;
mod log;
mod store;

pub(crate) use gaps::GapLogs;
pub(crate) use log::{BrokenLogs, LogBug};
pub(crate) use store::{BrokenStores, StoreBug};
