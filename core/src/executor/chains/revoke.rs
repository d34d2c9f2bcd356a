//! Giving a partition up.

use crate::types::Budget;

use super::Chains;
use super::chain::State;
use super::clock::Nanos;
use super::entries::NIL;
use super::turns::Zombie;
use super::wait::free_at;

impl Chains {
    /// Starts nothing more of the claim and drops what waits. Open turns end; the window stays, to
    /// tell what is finished. Returns how many turns are open.
    pub(super) fn drain(&mut self, slot: u32) -> usize {
        let now = self.time.now();
        let Some(live) = self.claims.live_mut(slot) else { return 0 };
        let open = live.open;
        if std::mem::replace(&mut live.draining, true) {
            return open;
        }
        self.loading.retain(|(of, _), _| *of != slot);
        let places: Vec<u32> = live.window.slots().collect();
        for place in places {
            let Some(live) = self.claims.live(slot) else { break };
            let chain = live.entries.chain_of(place);
            if chain == NIL || live.entries.first(self.groups.get(chain).tail) != place {
                continue;
            }
            if self.groups.get(chain).state == State::Running {
                self.drop_behind_turn(chain);
            } else {
                let free_at = self.stop(chain);
                self.drop_rest(chain);
                if !self.groups.get(chain).has_open_turn() {
                    self.retire(chain, free_at, now);
                }
            }
        }
        self.claims.get_mut(slot).blocked_loose.clear();
        self.claims.share_among(false);
        open
    }

    /// Forgets the claim. Open turns become zombies. Returns how many.
    pub(super) fn fence(&mut self, slot: u32) -> usize {
        let now = self.time.now();
        let Some(live) = self.claims.live(slot) else { return 0 };
        let (open, sharing) = (live.open, !live.draining);
        let places: Vec<u32> = live.window.slots().collect();
        for place in places {
            let Some(live) = self.claims.live(slot) else { break };
            let chain = live.entries.chain_of(place);
            if chain == NIL || self.groups.get(chain).tail == NIL {
                continue;
            }
            let head = live.entries.first(self.groups.get(chain).tail);
            let zombie = Zombie {
                claim: live.claim,
                head: live.window.offset(head),
                attempt: live.entries.get(head).attempts() + 1,
                started: self.groups.get(chain).since,
            };
            let free_at = self.stop(chain);
            let it = self.groups.get_mut(chain);
            (it.tail, it.len) = (NIL, 0);
            match it.state {
                State::Running => {
                    it.state = State::Shut;
                    it.since = now;
                    if it.is_loose() {
                        self.loose_zombies.insert((slot, zombie.head), chain);
                    }
                    self.turns.outlive(it.link.0, zombie);
                }
                State::Shut => {}
                _ => self.retire(chain, free_at, now),
            }
        }
        self.loading.retain(|(of, _), _| *of != slot);
        let it = self.claims.get_mut(slot);
        it.blocked_loose.clear();
        if let Some(live) = it.live.take() {
            self.held = self.held.minus(live.held);
        }
        if sharing {
            self.claims.share_among(false);
        }
        open
    }

    /// Nothing is to happen to the head any more, unless its turn is open. Returns when a next turn
    /// may begin.
    fn stop(&mut self, chain: u32) -> Nanos {
        let it = self.groups.get(chain);
        let mut free = 0;
        match it.state {
            State::Running | State::Shut => return 0,
            State::Ready => self.unready(chain),
            State::Paced => free = it.until(),
            // The turn before the back-off began at some moment before now.
            State::BackingOff => free = it.until().min(free_at(self.time.now(), self.interval)),
            State::Lingering | State::Loading | State::Waiting => {}
        }
        let it = self.groups.get(chain);
        if it.is_timed() && !it.is_blocked() {
            self.cancel_alarm(chain);
        }
        self.groups.get_mut(chain).state = State::Waiting;
        free
    }

    /// Drops the records of a chain behind those of its open turn.
    fn drop_behind_turn(&mut self, chain: u32) {
        let it = self.groups.get_mut(chain);
        let keep = self.turns.records(it.link.0);
        if it.len <= keep {
            return;
        }
        let Some(live) = self.claims.live_mut(it.slot) else { return };
        let last = it.tail;
        let (tail, mut place) = live.entries.cut(last, keep);
        (it.tail, it.len) = (tail, keep);
        loop {
            let gone = Budget::new(1, live.entries.clear(place));
            live.held = live.held.minus(gone);
            self.held = self.held.minus(gone);
            if place == last {
                return;
            }
            place = live.entries.next_of(place);
        }
    }

    /// Drops what is left of a chain of a draining claim. Its records stay unfinished.
    pub(super) fn drop_rest(&mut self, chain: u32) {
        let it = self.groups.get_mut(chain);
        let Some(live) = self.claims.live_mut(it.slot) else { return };
        while it.tail != NIL {
            let (place, tail) = live.entries.pop(it.tail);
            it.tail = tail;
            it.len -= 1;
            let gone = Budget::new(1, live.entries.clear(place));
            live.held = live.held.minus(gone);
            self.held = self.held.minus(gone);
        }
    }
}
