//! A log that is open for reading only, beside whoever writes it.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use procession_core::{
    Appending, Batch, Budget, Chunk, Enlisted, Error, ErrorKind, GroupKey, Log, LogInfo, Offset,
    Position, Version, Want,
};

use crate::disk::Watch;
use crate::history::History;
use crate::reader::Follower;
use crate::shared::Shared;

/// A file log that is open for reading only, made by
/// [`FileLog::open(path).read_only()`](crate::OpenOptions::read_only): in another process than the
/// one that writes it, or in the same, on the same machine. Cheap to clone.
///
/// It takes no lock and writes nothing, not even in a folder that is full or read-only. It goes on
/// while the writer is killed, recovers, or comes back later, and follows it into new segments and
/// past those that are removed. It is a [`Log`], so a consumer can read it, with a progress store
/// of its own; appends are refused as [`Unsupported`](ErrorKind::Unsupported) and handed back.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("permits");
/// use procession_core::{Log, Position, Record, Version};
/// use procession_file::FileLog;
/// # futures::executor::block_on(async {
/// let log = FileLog::open(&path).await?;
/// let reader = FileLog::open(&path).read_only().await?;
/// log.producer().send(Record::new("case-10011", "submitted")).await?;
/// // Woken when the writer has proven that the record is synced: with its next write, or within
/// // 200 ms.
/// let mut seen = Version::NEVER;
/// while reader.ends(Position::End).await? != log.ends(Position::End).await? {
///     seen = reader.changed(seen).await?;
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// # Durability
/// It sees only what the writer has synced, and what says so: a record appears when the next write
/// or the writer's mark after 200 ms of quiet names it as synced. So nothing that it has given is
/// ever gone or another record later, unless it was trimmed away. After a crash of the writer, its
/// last write appears when the log is opened for writing again.
///
/// # Cost
/// Opening reads the last segment whole, and later each new batch is read once when it is proven.
/// Two threads: one reads, one waits for changes of the folder: inotify on Linux, which costs
/// nothing while nothing is written. Where folders cannot be watched (other systems, `Disk`s
/// without [`watch`](crate::disk::Disk::watch), or no inotify instance is left) it looks every
/// 100 ms. It does not see what another machine writes over a network file system.
#[derive(Clone)]
pub struct FileReader(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    watch: Arc<dyn Watch>,
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// After an error of the system that may pass, it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

impl FileReader {
    /// Starts to follow; `read` is the thread that reads.
    pub(crate) fn start(
        shared: Arc<Shared>,
        watch: Arc<dyn Watch>,
        follower: Follower,
        read: JoinHandle<()>,
    ) -> Result<Self, Error> {
        let stop = Arc::<AtomicBool>::default();
        let threads = Mutex::new(vec![read]);
        let this = Self(Arc::new(Handle { shared, watch, stop, threads }));
        let Handle { shared, watch, stop, threads } = &*this.0;
        let (s, w, stopped) = (Arc::clone(shared), Arc::clone(watch), Arc::clone(stop));
        let following = move || follow(&s, &*w, &stopped, follower);
        match thread::Builder::new().name("procession-follow".to_owned()).spawn(following) {
            Ok(thread) => threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread),
            Err(e) => {
                return Err(Error::new(ErrorKind::Unavailable, "start to follow the log")
                    .at_path(&shared.folder.path)
                    .with_hint(format!("the system refused a thread ({e})"))
                    .caused_by(e));
            }
        }
        Ok(this)
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.shared.folder.path
    }

    /// The past of a group; see [`FileLog::history`](crate::FileLog::history). Its newest record is
    /// looked for by a scan of the last segment first, then in the indexes.
    pub fn history(&self, key: impl Into<GroupKey>) -> History {
        History::new(&self.0.shared, key.into())
    }
}

fn follow(shared: &Shared, watch: &dyn Watch, stop: &AtomicBool, mut follower: Follower) {
    while !stop.load(Ordering::SeqCst) {
        let again = match follower.look() {
            Ok(()) => None,
            Err(error) if error.is_retryable() => Some(AGAIN),
            Err(error) => return shared.end_of_changes(error),
        };
        watch.wait(again);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.watch.wake();
        self.shared.reading.close();
        let operation = format!("wait for log \"{}\"", self.shared.info.name);
        self.shared.end_of_changes(Error::new(ErrorKind::Closed, operation));
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let here = thread::current().id();
        for thread in threads {
            // A waker that is dropped on one of our threads may hold the last clone.
            if thread.thread().id() != here {
                // A panic was printed; there is nobody else to tell.
                let _ = thread.join();
            }
        }
    }
}

impl fmt::Debug for FileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader")
            .field("path", &self.path())
            .field("info", &self.0.shared.info)
            .finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Log for FileReader {
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
