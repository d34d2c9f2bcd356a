//! An executor that is too simple to be wrong, and too slow to be used: one list of records, looked
//! through from the front at every step. Each [`Bug`] makes it wrong in one way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::time::Instant;

use procession_conformance::ExecutorSetup;
use procession_core::{
    Budget, Chunk, Claim, Completed, Explain, GroupExecutor, GroupState, Headers, Hold, Load, Next,
    Offset, PartitionId, Progress, Ranges, Record, Rest, Revoke, Scope, Stored, Turn, TurnId,
    Verdict,
};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    RetriesAreOvertaken,
    CommitsTheHighestFinished,
    CountsOffsetsByOne,
    AcceptsStaleClaims,
    DrainsStartTurns,
    DrainsSkipLateRecords,
    FencesLetReturningGroupsOverlap,
    ReusesTurnIds,
    CountsReleases,
    IgnoresHolds,
    RunsOneTurnAtATime,
    BackOffStopsEverybody,
    ScopesAreKeys,
    ForgetsWhatWasCommitted,
    RunsFinishedRecordsAgain,
    CountsLateVerdicts,
    BoundsNothing,
    SkipsMissingBodies,
    StartsRetriesEarly,
    CompletesWhatFailed,
    TurnsMixGroups,
    PartialVerdictsLoseTheRest,
    PartialVerdictsRepeatAll,
    IgnoresWhatIsGone,
    PassesOverWhatIsNotLoaded,
}

pub(crate) struct Naive {
    setup: ExecutorSetup,
    bug: Bug,
    /// Records of one turn at the most.
    turn_max: usize,
    /// Scopes share this many lanes, each of which runs one turn at a time, in order; `None`: each
    /// scope has its own.
    lanes: Option<u64>,
    waiting: Vec<Entry>,
    open: Vec<Open>,
    claims: BTreeMap<PartitionId, Own>,
    holds: HashMap<Scope, Hold>,
    turns: u32,
}

/// A record that is not terminal.
struct Entry {
    claim: Claim,
    scope: Scope,
    stored: Stored,
    body: Body,
    attempts: u32,
    not_before: Option<Instant>,
    since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Here,
    Dropped,
    AskedFor,
}

struct Open {
    id: TurnId,
    claim: Claim,
    scope: Scope,
    offsets: Vec<Offset>,
    zombie: bool,
}

/// A claim that may run.
struct Own {
    claim: Claim,
    draining: bool,
    fetch: Offset,
    before: Progress,
    finished: BTreeSet<Offset>,
    committed: Progress,
    window: Budget,
    delivered: Budget,
}

impl Naive {
    pub(crate) fn new(setup: ExecutorSetup, turn_max: usize, bug: Bug) -> Self {
        Self {
            setup,
            bug,
            turn_max: turn_max.max(setup.turn_records_max as usize),
            lanes: None,
            waiting: Vec::new(),
            open: Vec::new(),
            claims: BTreeMap::new(),
            holds: HashMap::new(),
            turns: 0,
        }
    }

    pub(crate) fn in_lanes(mut self, lanes: u64) -> Self {
        self.lanes = Some(lanes);
        self
    }

    fn share_a_lane(&self, one: &Scope, two: &Scope) -> bool {
        let lane = |scope: &Scope| {
            let bytes = scope.key.iter().flat_map(|key| key.as_bytes().iter());
            bytes.fold(0_u64, |sum, byte| sum * 31 + u64::from(*byte))
        };
        self.lanes.map_or_else(|| one == two, |lanes| lane(one) % lanes == lane(two) % lanes)
    }

    fn own(&mut self, claim: Claim) -> Option<&mut Own> {
        let stale_too = self.bug == Bug::AcceptsStaleClaims;
        self.claims.get_mut(&claim.partition).filter(|own| own.claim == claim || stale_too)
    }

    fn scope(&self, claim: Claim, record: &Record) -> Scope {
        let partition = match self.bug {
            Bug::ScopesAreKeys => PartitionId::default(),
            _ => claim.partition,
        };
        Scope { partition, key: record.key().cloned() }
    }

    fn is_shut(&self, scope: &Scope) -> bool {
        let overlap = self.bug == Bug::FencesLetReturningGroupsOverlap;
        self.open
            .iter()
            .any(|open| self.share_a_lane(&open.scope, scope) && !(open.zombie && overlap))
            || self.bug == Bug::RunsOneTurnAtATime && !self.open.is_empty()
    }

    /// The first entry that can do anything, or when the first back-off ends.
    fn first(&self, now: Instant) -> Result<usize, Option<Instant>> {
        let (mut until, mut met) = (None::<Instant>, BTreeSet::new());
        for (at, entry) in self.waiting.iter().enumerate() {
            let draining = self.claims.get(&entry.claim.partition).is_none_or(|own| own.draining);
            let behind = met.iter().any(|scope| self.share_a_lane(scope, &entry.scope));
            if draining && self.bug != Bug::DrainsStartTurns || behind {
                continue;
            }
            let hold = self.holds.get(&entry.scope).filter(|_| self.bug != Bug::IgnoresHolds);
            let early = self.bug == Bug::StartsRetriesEarly;
            let back_off = entry.not_before.filter(|at| *at > now && hold.is_none() && !early);
            let may = !self.is_shut(&entry.scope)
                && hold != Some(&Hold::Blocked)
                && back_off.is_none()
                && entry.body != Body::AskedFor;
            if may && !(self.bug == Bug::SkipsMissingBodies && entry.body != Body::Here) {
                return Ok(at);
            }
            if let Some(at) = back_off.filter(|_| hold.is_none() && !self.is_shut(&entry.scope)) {
                until = Some(until.map_or(at, |until| until.min(at)));
                if self.bug == Bug::BackOffStopsEverybody {
                    return Err(until);
                }
                if self.bug == Bug::RetriesAreOvertaken {
                    continue;
                }
            }
            if self.bug != Bug::SkipsMissingBodies || entry.body == Body::Here {
                met.insert(entry.scope.clone());
            }
        }
        Err(until)
    }

    fn forget(&mut self, claim: Claim) -> usize {
        self.claims.remove(&claim.partition);
        self.waiting.retain(|entry| entry.claim != claim);
        let zombies = self.open.iter_mut().filter(|open| open.claim == claim && !open.zombie);
        zombies.map(|open| open.zombie = true).count()
    }

    fn snapshot(&self, own: &Own) -> Progress {
        let unfinished = self.waiting.iter().filter(|entry| entry.claim == own.claim);
        let mut next = unfinished.map(|entry| entry.stored.offset).min().unwrap_or(own.fetch);
        if self.bug == Bug::CommitsTheHighestFinished {
            let highest = own.finished.last().map_or(own.before.next, |last| last.after());
            return Progress::at(highest.max(own.before.next));
        }
        if self.bug == Bug::CountsOffsetsByOne {
            next = own.before.next;
            while own.finished.contains(&next) || own.before.covers(next) {
                next = next.after();
            }
        }
        let single = own.finished.iter().map(|offset| (*offset, offset.after()));
        let mut all: Vec<_> = own.before.done.iter().chain(single).collect();
        all.sort_unstable();
        let mut done = Ranges::default();
        for (from, to) in all {
            if to <= next {
                continue;
            }
            if from <= next && done.is_empty() {
                next = to;
            } else {
                done.push(from.max(next), to);
            }
        }
        Progress::with_done(next, done)
    }

    fn held(&self) -> Budget {
        let size = |entry: &Entry| match entry.body {
            Body::Here => entry.stored.record.size_bytes() as u64,
            _ => 0,
        };
        Budget::new(self.waiting.len() as u64, self.waiting.iter().map(size).sum())
    }

    fn drop_body(&self, scope: &Scope) -> bool {
        let bodies = |entry: &&Entry| entry.scope == *scope && entry.body == Body::Here;
        self.waiting.iter().filter(bodies).count() >= self.setup.bodies_per_group_max
    }
}

fn size(stored: &Stored) -> Budget {
    Budget::new(1, stored.record.size_bytes() as u64)
}

impl GroupExecutor for Naive {
    fn assign(&mut self, claim: Claim, progress: &Progress, _now: Instant) {
        if let Some(own) = self.claims.get(&claim.partition) {
            self.forget(own.claim);
        }
        let own = Own {
            claim,
            draining: false,
            fetch: progress.next,
            before: progress.clone(),
            finished: BTreeSet::new(),
            committed: progress.clone(),
            window: Budget::ZERO,
            delivered: Budget::ZERO,
        };
        self.claims.insert(claim.partition, own);
    }

    fn admit(&mut self, claim: Claim, chunk: Chunk, now: Instant) {
        let bug = self.bug;
        for stored in chunk.records {
            let asked = |entry: &&mut Entry| {
                entry.claim == claim
                    && entry.stored.offset == stored.offset
                    && entry.body == Body::AskedFor
            };
            if let Some(entry) = self.waiting.iter_mut().find(asked) {
                (entry.stored, entry.body) = (stored, Body::Here);
                continue;
            }
            let Some(own) = self.own(claim).filter(|own| !own.draining) else { continue };
            if stored.offset < own.fetch {
                continue;
            }
            own.delivered = own.delivered.plus(size(&stored));
            if own.before.covers(stored.offset) && bug != Bug::RunsFinishedRecordsAgain {
                continue;
            }
            let (claim, scope) = (own.claim, self.scope(claim, &stored.record));
            let (mut stored, mut body) = (stored, Body::Here);
            if self.drop_body(&scope) {
                let key = stored.record.key().cloned();
                stored.record = Record::from_parts(key, None, Headers::default(), None);
                body = Body::Dropped;
            }
            let (attempts, not_before, since) = (0, None, now);
            self.waiting.push(Entry { claim, scope, stored, body, attempts, not_before, since });
        }
        if let Some(own) = self.own(claim)
            && (!own.draining || bug == Bug::DrainsSkipLateRecords)
        {
            own.fetch = own.fetch.max(chunk.next);
        }
    }

    fn next(&mut self, now: Instant) -> Next {
        let at = match self.first(now) {
            Ok(at) => at,
            Err(until) => return Next::Idle { until },
        };
        let entry = &mut self.waiting[at];
        let (claim, scope) = (entry.claim, entry.scope.clone());
        if entry.body == Body::Dropped {
            entry.body = Body::AskedFor;
            return Next::Load { claim, offset: entry.stored.offset };
        }
        entry.not_before = None;
        let attempt = NonZeroU32::MIN.saturating_add(entry.attempts);
        let mixes = self.bug == Bug::TurnsMixGroups;
        // Those behind the head in its lane, up to the first of another group.
        let of_lane = self.waiting[at..]
            .iter()
            .filter(|entry| mixes || self.share_a_lane(&entry.scope, &scope));
        let records: Vec<_> = of_lane
            .take_while(|entry| (mixes || entry.scope == scope) && entry.body == Body::Here)
            .take(self.turn_max)
            .map(|entry| entry.stored.clone())
            .collect();
        self.turns += 1;
        let id = match self.bug {
            Bug::ReusesTurnIds => TurnId { index: self.open.len() as u32, generation: 0 },
            _ => TurnId { index: 0, generation: self.turns },
        };
        let offsets = records.iter().map(|stored| stored.offset).collect();
        let held = self.holds.contains_key(&scope) && self.bug != Bug::IgnoresHolds;
        self.open.push(Open { id, claim, scope, offsets, zombie: false });
        let turn = Turn::new(id, claim, attempt, records.into_iter().collect());
        if held { Next::Divert(turn) } else { Next::Run(turn) }
    }

    fn complete(&mut self, id: TurnId, verdict: Verdict, now: Instant) -> Completed {
        let Some(at) = self.open.iter().position(|open| open.id == id) else {
            return Completed::default();
        };
        let Open { claim, scope, offsets, zombie, .. } = self.open.remove(at);
        let bug = self.bug;
        let mut completed = Completed::default();
        let counts = !zombie || bug == Bug::CountsLateVerdicts;
        if counts && let Some(own) = self.claims.get_mut(&claim.partition) {
            let terminal = match bug {
                Bug::CompletesWhatFailed => offsets.len(),
                Bug::PartialVerdictsLoseTheRest if verdict.terminal > 0 => offsets.len(),
                Bug::PartialVerdictsRepeatAll if verdict.terminal < offsets.len() as u32 => 0,
                _ => verdict.terminal as usize,
            };
            let (terminal, rest) = offsets.split_at(terminal);
            own.finished.extend(terminal);
            completed.progressed = !terminal.is_empty();
            let is_of = |entry: &Entry, offsets: &[Offset]| {
                entry.claim.partition == claim.partition && offsets.contains(&entry.stored.offset)
            };
            self.waiting.retain(|entry| !is_of(entry, terminal));
            for entry in self.waiting.iter_mut().filter(|entry| is_of(entry, rest)) {
                entry.since = now;
                match verdict.rest {
                    Rest::Again { at, counted } => {
                        entry.not_before = (entry.stored.offset == rest[0]).then_some(at);
                        entry.attempts += u32::from(counted || bug == Bug::CountsReleases);
                    }
                    Rest::Nothing => entry.not_before = None,
                    _ => drop(self.holds.insert(scope.clone(), Hold::Blocked)),
                }
            }
            let left = self.open.iter().any(|open| open.claim == claim);
            completed.drained = (own.draining && !left && !zombie).then_some(claim);
        }
        completed.runnable = self.first(now).is_ok();
        completed
    }

    fn gone(&mut self, claim: Claim, offset: Offset, now: Instant) -> Completed {
        let any = self.bug == Bug::PassesOverWhatIsNotLoaded;
        let (before, bug) = (self.waiting.len(), self.bug);
        let Some(own) = self.own(claim).filter(|own| !own.draining) else {
            return Completed::default();
        };
        let claim = own.claim;
        if bug != Bug::IgnoresWhatIsGone {
            self.waiting.retain(|entry| {
                let asked = entry.body == Body::AskedFor || any;
                !(entry.claim == claim && entry.stored.offset == offset && asked)
            });
        }
        if self.waiting.len() == before {
            return Completed::default();
        }
        let finished = self.own(claim).map(|own| own.finished.insert(offset));
        assert!(finished.is_some(), "it was there a moment ago");
        Completed { runnable: self.first(now).is_ok(), progressed: true, drained: None }
    }

    fn hold(&mut self, scope: &Scope, how: Option<Hold>) {
        match how {
            Some(hold) => drop(self.holds.insert(scope.clone(), hold)),
            None => drop(self.holds.remove(scope)),
        }
    }

    fn revoke(&mut self, claim: Claim, how: Revoke) -> usize {
        let Some(own) = self.own(claim) else { return 0 };
        let claim = own.claim;
        if how == Revoke::Fence {
            return self.forget(claim);
        }
        own.draining = true;
        self.open.iter().filter(|open| open.claim == claim).count()
    }

    fn progress(&mut self, claim: Claim) -> Option<Progress> {
        self.own(claim)?;
        let own = &self.claims[&claim.partition];
        let progress = self.snapshot(own);
        let always = self.bug == Bug::ForgetsWhatWasCommitted;
        (progress != own.committed || always).then_some(progress)
    }

    fn committed(&mut self, claim: Claim, progress: &Progress) {
        if let Some(own) = self.own(claim) {
            own.committed = progress.clone();
        }
    }

    fn credit(&mut self) -> Option<(Claim, Budget)> {
        let held = self.held();
        let (count, bug, budget) = (self.claims.len() as u64, self.bug, self.setup.budget);
        let promised = self
            .claims
            .values()
            .fold(Budget::ZERO, |sum, own| sum.plus(own.window.minus(own.delivered)));
        let free = budget.minus(held).minus(promised);
        for own in self.claims.values_mut() {
            let holds_any = self.waiting.iter().any(|entry| entry.claim == own.claim);
            let least = u64::from(!holds_any);
            let mut room =
                Budget::new((free.records / count).max(least), (free.bytes / count).max(least));
            if bug == Bug::BoundsNothing {
                room = Budget::new(1_000, 1_000_000);
            }
            if own.window.minus(own.delivered).is_spent() && !room.is_spent() {
                let window = own.delivered.plus(room);
                own.window.records = own.window.records.max(window.records);
                own.window.bytes = own.window.bytes.max(window.bytes);
                return Some((own.claim, own.window));
            }
        }
        None
    }

    fn explain(&self, scope: &Scope) -> Option<Explain> {
        let of_group = |entry: &&Entry| entry.scope == *scope;
        let head = self.waiting.iter().find(of_group)?;
        let open = self.open.iter().find(|open| open.scope == *scope);
        let (state, running) = match (open, self.holds.get(scope), head.not_before) {
            (Some(open), _, _) if open.zombie => (GroupState::Shut, 0),
            (Some(_), _, _) => (GroupState::Running, 1),
            (None, Some(hold), _) => (GroupState::Held(*hold), 0),
            (None, None, _) if head.body != Body::Here => (GroupState::Loading, 0),
            (None, None, Some(until)) => (GroupState::BackingOff { until }, 0),
            (None, None, None) => (GroupState::Ready, 0),
        };
        let records = self.waiting.iter().filter(of_group).count();
        let attempts = head.attempts + running;
        Some(Explain::new(head.claim, head.stored.offset, state, head.since, attempts, records))
    }

    fn load(&self) -> Load {
        let waiting = self.waiting.iter().map(|entry| &entry.scope);
        let scopes: BTreeSet<_> = waiting.chain(self.open.iter().map(|open| &open.scope)).collect();
        Load { groups: scopes.len(), open: self.open.len(), held: self.held() }
    }
}
