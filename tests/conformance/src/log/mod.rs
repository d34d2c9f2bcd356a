//! The checks of a [`Log`], and what they need to make one.

mod append;
mod outside;
mod read;
mod stamp;
mod tools;
mod wait;

use std::sync::Arc;

use procession_core::{BoxFuture, Error, Log, Offset, Partition};

pub use append::*;
pub use outside::*;
pub use read::*;
pub use stamp::*;
pub use wait::*;

/// Makes the logs of a backend for the checks.
pub trait LogFactory: Send + Sync {
    /// A new, empty log.
    ///
    /// # Errors
    /// If the log cannot be made: the check fails.
    fn create(&self, setup: LogSetup) -> BoxFuture<'_, Result<Arc<dyn Log>, Error>>;

    /// The same log after a restart: `log` is the last handle the check held. `None` declares that
    /// it cannot be reopened.
    ///
    /// # Errors
    /// If the log cannot be opened: the check fails.
    fn reopen(&self, log: Arc<dyn Log>) -> Option<BoxFuture<'_, Result<Arc<dyn Log>, Error>>>;

    /// Removes records of a partition below `offset`, at least the first one. `None` declares that
    /// this backend cannot do it on demand.
    ///
    /// # Errors
    /// If the log cannot be trimmed: the check fails.
    fn trim(
        &self,
        log: &Arc<dyn Log>,
        partition: Partition,
        offset: Offset,
    ) -> Option<BoxFuture<'_, Result<(), Error>>>;
}

/// What a check asks of a log. What the backend cannot honour must show in its
/// [`LogInfo`](procession_core::LogInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSetup {
    /// How many partitions.
    pub partitions: u32,
    /// The largest record, in bytes of key, payload and headers.
    pub record_bytes_max: usize,
}

impl Default for LogSetup {
    /// Three partitions, records of at most 64 KiB.
    fn default() -> Self {
        Self { partitions: 3, record_bytes_max: 64 << 10 }
    }
}
