//! `ordercheck`: reads a history, prints a line per anomaly and the counts.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use procession_ordercheck::{Checker, Malformed, Options, Report};

/// Judges the order of a recorded run.
#[derive(Debug, Parser)]
#[command(name = "ordercheck", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Name every anomaly of a history. Exit 0: none; 1: some; 2: no verdict.
    Check(Check),
}

#[derive(Debug, clap::Args)]
struct Check {
    /// The history, one JSON object a line; `-` is standard input.
    file: PathBuf,
    /// Judge A11: how many replays one crash or handoff may cost.
    #[arg(long, value_name = "N")]
    max_replay: Option<u64>,
    /// Judge A12: no effect of a record may be applied twice.
    #[arg(long)]
    dedup: bool,
    /// Let A14 permit what was never begun and lies above every commit.
    #[arg(long)]
    allow_backlog: bool,
    /// Judge A15: after a dead record nothing later of its group ends ok.
    #[arg(long)]
    cascade: bool,
    /// What a group is one in: with `partition`, A8 and A9 are not judged.
    #[arg(long, value_enum, default_value_t = Scope::Topic)]
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scope {
    Topic,
    Partition,
}

impl Check {
    fn options(&self) -> Options {
        Options {
            max_replay: self.max_replay,
            dedup: self.dedup,
            allow_backlog: self.allow_backlog,
            cascade: self.cascade,
            partition_scope: self.scope == Scope::Partition,
        }
    }
}

fn main() -> ExitCode {
    let Command::Check(args) = Cli::parse().command;
    match check(&args).and_then(|report| print(&report)) {
        Ok(sound) => ExitCode::from(u8::from(!sound)),
        Err(why) => {
            eprintln!("{}: {why}", args.file.display());
            ExitCode::from(2)
        }
    }
}

fn print(report: &Report) -> Result<bool, String> {
    let mut out = io::stdout().lock();
    write!(out, "{report}").and_then(|()| out.flush()).map_err(|error| error.to_string())?;
    Ok(report.is_sound())
}

fn check(args: &Check) -> Result<Report, String> {
    let mut checker = Checker::new(args.options());
    let mut input = open(&args.file).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let mut line = 0;
    loop {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes).map_err(|error| error.to_string())? == 0 {
            break;
        }
        line += 1;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        let text = str::from_utf8(&bytes).map_err(|error| {
            let column = Some(error.valid_up_to() + 1);
            Malformed { line, column, why: "not utf-8".into() }.to_string()
        })?;
        checker.line(text).map_err(|error| error.to_string())?;
    }
    Ok(checker.finish())
}

fn open(file: &Path) -> io::Result<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(BufReader::with_capacity(1 << 16, File::open(file)?)))
}
