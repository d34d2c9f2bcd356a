//! The product: a consumer of a new subscription, from the first record to the end of the log.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::StreamExt;
use futures::executor::block_on;
use procession::{ConsumerBuilder, FileLog, Tokio, Turn};

use super::{Api, Stage, Tally};
use crate::report::tokio_runtime;

/// Everything on one thread, beside the log's own.
pub(super) fn without_runtime(stage: &Stage<'_>) -> Result<Tally> {
    let log = stage.open()?;
    let consumer = consumer(stage, &log, "plain");
    let tally = stage.time(|| {
        if stage.args.api == Api::Stream {
            return block_on(deliveries(consumer));
        }
        let seen = Cell::new(0);
        let count = |turn: Turn| {
            seen.set(seen.get() + turn.records().len() as u64);
            ready(Ok::<_, Infallible>(()))
        };
        let summary = block_on(consumer.build()?.run_local(count))?;
        agree(seen.get(), summary.records_done)
    })?;
    block_on(log.close())?;
    Ok(tally)
}

/// Turns on two worker tasks of tokio; a stream's loop stays on the calling thread.
pub(super) fn on_tokio(stage: &Stage<'_>) -> Result<Tally> {
    let log = stage.open()?;
    let runtime = tokio_runtime()?;
    let consumer =
        consumer(stage, &log, "tokio").runtime(Tokio::from(runtime.handle().clone())).workers(2);
    let tally = stage.time(|| {
        if stage.args.api == Api::Stream {
            return runtime.block_on(deliveries(consumer));
        }
        let seen = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&seen);
        let count = move |turn: Turn| {
            counter.fetch_add(turn.records().len() as u64, Relaxed);
            ready(Ok::<_, Infallible>(()))
        };
        let summary = runtime.block_on(consumer.run(count))?;
        agree(seen.load(Relaxed), summary.records_done)
    })?;
    block_on(log.close())?;
    Ok(tally)
}

fn consumer(stage: &Stage<'_>, log: &FileLog, name: &str) -> ConsumerBuilder {
    log.subscribe(format!("{name}-{}", stage.run))
        .concurrency(stage.args.concurrency() as usize)
        .batch(stage.args.batch, Duration::ZERO)
        .until_end()
}

async fn deliveries(consumer: ConsumerBuilder) -> Result<u64> {
    let mut deliveries = consumer.stream()?;
    let handle = deliveries.handle();
    let mut seen = 0;
    while let Some(delivery) = deliveries.next().await {
        let delivery = delivery?;
        seen += delivery.records().len() as u64;
        delivery.ack()?;
    }
    agree(seen, handle.counts().records_done)
}

fn agree(seen: u64, done: u64) -> Result<u64> {
    ensure!(seen == done, "the handler saw {seen} records, the consumer says {done}");
    Ok(seen)
}
