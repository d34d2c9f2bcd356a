//! The control loop of a run: claims, commits, re-reads, the clock of back-offs, the end.
//!
//! Each concern is one small loop; all of them run inside one future, beside the membership's
//! drive, and wait on one signal.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::{Either, select, try_join_all};
use futures::stream::FuturesUnordered;

use super::engine::{Accepted, Engine, EngineInlet, Stop};
use super::options::Start;
use super::summary::Summary;
use crate::log::{Position, Want};
use crate::membership::{Event, Membership, Seat, Subscription};
use crate::runtime::later;
use crate::signal::Seen;
use crate::store::{Commit, Committed, Key, OffsetStore};
use crate::types::{Budget, Claim, Epoch, Offset, PartitionId};
use crate::{Error, ErrorKind};

/// How long a cut-off turn may take to be dropped by its worker before the run ends without it: it
/// is then blocked inside a poll.
const CUT_WITHIN: Duration = Duration::from_secs(1);
/// Bodies that are read again at one time.
const LOADS_MAX: usize = 16;
/// The least wait before a commit that failed is tried again.
const COMMIT_AGAIN_AFTER: Duration = Duration::from_millis(100);

pub(crate) struct Control {
    pub(crate) engine: Arc<Engine>,
    pub(crate) store: Arc<dyn OffsetStore>,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) subscription: Subscription,
}

impl Control {
    /// From join to leave.
    pub(crate) async fn run(self) -> Result<Summary, Error> {
        let engine = &self.engine;
        let inlet = Arc::new(EngineInlet(Arc::clone(engine)));
        let join = self.membership.join(&self.subscription, inlet);
        let seat: Arc<dyn Seat> = match select(join, pin!(self.stopping())).await {
            Either::Left((Ok(seat), _)) => seat.into(),
            Either::Left((Err(error), _)) => {
                engine.close();
                return Err(error);
            }
            Either::Right(_) => {
                let (summary, failure) = engine.close();
                return failure.map_or(Ok(summary), Err);
            }
        };
        engine.seated(Arc::clone(&seat));
        {
            let ends = self.ends_if_needed().await;
            let drive = pin!(async {
                let error = seat.drive().await;
                engine.fail(error);
                std::future::pending::<()>().await;
            });
            let claims = pin!(self.claims(ends));
            let background = pin!(async {
                futures::join!(claims, self.loads(), self.retries(), drive);
            });
            let foreground = pin!(async {
                futures::join!(self.commits(), self.end());
            });
            // The background never ends by itself.
            select(foreground, background).await;
        }
        let left = seat.leave(later(engine.runtime.now(), engine.options.drain_within)).await;
        let (summary, failure) = engine.close();
        match failure {
            Some(error) => Err(error),
            None => left.map(|()| summary),
        }
    }

    // ---- Claims ----------------------------------------------------------------------------

    async fn claims(&self, ends: Option<Vec<Vec<Offset>>>) {
        let mut seen = Seen::default();
        loop {
            match self.engine.take_event() {
                None => self.engine.control.changed(&mut seen).await,
                Some(Event::Assigned(partitions)) => {
                    let claims = partitions.iter().map(|p| self.claim(*p, ends.as_deref()));
                    match try_join_all(claims).await {
                        Ok(accepted) => self.engine.claimed(accepted),
                        Err(error) => self.engine.fail(error),
                    }
                }
                Some(Event::Lost(partitions)) => {
                    partitions.into_iter().for_each(|p| self.engine.fenced(p));
                }
                Some(Event::Failed(error)) => self.engine.fail(error),
                Some(Event::Records(..)) => unreachable!("records do not go through the inbox"),
            }
        }
    }

    /// Raises the epoch, in the store and in every fence, before the first turn can start.
    async fn claim(
        &self,
        partition: PartitionId,
        ends: Option<&[Vec<Offset>]>,
    ) -> Result<Accepted, Error> {
        let log = &self.engine.logs[partition.log.get() as usize];
        let index = partition.partition.get() as usize;
        let key = Arc::new(Key {
            subscription: Arc::clone(&self.engine.subscription),
            log: log.info().uuid,
            partition: partition.partition,
        });
        let mut floor = Epoch::FIRST;
        let mut start = None;
        loop {
            let Some((epoch, progress)) = self.store.claim(&key, floor, start).await? else {
                let position = match self.engine.options.start {
                    Start::Earliest => Position::Earliest,
                    Start::Latest => Position::End,
                    Start::At(time) => Position::Time(time),
                };
                start = log.ends(position).await?.get(index).copied();
                if start.is_none() {
                    return Err(self.error(ErrorKind::NotFound).in_partition(partition));
                }
                continue;
            };
            let mut highest = epoch;
            for fence in &self.engine.options.fences {
                highest = highest.max(fence.raise(&key, epoch).await?);
            }
            if highest == epoch {
                let claim = Claim { partition, epoch };
                let end = ends.map(|ends| ends[partition.log.get() as usize][index]);
                return Ok(Accepted { claim, key, progress, end });
            }
            floor = highest.next().ok_or_else(|| {
                self.error(ErrorKind::Exhausted)
                    .with_hint("a fence knows the highest epoch there is")
            })?;
        }
    }

    async fn ends_if_needed(&self) -> Option<Vec<Vec<Offset>>> {
        if !self.engine.options.until_end {
            return None;
        }
        match try_join_all(self.engine.logs.iter().map(|log| log.ends(Position::End))).await {
            Ok(ends) => Some(ends),
            Err(error) => {
                self.engine.fail(error);
                None
            }
        }
    }

    // ---- Commits ---------------------------------------------------------------------------

    /// Commits every interval while there is something to commit, and once more at the end.
    async fn commits(&self) {
        let engine = &self.engine;
        let (mut seen, mut timer) = (Seen::default(), engine.runtime.timer());
        let mut not_before = engine.runtime.now();
        loop {
            let (dirty, now_wanted) = engine.commit_wanted();
            if engine.is_drained() {
                if let Err(error) = self.commit().await {
                    engine.fail(error);
                }
                return;
            }
            if !dirty && !now_wanted {
                engine.control.changed(&mut seen).await;
                continue;
            }
            if !now_wanted && engine.runtime.now() < not_before {
                let wait = pin!(poll_fn(|cx| timer.poll_at(not_before, cx)));
                let changed = pin!(engine.control.changed(&mut seen));
                select(wait, changed).await;
                continue;
            }
            // From the start of one commit to the start of the next: a slow disk does not add to it.
            let begun = engine.runtime.now();
            let mut pause = engine.options.commit_every;
            match self.commit().await {
                Ok(()) => {}
                Err(error) if may_pass(&error) => {
                    // The work goes on: what is not durable yet would only run again.
                    pause = pause.max(COMMIT_AGAIN_AFTER);
                    engine.commit_failed();
                }
                Err(error) => engine.fail(error),
            }
            not_before = later(begun, pause);
        }
    }

    /// One immutable snapshot per claim goes to the store; only what was acknowledged counts.
    async fn commit(&self) -> Result<(), Error> {
        let snapshots = self.engine.snapshots();
        if snapshots.is_empty() {
            return Ok(());
        }
        let batch: Vec<Commit<'_>> = snapshots
            .iter()
            .map(|(claim, key, progress)| Commit { key, epoch: claim.epoch, progress })
            .collect();
        let answers = self.store.commit(&batch).await?;
        if answers.len() != batch.len() {
            let hint = format!("the store answered {} of {} commits", answers.len(), batch.len());
            return Err(self.error(ErrorKind::Unsupported).with_hint(hint));
        }
        let mut failed = None;
        for ((claim, _, progress), answer) in snapshots.iter().zip(answers) {
            match answer {
                Committed::Done => self.engine.committed(*claim, progress),
                Committed::Unknown(error) => failed = Some(error.in_partition(claim.partition)),
                Committed::Fenced(epoch) => {
                    self.engine.fenced(claim.partition);
                    let hint = format!(
                        "epoch {epoch} has claimed it, ours is {}: another member took over",
                        claim.epoch
                    );
                    failed = Some(
                        self.error(ErrorKind::Fenced).in_partition(claim.partition).with_hint(hint),
                    );
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    // ---- The rest --------------------------------------------------------------------------

    /// Reads bodies again that were dropped to save memory.
    async fn loads(&self) {
        let mut seen = Seen::default();
        let mut waiting = VecDeque::new();
        let mut running = FuturesUnordered::new();
        loop {
            waiting.extend(self.engine.take_loads());
            while running.len() < LOADS_MAX
                && let Some((claim, offset)) = waiting.pop_front()
            {
                running.push(self.load(claim, offset));
            }
            let changed = pin!(self.engine.control.changed(&mut seen));
            if running.is_empty() {
                changed.await;
            } else {
                select(running.next(), changed).await;
            }
        }
    }

    async fn load(&self, claim: Claim, offset: Offset) {
        let log = &self.engine.logs[claim.partition.log.get() as usize];
        let max = Budget::new(1, u64::MAX);
        let want = Want { partition: claim.partition.partition, from: offset, max };
        match log.read(&[want], max).await {
            Ok(chunks) => match chunks.into_iter().next() {
                Some(chunk) if chunk.records.first().is_some_and(|r| r.offset == offset) => {
                    self.engine.reloaded(claim, chunk);
                }
                _ => self.engine.fail(
                    self.error(ErrorKind::NotFound)
                        .in_partition(claim.partition)
                        .at_offset(offset)
                        .with_hint("a record that was read once is not there any more"),
                ),
            },
            Err(error) => self.engine.fail(error),
        }
    }

    /// Rings the workers when the first back-off ends.
    async fn retries(&self) {
        let (mut seen, mut timer) = (Seen::default(), self.engine.runtime.timer());
        loop {
            let changed = pin!(self.engine.control.changed(&mut seen));
            let Some(at) = self.engine.retry_at() else {
                changed.await;
                continue;
            };
            let due = pin!(poll_fn(|cx| timer.poll_at(at, cx)));
            if let Either::Left(_) = select(due, changed).await {
                self.engine.retry_due();
            }
        }
    }

    /// Waits for a reason to stop, then for the turns that still run.
    async fn end(&self) {
        let engine = &self.engine;
        let why = self.stopping().await;
        let deadline = later(engine.runtime.now(), engine.options.drain_within);
        engine.drain(&engine.owned(), deadline).await;
        if engine.open_turns() > 0 && why != Stop::End {
            engine.cut_off();
        }
        self.all_dropped(engine.runtime.now() + CUT_WITHIN).await;
        engine.set_drained();
    }

    async fn stopping(&self) -> Stop {
        let mut seen = Seen::default();
        loop {
            match self.engine.stopping() {
                Some(why) => return why,
                None => self.engine.control.changed(&mut seen).await,
            }
        }
    }

    async fn all_dropped(&self, deadline: Instant) {
        let (mut seen, mut timer) = (Seen::default(), self.engine.runtime.timer());
        while self.engine.open_turns() > 0 {
            let wait = pin!(poll_fn(|cx| timer.poll_at(deadline, cx)));
            let changed = pin!(self.engine.control.changed(&mut seen));
            if let Either::Left(_) = select(wait, changed).await {
                return;
            }
        }
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, format!("run subscription \"{}\"", self.engine.subscription))
    }
}

/// Whether the same commit may succeed later. An unknown outcome may: the snapshot only grows.
fn may_pass(error: &Error) -> bool {
    error.is_retryable() || error.kind() == ErrorKind::Unknown
}
