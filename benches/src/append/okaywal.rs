//! okaywal: a write-ahead log with preallocated, recycled segments.

use std::time::Instant;

use anyhow::Result;
use okaywal::{Configuration, LogVoid};

use super::stage::{Stage, Tally};
use super::{Contender, Durability};

/// One entry a batch of `--in-flight` records, one chunk a record. Its manager keeps nothing: a
/// full segment is free at once, as if all of it had been applied elsewhere.
#[derive(Debug)]
pub(super) struct OkayWal;

/// Bigger than its default of 1 MiB, which a few large batches fill; 64 MiB is slower again.
const SEGMENT_BYTES: u32 = 16 << 20;

impl Contender for OkayWal {
    fn name(&self) -> &'static str {
        "okaywal"
    }

    fn offers(&self, durability: Durability) -> bool {
        durability == Durability::Synced
    }

    fn run(&self, stage: &Stage<'_>) -> Result<Tally> {
        let log = Configuration::default_for(stage.folder)
            .preallocate_bytes(SEGMENT_BYTES)
            .checkpoint_after_bytes(u64::from(SEGMENT_BYTES) * 3 / 4)
            .open(LogVoid)?;
        let payload = stage.noise(stage.args.payload.into());
        let tally = stage.drive(stage.args.producers, |lane| {
            while lane.open() {
                let begun = Instant::now();
                let mut entry = log.begin_entry()?;
                for _ in 0..stage.args.in_flight {
                    entry.write_chunk(&payload)?;
                }
                entry.commit()?;
                lane.confirmed(begun, stage.args.in_flight.into());
            }
            Ok(())
        })?;
        log.shutdown()?;
        Ok(tally)
    }
}
