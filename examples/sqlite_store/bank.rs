//! The effect: a balance per account, and a line for each transfer applied to it.

use procession::{Failure, Stored, Turn};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::store::{Marks, Trouble};

/// `applied` is there to be checked: it counts what the balances alone would hide. It has no unique
/// index on purpose, so that an effect that happens twice is seen and not prevented.
const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS accounts (
        account  TEXT PRIMARY KEY,
        sequence INTEGER NOT NULL,
        balance  INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS applied (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        account  TEXT    NOT NULL,
        sequence INTEGER NOT NULL,
        amount   INTEGER NOT NULL
    ) STRICT;
";

pub(crate) fn create(connection: &mut Connection) -> Result<(), Trouble> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(CREATE)?;
    Ok(tx.commit()?)
}

/// What became of a turn: how many of its records were applied before.
pub(crate) struct Applied {
    pub(crate) repeated: usize,
}

/// Applies the transfers of a turn and marks them, in one transaction.
pub(crate) fn apply(
    connection: &mut Connection,
    marks: &Marks,
    turn: &Turn,
) -> Result<Result<Applied, Failure>, Trouble> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let new = marks.mark(&tx, turn)?;
    for stored in &new {
        if let Err(failure) = apply_one(&tx, stored)? {
            // Nothing of the turn happened: the transaction ends here, marks included.
            return Ok(Err(failure));
        }
    }
    tx.commit()?;
    Ok(Ok(Applied { repeated: turn.records().len() - new.len() }))
}

fn apply_one(tx: &Transaction<'_>, stored: &Stored) -> Result<Result<(), Failure>, Trouble> {
    let Some((account, sequence, amount)) = parse(stored) else {
        return Ok(Err(Failure::corrupt("not a transfer")));
    };
    // Compares with the sequence before it: were a transfer missing, twice here or out of order, no
    // row would change. SQLite's sum of two integers that overflows is no integer: refused as well.
    let changed = if sequence == 0 {
        let mut first = tx.prepare_cached(
            "INSERT INTO accounts (account, sequence, balance) VALUES (?1, 0, ?2)
             ON CONFLICT DO NOTHING",
        )?;
        first.execute(params![account, amount])?
    } else {
        let mut next = tx.prepare_cached(
            "UPDATE accounts SET sequence = ?2, balance = balance + ?3
             WHERE account = ?1 AND sequence = ?2 - 1",
        )?;
        next.execute(params![account, sequence, amount])?
    };
    if changed == 0 {
        let said = format!("transfer {sequence} of {account} does not follow the last one applied");
        return Ok(Err(Failure::permanent(said)));
    }
    tx.prepare_cached("INSERT INTO applied (account, sequence, amount) VALUES (?1, ?2, ?3)")?
        .execute(params![account, sequence, amount])?;
    Ok(Ok(()))
}

fn parse(stored: &Stored) -> Option<(String, i64, i64)> {
    let account = std::str::from_utf8(stored.record.key()?.as_ref()).ok()?.to_owned();
    let sequence = i64::try_from(stored.sequence?.get()).ok()?;
    let amount = std::str::from_utf8(stored.record.payload()?).ok()?.parse().ok()?;
    Some((account, sequence, amount))
}
