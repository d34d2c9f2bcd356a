//! raft-engine: TiKV's log of many Raft groups, the best durable append among the peers.

use std::slice;
use std::time::Instant;

use anyhow::{Context, Result};
use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

use super::stage::{Stage, Tally};
use super::{Contender, Durability};

/// One region a group, one entry a record, compression off, its defaults otherwise. A batch holds
/// `--in-flight` entries; batches of several producers share a sync.
#[derive(Debug)]
pub(super) struct RaftEngine;

impl Contender for RaftEngine {
    fn name(&self) -> &'static str {
        "raft-engine"
    }

    fn offers(&self, _: Durability) -> bool {
        true
    }

    fn run(&self, stage: &Stage<'_>) -> Result<Tally> {
        let engine = Engine::open(Config {
            dir: stage.folder.to_str().context("a folder whose name is UTF-8")?.to_owned(),
            batch_compression_threshold: ReadableSize::kb(0),
            ..Config::default()
        })?;
        let payload = stage.noise(stage.args.payload.into());
        stage.drive(stage.args.producers, |lane| {
            let mut entry = Entry::new(&payload);
            // Indexes of a region have no gaps. No other lane writes to the groups of this one.
            let mut next = vec![1_u64; stage.args.groups as usize];
            let mut batch = LogBatch::with_capacity(stage.args.in_flight as usize);
            while lane.open() {
                let begun = Instant::now();
                for _ in 0..stage.args.in_flight {
                    let group = lane.draw();
                    let index = &mut next[group as usize];
                    entry.set_index(*index);
                    *index += 1;
                    let region = u64::from(group) + 1;
                    batch.add_entries::<Entry>(region, slice::from_ref(&entry.0))?;
                }
                engine.write(&mut batch, stage.synced())?;
                lane.confirmed(begun, stage.args.in_flight.into());
            }
            Ok(())
        })
    }
}

/// An index and a payload. The engine asks for a protobuf message with an index; the smallest
/// one that comes with the protobuf crate is a byte string, so the index is its first 8 bytes.
#[derive(Debug)]
struct Entry(BytesValue);

impl Entry {
    fn new(payload: &[u8]) -> Self {
        let mut value = BytesValue::new();
        value.value = [&[0; 8], payload].concat();
        Self(value)
    }

    fn set_index(&mut self, index: u64) {
        self.0.value[..8].copy_from_slice(&index.to_le_bytes());
    }
}

impl MessageExt for Entry {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        entry.value.first_chunk().map_or(0, |index| u64::from_le_bytes(*index))
    }
}
