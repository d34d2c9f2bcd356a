//! Waiting for running turns to end before a partition is given up.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::membership::Drained;
use crate::runtime::Timer;
use crate::types::PartitionId;

/// A planned handoff in progress: resolves when the last open turn of each partition has ended,
/// or at the deadline.
///
/// Await it, or block on it in a callback ([`wait`](Self::wait)). Whoever waits commits the
/// progress it yields, and then lets go.
///
/// # Cancel safety
/// Dropping it stops the waiting, not the drain: the partitions stay revoked.
#[must_use = "whoever drains must commit what it yields"]
pub struct Drain {
    state: Arc<DrainState>,
    home: Arc<dyn DrainHome>,
    deadline: Instant,
    timer: Box<dyn Timer>,
    /// Goes on waiting behind the deadline.
    patient: bool,
    expired: bool,
}

/// What a drain asks of the engine that runs the turns.
pub(crate) trait DrainHome: Send + Sync {
    /// The deadline has come: cut the partition's turns off, say what is finished.
    fn expire(&self, partition: PartitionId) -> Drained;

    /// Whether the run is over, perhaps with its runtime: what can be dropped is dropped anyway.
    fn is_over(&self) -> bool;
}

/// Shared between a [`Drain`] and the engine, which reports the partitions as they are drained.
#[derive(Default)]
pub(crate) struct DrainState {
    inner: Mutex<Inner>,
    ended: Condvar,
}

#[derive(Default)]
struct Inner {
    pending: Vec<PartitionId>,
    drained: Vec<Drained>,
    waker: Option<Waker>,
}

impl DrainState {
    pub(crate) fn new(pending: Vec<PartitionId>) -> Arc<Self> {
        let inner = Inner { pending, ..Inner::default() };
        Arc::new(Self { inner: Mutex::new(inner), ended: Condvar::new() })
    }

    /// The engine reports: the last turn of the partition has ended.
    pub(crate) fn report(&self, drained: Drained) {
        let mut inner = self.lock();
        let before = inner.pending.len();
        inner.pending.retain(|partition| *partition != drained.partition);
        if inner.pending.len() == before {
            return;
        }
        inner.drained.push(drained);
        if inner.pending.is_empty() {
            let waker = inner.waker.take();
            drop(inner);
            self.ended.notify_all();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.lock().pending.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it is held; were it so, the lists would still be whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drain {
    pub(crate) fn new(
        state: Arc<DrainState>,
        home: Arc<dyn DrainHome>,
        deadline: Instant,
        timer: Box<dyn Timer>,
    ) -> Self {
        let (patient, expired) = (false, false);
        Self { state, home, deadline, timer, patient, expired }
    }

    /// Blocks the thread until the drain is over. For callbacks of C libraries; in async code,
    /// await it instead.
    #[must_use = "whoever drains must commit what it yields"]
    pub fn wait(self) -> Vec<Drained> {
        let mut inner = self.state.lock();
        while !inner.pending.is_empty() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self
                .state
                .ended
                .wait_timeout(inner, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        drop(inner);
        self.finish()
    }

    /// Goes on behind the deadline until the last turn has ended. What can be dropped is dropped at
    /// the deadline; what blocks its thread, or is held by the user, is waited for.
    pub const fn until_ended(mut self) -> Self {
        self.patient = true;
        self
    }

    /// The deadline has come: what can be dropped is, and what has ended by that is drained.
    fn expire(&mut self) {
        self.expired = true;
        let pending = self.state.lock().pending.clone();
        for partition in pending {
            let drained = self.home.expire(partition);
            if drained.open == 0 {
                self.state.report(drained);
            }
        }
    }

    fn finish(&self) -> Vec<Drained> {
        let late = std::mem::take(&mut self.state.lock().pending);
        let expired: Vec<Drained> =
            late.into_iter().map(|partition| self.home.expire(partition)).collect();
        let mut drained = std::mem::take(&mut self.state.lock().drained);
        drained.extend(expired);
        drained
    }
}

impl Future for Drain {
    type Output = Vec<Drained>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        {
            let mut inner = self.state.lock();
            if !inner.pending.is_empty() {
                inner.waker = Some(cx.waker().clone());
            }
        }
        // Settled first: a runtime that is gone has no timer to ask.
        if self.state.is_settled() {
            return Poll::Ready(self.finish());
        }
        let deadline = self.deadline;
        let over = self.patient && self.home.is_over();
        if self.expired || !over && self.timer.poll_at(deadline, cx).is_pending() {
            return Poll::Pending;
        }
        if !self.patient {
            return Poll::Ready(self.finish());
        }
        self.expire();
        if self.state.is_settled() {
            return Poll::Ready(self.finish());
        }
        Poll::Pending
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = self.state.lock().pending.len();
        f.debug_struct("Drain").field("pending", &pending).finish_non_exhaustive()
    }
}
