//! When a chain may run: at once, or once a moment has come.

use crate::executor::Rest;

use super::Chains;
use super::chain::{Groups, State};
use super::clock::{Alarm, Nanos};

impl Chains {
    /// The chain has a head that nothing is done with: lets it run, unless the group is blocked.
    #[inline]
    pub(super) fn settle(&mut self, chain: u32, now: Nanos) -> bool {
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

    pub(super) fn end_back_offs(&mut self, now: Nanos) {
        loop {
            let groups = &self.groups;
            let Some(alarm) = self.clock.ring(now, |alarm| groups.waits_for(alarm)) else { return };
            self.settle(alarm.chain, now);
        }
    }

    /// The head of the chain has run and is not terminal.
    pub(super) fn again(&mut self, chain: u32, rest: Rest, now: Nanos) -> bool {
        let it = self.groups.get_mut(chain);
        let (slot, loose) = (it.slot, it.is_loose());
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
        if at <= now {
            return self.settle(chain, now);
        }
        it.since = now;
        it.state = State::BackingOff;
        it.set_until(at);
        self.set_alarm(chain);
        false
    }

    /// The chain has no record and no open turn.
    pub(super) fn retire(&mut self, chain: u32) {
        let it = self.groups.get(chain);
        if it.hold.is_some() && !it.is_loose() {
            self.bare += 1;
        } else {
            self.groups.remove(chain);
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
        chain.state == State::BackingOff && chain.stamp == alarm.stamp
    }
}
