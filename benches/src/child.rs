//! What this program does as a child of itself: alone in a process, so that its memory is its
//! own, or killed.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use futures::executor::block_on;
use procession::{FileLog, Record};

use crate::filled::{self, Fill, Groups};
use crate::{keys, memory};

/// Part of another command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Makes a log, fills it and closes it in order
    Fill { path: PathBuf, records: u64, payload: u32, groups: u32, partitions: u32 },
    /// Appends until it is killed; prints a line when the first record is synced
    AppendForEver { path: PathBuf, payload: u32 },
    /// A part of `memory`
    Memory {
        #[command(subcommand)]
        part: memory::Part,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    match args.task {
        Task::Fill { path, records, payload, groups, partitions } => {
            let log = FileLog::open(path).partitions(partitions).open_blocking()?;
            // No groups: as many as there are records.
            let groups = if groups == 0 { Groups::Each } else { Groups::Drawn(groups, 0.0) };
            Fill { records, payload, groups, seed: 1 }.into_log(&log)?;
            Ok(block_on(log.close())?)
        }
        Task::AppendForEver { path, payload } => append_for_ever(path, payload),
        Task::Memory { part } => part.run(),
    }
}

/// The arguments of [`Task::Fill`].
pub(crate) fn fill(
    path: &str,
    records: u64,
    payload: u32,
    groups: u32,
    partitions: u32,
) -> Vec<String> {
    let numbers = [records, payload.into(), groups.into(), partitions.into()];
    let numbers = numbers.iter().map(ToString::to_string);
    ["child", "fill", path].into_iter().map(str::to_owned).chain(numbers).collect()
}

/// Sends that have no receipt yet.
const IN_FLIGHT: usize = 256;

fn append_for_ever(path: PathBuf, payload: u32) -> Result<()> {
    let log = FileLog::open(path).open_blocking()?;
    let producer = log.producer();
    let payload = bytes::Bytes::from(filled::noise(payload.into(), 1));
    let mut sends = VecDeque::with_capacity(IN_FLIGHT);
    for n in 0_u32.. {
        sends.push_back(producer.send(Record::new(keys::name(n % 1_000), payload.clone())));
        if sends.len() == IN_FLIGHT
            && let Some(send) = sends.pop_front()
        {
            block_on(send)?;
        }
        if n as usize == IN_FLIGHT {
            println!("synced");
            std::io::stdout().flush()?;
        }
    }
    Ok(())
}
