//! Side-by-side benchmarks: procession, its peers, and the limits of the machine, in one run.
//!
//! A figure alone says little on a shared machine; a ratio of two figures from the same minute
//! says more. So every command runs its contenders in turn, and ends with a line of ratios. What
//! each command measures, and where contenders are unlike, is said in `README.md`.

mod append;
mod cache;
mod child;
mod consume;
mod counters;
mod executor;
mod filled;
mod handoff;
mod idle;
mod keys;
mod latency;
mod memory;
mod open;
mod process;
mod report;
mod syncs;

use clap::{Parser, Subcommand};

/// Side-by-side benchmarks of procession, its peers and the limits of the machine.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Append(append::Args),
    Consume(consume::Args),
    Executor(executor::Args),
    Handoff(handoff::Args),
    Idle(idle::Args),
    Latency(latency::Args),
    Memory(memory::Args),
    Open(open::Args),
    #[command(hide = true)]
    Child(child::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Append(args) => append::run(args),
        Command::Consume(args) => consume::run(&args),
        Command::Executor(args) => executor::run(&args),
        Command::Handoff(args) => handoff::run(&args),
        Command::Idle(args) => idle::run(&args),
        Command::Latency(args) => latency::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Open(args) => open::run(&args),
        Command::Child(args) => child::run(args),
    }
}
