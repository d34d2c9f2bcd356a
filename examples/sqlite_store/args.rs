//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Deposits and withdrawals, applied to balances in a SQLite database: each exactly once.
#[derive(Debug, Parser)]
#[command(name = "sqlite_store")]
pub(crate) struct Args {
    /// The folder of log and database; kept, so that the next run goes on (default: a temporary one)
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Transfers in the log; more than there are, and the rest is appended
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) records: u64,
    /// Accounts that they are of
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) groups: u64,
    /// Transfers of one account in one transaction, at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,
    /// Ends the process so many milliseconds after its first transaction, as a crash would
    #[arg(long, value_name = "MS")]
    pub(crate) kill_after: Option<u64>,
}
