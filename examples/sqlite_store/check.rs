//! Judges the database against the source.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::store::Trouble;
use crate::transfers::{account_name, transfer};

/// What is wrong; all zero is right. There is nothing that a crash excuses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) effects: u64,
    /// Transfers of the source without an effect.
    pub(crate) lost: u64,
    /// Effects of a transfer that had one before.
    pub(crate) duplicated: u64,
    /// Effects above one that was still to come, or of a transfer that is not in the source.
    pub(crate) reordered: u64,
    /// Accounts whose balance is not the sum of the source.
    pub(crate) wrong_balances: u64,
    /// The first accounts: name, transfers applied, balance, balance by the source.
    pub(crate) sample: Vec<(String, u64, i64, i64)>,
}

impl Verdict {
    pub(crate) const fn holds(&self) -> bool {
        self.lost == 0 && self.is_a_beginning()
    }

    /// Everything that is there is right, though more may be to come.
    pub(crate) const fn is_a_beginning(&self) -> bool {
        self.duplicated == 0 && self.reordered == 0 && self.wrong_balances == 0
    }
}

/// An account as the source has it, and how far the effects have followed.
#[derive(Default)]
struct Account {
    amounts: Vec<i64>,
    applied: Vec<bool>,
}

impl Account {
    fn sum_applied(&self) -> i64 {
        self.amounts.iter().zip(&self.applied).filter(|(_, done)| **done).map(|(a, _)| a).sum()
    }
}

pub(crate) fn check(
    connection: &Connection,
    records: u64,
    accounts: u64,
    sample: usize,
) -> Result<Verdict, Trouble> {
    let mut source: HashMap<String, Account> = HashMap::new();
    for number in 0..records {
        let (account, amount) = transfer(number, accounts);
        let account = source.entry(account_name(account)).or_default();
        account.amounts.push(amount);
        account.applied.push(false);
    }
    let mut verdict = Verdict::default();
    let mut select =
        connection.prepare("SELECT account, sequence, amount FROM applied ORDER BY position")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        verdict.effects += 1;
        let (name, sequence, amount): (String, u32, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let sequence = sequence as usize;
        match source.get_mut(&name) {
            Some(account) if account.amounts.get(sequence) == Some(&amount) => {
                if account.applied[sequence] {
                    verdict.duplicated += 1;
                } else if sequence > 0 && !account.applied[sequence - 1] {
                    verdict.reordered += 1;
                }
                account.applied[sequence] = true;
            }
            _ => verdict.reordered += 1,
        }
    }
    verdict.lost = source.values().flat_map(|a| &a.applied).filter(|done| !**done).count() as u64;
    let mut select =
        connection.prepare("SELECT account, balance FROM accounts ORDER BY account")?;
    let balances = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let balances: HashMap<String, i64> = balances.collect::<Result<_, _>>()?;
    let mut names: Vec<_> = source.keys().chain(balances.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let balance = balances.get(name).copied().unwrap_or_default();
        let account = source.get(name);
        let right = account.map_or(0, Account::sum_applied);
        verdict.wrong_balances += u64::from(balance != right);
        if verdict.sample.len() < sample {
            let applied = account.map_or(0, |a| a.applied.iter().filter(|done| **done).count());
            let by_source = account.map_or(0, |a| a.amounts.iter().sum());
            verdict.sample.push((name.clone(), applied as u64, balance, by_source));
        }
    }
    Ok(verdict)
}
