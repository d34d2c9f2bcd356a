//! What the tests share: a database in a folder of its own, turns, and looks from outside.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use futures::executor::block_on;
use procession::{
    Claim, Commit, Committed, Epoch, Error, Key, Log, LogId, LogUuid, Offset, OffsetStore,
    OneOrMany, Partition, PartitionId, Producer, Progress, Ranges, Record, RoutingEpoch, Stored,
    Timestamp, Turn, TurnId,
};
use procession_memory::MemoryLog;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tempfile::TempDir;

use crate::store::{Marks, SqliteStore};

/// A database with a table `effects`, a store on it, and a memory log whose partition 0 it has
/// claimed once.
pub(super) struct Bench {
    folder: TempDir,
    pub(super) store: SqliteStore,
    pub(super) log: Arc<dyn Log>,
    pub(super) marks: Marks,
}

impl Bench {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = block_on(SqliteStore::open(folder.path().join("bank.db"))).unwrap();
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new(1));
        let marks = store.subscribe("balances", &[Arc::clone(&log)]).unwrap().1;
        let bench = Self { folder, store, log, marks };
        bench
            .connect()
            .execute_batch("CREATE TABLE effects (record_offset INTEGER NOT NULL)")
            .unwrap();
        bench
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("bank.db")
    }

    /// As a handler's connection, or as that of somebody else who looks.
    pub(super) fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
        connection
    }

    pub(super) fn key(&self) -> Key {
        key("balances", self.log.info().uuid)
    }

    pub(super) fn claim(&self) -> (Epoch, Progress) {
        claim(&self.store, &self.key())
    }

    pub(super) fn commit(&self, epoch: Epoch, progress: &Progress) -> Committed {
        let key = self.key();
        let batch = [Commit { key: &key, epoch, progress }];
        block_on(self.store.commit(&batch)).unwrap().remove(0)
    }

    /// Marks a turn of these offsets in a transaction of its own; answers which were new.
    pub(super) fn mark(&self, epoch: Epoch, offsets: &[u64]) -> Result<Vec<u64>, Error> {
        let mut connection = self.connect();
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let new = mark(&self.marks, &tx, &turn(epoch, offsets))?;
        tx.commit().unwrap();
        Ok(new)
    }

    /// The marks that are not folded in yet, of every key.
    pub(super) fn marks_left(&self) -> Vec<i64> {
        self.numbers("SELECT record_offset FROM procession_marks ORDER BY record_offset")
    }

    pub(super) fn effects(&self) -> Vec<i64> {
        self.numbers("SELECT record_offset FROM effects ORDER BY rowid")
    }

    fn numbers(&self, sql: &str) -> Vec<i64> {
        let connection = self.connect();
        let mut select = connection.prepare(sql).unwrap();
        select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// Appends so many records, over so many groups.
    pub(super) fn append(&self, records: u64, groups: u64) {
        let producer = Producer::new(Arc::clone(&self.log));
        for number in 0..records {
            let record = Record::new(format!("group-{}", number % groups), number.to_string());
            block_on(producer.send(record)).unwrap();
        }
    }
}

pub(super) fn key(subscription: &str, log: LogUuid) -> Key {
    Key { subscription: subscription.into(), log, partition: Partition::new(0) }
}

pub(super) fn claim(store: &dyn OffsetStore, key: &Key) -> (Epoch, Progress) {
    block_on(store.claim(key, Epoch::FIRST, Some(Offset::ZERO))).unwrap().unwrap()
}

pub(super) fn mark(marks: &Marks, tx: &Transaction<'_>, turn: &Turn) -> Result<Vec<u64>, Error> {
    let new = marks.mark(tx, turn)?;
    Ok(new.iter().map(|stored| stored.offset.get()).collect())
}

/// A turn of the first partition of the first log.
pub(super) fn turn(epoch: Epoch, offsets: &[u64]) -> Turn {
    turn_of_log(0, epoch, offsets)
}

pub(super) fn turn_of_log(log: u32, epoch: Epoch, offsets: &[u64]) -> Turn {
    let partition = PartitionId::new(LogId::new(log), Partition::new(0));
    let stored = |offset: &u64| Stored {
        offset: Offset::new(*offset),
        sequence: None,
        log_time: Timestamp::from_millis(0),
        routing: RoutingEpoch::new(1),
        record: Record::new("group", "payload"),
    };
    let id = TurnId { index: 0, generation: 0 };
    let records: OneOrMany<Stored> = offsets.iter().map(stored).collect();
    Turn::new(id, Claim { partition, epoch }, NonZeroU32::MIN, records)
}

pub(super) fn progress(next: u64, done: &[(u64, u64)]) -> Progress {
    let mut ranges = Ranges::default();
    for (from, to) in done {
        ranges.push(Offset::new(*from), Offset::new(*to));
    }
    Progress::with_done(Offset::new(next), ranges)
}

/// What a handler does: marks the turn, and for each record that is new, an effect.
pub(super) fn effect(tx: &Transaction<'_>, marks: &Marks, turn: &Turn) -> Result<(), Error> {
    for offset in mark(marks, tx, turn)? {
        tx.execute("INSERT INTO effects (record_offset) VALUES (?1)", [offset.cast_signed()])
            .unwrap();
    }
    Ok(())
}
