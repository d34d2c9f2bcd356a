//! The product's executor: every record is admitted, its turn handed out and completed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use procession::{
    Budget, Chains, ChainsOptions, Chunk, Claim, Epoch, GroupExecutor, GroupKey, Headers, Next,
    Offset, Partition, PartitionId, Progress, Record, RoutingEpoch, Sequence, Stored, Timestamp,
    Verdict,
};

use super::{Args, Stream};

/// Records that come in at once, as from one read.
const CHUNK: usize = 4096;

/// Keeps `--concurrency` turns open while there is something to run, and takes a snapshot of the
/// progress after each chunk. Making the records is not counted; everything else is.
pub(super) fn run(args: &Args, stream: &Stream) -> Result<Duration> {
    let now = Instant::now();
    let claim = Claim { partition: PartitionId::default(), epoch: Epoch::FIRST };
    let mut chains = Chains::new(ChainsOptions::new());
    chains.assign(claim, &Progress::default(), now);
    let mut open = VecDeque::with_capacity(args.concurrency as usize);
    let mut counted = Duration::ZERO;
    let mut keys = stream.keys().zip(0..).peekable();
    let (mut window, mut delivered) = (Budget::ZERO, 0);
    while keys.peek().is_some() || chains.load().held.records > 0 {
        while let Some((_, moved)) = chains.credit() {
            window = moved;
        }
        let room = usize::try_from(window.records - delivered)?.min(CHUNK);
        let chunk = chunk(keys.by_ref().take(room), delivered);
        delivered += chunk.records.len() as u64;

        let begun = Instant::now();
        if !chunk.records.is_empty() {
            chains.admit(claim, chunk, begun);
        }
        loop {
            match chains.next(begun) {
                Next::Run(turn) => {
                    open.push_back(turn.id());
                    if open.len() < args.concurrency as usize {
                        continue;
                    }
                }
                Next::Idle { .. } => {}
                other => anyhow::bail!("nothing else is asked for here: {other:?}"),
            }
            match open.pop_front() {
                Some(id) => drop(chains.complete(id, Verdict::done(1), begun)),
                None => break,
            }
        }
        if let Some(progress) = chains.progress(claim) {
            chains.committed(claim, &progress);
        }
        counted += begun.elapsed();
    }
    let last = chains.progress(claim).is_none();
    last.then_some(counted).context("everything is finished and committed")
}

fn chunk(keys: impl Iterator<Item = (Bytes, u64)>, first: u64) -> Chunk {
    let stored = |(key, offset): (Bytes, u64)| {
        let key = Some(GroupKey::from(key));
        let payload = Some(Bytes::from_static(b"payload"));
        Stored {
            offset: Offset::new(offset),
            sequence: Some(Sequence::new(offset)),
            log_time: Timestamp::from_millis(0),
            routing: RoutingEpoch::new(1),
            record: Record::from_parts(key, payload, Headers::default(), None),
        }
    };
    let records: Vec<_> = keys.map(stored).collect();
    let next = Offset::new(first + records.len() as u64);
    Chunk { partition: Partition::new(0), records, next }
}
