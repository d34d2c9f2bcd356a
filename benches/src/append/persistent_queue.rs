//! persistent-queue on redb: the closest embedded queue with acknowledgements.

use std::time::Instant;

use anyhow::Result;
use persistent_queue::{Builder, RedbStore};

use super::stage::{Stage, Tally};
use super::{Contender, Durability};

/// A push each, in its `Group` mode: pushes of several threads share a transaction and its sync.
/// It has no batches, so a record in flight is a thread. Nobody consumes.
#[derive(Debug)]
pub(super) struct PersistentQueue;

/// More threads than this wait for each other: 64, 1,024 and 4,096 all append less.
const THREADS_MAX: u32 = 256;

impl Contender for PersistentQueue {
    fn name(&self) -> &'static str {
        "persistent-queue"
    }

    fn offers(&self, durability: Durability) -> bool {
        durability == Durability::Synced
    }

    fn run(&self, stage: &Stage<'_>) -> Result<Tally> {
        let store = RedbStore::open(stage.folder.join("queue.redb"))?;
        let (producer, _consumer) = Builder::new(store)
            .capacity(usize::MAX)
            .durability(persistent_queue::Durability::Group)
            .open()?;
        let payload = stage.noise(stage.args.payload.into());
        let threads = stage.args.producers.saturating_mul(stage.args.in_flight).min(THREADS_MAX);
        stage.drive(threads, |lane| {
            while lane.open() {
                let begun = Instant::now();
                producer.push(&payload)?;
                lane.confirmed(begun, 1);
            }
            Ok(())
        })
    }
}
