//! `ordercheck`: reads a history, prints a line per anomaly and the counts, or tells the story of a group.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use procession_ordercheck::{Checker, Malformed, Options, Report, explain, hex, parse};

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
    /// Tell the story of one group, a line an event. Exit 2 where the history is malformed.
    Explain(Explain),
}

#[derive(Debug, clap::Args)]
struct Explain {
    /// The history, one JSON object a line; `-` is standard input.
    file: PathBuf,
    /// The group: its text, or `hex:` and its bytes.
    #[arg(long)]
    group: String,
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
    let (file, result) = match Cli::parse().command {
        Command::Check(args) => {
            let sound = check(&args).and_then(|report| print(&report));
            (args.file, sound)
        }
        Command::Explain(args) => {
            let told = tell(&args).map(|()| true);
            (args.file, told)
        }
    };
    match result {
        Ok(sound) => ExitCode::from(u8::from(!sound)),
        Err(why) => {
            eprintln!("{}: {why}", file.display());
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
    each_line(&args.file, |_, text| checker.line(text).map_err(|error| error.to_string()))?;
    Ok(checker.finish())
}

fn tell(args: &Explain) -> Result<(), String> {
    let group = group(&args.group)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut partitions = Vec::new();
    each_line(&args.file, |line, text| {
        if text.trim().is_empty() {
            return Ok(());
        }
        let (_, event) = parse(line, text).map_err(|error| error.to_string())?;
        if !explain::concerns(&event, &group, &partitions) {
            return Ok(());
        }
        // Only an event that names the group is reached before its partition is known.
        partitions.extend(explain::partition(&event).filter(|found| !partitions.contains(found)));
        writeln!(out, "{line:>8}  {}", explain::explain(&event)).map_err(|error| error.to_string())
    })?;
    out.flush().map_err(|error| error.to_string())
}

fn group(name: &str) -> Result<Vec<u8>, String> {
    let Some(digits) = name.strip_prefix("hex:") else { return Ok(name.as_bytes().to_vec()) };
    let bytes = hex(digits);
    bytes.ok_or_else(|| format!("{digits:?} is not bytes in hex"))
}

/// Hands every line to a reader, with its number, without its newline.
fn each_line(
    file: &Path,
    mut read: impl FnMut(u64, &str) -> Result<(), String>,
) -> Result<(), String> {
    let mut input = open(file).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let mut line = 0;
    while input.read_until(b'\n', &mut bytes).map_err(|error| error.to_string())? > 0 {
        line += 1;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        let text = str::from_utf8(&bytes).map_err(|error| {
            let column = Some(error.valid_up_to() + 1);
            Malformed { line, column, why: "not utf-8".into() }.to_string()
        })?;
        read(line, text)?;
        bytes.clear();
    }
    Ok(())
}

fn open(file: &Path) -> io::Result<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(BufReader::with_capacity(1 << 16, File::open(file)?)))
}
