//! The bound on bytes in flight, and the queue of sends that wait for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::sending::{Sending, Waiting};
use crate::log::{Batch, Log};
use crate::signal::{Seen, Signal};
use crate::types::{Credit, Permit};

pub(super) struct Stock {
    home: Arc<dyn Credit>,
    log: Arc<dyn Log>,
    bytes_max: u64,
    queue: Mutex<Queue>,
    settled: Signal,
}

#[derive(Default)]
struct Queue {
    in_flight: u64,
    /// In the order of the calls. Bounded by the number of live [`Sending`]s: a dropped one gives
    /// its record up at once, and its empty place when half of the places are empty.
    waiting: VecDeque<Arc<Waiting>>,
    given_up: usize,
    /// Somebody is moving waiting sends into the log; a later send must not pass them.
    pumping: bool,
}

impl Stock {
    pub(super) fn new(log: Arc<dyn Log>, bytes_max: u64) -> Arc<Self> {
        Arc::new_cyclic(|stock| Self {
            home: Arc::new(Home(Weak::clone(stock))),
            log,
            bytes_max,
            queue: Mutex::default(),
            settled: Signal::default(),
        })
    }

    pub(super) fn send(self: &Arc<Self>, batch: Batch, bytes: u64) -> Sending {
        {
            let mut queue = self.lock();
            let first = queue.waiting.is_empty() && !queue.pumping;
            if !(first && self.fits(&queue, bytes)) {
                let waiting = Waiting::new(batch, bytes, Arc::clone(self));
                queue.waiting.push_back(Arc::clone(&waiting));
                return Sending::waiting(waiting);
            }
            queue.in_flight += bytes;
        }
        // The lock is free: a log that drops the permit inside `append` comes back here. The order
        // of one thread's sends holds all the same, because this call returns after the append.
        Sending::appending(self.append(batch, bytes))
    }

    fn append(&self, mut batch: Batch, bytes: u64) -> crate::Appending {
        batch.permit = Some(Permit::new(Arc::clone(&self.home), bytes));
        self.log.append(batch)
    }

    const fn fits(&self, queue: &Queue, bytes: u64) -> bool {
        queue.in_flight == 0 || queue.in_flight.saturating_add(bytes) <= self.bytes_max
    }

    /// Moves waiting sends into the log while they fit, in order; one thread at a time.
    fn pump(&self) {
        let mut queue = self.lock();
        if std::mem::replace(&mut queue.pumping, true) {
            return;
        }
        while let Some(first) = queue.waiting.front() {
            if !first.is_given_up() && !self.fits(&queue, first.bytes()) {
                break;
            }
            let Some(first) = queue.waiting.pop_front() else { break };
            let Some(batch) = first.take() else {
                queue.given_up = queue.given_up.saturating_sub(1);
                continue;
            };
            queue.in_flight += first.bytes();
            drop(queue);
            first.sent(self.append(batch, first.bytes()));
            queue = self.lock();
        }
        queue.pumping = false;
        let settled = queue.in_flight == 0 && queue.waiting.is_empty();
        drop(queue);
        if settled {
            self.settled.notify();
        }
    }

    /// A waiting send was dropped.
    pub(super) fn gave_up(&self) {
        {
            let mut queue = self.lock();
            queue.given_up += 1;
            if queue.given_up * 2 > queue.waiting.len() {
                queue.waiting.retain(|waiting| !waiting.is_given_up());
                queue.given_up = 0;
            }
        }
        self.pump();
    }

    pub(super) async fn settled(&self) {
        let mut seen = Seen::default();
        loop {
            {
                let queue = self.lock();
                if queue.in_flight == 0 && queue.waiting.is_empty() {
                    return;
                }
            }
            self.settled.changed(&mut seen).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What permits give their bytes back to: one for all permits of a stock, so that a log can merge
/// them, and weak, so that a stock does not keep itself alive. Waiting sends do keep it.
struct Home(Weak<Stock>);

impl Credit for Home {
    fn give_back(&self, bytes: u64) {
        let Some(stock) = self.0.upgrade() else { return };
        let quiet = {
            let mut queue = stock.lock();
            queue.in_flight -= bytes;
            queue.in_flight > 0 && queue.waiting.is_empty()
        };
        if !quiet {
            stock.pump();
        }
    }
}
