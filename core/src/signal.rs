//! "Something has changed": a counter that tasks can wait on without losing a wake-up.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Each [`notify`](Self::notify) moves the counter; each waiter remembers what it has seen.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    moved: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

/// What a waiter has seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(u64);

impl Signal {
    /// Wakes every waiter, and lets those who look later see that something has changed.
    pub(crate) fn notify(&self) {
        self.moved.fetch_add(1, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ready if anything has changed since the last time this was ready.
    pub(crate) fn poll_changed(&self, seen: &mut Seen, cx: &Context<'_>) -> Poll<()> {
        if self.look(seen) {
            return Poll::Ready(());
        }
        {
            // Bounded by the number of tasks: a task's waker is kept once.
            let mut waiting = self.lock();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
        }
        // A change between the look and the registration would otherwise be lost.
        if self.look(seen) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until anything has changed since the last time.
    pub(crate) async fn changed(&self, seen: &mut Seen) {
        poll_fn(|cx| self.poll_changed(seen, cx)).await;
    }

    fn look(&self, seen: &mut Seen) -> bool {
        let moved = self.moved.load(Ordering::SeqCst);
        std::mem::replace(&mut seen.0, moved) != moved
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
