//! A connection on a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use futures::channel::oneshot;
use procession::{Error, ErrorKind};
use rusqlite::Connection;

use super::errors::Trouble;

/// Jobs that wait at most, beyond the one that runs; more are refused as
/// [`Unavailable`](ErrorKind::Unavailable). A consumer has one commit, its claims and its turns
/// waiting: 256 at a time, unless it is told otherwise.
const JOBS_MAX: usize = 1_024;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Runs jobs on a connection, one after the other, on a thread of its own. Cheap to clone; the last
/// clone to go waits for the job that runs, and closes the connection.
///
/// SQLite answers by blocking: for an fsync, or for as long as another connection has the lock. Done
/// inside a future, that would hold up every turn polled on the same thread, and could wait for
/// itself: a commit of the store for the lock of a handler, which needs this very thread to be polled
/// to its end. Here neither waits for the other's future.
#[derive(Clone)]
pub(crate) struct Desk(Arc<Inner>);

struct Inner {
    path: PathBuf,
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    /// Opens the database on a new thread.
    ///
    /// # Errors
    /// As `open`; [`Unavailable`](ErrorKind::Unavailable) if no thread can be started.
    pub(crate) async fn start(
        path: &Path,
        open: impl FnOnce(&Path) -> Result<Connection, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let (jobs, waiting) = sync_channel(JOBS_MAX);
        let (opened, wait) = oneshot::channel();
        let own_path = path.to_path_buf();
        let work = move || match open(&own_path) {
            Ok(connection) => {
                // Whoever opened it may have gone away meanwhile; then there are no jobs.
                drop(opened.send(Ok(())));
                serve(connection, &waiting);
            }
            Err(error) => drop(opened.send(Err(error))),
        };
        let thread = thread::Builder::new().name("sqlite-store".to_owned()).spawn(work);
        let thread = thread.map_err(|cause| {
            Error::new(ErrorKind::Unavailable, "open a database")
                .at_path(path)
                .with_hint(format!("no thread could be started ({cause})"))
                .caused_by(cause)
        })?;
        let desk =
            Self(Arc::new(Inner { path: path.into(), jobs: Some(jobs), thread: Some(thread) }));
        wait.await.map_err(|_| desk.gone("open a database"))??;
        Ok(desk)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Runs a job; `operation` says in errors what was attempted.
    ///
    /// # Cancel safety
    /// Queued at the first poll. Dropping this afterwards stops the waiting, not the job.
    ///
    /// # Errors
    /// As the job; [`Unavailable`](ErrorKind::Unavailable) if too many wait, and
    /// [`Closed`](ErrorKind::Closed) if an earlier job panicked.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        operation: String,
        job: impl FnOnce(&mut Connection) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, wait) = oneshot::channel();
        // Nobody need be there for the answer.
        let job: Job = Box::new(move |connection| drop(answer.send(job(connection))));
        let jobs = self.0.jobs.as_ref().expect("taken in `drop` alone");
        match jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(_)) => return Err(self.gone(&operation)),
            Err(TrySendError::Full(_)) => {
                return Err(Error::new(ErrorKind::Unavailable, operation)
                    .at_path(self.path())
                    .with_hint(format!("{JOBS_MAX} calls wait for this connection already")));
            }
        }
        match wait.await {
            Ok(result) => result.map_err(|trouble| trouble.during(operation, self.path())),
            Err(_) => Err(self.gone(&operation)),
        }
    }

    fn gone(&self, operation: &str) -> Error {
        Error::new(ErrorKind::Closed, operation.to_owned())
            .at_path(self.path())
            .with_hint("the thread of this connection panicked; open the database again")
    }
}

fn serve(mut connection: Connection, waiting: &Receiver<Job>) {
    for job in waiting {
        job(&mut connection);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take()
            // A job may own the last clone.
            && thread.thread().id() != thread::current().id()
        {
            // A panic was printed, and told to whoever waited.
            let _ = thread.join();
        }
    }
}
