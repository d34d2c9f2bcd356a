//! Commits: one at a time, made by whoever polls.
//!
//! A commit is a shared future. Usually the control loop polls it; a member that takes a partition
//! over polls it too, so that a handoff needs nobody to poll the consumer that gives it up. One
//! that is under way is never overtaken by another: an older snapshot cannot land after a newer one.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::Shared;

use super::{Engine, State};
use crate::runtime::BoxFuture;
use crate::store::{Commit, Committed, Key};
use crate::types::{Claim, Progress};
use crate::{Error, ErrorKind};

pub(super) type Flight = Shared<BoxFuture<'static, Result<(), Error>>>;

/// One immutable snapshot of what is finished under a claim.
type Snapshot = (Claim, Arc<Key>, Progress);

/// Whether the same commit may succeed later. An unknown outcome may: the snapshot only grows.
pub(crate) fn may_pass(error: &Error) -> bool {
    error.is_retryable() || error.kind() == ErrorKind::Unknown
}

impl Engine {
    /// Whether there is something to commit, and whether somebody waits for it.
    pub(crate) fn commit_wanted(&self) -> (bool, bool) {
        let state = self.lock();
        (state.dirty, state.commit_now)
    }

    /// Commits everything that is finished now and not yet durable.
    pub(crate) async fn commit(self: &Arc<Self>) -> Result<(), Error> {
        loop {
            let Some((flight, ours)) = self.take_off() else { return Ok(()) };
            let result = flight.await;
            if ours {
                return result;
            }
        }
    }

    /// The commit that is under way, or a new one.
    fn take_off(self: &Arc<Self>) -> Option<(Flight, bool)> {
        let mut state = self.lock();
        // Under the lock: a flight that comes after the end would keep the engine for ever.
        if state.outcome.is_some() {
            return None;
        }
        if let Some(flight) = state.committing.as_ref().filter(|flight| flight.peek().is_none()) {
            return Some((flight.clone(), false));
        }
        let snapshots = state.snapshots();
        if snapshots.is_empty() {
            return None;
        }
        let engine = Arc::clone(self);
        let flight = async move { engine.fly(snapshots).await }.boxed().shared();
        state.committing = Some(flight.clone());
        Some((flight, true))
    }

    /// One snapshot per claim goes to the store; only what was acknowledged counts.
    async fn fly(&self, snapshots: Vec<Snapshot>) -> Result<(), Error> {
        let result = self.store_snapshots(&snapshots).await;
        match &result {
            Ok(()) => {}
            // The work goes on: what is not durable yet would only run again.
            Err(error) if may_pass(error) => self.with(|state, _| {
                state.dirty = true;
                state.summary.commits_failed += 1;
            }),
            Err(error) => self.fail(error.clone()),
        }
        result
    }

    async fn store_snapshots(&self, snapshots: &[Snapshot]) -> Result<(), Error> {
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
                Committed::Done => self.committed(*claim, progress),
                Committed::Unknown(error) => failed = Some(error.in_partition(claim.partition)),
                Committed::Fenced(epoch) => {
                    // Only the claim that was refused: a newer one of ours may be there already. Of
                    // one that was lost meanwhile it is no news.
                    if !self.fenced(*claim) {
                        continue;
                    }
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

    fn committed(&self, claim: Claim, progress: &Progress) {
        self.with(|state, after| {
            state.executor.committed(claim, progress);
            state.summary.commits += 1;
            if let Some(owned) = state.claims.get_mut(&claim.partition)
                && owned.claim == claim
                && owned.end.is_some_and(|end| progress.next >= end)
            {
                owned.end_reached = true;
            }
            after.ring = true;
        });
    }
}

impl State {
    /// Everything that is finished and not yet durable.
    fn snapshots(&mut self) -> Vec<Snapshot> {
        self.dirty = false;
        self.commit_now = false;
        let Self { executor, claims, .. } = self;
        let mut all: Vec<_> = claims
            .values()
            .filter_map(|owned| {
                let progress = executor.progress(owned.claim)?;
                Some((owned.claim, Arc::clone(&owned.key), progress))
            })
            .collect();
        all.sort_unstable_by_key(|(claim, ..)| *claim);
        all
    }
}
