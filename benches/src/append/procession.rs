//! The product's file log: one `send` a record, its receipt awaited in the order of the calls.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;
use futures::executor::block_on;
use procession::{Durability, FileLog, GroupKey, Producer, Record};

use super::stage::{Round, Stage, Tally};
use super::{Contender, Durability as Wanted};
use crate::filled::FRAME_HEADER;
use crate::keys;

/// One handle a producer thread, `--in-flight` sends on their way from each.
#[derive(Debug)]
pub(super) struct Procession;

/// Bytes of a round beside its frames: the log's format.
const ROUND_HEADER: u64 = 80;

impl Contender for Procession {
    fn name(&self) -> &'static str {
        super::OURS
    }

    fn offers(&self, _: Wanted) -> bool {
        true
    }

    fn run(&self, stage: &Stage<'_>) -> Result<Tally> {
        let level = if stage.synced() { Durability::Synced } else { Durability::Flushed };
        let log = FileLog::open(stage.folder.join("log"))
            .partitions(stage.args.partitions)
            .durability(level)
            .open_blocking()?;
        let groups: Vec<GroupKey> =
            (0..stage.args.groups).map(|group| keys::name(group).into()).collect();
        let payload = Bytes::from(stage.noise(stage.args.payload.into()));
        let in_flight = stage.args.in_flight as usize;
        let mut tally = stage.drive(stage.args.producers, |lane| {
            let producer = Producer::new(log.clone());
            // A buffer of its own, as a real payload would be.
            let payload = Bytes::copy_from_slice(&payload);
            let mut sends = VecDeque::with_capacity(in_flight);
            block_on(async {
                loop {
                    while lane.open() && sends.len() < in_flight {
                        let key = groups[lane.draw() as usize].clone();
                        let begun = Instant::now();
                        sends.push_back((begun, producer.send(Record::new(key, payload.clone()))));
                    }
                    let Some((begun, sending)) = sends.pop_front() else { return Ok(()) };
                    sending.await?;
                    lane.confirmed(begun, 1);
                }
            })
        })?;
        // Written bytes would count the segments that are filled with zeros ahead of time.
        let record = FRAME_HEADER + keys::NAME_BYTES as u64 + u64::from(stage.args.payload);
        if let Some(syncs) = tally.counted.syncs.filter(|syncs| *syncs > 0) {
            let records = tally.records as f64 / syncs as f64;
            let bytes = ROUND_HEADER + (records * record as f64) as u64;
            tally.round = Some(Round { bytes, records });
        }
        block_on(log.close())?;
        Ok(tally)
    }
}
