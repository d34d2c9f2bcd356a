//! Real permit events through a durable group queue: each case strictly in order, cases side by
//! side. Kill it whenever you like and run it again with the same `--dir`, `--data` and `--out`.
//!
//! `cargo run --release --example permits -- --help`

mod append;
mod args;
mod check;
mod consume;
mod data;
mod output;

use std::fmt;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Places};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("permits: {}", Chain(&*error));
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, BoxError> {
    let places = Places::of(args)?;
    let data = data::read(&places.data, &args.key)?;
    let mut out = output::Output::open(&places.out)?;
    let consumed = args.runtime.block_on(async {
        let log = append::open(args, &places).await?;
        let appended = append::missing_rows(&log, &data).await?;
        if let Some(problem) = &data.problem {
            // What came before the bad line is in the log and stays there.
            let problem = problem.clone();
            eprintln!("permits: {appended} rows appended before it");
            return Err(problem.into());
        }
        let consumed = consume::run(args, &log, &data, &out).await?;
        log.close().await?;
        Ok::<_, BoxError>(consumed)
    })?;
    if consumed.interrupted {
        eprintln!(
            "interrupted: drained and committed, {} turns still open; run it again to go on",
            consumed.open
        );
        return Ok(ExitCode::from(130));
    }
    let verdict = check::check(out.lines()?, &data);
    report(args, &data, &consumed, &verdict);
    Ok(if verdict.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(args: &Args, data: &data::Data, run: &consume::Consumed, verdict: &check::Verdict) {
    let speedup = run.busy.as_secs_f64() / run.elapsed.as_secs_f64();
    let longest = run.longest_case.as_secs_f64();
    let bound =
        (run.busy.as_secs_f64() / (args.concurrency() * args.members()) as f64).max(longest);
    let (speedup, ideal) =
        if run.events == 0 { (0.0, 0.0) } else { (speedup, run.busy.as_secs_f64() / bound) };
    let rate = if run.events == 0 { 0.0 } else { run.events as f64 / run.elapsed.as_secs_f64() };
    println!("{} events of {} cases are in the log.", data.rows.len(), data.cases.len());
    println!(
        "This run handled {} of them in {:.2} s; one at a time it would have taken {:.2} s.",
        run.events,
        run.elapsed.as_secs_f64(),
        run.busy.as_secs_f64()
    );
    println!("In the output, every case against the file: {verdict}.");
    println!(
        "records={} groups={} lost={} duplicated={} reordered={} elapsed_s={:.3} \
         records_per_s={rate:.0} speedup={speedup:.2} ideal_speedup={ideal:.2}",
        data.rows.len(),
        data.cases.len(),
        verdict.lost,
        verdict.duplicated,
        verdict.reordered,
        run.elapsed.as_secs_f64(),
    );
}

/// An error and its causes on one line.
struct Chain<'a>(&'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
