//! The limit of the executor: the same records, in memory before the clock starts.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::executor::block_on;
use procession::{
    Budget, Chains, ChainsOptions, Chunk, Claim, Epoch, FileLog, GroupExecutor, Log, LogId, Next,
    Offset, Partition, PartitionId, Position, Progress, Verdict, Want,
};

use super::{Stage, Tally};

/// Bytes of one read.
const READ: u64 = 8 << 20;

/// Admits one chunk after the other, runs what is ready with `--concurrency` turns open, and takes
/// a snapshot of the progress after each chunk.
pub(super) fn run(stage: &Stage<'_>) -> Result<Tally> {
    let log = stage.open()?;
    let chunks = block_on(chunks(&log))?;
    let partitions = log.info().partitions;
    block_on(log.close())?;
    stage.time(|| through(stage, partitions, chunks))
}

/// Everything that the log holds, in the order of its reads.
async fn chunks(log: &FileLog) -> Result<Vec<Chunk>> {
    let ends = log.ends(Position::End).await?;
    let mut wants: Vec<Want> = ends
        .iter()
        .zip(0..)
        .map(|(_, partition)| Want {
            partition: Partition::new(partition),
            from: Offset::new(0),
            max: Budget::MAX,
        })
        .collect();
    let mut all = Vec::new();
    loop {
        wants.retain(|want| want.from < ends[want.partition.get() as usize]);
        if wants.is_empty() {
            return Ok(all);
        }
        let read = log.read(&wants, Budget::new(u64::MAX, READ)).await?;
        for chunk in &read {
            let want = wants.iter_mut().find(|want| want.partition == chunk.partition);
            want.context("a chunk of a partition that was asked for")?.from = chunk.next;
        }
        // Each begins with another partition, so that none is left behind.
        wants.rotate_left(1);
        all.extend(read.into_iter().filter(|chunk| !chunk.records.is_empty()));
    }
}

fn through(stage: &Stage<'_>, partitions: NonZeroU32, chunks: Vec<Chunk>) -> Result<u64> {
    let now = Instant::now();
    let claim = |partition| Claim {
        partition: PartitionId::new(LogId::new(0), partition),
        epoch: Epoch::FIRST,
    };
    let options = ChainsOptions::new().batch(stage.args.batch, Duration::ZERO).budget(Budget::MAX);
    let mut chains = Chains::new(options);
    for partition in 0..partitions.get() {
        chains.assign(claim(Partition::new(partition)), &Progress::default(), now);
    }
    let places = stage.args.concurrency() as usize;
    let mut open = VecDeque::with_capacity(places);
    let mut seen = 0;
    for chunk in chunks {
        let claim = claim(chunk.partition);
        let now = Instant::now();
        chains.admit(claim, chunk, now);
        loop {
            match chains.next(now) {
                Next::Run(turn) => {
                    // The turn is kept with its records until it ends, as a consumer would.
                    open.push_back(turn);
                    if open.len() < places {
                        continue;
                    }
                }
                Next::Idle { .. } => {}
                other => bail!("nothing else is asked for here: {other:?}"),
            }
            let Some(turn) = open.pop_front() else { break };
            let records = turn.records().len() as u32;
            seen += u64::from(records);
            let _ = chains.complete(turn.id(), Verdict::done(records), now);
        }
        if let Some(progress) = chains.progress(claim) {
            chains.committed(claim, &progress);
        }
    }
    Ok(seen)
}
