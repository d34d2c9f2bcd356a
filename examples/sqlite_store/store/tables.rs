//! The tables, and every statement on them. Each function runs inside the caller's transaction.
//!
//! ```text
//!  procession_schema    version
//!  procession_epochs    id | subscription | log | partition | epoch      outlives what is forgotten
//!  procession_progress  key -> id | progress                             opaque, versioned bytes
//!  procession_marks     key -> id | record_offset                        finished, not yet in progress
//! ```
//!
//! They lie beside the tables of the application, so their version is in a table of their own:
//! `PRAGMA user_version` belongs to the application.

use procession::{
    Commit, Committed, Epoch, Error, ErrorKind, Key, LogUuid, Offset, Partition, Progress,
};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::errors::Trouble;
use super::fold::fold;

const VERSION: i64 = 1;

const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS procession_epochs (
        id           INTEGER PRIMARY KEY,
        subscription TEXT    NOT NULL,
        log          TEXT    NOT NULL,
        partition    INTEGER NOT NULL,
        epoch        INTEGER NOT NULL,
        UNIQUE (subscription, log, partition)
    ) STRICT;
    CREATE TABLE IF NOT EXISTS procession_progress (
        key      INTEGER PRIMARY KEY REFERENCES procession_epochs (id),
        progress BLOB NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS procession_marks (
        key           INTEGER NOT NULL REFERENCES procession_epochs (id),
        record_offset INTEGER NOT NULL,
        PRIMARY KEY (key, record_offset)
    ) STRICT, WITHOUT ROWID;
";

/// Makes the tables where they are missing. What a newer version made is left as it is.
pub(crate) fn create(connection: &mut Connection) -> Result<(), Trouble> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS procession_schema (version INTEGER NOT NULL) STRICT",
    )?;
    let version: Option<i64> =
        tx.query_row("SELECT max(version) FROM procession_schema", [], |row| row.get(0))?;
    match version {
        Some(VERSION) => {}
        None => {
            tx.execute("INSERT INTO procession_schema (version) VALUES (?1)", [VERSION])?;
        }
        Some(version) => {
            let hint = format!(
                "its tables are of version {version}, this build knows {VERSION}; use the newer \
                 program, or move its `procession_` tables out of the way"
            );
            return Err(Error::new(ErrorKind::Version, "open an offset store")
                .with_hint(hint)
                .into());
        }
    }
    tx.execute_batch(CREATE)?;
    Ok(tx.commit()?)
}

/// What is stored of a key.
pub(crate) struct Entry {
    pub(crate) id: i64,
    pub(crate) epoch: Epoch,
    /// `None` once it was forgotten, or if it was only fenced: the epoch stays as a floor.
    pub(crate) progress: Option<Progress>,
}

pub(crate) fn find(tx: &Transaction<'_>, key: &Key) -> Result<Option<Entry>, Trouble> {
    let mut select = tx.prepare_cached(
        "SELECT id, epoch, progress FROM procession_epochs
         LEFT JOIN procession_progress ON key = id
         WHERE subscription = ?1 AND log = ?2 AND partition = ?3",
    )?;
    let place = params![key.subscription, key.log.to_string(), key.partition.get()];
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let Some((id, epoch, progress)) = select.query_row(place, row).optional()? else {
        return Ok(None);
    };
    let epoch = read_epoch(epoch).ok_or_else(|| damaged(key, "an epoch outside 1..2^53"))?;
    let progress: Option<Vec<u8>> = progress;
    let progress = progress.map(|bytes| Progress::from_bytes(&bytes)).transpose();
    let progress = progress.map_err(|cause| {
        Error::new(cause.kind(), format!("read the progress of {key}")).caused_by(cause)
    })?;
    Ok(Some(Entry { id, epoch, progress }))
}

/// Raises the epoch; the marks become progress, so that the new owner sees them as finished.
pub(crate) fn claim(
    tx: &Transaction<'_>,
    key: &Key,
    floor: Epoch,
    start: Option<Offset>,
) -> Result<Option<(Epoch, Progress)>, Trouble> {
    let found = find(tx, key)?;
    let epoch = match &found {
        None => floor,
        Some(entry) => floor.max(entry.epoch.next().ok_or_else(|| {
            Error::new(ErrorKind::Exhausted, format!("claim {key}")).with_hint("no epoch is left")
        })?),
    };
    let stored = found.and_then(|entry| entry.progress);
    let Some(progress) = stored.or_else(|| start.map(Progress::at)) else { return Ok(None) };
    let id = put_epoch(tx, key, epoch)?;
    let progress = fold(&progress, &marks(tx, id)?);
    put_progress(tx, id, &progress)?;
    tx.prepare_cached("DELETE FROM procession_marks WHERE key = ?1")?.execute([id])?;
    Ok(Some((epoch, progress)))
}

/// One answer per commit, in order; all of them in one transaction.
pub(crate) fn commit(
    tx: &Transaction<'_>,
    batch: &[(Key, Epoch, Progress)],
) -> Result<Vec<Committed>, Trouble> {
    let one = |(key, epoch, progress): &(Key, Epoch, Progress)| {
        commit_one(tx, &Commit { key, epoch: *epoch, progress })
    };
    batch.iter().map(one).collect()
}

fn commit_one(tx: &Transaction<'_>, commit: &Commit<'_>) -> Result<Committed, Trouble> {
    let Commit { key, epoch, progress } = *commit;
    match find(tx, key)? {
        Some(entry) if entry.progress.is_some() && epoch < entry.epoch => {
            Ok(Committed::Fenced(entry.epoch))
        }
        Some(entry) if entry.progress.is_some() && epoch == entry.epoch => {
            put_progress(tx, entry.id, progress)?;
            forget_covered(tx, entry.id, progress)?;
            Ok(Committed::Done)
        }
        _ => Ok(Committed::Unknown(unclaimed(format!("commit {key}"), epoch))),
    }
}

/// The highest epoch that is known of the key, this one included.
pub(crate) fn raise(tx: &Transaction<'_>, key: &Key, epoch: Epoch) -> Result<Epoch, Trouble> {
    let highest = find(tx, key)?.map_or(epoch, |entry| entry.epoch.max(epoch));
    put_epoch(tx, key, highest)?;
    Ok(highest)
}

pub(crate) fn list(tx: &Transaction<'_>) -> Result<Vec<Key>, Trouble> {
    let mut select = tx.prepare_cached(
        "SELECT subscription, log, partition FROM procession_epochs
         JOIN procession_progress ON key = id",
    )?;
    let mut rows = select.query([])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        let (subscription, log): (String, String) = (row.get(0)?, row.get(1)?);
        let log = u128::from_str_radix(&log, 16).map_err(|_| {
            Error::new(ErrorKind::Corrupt, "list the keys of an offset store")
                .with_hint(format!("{log:?} is no log's number"))
        })?;
        keys.push(Key {
            subscription: subscription.into(),
            log: LogUuid::from_u128(log),
            partition: Partition::new(row.get(2)?),
        });
    }
    Ok(keys)
}

pub(crate) fn forget(tx: &Transaction<'_>, key: &Key) -> Result<(), Trouble> {
    if let Some(Entry { id, .. }) = find(tx, key)? {
        tx.prepare_cached("DELETE FROM procession_progress WHERE key = ?1")?.execute([id])?;
        tx.prepare_cached("DELETE FROM procession_marks WHERE key = ?1")?.execute([id])?;
    }
    Ok(())
}

/// Whether the mark is new.
pub(crate) fn put_mark(tx: &Transaction<'_>, id: i64, offset: Offset) -> Result<bool, Trouble> {
    // SQL has no number above this one; no log has reached it.
    let number = i64::try_from(offset.get()).ok().filter(|number| *number < i64::MAX);
    let number = number.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "mark a record")
            .at_offset(offset)
            .with_hint("SQL has no offsets from 2^63 - 1 on")
    })?;
    let mut insert = tx.prepare_cached(
        "INSERT INTO procession_marks (key, record_offset) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    )?;
    Ok(insert.execute([id, number])? == 1)
}

pub(crate) fn unclaimed(operation: String, epoch: Epoch) -> Error {
    Error::new(ErrorKind::NotFound, operation)
        .with_hint(format!("epoch {epoch} was never claimed in this database, or was forgotten"))
}

fn put_epoch(tx: &Transaction<'_>, key: &Key, epoch: Epoch) -> Result<i64, Trouble> {
    let mut upsert = tx.prepare_cached(
        "INSERT INTO procession_epochs (subscription, log, partition, epoch)
         VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (subscription, log, partition) DO UPDATE SET epoch = excluded.epoch
         RETURNING id",
    )?;
    // Epochs lie below 2^53.
    let (log, epoch) = (key.log.to_string(), epoch.get() as i64);
    let place = params![key.subscription, log, key.partition.get(), epoch];
    Ok(upsert.query_row(place, |row| row.get(0))?)
}

fn put_progress(tx: &Transaction<'_>, id: i64, progress: &Progress) -> Result<(), Trouble> {
    let mut upsert = tx.prepare_cached(
        "INSERT INTO procession_progress (key, progress) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET progress = excluded.progress",
    )?;
    upsert.execute(params![id, progress.to_bytes()])?;
    Ok(())
}

/// The marks of a key, ascending: what ended since the last commit.
fn marks(tx: &Transaction<'_>, id: i64) -> Result<Vec<Offset>, Trouble> {
    let mut select = tx.prepare_cached(
        "SELECT record_offset FROM procession_marks WHERE key = ?1 ORDER BY record_offset",
    )?;
    let offsets = select.query_map([id], |row| row.get::<_, i64>(0).map(i64::cast_unsigned))?;
    Ok(offsets.map(|offset| offset.map(Offset::new)).collect::<Result<_, _>>()?)
}

/// Marks that the progress says as well go: below `next` at once, those in its ranges one by one.
fn forget_covered(tx: &Transaction<'_>, id: i64, progress: &Progress) -> Result<(), Trouble> {
    let next = i64::try_from(progress.next.get()).unwrap_or(i64::MAX);
    tx.prepare_cached("DELETE FROM procession_marks WHERE key = ?1 AND record_offset < ?2")?
        .execute([id, next])?;
    let mut delete =
        tx.prepare_cached("DELETE FROM procession_marks WHERE key = ?1 AND record_offset = ?2")?;
    for mark in marks(tx, id)?.into_iter().filter(|mark| progress.covers(*mark)) {
        delete.execute([id, mark.get().cast_signed()])?;
    }
    Ok(())
}

fn read_epoch(number: i64) -> Option<Epoch> {
    Epoch::new(u64::try_from(number).ok()?)
}

fn damaged(key: &Key, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("read the progress of {key}"))
        .with_hint(format!("{what}; somebody else wrote to the table"))
}
