//! A ledger: branches send deposits and withdrawals, and every account applies its own in order.
//!
//! ```sh
//! cargo run --release --example ledger -- my-bank            # no runtime; Ctrl-C ends it cleanly
//! cargo run --release --example ledger -- my-bank --tokio    # the same on tokio's threads
//! ```
//!
//! Kill it whenever you like and run it again: it goes on where it stopped. `my-bank/accounts` has a
//! book for every account with one line per transfer: its sequence, the amount, the balance after it.

use futures::executor::block_on;
use futures::future::{join_all, join3};
use procession::{Failure, FileLog, Producer, Record, Retry, SendError, Turn};
use procession_tokio::Tokio;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ACCOUNTS: u32 = 200;
const TRANSFERS: u32 = 2_000; // of each branch, at each start

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: ledger DIR [--tokio]")?);
    if args.next().as_deref() == Some("--tokio") {
        tokio::runtime::Runtime::new()?.block_on(bank(dir, true))
    } else {
        block_on(bank(dir, false))
    }
}

async fn bank(dir: PathBuf, on_tokio: bool) -> Result<(), Box<dyn Error>> {
    let books: Arc<Path> = dir.join("accounts").into();
    fs::create_dir_all(&books)?; // the log creates its own folder, not the ones above
    let log = FileLog::open(dir.join("transfers.log")).await?;

    let mut builder = log.subscribe("books").retry(Retry::exponential().attempts(20));
    if on_tokio {
        builder = builder.runtime(Tokio::current());
    }
    let consumer = builder.build()?;

    // Ctrl-C: asks the run to end. What is finished is kept, the rest waits for the next start.
    let handle = consumer.handle();
    ctrlc::set_handler(move || handle.request_shutdown())?;

    let producer = log.producer();
    let branches =
        join3(branch(&producer, "north"), branch(&producer, "south"), branch(&producer, "web"));
    let run = consumer.run(move |turn| {
        let books = Arc::clone(&books);
        async move { apply(&books, &turn) }
    });
    let (summary, sent) = futures::join!(run, branches);

    for (branch, sent) in ["north", "south", "web"].iter().zip([sent.0, sent.1, sent.2]) {
        println!("{branch}: {} transfers have a receipt", sent?);
    }
    // A record that failed for good ends the run: the error says which, its source says why.
    let summary = summary
        .inspect_err(|e| eprintln!("stopped: {e}: {:?}", e.source().map(ToString::to_string)))?;
    println!("{} transfers applied, {} attempts failed", summary.turns_done, summary.turns_failed);
    Ok(log.close().await?)
}

/// Sends transfers, 500 in flight, and counts the receipts. Each receipt is durable.
async fn branch(producer: &Producer, name: &str) -> Result<u32, SendError> {
    let mut receipts = 0;
    for _ in 0..TRANSFERS / 500 {
        let sends: Vec<_> = (0..500)
            .map(|_| {
                let account = format!("account-{}", fastrand::u32(..ACCOUNTS));
                let amount = fastrand::i64(-100..=120);
                producer.send(Record::new(account, amount.to_string()).with_header("branch", name))
            })
            .collect();
        for receipt in join_all(sends).await {
            receipt?;
            receipts += 1;
        }
    }
    Ok(receipts)
}

/// Applies the transfer at the head of its account. It may be seen again after a crash, so the book
/// remembers the sequence of the last transfer, on the same line as its effect.
fn apply(books: &Path, turn: &Turn) -> Result<(), Failure> {
    let transfer = turn.record();
    let account = turn.group().ok_or_else(|| Failure::corrupt("a transfer without an account"))?;
    let sequence = transfer.sequence.ok_or_else(|| Failure::corrupt("no sequence"))?.get();
    let amount = transfer.record.payload().ok_or_else(|| Failure::corrupt("no amount"))?;
    let amount: i64 =
        std::str::from_utf8(amount).map_err(Failure::corrupt)?.parse().map_err(Failure::corrupt)?;

    // Now and then the book is in use by somebody else: transient, tried again after a back-off.
    if fastrand::u32(..50) == 0 {
        return Err(Failure::transient("the book is in use"));
    }

    let book = books.join(account.to_string());
    let (applied, balance) = last_line(&book).map_err(Failure::transient)?;
    if applied.is_some_and(|applied| applied >= sequence) {
        // Done before a crash; whether it had reached the disk by then, nobody knows.
        return OpenOptions::new()
            .append(true)
            .open(&book)
            .and_then(|book| book.sync_data())
            .map_err(Failure::transient);
    }
    let balance =
        balance.checked_add(amount).ok_or_else(|| Failure::permanent("the balance overflows"))?;
    let mut book =
        OpenOptions::new().create(true).append(true).open(&book).map_err(Failure::transient)?;
    let line = format!("{sequence},{amount},{balance}\n"); // one write: a kill cannot tear it
    book.write_all(line.as_bytes()).map_err(Failure::transient)?;
    book.sync_data().map_err(Failure::transient) // the transfer counts as done from here on
}

/// The sequence and the balance of the last transfer in a book.
fn last_line(book: &Path) -> io::Result<(Option<u64>, i64)> {
    let text = match fs::read_to_string(book) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((None, 0)),
        text => text?,
    };
    let Some(line) = text.lines().last() else { return Ok((None, 0)) };
    let bad = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("bad line in {}: {line}", book.display()),
        )
    };
    let mut fields = line.split(',').map(|field| field.parse::<i64>().map_err(|_| bad()));
    let (sequence, balance) =
        (fields.next().ok_or_else(bad)??, fields.next_back().ok_or_else(bad)??);
    Ok((Some(sequence as u64), balance))
}
