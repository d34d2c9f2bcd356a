//! Those who wait for the log to change.

use std::collections::BTreeMap;
use std::task::Waker;

/// One waker per live waiter: bounded by their number, since each removes its own when dropped.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: BTreeMap<u64, Waker>,
    last: u64,
}

impl Waiters {
    /// Keeps the waker until the next [`take`](Self::take), in place of the waiter's earlier one.
    pub(crate) fn keep(&mut self, id: &mut Option<u64>, waker: &Waker) {
        let id = *id.get_or_insert_with(|| {
            self.last += 1;
            self.last
        });
        self.waiting.insert(id, waker.clone());
    }

    /// The waiter is gone.
    pub(crate) fn remove(&mut self, id: u64) {
        self.waiting.remove(&id);
    }

    /// All wakers, to be woken outside the lock.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
