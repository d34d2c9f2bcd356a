//! The naive model: lists of records, no cleverness. It does not say what an executor must do next,
//! only whether what it did was right.

mod answers;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use procession_core::{
    Budget, Claim, Completed, Hold, Offset, PartitionId, Progress, Rest, Scope, Stored, Turn,
    TurnId, Verdict,
};

use super::driver::size;

/// Everything that was handed to an executor, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) partitions: BTreeMap<PartitionId, Lane>,
    pub(super) open: BTreeMap<TurnId, OpenTurn>,
    pub(super) holds: HashMap<Scope, Hold>,
    /// When a head may run again, and when it must at the latest.
    back_offs: HashMap<Scope, BackOff>,
    /// Loads that were asked for and not answered.
    pub(super) loads: BTreeSet<(Claim, Offset)>,
    /// Whether groups never wait for each other.
    pub(super) strict: bool,
}

/// One partition: its log, and the claim that reads it.
#[derive(Debug)]
pub(super) struct Lane {
    /// Records at or above the durable progress.
    pub(super) log: VecDeque<Stored>,
    /// What survives a crash.
    pub(super) durable: Progress,
    pub(super) epoch: u64,
    pub(super) live: Option<Live>,
}

/// A claim that reads.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) claim: Claim,
    pub(super) draining: bool,
    pub(super) next: Offset,
    pub(super) window: Budget,
    pub(super) delivered: Budget,
    /// Admitted and not terminal, in order.
    pub(super) waiting: BTreeMap<Offset, Stored>,
    /// Terminal since the claim began.
    terminal: BTreeSet<Offset>,
    /// Something became terminal, or a position moved, since the last commit.
    pub(super) uncommitted: bool,
    moved: bool,
    attempts: HashMap<Offset, Attempts>,
}

#[derive(Debug)]
pub(super) struct OpenTurn {
    pub(super) turn: Turn,
    pub(super) scope: Scope,
    pub(super) zombie: bool,
}

#[derive(Clone, Copy, Debug)]
struct BackOff {
    not_before: Instant,
    at_last: Instant,
}

/// Which attempts are right for the next turn of a head.
#[derive(Clone, Copy, Debug)]
struct Attempts {
    low: u32,
    high: u32,
}

pub(super) type Verified = Result<(), String>;

/// Returns the message as an error unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
use ensure;

impl Live {
    pub(super) fn new(claim: Claim, from: Offset) -> Self {
        Self {
            claim,
            draining: false,
            next: from,
            window: Budget::ZERO,
            delivered: Budget::ZERO,
            waiting: BTreeMap::new(),
            terminal: BTreeSet::new(),
            uncommitted: false,
            moved: false,
            attempts: HashMap::new(),
        }
    }

    fn of<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a Stored> {
        self.waiting.values().filter(|stored| stored.record.key() == scope.key.as_ref())
    }
}

pub(super) fn scope_of(claim: Claim, stored: &Stored) -> Scope {
    Scope { partition: claim.partition, key: stored.record.key().cloned() }
}

impl Model {
    pub(super) fn new(partitions: BTreeMap<PartitionId, Lane>, strict: bool) -> Self {
        Self { partitions, strict, ..Self::default() }
    }

    pub(super) fn live(&self, claim: Claim) -> Option<&Live> {
        self.partitions.get(&claim.partition)?.live.as_ref().filter(|live| live.claim == claim)
    }

    fn live_mut(&mut self, claim: Claim) -> Option<&mut Live> {
        let lane = self.partitions.get_mut(&claim.partition)?;
        lane.live.as_mut().filter(|live| live.claim == claim)
    }

    /// The claim of a partition is gone, and its open turns are zombies.
    pub(super) fn fence(&mut self, partition: PartitionId) {
        if let Some(lane) = self.partitions.get_mut(&partition)
            && let Some(live) = lane.live.take()
        {
            for open in self.open.values_mut().filter(|open| open.turn.claim() == live.claim) {
                open.zombie = true;
            }
            self.loads.retain(|(claim, _)| *claim != live.claim);
        }
        self.back_offs.retain(|scope, _| scope.partition != partition);
    }

    /// The records that an executor takes in: it drops what is finished, and all of a draining or
    /// stale claim.
    pub(super) fn admitted(&mut self, claim: Claim, records: &[Stored], next: Offset) {
        let durable = self.partitions[&claim.partition].durable.clone();
        let Some(live) = self.live_mut(claim) else { return };
        for stored in records {
            live.delivered = live.delivered.plus(size(stored));
        }
        live.next = next;
        if live.draining {
            return;
        }
        live.moved = true;
        let new = records.iter().filter(|stored| !durable.covers(stored.offset));
        live.waiting.extend(new.map(|stored| (stored.offset, stored.clone())));
    }

    /// Verifies a turn that was handed out, and opens it.
    pub(super) fn started(&mut self, turn: Turn, divert: bool, now: Instant) -> Verified {
        let claim = turn.claim();
        ensure!(!turn.records().is_empty(), "a turn without records");
        let scope = scope_of(claim, turn.record());
        let Some(live) = self.live(claim) else {
            return Err(format!("{claim} is not owned any more, yet a turn of it starts"));
        };
        ensure!(!live.draining, "{claim} is draining, yet a turn of it starts");
        let overlapping = self.open.values().find(|open| open.scope == scope);
        ensure!(
            overlapping.is_none(),
            "two turns of {scope} at once; open already: {:?}",
            overlapping.map(|open| &open.turn)
        );
        ensure!(!self.open.contains_key(&turn.id()), "{:?} names two open turns", turn.id());
        match self.holds.get(&scope) {
            Some(Hold::Blocked) => return Err(format!("{scope} is blocked, yet its head starts")),
            hold => ensure!(
                divert == hold.is_some(),
                "{scope} is held as {hold:?}: its head is to be {}",
                if divert { "run, not moved" } else { "moved, not run" }
            ),
        }
        if let Some(back_off) = self.back_offs.get(&scope) {
            ensure!(
                divert || now >= back_off.not_before,
                "{scope} starts {:?} before its back-off ends",
                back_off.not_before - now
            );
        }
        let head: Vec<_> = live.of(&scope).take(turn.records().len()).collect();
        ensure!(
            head.iter().copied().eq(turn.records()),
            "the turn of {scope} has {:?}, the first unfinished records of the group are {:?}",
            turn.records(),
            head
        );
        let attempts = live.attempts.get(&turn.record().offset);
        let Attempts { low, high } = attempts.copied().unwrap_or(Attempts { low: 1, high: 1 });
        ensure!(
            (low..=high).contains(&turn.attempt()),
            "the turn at {} of {scope} says attempt {}, it is {low} (at most {high})",
            turn.record().offset,
            turn.attempt()
        );
        self.back_offs.remove(&scope);
        self.open.insert(turn.id(), OpenTurn { turn, scope, zombie: false });
        Ok(())
    }

    /// Verifies what a completion was said to have changed, and takes it in.
    pub(super) fn ended(
        &mut self,
        id: TurnId,
        verdict: Verdict,
        completed: Completed,
        now: Instant,
    ) -> Verified {
        let OpenTurn { turn, scope, zombie } = self.open.remove(&id).expect("an open turn");
        let claim = turn.claim();
        if zombie {
            ensure!(
                !completed.progressed && completed.drained.is_none(),
                "the verdict of a zombie of {claim} changed something: {completed:?}"
            );
            return Ok(());
        }
        let open = self.open.values().filter(|open| open.turn.claim() == claim).count();
        let live = self.live_mut(claim).expect("a turn that is no zombie has a live claim");
        let drained = (live.draining && open == 0).then_some(claim);
        ensure!(
            completed.drained == drained,
            "{open} turns of {claim} (draining: {}) are open, yet the completion says {completed:?}",
            live.draining
        );
        ensure!(
            completed.progressed == (verdict.terminal > 0),
            "{} records became terminal, yet the completion says {completed:?}",
            verdict.terminal
        );
        let (terminal, rest) = turn.records().split_at(verdict.terminal as usize);
        for stored in terminal {
            live.waiting.remove(&stored.offset);
            live.attempts.remove(&stored.offset);
            live.terminal.insert(stored.offset);
            live.uncommitted = true;
        }
        let Some(head) = rest.first() else { return Ok(()) };
        let attempt = turn.attempt();
        let (low, high) = match verdict.rest {
            // A new head was tried as a part of the turn, or not at all: both can be argued.
            _ if verdict.terminal > 0 => (1, attempt + 1),
            Rest::Again { counted: true, .. } => (attempt + 1, attempt + 1),
            Rest::Again { counted: false, .. } => (attempt, attempt),
            _ => (attempt, attempt + 1),
        };
        live.attempts.insert(head.offset, Attempts { low, high });
        for stored in &rest[1..] {
            let known = live.attempts.get(&stored.offset).map_or(1, |known| known.high);
            let high = known.max(attempt + 1);
            live.attempts.insert(stored.offset, Attempts { low: 1, high });
        }
        match verdict.rest {
            Rest::Again { at, .. } if at > now => {
                self.back_offs.insert(scope, BackOff { not_before: at, at_last: at });
            }
            Rest::Hold => drop(self.holds.insert(scope, Hold::Blocked)),
            _ => {}
        }
        Ok(())
    }

    /// A group is held or let go. Whether letting go cuts a back-off short is left open.
    pub(super) fn held(&mut self, scope: &Scope, how: Option<Hold>, now: Instant) {
        match how {
            Some(hold) => drop(self.holds.insert(scope.clone(), hold)),
            None => drop(self.holds.remove(scope)),
        }
        if let Some(back_off) = self.back_offs.get_mut(scope) {
            back_off.not_before = back_off.not_before.min(now);
        }
    }

    /// Verifies a load that is asked for.
    pub(super) fn asked(&mut self, claim: Claim, offset: Offset) -> Verified {
        let live = self.live(claim).filter(|live| live.waiting.contains_key(&offset));
        ensure!(live.is_some(), "a load of {offset} under {claim}, where it is not waiting");
        ensure!(self.loads.insert((claim, offset)), "{offset} is loaded twice at once");
        Ok(())
    }

    /// Verifies what a record that was asked for and is gone was said to have changed.
    pub(super) fn gone(&mut self, claim: Claim, offset: Offset, completed: Completed) -> Verified {
        self.loads.remove(&(claim, offset));
        let live = self.live_mut(claim).expect("loads of ended claims are forgotten");
        ensure!(
            completed.progressed && completed.drained.is_none(),
            "{offset} of {claim} is gone, which makes it terminal, yet that changed {completed:?}"
        );
        live.waiting.remove(&offset);
        live.attempts.remove(&offset);
        live.terminal.insert(offset);
        live.uncommitted = true;
        Ok(())
    }

    /// A snapshot is durable, and the executor was told.
    pub(super) fn committed(&mut self, claim: Claim, progress: Progress) {
        let lane = self.partitions.get_mut(&claim.partition).expect("a known partition");
        if let Some(live) = &mut lane.live {
            (live.uncommitted, live.moved) = (false, false);
            // What is below is covered by the durable progress.
            live.terminal = live.terminal.split_off(&progress.next);
        }
        lane.log.retain(|stored| stored.offset >= progress.next);
        lane.durable = progress;
    }

    /// The last moment at which a back-off ends.
    pub(super) fn last_back_off(&self) -> Option<Instant> {
        self.back_offs.values().map(|back_off| back_off.at_last).max()
    }
}
