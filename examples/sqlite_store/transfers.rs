//! The source: transfers that anybody can compute again, and the log that is filled with them.

use std::collections::VecDeque;

use indicatif::{ProgressBar, ProgressStyle};
use procession::{Budget, FileLog, Log, Partition, Position, Record, Stored, Want};

use crate::BoxError;

/// Sends that wait for their receipts.
const IN_FLIGHT: usize = 1_000;

/// Transfer `number` of a source with so many accounts: whose, and how much.
pub(crate) fn transfer(number: u64, accounts: u64) -> (u64, i64) {
    let mut random = fastrand::Rng::with_seed(number);
    (random.u64(..accounts), random.i64(-100..=120))
}

pub(crate) fn account_name(account: u64) -> String {
    format!("account-{account:04}")
}

/// Appends the transfers that the log does not hold yet. They were appended in order by one
/// producer, so what a crash left of them is their beginning.
pub(crate) async fn append_missing(
    log: &FileLog,
    records: u64,
    accounts: u64,
) -> Result<(), BoxError> {
    let held = held(log, accounts).await?;
    if held > records {
        return Err(format!("the log holds {held} records, give it --records {held}").into());
    }
    let bar = progress_bar("append", records);
    bar.set_position(held);
    let producer = log.producer();
    let mut sends = VecDeque::with_capacity(IN_FLIGHT);
    for number in held..records {
        if sends.len() == IN_FLIGHT
            && let Some(first) = sends.pop_front()
        {
            first.await?;
            bar.inc(1);
        }
        let (account, amount) = transfer(number, accounts);
        let record = Record::new(account_name(account), amount.to_string());
        sends.push_back(producer.send(record.with_header("number", number.to_string())));
    }
    for sending in sends {
        sending.await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// How many transfers are in the log; an error if they are not of this source.
async fn held(log: &FileLog, accounts: u64) -> Result<u64, BoxError> {
    let ends = log.ends(Position::End).await?;
    let mut wants: Vec<Want> = (0_u32..)
        .zip(log.ends(Position::Earliest).await?)
        .map(|(p, from)| Want { partition: Partition::new(p), from, max: Budget::MAX })
        .collect();
    let mut held = 0;
    loop {
        wants.retain(|want| want.from < ends[want.partition.get() as usize]);
        if wants.is_empty() {
            return Ok(held);
        }
        for chunk in log.read(&wants, Budget::new(100_000, 8 << 20)).await? {
            if !chunk.records.iter().all(|stored| is_of(stored, accounts)) {
                return Err("the log was filled with another --groups; give it the same".into());
            }
            held += chunk.records.len() as u64;
            wants
                .iter_mut()
                .filter(|w| w.partition == chunk.partition)
                .for_each(|w| w.from = chunk.next);
        }
    }
}

fn is_of(stored: &Stored, accounts: u64) -> bool {
    let number = stored.record.headers().get("number");
    let number = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
    number.is_some_and(|number| {
        let (account, amount) = transfer(number, accounts);
        let key = stored.record.key().map(AsRef::as_ref);
        let payload = stored.record.payload().map(AsRef::as_ref);
        key == Some(account_name(account).as_bytes())
            && payload == Some(amount.to_string().as_bytes())
    })
}

pub(crate) fn progress_bar(what: &'static str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:8} {wide_bar} {pos}/{len} {per_sec} {eta}")
        .expect("a fixed template");
    ProgressBar::new(length).with_style(style).with_message(what)
}
