//! An offset store in the application's own SQLite database, so that an effect and "done" are one
//! transaction. Take the folder as it is: it needs nothing of the program around it.
//!
//! ```text
//!  turn ──> BEGIN IMMEDIATE; mark; effect; COMMIT          the handler, on a connection of its own
//!             │ marks: what is finished, row by row
//!  commit ──> BEGIN IMMEDIATE; progress := snapshot; marks below it go; COMMIT        the store's
//!  claim  ──> BEGIN IMMEDIATE; epoch + 1; progress := progress + marks; COMMIT     connection
//! ```

mod desk;
mod errors;
mod fold;
mod marks;
mod tables;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use procession::{
    Commit, Committed, ConsumerBuilder, Epoch, Error, ErrorKind, Fence, Key, Log, Offset,
    OffsetStore, Progress,
};
use rusqlite::{Connection, Transaction, TransactionBehavior};

pub(crate) use desk::Desk;
pub(crate) use errors::Trouble;
pub(crate) use marks::Marks;

/// How long a statement waits for another connection's lock unless told otherwise; then it fails
/// as [`Unavailable`](ErrorKind::Unavailable), and a commit is tried again by the consumer.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Epochs, progress and marks of any number of subscriptions and logs, side by side, in tables
/// that begin with `procession_`. Cheap to clone; clones share one connection and its thread.
///
/// # Durability
/// WAL with `synchronous=FULL`: a claim or a commit that answered survives a power cut. Let the
/// handlers' connections be `FULL` as well, as [`connect`](Self::connect) makes them. `NORMAL`
/// would leave their effects to the next sync of the same file; after a sync that *failed*, nobody
/// knows whether the effects before it are on the disk, and a later commit would say they are.
///
/// # Two connections, two processes
/// One connection writes at a time, others wait for it up to the busy timeout; readers never wait,
/// nor does anybody for them. There is one lock, and every transaction here takes it before anything
/// else, so none can wait for a second one: no deadlock. A `Transaction` cannot be held over an
/// `await` in a handler that is `Send`, so no turn keeps the lock while it is not polled. Other
/// processes on the same machine may read and write the database; if two consume one subscription,
/// the later claim fences the earlier one, in the store and in its effects. WAL needs shared memory:
/// not on a network file system.
#[derive(Clone)]
pub(crate) struct SqliteStore {
    desk: Desk,
    lock_wait_max: Duration,
}

impl SqliteStore {
    /// Opens the database, or makes it; the folder above must exist. What else it holds is left
    /// alone, except that its journal becomes a WAL, for good.
    ///
    /// # Errors
    /// - [`NotFound`](ErrorKind::NotFound): it cannot be opened or made there
    /// - [`Corrupt`](ErrorKind::Corrupt): it is not a sound SQLite file
    /// - [`Version`](ErrorKind::Version): a newer version made its tables
    /// - [`Denied`](ErrorKind::Denied): it is read-only
    /// - [`Full`](ErrorKind::Full): there is no room for the tables
    /// - [`Unavailable`](ErrorKind::Unavailable): others kept it locked; try again
    /// - [`Unsupported`](ErrorKind::Unsupported): it cannot have a WAL
    pub(crate) async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_waiting(path, LOCK_WAIT_MAX).await
    }

    /// As [`open`](Self::open), with another busy timeout, for [`connect`](Self::connect) too.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) async fn open_waiting(
        path: impl AsRef<Path>,
        lock_wait_max: Duration,
    ) -> Result<Self, Error> {
        let open = move |path: &Path| {
            let opened = || {
                let mut connection = open_plain(path, lock_wait_max)?;
                check_writable(&connection)?;
                use_wal(&connection)?;
                tables::create(&mut connection)?;
                Ok(connection)
            };
            opened().map_err(|trouble: Trouble| trouble.during("open an offset store", path))
        };
        Ok(Self { desk: Desk::start(path.as_ref(), open).await?, lock_wait_max })
    }

    /// A consumer of these logs with its progress here, and what its handler needs to mark records.
    /// Both come from one call because a turn names its log by its number in the consumer's list.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if there is no log.
    pub(crate) fn subscribe(
        &self,
        name: &str,
        logs: &[Arc<dyn Log>],
    ) -> Result<(ConsumerBuilder, Marks), Error> {
        let Some((first, others)) = logs.split_first() else {
            return Err(Error::new(ErrorKind::Config, format!("subscribe \"{name}\""))
                .with_hint("a subscription reads at least one log"));
        };
        let first = ConsumerBuilder::new(name, Arc::clone(first), self.clone());
        let builder = others.iter().fold(first, |builder, log| builder.log(Arc::clone(log)));
        let marks = Marks {
            subscription: name.into(),
            logs: logs.iter().map(|log| log.info().uuid).collect(),
        };
        Ok((builder, marks))
    }

    /// A connection to the same database for effects, on a thread of its own.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) async fn connect(&self) -> Result<Desk, Error> {
        let lock_wait_max = self.lock_wait_max;
        let open = move |path: &Path| {
            let opened = open_plain(path, lock_wait_max);
            opened.map_err(|trouble| trouble.during("connect to the database", path))
        };
        Desk::start(self.desk.path(), open).await
    }

    /// One transaction on the store's connection.
    async fn write<T: Send + 'static>(
        &self,
        operation: String,
        job: impl FnOnce(&Transaction<'_>) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Error> {
        let transaction = move |connection: &mut Connection| {
            // IMMEDIATE: takes the lock before it reads, so that it can wait for it. A transaction
            // that reads first and writes later is refused if others wrote in between.
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let answer = job(&tx)?;
            tx.commit()?;
            Ok(answer)
        };
        self.desk.call(operation, transaction).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl OffsetStore for SqliteStore {
    async fn claim(
        &self,
        key: &Key,
        floor: Epoch,
        start: Option<Offset>,
    ) -> Result<Option<(Epoch, Progress)>, Error> {
        let own = key.clone();
        self.write(format!("claim {key}"), move |tx| tables::claim(tx, &own, floor, start)).await
    }

    async fn commit(&self, batch: &[Commit<'_>]) -> Result<Vec<Committed>, Error> {
        let operation = match batch {
            [one] => format!("commit {}", one.key),
            several => format!("commit the progress of {} partitions", several.len()),
        };
        let own: Vec<(Key, Epoch, Progress)> =
            batch.iter().map(|c| (c.key.clone(), c.epoch, c.progress.clone())).collect();
        self.write(operation, move |tx| tables::commit(tx, &own)).await
    }

    async fn list(&self) -> Result<Vec<Key>, Error> {
        self.write("list the keys of an offset store".to_owned(), tables::list).await
    }

    async fn forget(&self, key: &Key) -> Result<(), Error> {
        let own = key.clone();
        self.write(format!("forget {key}"), move |tx| tables::forget(tx, &own)).await
    }
}

/// For a consumer whose progress is elsewhere, or is about to move here: from now on, marks and
/// commits of the key below the epoch are refused. A consumer of [`SqliteStore::subscribe`] needs no
/// fence: its claim is in the same row.
#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Fence for SqliteStore {
    async fn raise(&self, key: &Key, epoch: Epoch) -> Result<Epoch, Error> {
        let own = key.clone();
        self.write(format!("raise the epoch of {key}"), move |tx| tables::raise(tx, &own, epoch))
            .await
    }
}

fn open_plain(path: &Path, lock_wait_max: Duration) -> Result<Connection, Trouble> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(lock_wait_max)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// SQLite opens for reading what it may not write, and says so at the first write: too late, for
/// that is a claim or a commit.
fn check_writable(connection: &Connection) -> Result<(), Trouble> {
    if !connection.is_readonly(rusqlite::MAIN_DB)? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Denied, "open an offset store")
        .with_hint("the file or its file system is read-only; progress must be written")
        .into())
}

fn use_wal(connection: &Connection) -> Result<(), Trouble> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, "open an offset store")
        .with_hint(format!("its journal stays \"{mode}\": the place cannot hold a WAL"))
        .into())
}
