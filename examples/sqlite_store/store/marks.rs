//! "Done", in the transaction of the effect.

use std::sync::Arc;

use procession::{Error, ErrorKind, Key, LogUuid, Offset, Stored, Turn};
use rusqlite::Transaction;

use super::errors::Trouble;
use super::tables;

/// Marks the records of one subscription. Made by [`SqliteStore::subscribe`](super::SqliteStore).
#[derive(Clone)]
pub(crate) struct Marks {
    pub(super) subscription: Arc<str>,
    /// As the consumer counts them: a turn names its log by number.
    pub(super) logs: Arc<[LogUuid]>,
}

impl Marks {
    /// Marks every record of the turn as finished, and answers those that were not finished
    /// before: run the effects of these, in order, in the same transaction, and of no others.
    ///
    /// What is marked and committed never runs again under a later claim, whether its progress was
    /// committed or not. Under this claim it may come again, when the handler fails *after* its
    /// transaction was committed; then it is not in the answer.
    ///
    /// ```ignore
    /// let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// for stored in marks.mark(&tx, &turn)? {
    ///     apply(&tx, stored)?;
    /// }
    /// tx.commit()?; // the effects and "done", or nothing
    /// ```
    ///
    /// # Ordering
    /// Refused below the claimed epoch: SQLite has one writer at a time, so this transaction is
    /// either wholly before a claim, which then finds its marks, or after it, and refused. That
    /// holds for a deferred transaction too: if a claim comes between its first read and its first
    /// write, the write fails. But then it has waited for nothing, so begin it as `IMMEDIATE`.
    ///
    /// # Durability
    /// That of the transaction. A mark is one small row until the next commit folds it in; there are
    /// as many as records end in one commit interval.
    ///
    /// # Errors
    /// - [`Fenced`](ErrorKind::Fenced): a newer epoch owns the partition. Let the transaction go.
    /// - [`NotFound`](ErrorKind::NotFound): the partition was not claimed in this database, or was
    ///   forgotten. Its marks would never be folded in, and grow for ever.
    /// - [`Unavailable`](ErrorKind::Unavailable): the database is locked.
    pub(crate) fn mark<'t>(
        &self,
        tx: &Transaction<'_>,
        turn: &'t Turn,
    ) -> Result<Vec<&'t Stored>, Error> {
        let partition = turn.partition();
        let operation = || format!("mark records of \"{}\"", self.subscription);
        let at = |trouble: Trouble| {
            let error = match (trouble, tx.path()) {
                (trouble, Some(path)) => trouble.during(operation(), path.as_ref()),
                (trouble, None) => trouble.during(operation(), "(in memory)".as_ref()),
            };
            error.in_partition(partition).at_offset(turn.offset())
        };
        let log = self.logs.get(partition.log.get() as usize).ok_or_else(|| {
            let hint = "the turn is of a log that this subscription does not read";
            at(Error::new(ErrorKind::Config, operation()).with_hint(hint).into())
        })?;
        let key = Key {
            subscription: Arc::clone(&self.subscription),
            log: *log,
            partition: partition.partition,
        };
        self.mark_as(tx, &key, turn).map_err(at)
    }

    fn mark_as<'t>(
        &self,
        tx: &Transaction<'_>,
        key: &Key,
        turn: &'t Turn,
    ) -> Result<Vec<&'t Stored>, Trouble> {
        let (operation, epoch) = (format!("mark records of {key}"), turn.epoch());
        let entry = tables::find(tx, key)?;
        let Some((entry, progress)) = entry.and_then(|mut entry| {
            let progress = entry.progress.take()?;
            Some((entry, progress))
        }) else {
            return Err(tables::unclaimed(operation, epoch).into());
        };
        if epoch < entry.epoch {
            let hint = format!("epoch {} has claimed it, this turn is of {epoch}", entry.epoch);
            return Err(Error::new(ErrorKind::Fenced, operation).with_hint(hint).into());
        }
        if epoch > entry.epoch {
            return Err(tables::unclaimed(operation, epoch).into());
        }
        let is_new = |offset: Offset| -> Result<bool, Trouble> {
            Ok(!progress.covers(offset) && tables::put_mark(tx, entry.id, offset)?)
        };
        let mut new = Vec::with_capacity(turn.records().len());
        for stored in turn.records() {
            if is_new(stored.offset)? {
                new.push(stored);
            }
        }
        Ok(new)
    }
}
