//! Time as the caller tells it, and the groups that wait for a moment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Nanoseconds since the first moment the executor was told: half the size of an [`Instant`], and
/// room for five hundred years. Earlier moments count as that first one.
pub(super) type Nanos = u64;

/// The latest moment the caller told.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    base: Option<Instant>,
    now: Nanos,
    /// The last moment that was told: a caller tells the same one for many steps.
    last: Option<(Instant, Nanos)>,
}

impl Timeline {
    #[inline]
    pub(super) fn tell(&mut self, now: Instant) -> Nanos {
        if let Some((last, nanos)) = self.last
            && last == now
        {
            return nanos;
        }
        let nanos = self.nanos(now);
        self.now = self.now.max(nanos);
        self.last = Some((now, nanos));
        nanos
    }

    /// For calls that tell no time.
    pub(super) const fn now(&self) -> Nanos {
        self.now
    }

    pub(super) fn nanos(&mut self, at: Instant) -> Nanos {
        let base = *self.base.get_or_insert(at);
        at.saturating_duration_since(base).as_nanos().try_into().unwrap_or(Nanos::MAX)
    }

    /// A length of time.
    pub(super) fn span(of: Duration) -> Nanos {
        of.as_nanos().try_into().unwrap_or(Nanos::MAX)
    }

    pub(super) fn instant(&self, at: Nanos) -> Option<Instant> {
        self.base.and_then(|base| base.checked_add(Duration::from_nanos(at)))
    }
}

/// Chains that wait for a moment, the earliest first; at most one live alarm a chain.
///
/// Nothing is taken out of the middle: an entry whose stamp is no longer its chain's is stale and
/// is dropped when it surfaces, or when the stale ones are the majority.
#[derive(Debug, Default)]
pub(super) struct Clock {
    heap: BinaryHeap<Reverse<Alarm>>,
    stale: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Alarm {
    pub(super) at: Nanos,
    pub(super) chain: u32,
    pub(super) stamp: u32,
}

impl Clock {
    pub(super) fn set(&mut self, alarm: Alarm) {
        self.heap.push(Reverse(alarm));
    }

    /// Whether there is an alarm, live or stale.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        !self.heap.is_empty()
    }

    /// One alarm is no longer wanted; `live` tells which still are.
    pub(super) fn forget_one(&mut self, live: impl Fn(&Alarm) -> bool) {
        self.stale += 1;
        if self.stale > 64 && self.stale * 2 > self.heap.len() {
            self.heap.retain(|Reverse(alarm)| live(alarm));
            self.stale = 0;
        }
    }

    /// The earliest alarm that is live.
    pub(super) fn peek(&mut self, live: impl Fn(&Alarm) -> bool) -> Option<Alarm> {
        loop {
            let Reverse(alarm) = *self.heap.peek()?;
            if live(&alarm) {
                return Some(alarm);
            }
            self.heap.pop();
            self.stale = self.stale.saturating_sub(1);
        }
    }

    /// Takes the earliest alarm out if it is due.
    pub(super) fn ring(&mut self, now: Nanos, live: impl Fn(&Alarm) -> bool) -> Option<Alarm> {
        let alarm = self.peek(live)?;
        if alarm.at > now {
            return None;
        }
        self.heap.pop();
        Some(alarm)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}
