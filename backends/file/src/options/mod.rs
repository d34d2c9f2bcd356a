//! Opening a log: what can be chosen.

mod compression;
mod enter;
mod read_only;
mod retain;
mod start;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use procession_core::{Durability, Error, ErrorKind, Router};

use crate::disk::{Clock, Disk, RealClock, RealDisk};
use crate::log::FileLog;
use crate::retention::Rules;

pub use compression::Compression;
#[cfg(test)]
pub(crate) use enter::Parts;
pub use read_only::ReadOnlyOptions;

/// How to open a [`FileLog`]. Await it, or call [`open_blocking`](Self::open_blocking).
#[derive(Clone)]
#[must_use = "nothing is opened until the options are awaited"]
pub struct OpenOptions {
    path: PathBuf,
    name: Option<String>,
    partitions: Option<u32>,
    router: Option<Arc<dyn Router>>,
    durability: Durability,
    sync_lag: Duration,
    record_bytes_max: usize,
    segment_bytes: u64,
    round_bytes_max: usize,
    groups_max: usize,
    skip_corruption: bool,
    open_files_max: usize,
    rules: Rules,
    compression: Compression,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
}

/// Partitions of a new log, unless told otherwise.
const PARTITIONS: u32 = 8;
/// After this much quiet the last round is proven by a mark.
const QUIET: Duration = Duration::from_millis(200);

impl OpenOptions {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            name: None,
            partitions: None,
            router: None,
            durability: Durability::Synced,
            sync_lag: Duration::from_millis(50),
            record_bytes_max: 1 << 20,
            segment_bytes: 64 << 20,
            round_bytes_max: 8 << 20,
            groups_max: 1_000_000,
            skip_corruption: false,
            open_files_max: 64,
            rules: Rules::default(),
            compression: Compression::None,
            disk: Arc::new(RealDisk),
            clock: Arc::new(RealClock::default()),
        }
    }

    /// How many partitions a new log gets, 8 unless told otherwise; an existing log must have as
    /// many. Left out, an existing log keeps what it has.
    pub const fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Which group goes to which partition. A new log gets a [`SipRouter`](procession_core::SipRouter) of a random seed unless
    /// told otherwise; an existing log must have been created with this one. Left out, an existing
    /// log with a `SipRouter` keeps it.
    pub fn router(mut self, router: Arc<dyn Router>) -> Self {
        self.router = Some(router);
        self
    }

    /// What receipts wait for, [`Synced`](Durability::Synced) unless told otherwise.
    ///
    /// # Durability
    /// *Buffered* receipts come at once and survive nothing; *flushed* ones survive the process;
    /// both are synced within [`sync_lag`](Self::sync_lag), and readable only then.
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The longest time that a record below *synced* stays unsynced, 50 ms unless told otherwise.
    pub const fn sync_lag(mut self, lag: Duration) -> Self {
        self.sync_lag = lag;
        self
    }

    /// The largest record, in bytes of key, payload and headers; 1 MiB unless told otherwise.
    /// Larger ones are refused.
    pub const fn record_bytes_max(mut self, bytes: usize) -> Self {
        self.record_bytes_max = bytes;
        self
    }

    /// The size of a segment file, preallocated; 64 MiB unless told otherwise.
    pub const fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// The largest single write, 8 MiB unless told otherwise. Up to three of these are in memory;
    /// beyond that, batches wait in the futures of their callers.
    pub const fn round_bytes_max(mut self, bytes: usize) -> Self {
        self.round_bytes_max = bytes;
        self
    }

    /// How many groups are remembered in memory, 1,000,000 unless told otherwise; others are looked
    /// up on disk when they come again.
    pub const fn groups_max(mut self, groups: usize) -> Self {
        self.groups_max = groups;
        self
    }

    /// The name in errors and metrics; the path unless told otherwise.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Whether damaged bytes are set aside (in the folder `quarantine`, and reported by
    /// [`FileLog::recovery`]) instead of failing the open. Their records are lost. In older segments
    /// they stay where they are, and reads step over them. Segments that are missing, and were not
    /// removed by retention, are given up and reported.
    pub const fn skip_corruption(mut self, skip: bool) -> Self {
        self.skip_corruption = skip;
        self
    }

    /// Whether batches are compressed; not unless told so. May be changed whenever the log is opened.
    ///
    /// A batch is what one write holds of all who append without a stamp, or the records of one
    /// stamped batch: the more that come in together, the better they pack. The I/O thread does it,
    /// so it costs no caller any time; budgets count what records are without it.
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Another disk than that of the operating system: for simulations.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Other clocks than those of the machine: for simulations.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the log on this thread, which blocks for the recovery.
    ///
    /// # Errors
    /// - [`Config`](ErrorKind::Config): an option makes no sense
    /// - [`NotFound`](ErrorKind::NotFound): the folder above is missing
    /// - [`Mismatch`](ErrorKind::Mismatch): the path is a file, a folder of something else, or a log
    ///   with other partitions or another router; or files of another log lie in it
    /// - [`Locked`](ErrorKind::Locked): somebody has it open; says who
    /// - [`Denied`](ErrorKind::Denied): no permission, or a read-only file system
    /// - [`Version`](ErrorKind::Version): a newer version wrote it
    /// - [`Unsupported`](ErrorKind::Unsupported): it has compressed batches, and this build lacks the
    ///   feature for them
    /// - [`Corrupt`](ErrorKind::Corrupt): bytes that were proven durable do not read back
    /// - [`Full`](ErrorKind::Full): there is no room for the first files, or, without a spare
    ///   segment, to set damaged bytes aside
    pub fn open_blocking(self) -> Result<FileLog, Error> {
        let opened = self.open_parts()?;
        opened.start()
    }
}

impl IntoFuture for OpenOptions {
    type Output = Result<FileLog, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Opens the log on a thread of its own.
    fn into_future(self) -> Self::IntoFuture {
        let path = self.path.clone();
        Box::pin(on_a_thread("open the log", path, move || self.open_blocking()))
    }
}

/// Does blocking work on a thread of its own.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    operation: &'static str,
    path: PathBuf,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (done, outcome) = oneshot::channel();
    let gone =
        |hint: String| Error::new(ErrorKind::Unavailable, operation).at_path(path).with_hint(hint);
    let work = move || drop(done.send(work()));
    if let Err(e) = thread::Builder::new().name("procession-work".to_owned()).spawn(work) {
        return Err(gone(format!("no thread could be started ({e})")));
    }
    match outcome.await {
        Ok(result) => result,
        Err(_) => Err(gone("its thread panicked".to_owned())),
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("path", &self.path)
            .field("partitions", &self.partitions)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}
