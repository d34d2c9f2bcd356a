//! When a chain may run: at once, or once a moment has come.

use crate::executor::Rest;

use super::Chains;
use super::chain::{Groups, State};
use super::clock::{Alarm, Nanos};

impl Chains {
    /// The chain has another head, no turn is open, and the next one may begin at `free_at`.
    #[inline(always)]
    pub(super) fn begin(&mut self, chain: u32, free_at: Nanos, now: Nanos) -> bool {
        if self.linger == 0 && free_at <= now {
            return self.make_ready(chain, now);
        }
        self.begin_later(chain, free_at, now)
    }

    #[inline(never)]
    fn begin_later(&mut self, chain: u32, free_at: Nanos, now: Nanos) -> bool {
        let it = self.groups.get_mut(chain);
        it.eager = it.is_diverted();
        if free_at > now {
            self.rest_until(chain, State::Paced, free_at, now);
            return false;
        }
        self.settle(chain, now, now)
    }

    /// The chain has a head that nothing was done with, which could run from `from` on: it lingers
    /// for more records, or runs.
    fn settle(&mut self, chain: u32, from: Nanos, now: Nanos) -> bool {
        if self.linger != 0 && self.must_linger(chain) {
            let until = from.saturating_add(self.linger);
            if until > now {
                self.rest_until(chain, State::Lingering, until, now);
                return false;
            }
        }
        self.make_ready(chain, now)
    }

    fn must_linger(&self, chain: u32) -> bool {
        let it = self.groups.get(chain);
        it.len < self.turn_records_max && !it.eager && !it.is_loose()
    }

    /// Another record has come to a chain that lingers.
    fn fuller(&mut self, chain: u32, now: Nanos) {
        let it = self.groups.get(chain);
        if it.len >= self.turn_records_max {
            if !it.is_blocked() {
                self.cancel_alarm(chain);
            }
            self.make_ready(chain, now);
        }
    }

    /// Lets the head of the chain run, unless the group is blocked.
    #[inline]
    pub(super) fn make_ready(&mut self, chain: u32, now: Nanos) -> bool {
        let it = self.groups.get_mut(chain);
        it.since = now;
        if it.is_blocked() {
            it.state = State::Waiting;
            return false;
        }
        it.state = State::Ready;
        let slot = it.slot;
        self.ready.push(&mut self.groups, chain);
        if let Some(live) = self.claims.live_mut(slot) {
            live.ready += 1;
        }
        true
    }

    /// Lets the chain wait for a moment.
    fn rest_until(&mut self, chain: u32, state: State, until: Nanos, now: Nanos) {
        let it = self.groups.get_mut(chain);
        it.since = now;
        it.state = state;
        it.set_until(until);
        self.set_alarm(chain);
    }

    /// Wakes the chains whose moment has come.
    pub(super) fn ring(&mut self, now: Nanos) {
        loop {
            let groups = &self.groups;
            let Some(alarm) = self.clock.ring(now, |alarm| groups.waits_for(alarm)) else { return };
            match self.groups.get(alarm.chain).state {
                State::Paced => self.settle(alarm.chain, alarm.at, now),
                _ => self.make_ready(alarm.chain, now),
            };
        }
    }

    /// Forgets the empty chains whose interval has passed.
    pub(super) fn fade(&mut self, now: Nanos) {
        loop {
            let groups = &self.groups;
            let alarm = self.fading.ring(now, |alarm| groups.waits_for(alarm));
            let Some(Alarm { chain, .. }) = alarm else { return };
            self.bare -= 1;
            self.groups.get_mut(chain).state = State::Waiting;
            self.retire(chain, 0, now);
        }
    }

    /// Another record has come to a chain that waits for a moment.
    #[inline(never)]
    pub(super) fn joined(&mut self, chain: u32, now: Nanos) {
        let it = self.groups.get(chain);
        match it.state {
            State::Lingering => self.fuller(chain, now),
            State::Paced if it.len == 1 => self.unfade(chain, now),
            _ => {}
        }
    }

    /// A first record has come to an empty chain whose interval had not passed when it was left.
    fn unfade(&mut self, chain: u32, now: Nanos) {
        let until = self.groups.get(chain).until();
        self.groups.get_mut(chain).stamp = self.ready.stamp();
        let groups = &self.groups;
        self.fading.forget_one(|alarm| groups.waits_for(alarm));
        self.begin(chain, until, now);
    }

    /// The head of the chain has run and is not terminal.
    pub(super) fn again(&mut self, chain: u32, rest: Rest, free_at: Nanos, now: Nanos) -> bool {
        let it = self.groups.get_mut(chain);
        let (slot, loose) = (it.slot, it.is_loose());
        it.eager = true;
        let (at, counted) = match rest {
            Rest::Again { at, counted } => (self.time.nanos(at), counted),
            Rest::Hold => (now, true),
            // Left over though the verdict says that nothing is: it runs again. Losing it is worse.
            Rest::Nothing => (now, false),
        };
        if rest == Rest::Hold && loose {
            self.claims.get_mut(slot).blocked_loose.push(chain);
        }
        if let Some(live) = self.claims.live_mut(slot).filter(|_| counted) {
            let head = live.entries.first(it.tail);
            live.entries.get_mut(head).count_attempt();
        }
        if at.max(free_at) <= now {
            return self.make_ready(chain, now);
        }
        let state = if at < free_at { State::Paced } else { State::BackingOff };
        self.rest_until(chain, state, at.max(free_at), now);
        false
    }

    /// The chain has no record and no open turn; the next turn of its scope may begin at `free_at`.
    #[inline]
    pub(super) fn retire(&mut self, chain: u32, free_at: Nanos, now: Nanos) {
        let it = self.groups.get(chain);
        if free_at <= now && it.hold.is_none() || it.is_loose() {
            self.groups.remove(chain);
            return;
        }
        self.bare += 1;
        if free_at > now {
            let stamp = self.ready.stamp();
            let it = self.groups.get_mut(chain);
            (it.state, it.stamp, it.since) = (State::Paced, stamp, now);
            it.set_until(free_at);
            self.fading.set(Alarm { at: free_at, chain, stamp });
        }
    }

    /// Takes a ready chain out of the queues.
    pub(super) fn unready(&mut self, chain: u32) {
        let it = self.groups.get(chain);
        let (slot, len) = (it.slot, it.len);
        self.ready.remove(&mut self.groups, chain, len);
        if let Some(live) = self.claims.live_mut(slot) {
            live.ready -= 1;
        }
    }

    pub(super) fn set_alarm(&mut self, chain: u32) {
        let stamp = self.ready.stamp();
        let it = self.groups.get_mut(chain);
        it.stamp = stamp;
        if !it.is_blocked() {
            self.clock.set(Alarm { at: it.until(), chain, stamp });
        }
    }

    pub(super) fn cancel_alarm(&mut self, chain: u32) {
        self.groups.get_mut(chain).stamp = self.ready.stamp();
        let groups = &self.groups;
        self.clock.forget_one(|alarm| groups.waits_for(alarm));
    }
}

impl Groups {
    /// Whether the chain of this alarm still waits for it.
    pub(super) fn waits_for(&self, alarm: &Alarm) -> bool {
        let chain = self.get(alarm.chain);
        chain.is_timed() && chain.stamp == alarm.stamp
    }
}

/// When a turn of a scope may begin after one that began at `started`.
#[inline]
pub(super) const fn free_at(started: Nanos, interval: Nanos) -> Nanos {
    // Not the start itself: a caller's next moment may lie before its last one.
    if interval == 0 { 0 } else { started.saturating_add(interval) }
}
