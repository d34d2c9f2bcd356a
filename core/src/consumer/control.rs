//! The control loop of a run: claims, commits, re-reads, the clock of back-offs, the end.
//!
//! Each concern is one small loop; all of them run inside one future, beside the membership's
//! drive, and wait on one signal.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{Either, join_all, select, try_join_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::engine::{Accepted, Engine, EngineInlet, Stop, may_pass};
use super::options::{OutOfRange, Start};
use super::summary::Summary;
use super::warning::Warning;
use crate::log::{Position, Want};
use crate::membership::{Membership, Seat, Subscription};
use crate::runtime::later;
use crate::signal::Seen;
use crate::store::Key;
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
            Either::Left((Err(error), _)) => return engine.close(Err(error)),
            Either::Right(_) => return engine.close(Ok(())),
        };
        engine.seated(Arc::clone(&seat));
        {
            self.find_ends().await;
            let drive = pin!(async {
                let error = seat.drive().await;
                engine.fail(error);
                std::future::pending::<()>().await;
            });
            let background = pin!(async {
                futures::join!(self.claims(), self.loads(), self.retries(), drive);
            });
            let foreground = pin!(async {
                futures::join!(self.commits(), self.end());
            });
            // The background never ends by itself.
            select(foreground, background).await;
        }
        engine.lost(&engine.owned());
        let left = seat.leave(later(engine.runtime.now(), engine.options.drain_within)).await;
        engine.close(left)
    }

    // ---- Claims ----------------------------------------------------------------------------

    /// Claims what is assigned, all that came at one time together: they share the budget.
    async fn claims(&self) {
        let mut seen = Seen::default();
        let mut running = FuturesUnordered::new();
        loop {
            let started = self.engine.start_claims(|partition| {
                claim(Arc::clone(&self.engine), partition).boxed().shared()
            });
            if !started.is_empty() {
                running.push(async {
                    let (partitions, flights): (Vec<_>, Vec<_>) = started.into_iter().unzip();
                    join_all(flights).await;
                    self.engine.claimed(&partitions);
                });
            }
            let changed = pin!(self.engine.control.changed(&mut seen));
            if running.is_empty() {
                changed.await;
            } else {
                select(running.next(), changed).await;
            }
        }
    }

    async fn find_ends(&self) {
        if !self.engine.options.until_end {
            return;
        }
        let ends = self.engine.logs.iter().map(|log| log.ends(Position::End));
        match select(try_join_all(ends), pin!(self.stopping())).await {
            Either::Left((Ok(ends), _)) => self.engine.set_ends(ends),
            Either::Left((Err(error), _)) => self.engine.fail(error),
            Either::Right(_) => {}
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
                return self.last_commit().await;
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
            let pause = match engine.commit().await {
                Err(error) if may_pass(&error) => {
                    engine.options.commit_every.max(COMMIT_AGAIN_AFTER)
                }
                _ => engine.options.commit_every,
            };
            not_before = later(begun, pause);
        }
    }

    /// What is finished now is all there will be. A store that is busy for a moment must not make it
    /// run again, so it is tried for as long as turns may take to end.
    async fn last_commit(&self) {
        let engine = &self.engine;
        let mut timer = engine.runtime.timer();
        let deadline = later(engine.runtime.now(), engine.options.drain_within);
        loop {
            let Err(error) = engine.commit().await else { return };
            let again = later(engine.runtime.now(), COMMIT_AGAIN_AFTER);
            if !may_pass(&error) || again > deadline {
                return engine.fail(error);
            }
            poll_fn(|cx| timer.poll_at(again, cx)).await;
        }
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
        let gone = match log.read(&[want], max).await {
            Ok(chunks) => match chunks.into_iter().next() {
                Some(chunk) if chunk.records.first().is_some_and(|r| r.offset == offset) => {
                    return self.engine.reloaded(claim, chunk);
                }
                _ => self
                    .engine
                    .error(ErrorKind::Trimmed)
                    .in_partition(claim.partition)
                    .at_offset(offset)
                    .with_hint("a record that was read once is not there any more"),
            },
            Err(error) => error,
        };
        if gone.kind() == ErrorKind::Trimmed && self.engine.options.out_of_range != OutOfRange::Fail
        {
            let (partition, to) = (claim.partition, offset.after());
            self.engine.warn(&Warning::Skipped { partition, from: offset, to });
            self.engine.gone(claim, offset);
        } else {
            self.engine.fail(gone);
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
        engine.drain(&engine.owned(), engine.options.drain_within).await;
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
}

/// Raises the epoch, in the store and in every fence, before the first turn can start.
async fn claim(engine: Arc<Engine>, partition: PartitionId) -> Result<Accepted, Error> {
    let log = &engine.logs[partition.log.get() as usize];
    let index = partition.partition.get() as usize;
    let key = Arc::new(Key {
        subscription: Arc::clone(&engine.subscription),
        log: log.info().uuid,
        partition: partition.partition,
    });
    let mut floor = Epoch::FIRST;
    let mut start = None;
    loop {
        if !engine.wants(partition) {
            // Taken away meanwhile: raising the epoch now would fence who has it.
            return Err(engine.error(ErrorKind::Fenced).in_partition(partition));
        }
        let Some((epoch, progress)) = engine.store.claim(&key, floor, start).await? else {
            if start.is_some() {
                let hint = "the store was given a start and has no progress all the same";
                return Err(engine
                    .error(ErrorKind::Unsupported)
                    .in_partition(partition)
                    .with_hint(hint));
            }
            let position = match engine.options.start {
                Start::Earliest => Position::Earliest,
                Start::Latest => Position::End,
                Start::At(time) => Position::Time(time),
            };
            start = log.ends(position).await?.get(index).copied();
            if start.is_none() {
                return Err(engine.error(ErrorKind::NotFound).in_partition(partition));
            }
            continue;
        };
        let mut highest = epoch;
        for fence in &engine.options.fences {
            highest = highest.max(fence.raise(&key, epoch).await?);
        }
        if highest == epoch {
            return Ok(Accepted { claim: Claim { partition, epoch }, key, progress });
        }
        floor = highest.next().ok_or_else(|| {
            engine.error(ErrorKind::Exhausted).with_hint("a fence knows the highest epoch there is")
        })?;
    }
}
