//! The walk of a record: taken in, waiting, running, ended.

use std::num::NonZeroU32;

use crate::executor::{Completed, Hold, Next, Rest, Turn, Verdict};
use crate::log::Chunk;
use crate::types::{Budget, Offset, OneOrMany, Stored};

use super::Chains;
use super::chain::{Chain, State};
use super::claims::Live;
use super::clock::Nanos;
use super::entries::NIL;
use super::lane::Lane;
use super::turns::{Ended, Zombie};
use super::wait::free_at;

/// How many records are looked up together.
const AHEAD: usize = 16;

/// What a look-up of a record's scope found: its hash, and its chain or `NIL`.
#[derive(Clone, Copy)]
struct Seen {
    hash: u32,
    chain: u32,
}

impl Chains {
    pub(super) fn take_in(&mut self, slot: u32, mut chunk: Chunk, now: Nanos) {
        let Some(live) = self.claims.live(slot).filter(|live| !live.draining) else { return };
        let before = live.held;
        let mut new = chunk.records.is_empty();
        for records in chunk.records.chunks_mut(AHEAD) {
            let seen = self.look_ahead(slot, records);
            for (seen, stored) in seen.into_iter().zip(records) {
                new |= self.take_one(slot, stored, seen, now);
            }
        }
        let Some(live) = self.claims.live_mut(slot) else { return };
        self.held = self.held.plus(live.held.minus(before));
        if new {
            live.window.advance(chunk.next);
        }
        self.claims.notice(slot);
    }

    /// Looks the next few records up, all before any is taken in: the look-ups do not depend on
    /// one another, so the processor waits for their memory together and not one after the other.
    fn look_ahead(&self, slot: u32, records: &[Stored]) -> [Seen; AHEAD] {
        let id = self.claims.get(slot).id;
        let mut seen = [Seen { hash: 0, chain: NIL }; AHEAD];
        for (seen, stored) in seen.iter_mut().zip(records) {
            if let Lane::Named(name) = self.lanes.of(stored.record.key()) {
                seen.hash = self.groups.hash(id, name);
            }
        }
        for (seen, stored) in seen.iter_mut().zip(records) {
            if let Lane::Named(name) = self.lanes.of(stored.record.key()) {
                seen.chain = self.groups.find(seen.hash, slot, name).unwrap_or(NIL);
            }
        }
        seen
    }

    /// Returns whether the record lies at or above the fetch position.
    #[inline]
    fn take_one(&mut self, slot: u32, stored: &mut Stored, seen: Seen, now: Nanos) -> bool {
        let Some(live) = self.claims.live_mut(slot) else { return false };
        if stored.offset < live.window.fetch_position() {
            self.fill(slot, stored, now);
            return false;
        }
        let bytes = stored.record.size_bytes() as u64;
        live.delivered = live.delivered.plus(Budget::new(1, bytes));
        // There is no place for what was finished before the claim.
        if let Some(place) = live.window.deliver(stored.offset) {
            self.append(slot, place, stored, seen, bytes, now);
        }
        true
    }

    /// Puts a record at the end of its chain.
    #[inline]
    fn append(
        &mut self,
        slot: u32,
        place: u32,
        stored: &mut Stored,
        seen: Seen,
        bytes: u64,
        now: Nanos,
    ) {
        let chain = self.chain_of(slot, stored, seen, now);
        let room = !self.bodies_strict && self.claims.is_half_empty(slot);
        let Some(live) = self.claims.live_mut(slot) else { return };
        let it = self.groups.get_mut(chain);
        // The first ones of a chain have bodies. One that is admitted behind others without may
        // have one again: what counts is that they are never more than the bound.
        let keep = it.len < self.bodies_max || room;
        live.entries.put(place, stored, chain, keep);
        live.entries.push(it.tail, place);
        it.tail = place;
        it.len += 1;
        live.held = live.held.plus(Budget::new(1, if keep { bytes } else { 0 }));
        if it.state == State::Ready {
            self.ready.grown(&mut self.groups, chain);
        } else if it.state == State::Waiting && it.len == 1 {
            self.begin(chain, 0, now);
        } else if it.is_timed() {
            self.joined(chain, now);
        }
    }

    #[inline]
    fn chain_of(&mut self, slot: u32, stored: &Stored, seen: Seen, now: Nanos) -> u32 {
        let mut found = seen.chain;
        if found == NIL {
            let Lane::Named(name) = self.lanes.of(stored.record.key()) else {
                return match self.loose_zombies.get(&(slot, stored.offset)) {
                    Some(chain) => *chain,
                    None => self.groups.add_loose(slot, now),
                };
            };
            // Nothing that takes records in removes a chain; it may have made this one meanwhile.
            match self.groups.find(seen.hash, slot, name) {
                Some(chain) => found = chain,
                None => return self.groups.add(seen.hash, slot, name, now),
            }
        }
        let it = self.groups.get(found);
        self.bare -= usize::from(it.len == 0 && !it.has_open_turn());
        found
    }

    /// A body that was asked for; anything else below the fetch position is old.
    fn fill(&mut self, slot: u32, stored: &mut Stored, now: Nanos) {
        let Some(live) = self.claims.live_mut(slot) else { return };
        let Some(chain) = self.loading.remove(&(slot, stored.offset)) else { return };
        let head = live.entries.first(self.groups.get(chain).tail);
        let bytes = stored.record.size_bytes() as u64;
        live.entries.get_mut(head).fill(stored);
        live.held.bytes += bytes;
        self.make_ready(chain, now);
    }

    /// A body that was asked for does not exist any more: its record is terminal.
    pub(super) fn pass_over(&mut self, slot: u32, offset: Offset, now: Nanos) -> Completed {
        let Some(live) = self.claims.live_mut(slot) else { return Completed::default() };
        let asked = self.loading.remove(&(slot, offset));
        let Some(chain) = asked else { return Completed::default() };
        let it = self.groups.get_mut(chain);
        live.finish(it, 1, &mut self.held);
        it.state = State::Waiting;
        let runnable = if it.len == 0 {
            self.retire(chain, 0, now);
            false
        } else {
            self.begin(chain, 0, now)
        };
        self.claims.notice(slot);
        Completed { runnable, progressed: true, drained: None }
    }

    /// Runs, diverts or loads the head of a chain that was just taken out of the ready queues.
    #[inline]
    pub(super) fn start(&mut self, chain: u32, now: Nanos) -> Next {
        let it = self.groups.get_mut(chain);
        let slot = it.slot;
        let Some(live) = self.claims.live_mut(slot) else { unreachable!("ready without a claim") };
        live.ready -= 1;
        if live.ready == 0 {
            self.claims.notice(slot);
        }
        self.hand_out(chain, now)
    }

    /// The head of the chain, as a turn; or a wish for its body.
    #[inline]
    fn hand_out(&mut self, chain: u32, now: Nanos) -> Next {
        let it = self.groups.get_mut(chain);
        let slot = it.slot;
        let Some(live) = self.claims.live_mut(slot) else { unreachable!("ready without a claim") };
        it.since = now;
        let head = live.entries.first(it.tail);
        let offset = live.window.offset(head);
        let claim = live.claim;
        let entry = live.entries.get(head);
        if !entry.has_body() {
            it.state = State::Loading;
            self.loading.insert((slot, offset), chain);
            self.claims.notice(slot);
            return Next::Load { claim, offset };
        }
        let attempt = NonZeroU32::MIN.saturating_add(entry.attempts());
        live.open += 1;
        // One record is made where it is to lie: a copy of it costs more than all of this.
        if self.turn_records_max == 1 || it.len == 1 || it.hold.is_some() {
            let id = self.turns.open(chain, 1);
            it.state = State::Running;
            it.link.0 = id.index;
            if it.hold.is_some() {
                let records = OneOrMany::One(entry.stored(offset));
                return Next::Divert(Turn::new(id, claim, attempt, records));
            }
            return Next::Run(Turn::new(id, claim, attempt, OneOrMany::One(entry.stored(offset))));
        }
        let records = live.records(it, self.turn_records_max);
        let id = self.turns.open(chain, records.len() as u32);
        it.state = State::Running;
        it.link.0 = id.index;
        Next::Run(Turn::new(id, claim, attempt, records))
    }

    /// A turn of a live claim has ended.
    #[inline]
    pub(super) fn end(&mut self, turn: Ended, verdict: Verdict, now: Nanos) -> Completed {
        let chain = turn.chain;
        let it = self.groups.get_mut(chain);
        let (slot, free_at) = (it.slot, free_at(it.since, self.interval));
        let Some(live) = self.claims.live_mut(slot) else { unreachable!("a zombie has no claim") };
        live.open -= 1;
        let terminal = verdict.terminal.min(turn.records);
        live.finish(it, terminal, &mut self.held);
        let mut completed = Completed { progressed: terminal > 0, ..Completed::default() };
        it.state = State::Waiting;
        if terminal < turn.records && verdict.rest == Rest::Hold {
            it.hold = Some(Hold::Blocked);
        }
        if live.draining {
            completed.drained = (live.open == 0).then_some(live.claim);
            self.drop_rest(chain);
            self.retire(chain, free_at, now);
        } else if it.len == 0 {
            self.retire(chain, free_at, now);
        } else if terminal == turn.records {
            completed.runnable = self.begin(chain, free_at, now);
        } else {
            completed.runnable = self.again(chain, verdict.rest, free_at, now);
        }
        self.claims.notice(slot);
        completed
    }

    /// A turn of a fenced claim has ended: its chain opens.
    pub(super) fn bury(&mut self, chain: u32, zombie: &Zombie, now: Nanos) -> Completed {
        let free_at = free_at(zombie.started, self.interval);
        let it = self.groups.get_mut(chain);
        it.state = State::Waiting;
        if it.is_loose() {
            self.loose_zombies.remove(&(it.slot, zombie.head));
        }
        let mut completed = Completed::default();
        if it.len == 0 {
            self.retire(chain, free_at, now);
        } else {
            completed.runnable = self.begin(chain, free_at, now);
        }
        completed
    }
}

impl Live {
    /// The head of a chain, which has its body, and those behind it that have theirs.
    #[inline(never)]
    fn records(&self, chain: &Chain, records_max: u32) -> OneOrMany<Stored> {
        let max = records_max.min(chain.len);
        let first = self.entries.first(chain.tail);
        let places = std::iter::successors(Some(first), |place| Some(self.entries.next_of(*place)))
            .take(max as usize)
            .take_while(|place| self.entries.get(*place).has_body());
        let stored = |place| self.entries.get(place).stored(self.window.offset(place));
        match places.clone().count() {
            1 => OneOrMany::One(stored(first)),
            // Allocated for what there is, and not for what there might be.
            records => {
                let mut many = Vec::with_capacity(records);
                many.extend(places.map(stored));
                OneOrMany::Many(many)
            }
        }
    }

    /// The first records of a chain are terminal; what was held of them is taken off `held`, too.
    #[inline(always)]
    fn finish(&mut self, chain: &mut Chain, records: u32, held: &mut Budget) {
        for _ in 0..records {
            let (head, tail) = self.entries.pop(chain.tail);
            chain.tail = tail;
            chain.len -= 1;
            self.window.finish(head);
            let gone = Budget::new(1, self.entries.clear(head));
            self.held = self.held.minus(gone);
            *held = held.minus(gone);
        }
    }
}
