//! Progress in the application's own database: the effect of a record and "done" are one SQLite
//! transaction, so every transfer changes its balance once, whenever the process is killed.
//!
//! ```sh
//! cargo run --release --example sqlite_store -- --dir my-bank --kill-after 50     # again and again
//! cargo run --release --example sqlite_store -- --dir my-bank                     # goes on, checks
//! ```
//!
//! `store/` is the part to take along: an `OffsetStore` and `Fence` over `rusqlite`, and the marks.

mod args;
mod bank;
mod check;
mod store;
#[cfg(test)]
mod tests;
mod transfers;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use procession::{ErrorKind, Failure, FileLog, Handle, Turn};

use args::Args;
use check::Verdict;
use store::{Desk, Marks, SqliteStore};
use transfers::progress_bar;

type BoxError = Box<dyn Error + Send + Sync>;

/// How long an account with fewer transfers than fit waits for more.
const LINGER: Duration = Duration::from_millis(10);
const SHOWN: usize = 8;

fn main() -> ExitCode {
    let args = Args::parse();
    match in_place(&args) {
        Ok(code) => code,
        Err(error) => {
            eprint!("sqlite_store: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprint!(": {error}");
                cause = error.source();
            }
            eprintln!();
            ExitCode::from(2)
        }
    }
}

fn in_place(args: &Args) -> Result<ExitCode, BoxError> {
    let temporary;
    let dir = match &args.dir {
        Some(dir) => dir,
        None => {
            temporary = tempfile::Builder::new().prefix("sqlite-store-").tempdir()?;
            temporary.path()
        }
    };
    std::fs::create_dir_all(dir)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let on_start = |handle: Handle| {
        let flag = Arc::clone(&interrupted);
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            eprintln!("draining; press Ctrl-C again to stop at once");
            handle.request_shutdown();
        })
    };
    let (repeated, verdict) =
        futures::executor::block_on(run(args, dir, |handle| Ok(on_start(handle)?)))?;
    if interrupted.load(Ordering::SeqCst) && verdict.lost > 0 {
        eprintln!("interrupted: drained and committed; run it again to go on");
        return Ok(ExitCode::from(130));
    }
    report(args, repeated, &verdict, started.elapsed());
    Ok(if verdict.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// From the log to the verdict; also how many turns had a record that was applied before.
async fn run(
    args: &Args,
    dir: &Path,
    on_start: impl FnOnce(Handle) -> Result<(), BoxError>,
) -> Result<(u64, Verdict), BoxError> {
    // Small segments: the example does not need 128 MiB of disk.
    let log = FileLog::open(dir.join("transfers.log")).segment_bytes(8 << 20).await?;
    transfers::append_missing(&log, args.records, args.groups).await?;

    let store = SqliteStore::open(dir.join("bank.db")).await?;
    let bank = store.connect().await?;
    bank.call("create the accounts".to_owned(), bank::create).await?;

    let (builder, marks) = store.subscribe("balances", &[Arc::new(log.clone())])?;
    // SQLite has one writer, and each of its transactions waits for the disk: several transfers of
    // an account share one.
    let consumer = builder.batch(args.batch, LINGER).until_end().build()?;
    on_start(consumer.handle())?;
    let bar = progress_bar("apply", args.records);
    let teller = Arc::new(Teller {
        bank: bank.clone(),
        marks,
        repeated: AtomicU64::new(0),
        kill_after: args.kill_after.map(Duration::from_millis),
        dying: AtomicBool::new(false),
    });
    consumer
        .run({
            let (teller, bar) = (Arc::clone(&teller), bar.clone());
            move |turn| {
                let (teller, bar) = (Arc::clone(&teller), bar.clone());
                async move {
                    let records = turn.records().len();
                    teller.apply(turn).await?;
                    bar.inc(records as u64);
                    Ok::<_, Failure>(())
                }
            }
        })
        .await?;
    bar.finish_and_clear();
    log.close().await?;

    let (records, groups) = (args.records, args.groups);
    let check = move |connection: &mut _| check::check(connection, records, groups, SHOWN);
    let verdict = bank.call("check the accounts".to_owned(), check).await?;
    Ok((teller.repeated.load(Ordering::Relaxed), verdict))
}

/// The handler: one turn is one transaction.
struct Teller {
    bank: Desk,
    marks: Marks,
    repeated: AtomicU64,
    kill_after: Option<Duration>,
    dying: AtomicBool,
}

impl Teller {
    async fn apply(&self, turn: Turn) -> Result<(), Failure> {
        let operation = format!("apply transfers of {:?}", turn.group());
        let marks = self.marks.clone();
        let job = move |connection: &mut _| bank::apply(connection, &marks, &turn);
        let applied =
            self.bank.call(operation, job).await.map_err(|error| match error.kind() {
                // Nothing that this claim does will be accepted any more.
                ErrorKind::Fenced => Failure::permanent(error),
                _ => Failure::transient(error),
            })??;
        self.repeated.fetch_add(u64::from(applied.repeated > 0), Ordering::Relaxed);
        if let Some(delay) = self.kill_after
            && !self.dying.swap(true, Ordering::Relaxed)
        {
            std::thread::spawn(move || {
                std::thread::sleep(delay);
                eprintln!("ending without a goodbye");
                // As kill -9: nothing is dropped, nothing is written.
                std::process::abort();
            });
        }
        Ok(())
    }
}

fn report(args: &Args, repeated: u64, verdict: &Verdict, elapsed: Duration) {
    println!("{:<14} {:>9} {:>9} {:>10}", "account", "transfers", "balance", "by source");
    for (name, applied, balance, by_source) in &verdict.sample {
        println!("{name:<14} {applied:>9} {balance:>9} {by_source:>10}");
    }
    let more = args.groups.saturating_sub(verdict.sample.len() as u64);
    println!("… and up to {more} more; {} balances are wrong.", verdict.wrong_balances);
    println!(
        "records={} effects={} repeated_turns={repeated} lost={} duplicated={} reordered={} \
         elapsed_s={:.3}",
        args.records,
        verdict.effects,
        verdict.lost,
        verdict.duplicated,
        verdict.reordered,
        elapsed.as_secs_f64(),
    );
}
