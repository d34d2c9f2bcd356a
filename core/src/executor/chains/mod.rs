//! The default executor: one chain of waiting records per live group.

mod chain;
mod claims;
mod clock;
mod entries;
mod flow;
mod hold;
mod lane;
mod options;
mod ready;
mod revoke;
mod turns;
mod wait;

pub use options::ChainsOptions;

use std::collections::HashMap;
use std::fmt;
use std::time::Instant;

use self::chain::{Groups, State};
use self::claims::{Claims, Live};
use self::clock::{Clock, Nanos, Timeline};
use self::lane::{Lane, Lanes};
use self::ready::Ready;
use self::turns::Turns;
use super::{
    Completed, Explain, GroupExecutor, GroupState, Hold, Load, Next, Revoke, Scope, TurnId, Verdict,
};
use crate::log::Chunk;
use crate::types::{Budget, Claim, Offset, Progress};

/// The default [`GroupExecutor`]: a chain of waiting records for each live group, found by the
/// bytes of its key (or what else the declared [`Order`](super::Order) makes a scope).
///
/// ```text
///  scope ─hash─> chain ──> record ─> record ─> record
///                  │
///                  ├── ready: queues by length, longest first, with ageing
///                  ├── clock: a heap of moments: back-offs, lingering, intervals
///                  └── turns: open ones, by a generational id
///  claim: the window of unfinished offsets, its records, its share of the budget
/// ```
///
/// Groups that have nothing here cost nothing, no two groups ever share a lane, and every step is
/// O(1) for each record of a turn (a
/// back-off, lingering, or an interval, O(log n); giving a partition up O(its records)). In steady state nothing is
/// allocated per record or turn, but for the list of records in a turn of several. A live group of one record takes some 250 bytes, the record
/// included, above its payload. Memory that was needed once is kept for the next time, within the
/// budget; that of a claim's records goes with the claim.
///
/// A hold outlives the claim under which it was placed: a group stays as it is until it is let go,
/// also when its partition goes away and comes back.
///
/// # Ordering
/// A chain is named by partition and key and not by the claim. A turn of a fenced claim that still
/// runs keeps its chain shut until it ends, however often the partition comes and goes.
pub struct Chains {
    lanes: Lanes,
    /// Records of a chain that keep their bodies.
    bodies_max: u32,
    bodies_strict: bool,
    turn_records_max: u32,
    linger: Nanos,
    interval: Nanos,
    groups: Groups,
    /// Chains that only remember a hold, or when their last turn began.
    bare: usize,
    /// Records, each a scope of its own, that an old turn still runs: come again, they wait for it.
    loose_zombies: HashMap<(u32, Offset), u32>,
    /// Heads whose bodies were asked for, with their chains; at most one a chain.
    loading: HashMap<(u32, Offset), u32>,
    claims: Claims,
    ready: Ready,
    clock: Clock,
    /// Empty chains that are forgotten once their interval has passed. Nobody waits for that.
    fading: Clock,
    turns: Turns,
    time: Timeline,
    held: Budget,
}

impl Chains {
    /// An executor that owns nothing yet.
    #[must_use]
    pub fn new(options: ChainsOptions) -> Self {
        Self {
            lanes: Lanes { order: options.order, absent_key: options.absent_key },
            bodies_strict: options.bodies_strict,
            bodies_max: if options.rereadable { options.bodies_max } else { u32::MAX },
            turn_records_max: options.turn_records_max,
            linger: Timeline::span(options.linger),
            interval: Timeline::span(options.group_interval),
            groups: Groups::new(options.seed),
            bare: 0,
            loose_zombies: HashMap::new(),
            loading: HashMap::new(),
            claims: Claims::new(options.budget, options.ranges_max),
            ready: Ready::new(),
            clock: Clock::default(),
            fading: Clock::default(),
            turns: Turns::new(),
            time: Timeline::default(),
            held: Budget::ZERO,
        }
    }
}

impl Default for Chains {
    fn default() -> Self {
        Self::new(ChainsOptions::new())
    }
}

#[deny(clippy::missing_trait_methods)]
impl GroupExecutor for Chains {
    fn assign(&mut self, claim: Claim, progress: &Progress, now: Instant) {
        self.time.tell(now);
        let slot = self.claims.slot(claim.partition);
        if let Some(live) = self.claims.live(slot) {
            if live.claim.epoch >= claim.epoch {
                return;
            }
            self.fence(slot);
        }
        self.claims.get_mut(slot).live = Some(Live::new(claim, progress));
        self.claims.share_among(true);
    }

    fn admit(&mut self, claim: Claim, chunk: Chunk, now: Instant) {
        let now = self.time.tell(now);
        let Some(slot) = self.claims.find_live(claim) else { return };
        self.take_in(slot, chunk, now);
    }

    fn next(&mut self, now: Instant) -> Next {
        let now = self.time.tell(now);
        if self.fading.has_any() {
            self.fade(now);
        }
        if self.clock.has_any() {
            self.ring(now);
        }
        if let Some(chain) = self.ready.pop(&mut self.groups) {
            return self.start(chain, now);
        }
        let groups = &self.groups;
        let alarm = self.clock.peek(|alarm| groups.waits_for(alarm));
        Next::Idle { until: alarm.and_then(|alarm| self.time.instant(alarm.at)) }
    }

    fn complete(&mut self, id: TurnId, verdict: Verdict, now: Instant) -> Completed {
        let now = self.time.tell(now);
        let Some(turn) = self.turns.close(id) else { return Completed::default() };
        match turn.zombie {
            Some(zombie) => self.bury(turn.chain, &zombie, now),
            None => self.end(turn, verdict, now),
        }
    }

    fn gone(&mut self, claim: Claim, offset: Offset, now: Instant) -> Completed {
        let now = self.time.tell(now);
        let Some(slot) = self.claims.find_live(claim) else { return Completed::default() };
        self.pass_over(slot, offset, now)
    }

    fn hold(&mut self, scope: &Scope, how: Option<Hold>) {
        self.hold_scope(scope, how);
    }

    fn revoke(&mut self, claim: Claim, how: Revoke) -> usize {
        let Some(slot) = self.claims.find_live(claim) else { return 0 };
        match how {
            Revoke::Drain => self.drain(slot),
            Revoke::Fence => self.fence(slot),
        }
    }

    fn progress(&mut self, claim: Claim) -> Option<Progress> {
        let slot = self.claims.find_live(claim)?;
        self.claims.live_mut(slot)?.progress()
    }

    fn committed(&mut self, claim: Claim, progress: &Progress) {
        let Some(slot) = self.claims.find_live(claim) else { return };
        if let Some(live) = self.claims.live_mut(slot) {
            live.committed(progress);
        }
    }

    fn credit(&mut self) -> Option<(Claim, Budget)> {
        self.claims.tell()
    }

    fn explain(&self, scope: &Scope) -> Option<Explain> {
        let slot = self.claims.find(scope.partition)?;
        let Lane::Named(name) = self.lanes.of(scope.key.as_ref()) else { return None };
        let hash = self.groups.hash(scope.partition, name);
        let chain = self.groups.get(self.groups.find(hash, slot, name)?);
        let since = self.time.instant(chain.since)?;
        if chain.len == 0 {
            // What is left of it is an old turn, or only a memory.
            let turn = self.turns.zombie(chain.link.0).filter(|_| chain.state == State::Shut)?;
            let (state, attempt) = (GroupState::Shut, turn.attempt);
            let records = self.turns.records(chain.link.0) as usize;
            return Some(Explain::new(turn.claim, turn.head, state, since, attempt, records));
        }
        let live = self.claims.live(slot)?;
        let head = live.entries.first(chain.tail);
        let running = chain.state == State::Running;
        let attempts = live.entries.get(head).attempts() + u32::from(running);
        let state = match (chain.state, chain.hold) {
            (State::Running, _) => GroupState::Running,
            (State::Shut, _) => GroupState::Shut,
            (_, Some(hold)) => GroupState::Held(hold),
            (State::BackingOff, None) => {
                GroupState::BackingOff { until: self.time.instant(chain.until())? }
            }
            (State::Paced, None) => GroupState::Paced { until: self.time.instant(chain.until())? },
            (State::Lingering, None) => {
                GroupState::Lingering { until: self.time.instant(chain.until())? }
            }
            (State::Loading, None) => GroupState::Loading,
            (State::Ready | State::Waiting, None) => GroupState::Ready,
        };
        let offset = live.window.offset(head);
        Some(Explain::new(live.claim, offset, state, since, attempts, chain.len as usize))
    }

    fn load(&self) -> Load {
        Load { groups: self.groups.len() - self.bare, open: self.turns.len(), held: self.held }
    }
}

impl fmt::Debug for Chains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the groups: there may be a million, and the seed of their hash is a secret.
        f.debug_struct("Chains").field("load", &self.load()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
