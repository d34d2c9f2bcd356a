//! RustStream: `workers(n, by_key)` on its broker in memory: keys hash to sequential lanes.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use ruststream::memory::PARTITION_KEY_HEADER;
use ruststream::memory::prelude::*;
use ruststream::{HeaderMap, OutgoingMessage};
use tokio::sync::Notify;

use super::{Load, Turns};
use crate::keys;
use crate::report::tokio_runtime;

/// As many lanes as others have turns open.
pub(super) fn run(load: &Load) -> Result<Turns> {
    let shared = Arc::new(Shared { turns: Turns::default(), all: Notify::new() });
    let lanes = NonZeroUsize::new(load.concurrency).context("at least one lane")?;
    let worker = Worker {
        shared: Arc::clone(&shared),
        records: load.groups.len(),
        slow: load.slow,
        fast: load.fast,
    };
    tokio_runtime()?.block_on(async {
        let broker = MemoryBroker::new();
        let publisher = broker.publisher();
        let app = RustStream::new(AppInfo::new("slow", "0.1.0"))
            .with_broker(broker, |b| {
                b.include(subscriber("records", worker).workers_by_key(lanes).build());
            })
            .start()
            .await
            .map_err(|error| anyhow!("start the app: {error}"))?;
        for (group, record) in load.records() {
            let mut headers = HeaderMap::new();
            headers.insert(PARTITION_KEY_HEADER, keys::name(group));
            let value = [group.to_le_bytes(), record.to_le_bytes()].concat();
            let message = OutgoingMessage::new("records", &value[..]).with_headers(headers);
            publisher.publish(message, None).await.map_err(|error| anyhow!("publish: {error}"))?;
        }
        shared.all.notified().await;
        app.shutdown().await.map_err(|error| anyhow!("shut the app down: {error}"))
    })?;
    Ok(shared.turns.taken())
}

struct Shared {
    turns: Turns,
    all: Notify,
}

struct Worker {
    shared: Arc<Shared>,
    records: usize,
    slow: Duration,
    fast: Duration,
}

/// A group and the record's number, as they lie in the payload: no codec.
struct Job(u32, u32);

impl Deserialized for Job {
    type Output<'a> = Self;
    type Error = Infallible;

    fn from_payload(payload: &[u8]) -> Result<Self, Infallible> {
        let value = payload.first_chunk().map_or(0, |value| u64::from_le_bytes(*value));
        Ok(Self(value as u32, (value >> 32) as u32))
    }
}

impl Input for Job {
    type Axis = SoloDeserialized<Self>;
}

impl Handle<Job> for Worker {
    async fn handle(
        &self,
        &Job(group, record): &Job,
        _outs: &(),
        _ctx: &mut Context<'_>,
    ) -> Result<(), HandlerOutcome> {
        let work = if group == 0 { self.slow } else { self.fast };
        self.shared.turns.take(group, record, tokio::time::sleep(work)).await;
        if self.shared.turns.len() == self.records {
            self.shared.all.notify_one();
        }
        Ok(())
    }
}
