//! The limits: write as many bytes as a round has, sync, and again.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::time::Instant;

use anyhow::{Result, ensure};

use super::stage::{Stage, Tally};
use super::{Contender, Durability};

/// One thread, one file, nothing in it that a reader could use.
#[derive(Clone, Copy, Debug)]
pub(super) enum Raw {
    /// At the end of a growing file: every sync has to record the new length as well.
    Append,
    /// In a file of zeros, from the start again when it is full: no length, no new blocks.
    Preallocated,
}

/// At least; always room for four rounds.
const PREALLOCATED_BYTES: u64 = 64 << 20;

impl Contender for Raw {
    fn name(&self) -> &'static str {
        match self {
            Self::Append => "raw-append",
            Self::Preallocated => "raw-preallocated",
        }
    }

    fn offers(&self, _: Durability) -> bool {
        true
    }

    fn run(&self, stage: &Stage<'_>) -> Result<Tally> {
        ensure!(stage.round.bytes > 0, "a round of 0 bytes has nothing to write");
        let round = stage.noise(stage.round.bytes);
        let rewind_at = match self {
            Self::Append => u64::MAX,
            Self::Preallocated => PREALLOCATED_BYTES.max(4 * stage.round.bytes),
        };
        let path = stage.folder.join("raw");
        let create = || OpenOptions::new().write(true).create_new(true).open(&path);
        let file = create()?;
        if let Self::Preallocated = self {
            fill(&file, rewind_at)?;
        }
        stage.drive(1, |lane| {
            let mut file = &file;
            let mut at_byte = 0;
            file.rewind()?;
            // Records of all rounds so far: a round has a fraction of one on average.
            let mut records = 0.0;
            while lane.open() {
                let begun = Instant::now();
                if at_byte + stage.round.bytes > rewind_at {
                    file.rewind()?;
                    at_byte = 0;
                }
                file.write_all(&round)?;
                if stage.synced() {
                    file.sync_data()?;
                }
                at_byte += stage.round.bytes;
                let before = records;
                records += stage.round.records;
                lane.confirmed(begun, records as u64 - before as u64);
            }
            Ok(())
        })
    }
}

fn fill(mut file: &File, bytes: u64) -> Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(zeros.len() as u64);
        file.write_all(&zeros[..now as usize])?;
        left -= now;
    }
    Ok(file.sync_all()?)
}
