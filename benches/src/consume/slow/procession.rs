//! The product: records in a file log before the clock starts.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::executor::block_on;
use futures::future::join_all;
use procession::{Bare, ConsumerBuilder, FileLog, Record, Runtime, Tokio, Turn};

use super::{Load, Turns};
use crate::filled;
use crate::keys;
use crate::report::tokio_runtime;

/// On one thread, with the timers that the library brings.
pub(super) fn without_runtime(load: &Load) -> Result<Turns> {
    on_filled(load, |consumer| {
        let turns = Turns::default();
        let handle = |turn: Turn| {
            let turns = &turns;
            async move {
                let (group, record) = decode(&turn);
                turns.take(group, record, wait(load.work(group))).await;
                Ok::<_, Infallible>(())
            }
        };
        block_on(consumer.build()?.run_local(handle))?;
        Ok(turns)
    })
}

/// On two worker tasks of tokio, with tokio's timers, as the peers.
pub(super) fn on_tokio(load: &Load) -> Result<Turns> {
    let runtime = tokio_runtime()?;
    on_filled(load, |consumer| {
        let turns = Arc::new(Turns::default());
        let (slow, fast) = (load.slow, load.fast);
        let shared = Arc::clone(&turns);
        let handle = move |turn: Turn| {
            let turns = Arc::clone(&shared);
            async move {
                let (group, record) = decode(&turn);
                let work = if group == 0 { slow } else { fast };
                turns.take(group, record, tokio::time::sleep(work)).await;
                Ok::<_, Infallible>(())
            }
        };
        let consumer = consumer.runtime(Tokio::from(runtime.handle().clone())).workers(2);
        runtime.block_on(consumer.run(handle))?;
        Ok(turns.taken())
    })
}

fn on_filled(load: &Load, run: impl FnOnce(ConsumerBuilder) -> Result<Turns>) -> Result<Turns> {
    let folder = filled::folder(&load.dir, "slow")?;
    let log =
        FileLog::open(folder.path().join("log")).partitions(load.partitions).open_blocking()?;
    let producer = log.producer();
    let sends = load.groups.iter().zip(0_u32..).map(|(group, record)| {
        let value = [group.to_le_bytes(), record.to_le_bytes()].concat();
        producer.send(Record::new(keys::name(*group), value))
    });
    let sends: Vec<_> = sends.collect();
    for receipt in block_on(join_all(sends)) {
        receipt?;
    }
    let turns = run(log.subscribe("slow").concurrency(load.concurrency).until_end())?;
    block_on(log.close())?;
    Ok(turns)
}

/// The group and the record's number.
fn decode(turn: &Turn) -> (u32, u32) {
    let payload = turn.record().record.payload();
    let value = payload.and_then(|payload| payload.first_chunk::<8>());
    let value = u64::from_le_bytes(*value.expect("a payload of eight bytes"));
    (value as u32, (value >> 32) as u32)
}

async fn wait(time: Duration) {
    let until = Instant::now() + time;
    let mut timer = Bare.timer();
    poll_fn(|cx| timer.poll_at(until, cx)).await;
}
