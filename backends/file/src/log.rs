//! The handle of an open log.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use futures::channel::oneshot;
use procession_core::{
    Appending, Batch, Budget, Chunk, Enlisted, Error, ErrorKind, LocalMembership, Log, LogInfo,
    Offset, Position, Version, Want,
};

use crate::disk::DiskFile;
use crate::front::State;
use crate::options::OpenOptions;
use crate::progress::{FileStore, Filing};
use crate::report::RecoveryReport;
use crate::shared::Shared;

/// A durable log in a folder of its own.
///
/// All partitions share one stream of segment files, and all appends that come in while a sync
/// runs share the next one. Cheap to clone: clones are the same log, which closes when the last
/// one goes.
///
/// ```no_run
/// use procession_core::{Batch, Log, Partition, Record};
/// use procession_file::FileLog;
/// # async fn f() -> Result<(), procession_core::Error> {
/// let log = FileLog::open("data/permits").partitions(8).await?;
/// let record = Record::new("case-10011", "submitted");
/// let partition = log.info().router.route(b"case-10011", log.info().partitions);
/// let outcome = log.append(Batch::one(Partition::new(partition), record)).await;
/// log.close().await
/// # }
/// ```
///
/// # Durability
/// A receipt at [`Synced`](procession_core::Durability::Synced), the default, is given after the
/// `fdatasync` that covers its record. Only synced records are read. After a failed write or sync
/// the handle is *poisoned*: every waiter is told, nothing is retried, and only reopening the log
/// finds out what is stored. A full disk refuses records and hands them back; the log stays usable.
///
/// # Cancel safety
/// Dropping the future of an append cancels nothing once its records are queued, which they are
/// at the call unless two whole rounds wait already; until then a dropped batch is not sent.
///
/// # Limits
/// One process at a time has a log open for writing; [others](crate::OpenOptions::read_only) may
/// read it. Four threads per open log: one writes, one reads, one keeps the progress store, one
/// does chores. Everything is kept unless
/// [`retain_bytes`](OpenOptions::retain_bytes) or [`retain_for`](OpenOptions::retain_for) says
/// otherwise. Memory holds up to
/// [`groups_max`](OpenOptions::groups_max) groups and the progress of every subscription; a group
/// that is not in memory costs its next append a look-up in the index files, at the call. A record
/// that is kept keeps the block of 256 KiB alive that it was read in.
#[derive(Clone)]
pub struct FileLog(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    filing: Arc<Filing>,
    report: RecoveryReport,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Holds the lock of the folder until the threads have ended.
    lock: Mutex<Option<Arc<dyn DiskFile>>>,
    failed: Arc<Mutex<Option<Error>>>,
    membership: LocalMembership,
}

impl FileLog {
    /// Opens the log in this folder, or creates it there; the folder above must exist. Await the
    /// options, or call [`open_blocking`](OpenOptions::open_blocking).
    pub fn open(path: impl AsRef<Path>) -> OpenOptions {
        OpenOptions::new(path.as_ref())
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.shared.folder.path
    }

    /// What opening it had to repair.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.0.report
    }

    /// The progress store in the same folder.
    #[must_use]
    pub fn store(&self) -> FileStore {
        FileStore::new(self.clone())
    }

    /// Writes and syncs what is queued, marks the log as closed in order, and ends its threads.
    /// Other clones, and stores, find it closed. Dropping the last clone does the same, but blocks
    /// its thread for the last sync and cannot tell of an error.
    ///
    /// # Errors
    /// [`Poisoned`](ErrorKind::Poisoned) if something could not be written, now or before.
    ///
    /// # Cancel safety
    /// Once polled, the log closes even if this is dropped.
    pub async fn close(self) -> Result<(), Error> {
        self.0.begin_close();
        let threads = self.0.take_threads();
        let (done, wait) = oneshot::channel();
        let handle = Arc::clone(&self.0);
        let joining = thread::Builder::new().name("procession-close".to_owned()).spawn(move || {
            handle.join(threads);
            // Whoever waited may be gone.
            let _ = done.send(());
        });
        match joining {
            Ok(_) => {
                // An error means that the thread is gone, and everything joined with it.
                let _ = wait.await;
            }
            Err(e) => {
                return Err(Error::new(ErrorKind::Unavailable, "close the log")
                    .at_path(self.path())
                    .with_hint(format!("no thread could be started ({e}); it closes on its own"))
                    .caused_by(e));
            }
        }
        self.0.failure().map_or(Ok(()), Err)
    }

    /// Who is a member of what, shared by all clones.
    pub(crate) fn membership(&self) -> LocalMembership {
        self.0.membership.clone()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn filing(&self) -> &Filing {
        &self.0.filing
    }

    pub(crate) fn start(
        shared: Arc<Shared>,
        filing: Arc<Filing>,
        membership: LocalMembership,
        report: RecoveryReport,
        threads: Vec<JoinHandle<()>>,
        lock: Arc<dyn DiskFile>,
    ) -> Self {
        let failed = Arc::default();
        let (threads, lock) = (Mutex::new(threads), Mutex::new(Some(lock)));
        Self(Arc::new(Handle { shared, filing, report, threads, lock, failed, membership }))
    }
}

impl Handle {
    fn begin_close(&self) {
        {
            let mut front = self.shared.front();
            match &front.state {
                State::Open => front.state = State::Closing,
                State::Dead(error) => {
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(error.clone());
                }
                State::Closing => {}
            }
        }
        self.shared.bell.ring();
        self.filing.close();
        self.shared.reading.close();
        self.shared.keeping.close();
    }

    fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn join(&self, threads: Vec<JoinHandle<()>>) {
        let here = thread::current().id();
        for thread in threads {
            // A waker that is dropped on one of our threads may hold the last clone.
            if thread.thread().id() != here {
                // A panic of a worker was printed; there is nobody else to tell.
                let _ = thread.join();
            }
        }
        // The workers have let go of every file: the next open may have the folder.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn failure(&self) -> Option<Error> {
        if let State::Dead(error) = &self.shared.front().state {
            return Some(error.clone());
        }
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.begin_close();
        let threads = self.take_threads();
        self.join(threads);
    }
}

impl fmt::Debug for FileLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileLog")
            .field("path", &self.path())
            .field("info", &self.0.shared.info)
            .finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Log for FileLog {
    fn info(&self) -> Arc<LogInfo> {
        Arc::clone(&self.0.shared.info)
    }

    fn append(&self, batch: Batch) -> Appending {
        self.0.shared.append(batch)
    }

    async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        self.0.shared.read(wants, max).await
    }

    async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> {
        self.0.shared.ends(at).await
    }

    async fn enlist(&self, name: &str) -> Result<Enlisted, Error> {
        self.0.shared.enlist(name).await
    }

    async fn changed(&self, seen: Version) -> Result<Version, Error> {
        poll_fn(|cx| self.0.shared.poll_changed(seen, cx)).await
    }
}
