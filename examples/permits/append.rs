//! The first half: rows into the log, none twice, wherever the last run stopped.

use std::collections::VecDeque;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use procession::{Budget, FileLog, Log, Offset, Partition, Position, Record, Stored, Want};

use crate::BoxError;
use crate::args::{Args, Places};
use crate::data::{Data, Row};

/// Sends on their way at a time.
const IN_FLIGHT: usize = 1024;
/// The header that holds the number of a record's row in the file.
const ROW: &str = "row";

pub(crate) async fn open(args: &Args, places: &Places) -> Result<FileLog, BoxError> {
    let mut options = FileLog::open(&places.log);
    if let Some(partitions) = args.partitions {
        options = options.partitions(partitions);
    }
    Ok(options.await?)
}

/// Appends the rows that the log does not hold yet; says how many the log holds now.
pub(crate) async fn missing_rows(log: &FileLog, data: &Data) -> Result<usize, BoxError> {
    // One producer and one stream: what a crash leaves is always the first rows of the file.
    let held = rows_held(log, data).await?;
    let bar = progress_bar("append", data.rows.len() as u64);
    bar.set_position(held as u64);
    let producer = log.producer();
    let mut sends = VecDeque::with_capacity(IN_FLIGHT);
    for (number, row) in data.rows.iter().enumerate().skip(held) {
        if sends.len() == IN_FLIGHT
            && let Some(first) = sends.pop_front()
        {
            first.await?;
            bar.inc(1);
        }
        sends.push_back(producer.send(record(number, row)));
    }
    for sending in sends {
        sending.await?;
        bar.inc(1);
    }
    bar.finish();
    Ok(data.rows.len())
}

fn record(number: usize, row: &Row) -> Record {
    Record::new(&row.case, row.event())
        .with_header(ROW, number.to_string())
        .with_header("resource", &row.resource)
}

/// How many rows of the file are in the log; an error if it holds something else.
async fn rows_held(log: &FileLog, data: &Data) -> Result<usize, BoxError> {
    let ends = log.ends(Position::End).await?;
    let mut wants: Vec<Want> = (0_u32..)
        .zip(log.ends(Position::Earliest).await?)
        .map(|(p, from)| Want { partition: Partition::new(p), from, max: Budget::MAX })
        .collect();
    let mut held = 0;
    loop {
        let behind = |want: &Want| want.from < ends[want.partition.get() as usize];
        wants.retain(behind);
        if wants.is_empty() {
            return Ok(held);
        }
        for chunk in log.read(&wants, Budget::new(100_000, 8 << 20)).await? {
            for stored in &chunk.records {
                is_of(data, stored)?;
                held += 1;
            }
            let next: Offset = chunk.next;
            wants.iter_mut().filter(|w| w.partition == chunk.partition).for_each(|w| w.from = next);
        }
    }
}

fn is_of(data: &Data, stored: &Stored) -> Result<(), BoxError> {
    let number: Option<usize> = stored
        .record
        .headers()
        .get(ROW)
        .and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
    let row = number.and_then(|number| data.rows.get(number));
    let same = row.is_some_and(|row| {
        stored.record.key().is_some_and(|key| key.as_ref() == row.case.as_bytes())
            && stored.record.payload().is_some_and(|payload| *payload == row.event())
    });
    if same {
        return Ok(());
    }
    let key = stored.record.key().cloned().unwrap_or_default();
    Err(format!(
        "the log holds a record of \"{key}\" that is not in the data at its row: \
         it was filled from another file; give it the same --data and --key, or another --dir"
    )
    .into())
}

pub(crate) fn progress_bar(what: &'static str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:8} {wide_bar} {pos}/{len} {per_sec} {eta}")
        .expect("a fixed template");
    let bar = ProgressBar::new(length).with_style(style).with_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
