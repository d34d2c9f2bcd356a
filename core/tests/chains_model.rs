//! Goal: `Chains` does what a naive model does, whatever happens. Method: random steps on both,
//! and every answer compared. The model keeps a plain list of records per scope and looks through
//! all of them at every question; it shares no code with the executor. The declared order, the records
//! of a turn, lingering and the interval are random, too.
//!
//! `PROCESSION_STEPS` sets the number of steps (50,000 by default), `PROCESSION_SEED` the first seed.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use procession_core::{
    AbsentKey, Budget, Chains, ChainsOptions, Chunk, Claim, Completed, Epoch, GroupExecutor,
    GroupKey, GroupState, Headers, Hold, Load, LogId, Next, Offset, Order, Partition, PartitionId,
    Progress, Record, Rest, Revoke, RoutingEpoch, Scope, Sequence, Stored, Timestamp, Turn, TurnId,
    Verdict,
};

const PARTITIONS: usize = 3;
const BODIES_MAX: usize = 3;
const STEPS_PER_SEED: u64 = 1_000;

#[test]
fn agrees_with_the_model() {
    let number =
        |name, default| std::env::var(name).map_or(default, |value: String| value.parse().unwrap());
    let (steps, first) = (number("PROCESSION_STEPS", 50_000_u64), number("PROCESSION_SEED", 0));
    for seed in first..first + steps.div_ceil(STEPS_PER_SEED) {
        let mut world = World::new(seed);
        for step in 0..STEPS_PER_SEED {
            world.at = format!("PROCESSION_SEED={seed} step {step}");
            world.step();
        }
        world.come_to_rest();
    }
}

/// A scope: a key, or one record without a key where those are spread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Name {
    Key(usize, Option<Vec<u8>>),
    Loose(usize, u64),
}

impl Name {
    fn partition(&self) -> usize {
        let (Self::Key(p, _) | Self::Loose(p, _)) = self;
        *p
    }
}

#[derive(Default)]
struct Group {
    waiting: Vec<Waiting>,
    running: Option<TurnId>,
    zombie: Option<Zombie>,
    loading: bool,
    not_before: Option<Instant>,
    hold: Option<Hold>,
    /// Since when its head was the head with nothing open.
    since: Option<Instant>,
    /// The head does not linger.
    eager: bool,
}

impl Group {
    /// Another record is the head, and no turn is open.
    fn begins(&mut self, now: Instant) {
        self.since = Some(now);
        self.eager = self.is_diverted();
    }

    fn is_diverted(&self) -> bool {
        matches!(self.hold, Some(Hold::Parked | Hold::Cascading))
    }
}

struct Waiting {
    offset: u64,
    attempts: u32,
    body: bool,
}

struct Zombie {
    id: TurnId,
    claim: Claim,
    offset: u64,
    attempt: u32,
    records: usize,
}

struct Owned {
    claim: Claim,
    start: Progress,
    /// How many records of the log were read, and where reading goes on.
    read: usize,
    fetch: u64,
    /// Finished under this claim.
    done: BTreeSet<u64>,
    dropped: BTreeSet<u64>,
    draining: bool,
    delivered: Budget,
    allowed: Budget,
    committed: usize,
}

struct World {
    at: String,
    rng: fastrand::Rng,
    chains: Chains,
    spread: bool,
    order: Order,
    turn_max: usize,
    linger: Duration,
    interval: Duration,
    rereadable: bool,
    budget: Budget,
    now: Instant,
    /// The last moment that the executor was told.
    told: Instant,
    logs: Vec<Vec<Stored>>,
    durable: Vec<Progress>,
    epochs: Vec<u64>,
    owned: Vec<Option<Owned>>,
    groups: BTreeMap<Name, Group>,
    /// When the next turn of a scope may begin, for the sake of its interval.
    free_at: BTreeMap<Name, Instant>,
    open: BTreeMap<TurnId, (Name, Turn)>,
    ended: Vec<TurnId>,
    loads: Vec<(Claim, u64)>,
    snapshots: Vec<(Claim, Progress, usize)>,
}

fn partition(p: usize) -> PartitionId {
    PartitionId::new(LogId::new(p as u32 % 2), Partition::new(p as u32))
}

fn index(claim: Claim) -> usize {
    claim.partition.partition.get() as usize
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (spread, rereadable) = (rng.bool(), rng.bool());
        let budget = Budget::new(rng.u64(1..200), rng.u64(100..4_000));
        let order = *rng
            .choice(&[Order::PerGroup, Order::PerGroup, Order::PerPartition, Order::Unordered])
            .unwrap();
        let turn_max = if rng.bool() { 1 } else { rng.usize(2..6) };
        let mut some = |max| if rng.bool() { 0 } else { rng.u64(1..max) };
        let [linger, interval] = [some(30), some(60)].map(Duration::from_millis);
        let now = Instant::now();
        let options = ChainsOptions::new()
            .order(order)
            .batch(turn_max as u32, linger)
            .group_interval(interval)
            .budget(budget)
            .bodies_max(BODIES_MAX as u32)
            .rereadable(rereadable)
            .absent_key(if spread { AbsentKey::Spread } else { AbsentKey::Serial })
            .seed((seed, 1));
        Self {
            at: String::new(),
            chains: Chains::new(options),
            spread,
            order,
            turn_max,
            linger,
            interval,
            rereadable,
            budget,
            now,
            told: now,
            logs: vec![Vec::new(); PARTITIONS],
            durable: (0..PARTITIONS).map(|_| Progress::at(Offset::new(rng.u64(0..9)))).collect(),
            epochs: vec![0; PARTITIONS],
            owned: (0..PARTITIONS).map(|_| None).collect(),
            groups: BTreeMap::new(),
            free_at: BTreeMap::new(),
            open: BTreeMap::new(),
            ended: Vec::new(),
            loads: Vec::new(),
            snapshots: Vec::new(),
            rng,
        }
    }

    fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..2 => self.assign(),
            2..3 => self.revoke(),
            3..6 => self.hold(),
            6..18 => self.admit(),
            18..50 => self.next(),
            50..78 => self.complete(),
            78..84 => self.answer_load(),
            84..90 => self.now += Duration::from_millis(self.rng.u64(0..40)),
            90..94 => self.progress(),
            94..96 => self.committed(),
            96..98 => self.credit(),
            _ => self.stale(),
        }
        self.check();
    }

    fn assign(&mut self) {
        let p = self.rng.usize(0..PARTITIONS);
        // The executor is told the time before it fences the old claim.
        self.told = self.now;
        if self.owned[p].is_some() {
            self.let_go(p, false);
        }
        self.epochs[p] += self.rng.u64(1..3);
        let claim = Claim { partition: partition(p), epoch: Epoch::new(self.epochs[p]).unwrap() };
        let start = self.durable[p].clone();
        self.chains.assign(claim, &start, self.now);
        let fetch = start.next.get();
        while self.logs[p].last().is_none_or(|last| last.offset < start.next) {
            self.grow_log(p);
        }
        self.owned[p] = Some(Owned {
            claim,
            read: self.logs[p].partition_point(|stored| stored.offset < start.next),
            start,
            fetch,
            done: BTreeSet::new(),
            dropped: BTreeSet::new(),
            draining: false,
            delivered: Budget::ZERO,
            allowed: Budget::ZERO,
            committed: 0,
        });
    }

    fn revoke(&mut self) {
        let p = self.rng.usize(0..PARTITIONS);
        let Some(owned) = &self.owned[p] else { return };
        let (claim, draining) = (owned.claim, owned.draining);
        let drain = self.rng.bool();
        let how = if drain { Revoke::Drain } else { Revoke::Fence };
        let open = self.chains.revoke(claim, how);
        let expected = self.open.values().filter(|(_, turn)| turn.claim() == claim).count();
        assert_eq!(open, expected, "{}", self.at);
        if !(drain && draining) {
            self.let_go(p, drain);
        }
    }

    /// What a drain or a fence does to the model.
    fn let_go(&mut self, p: usize, drain: bool) {
        let owned = self.owned[p].as_mut().unwrap();
        for (name, group) in self.groups.iter_mut().filter(|(name, _)| name.partition() == p) {
            group.loading = false;
            // Of a group in back-off, only that its last turn began before now is known.
            if let Some(at) = group.not_before.take()
                && let Some(free) = self.free_at.get_mut(name)
                && at >= *free
                && at > self.told
            {
                *free = at.min(self.told + self.interval);
            }
            let running = group.running.map_or(0, |id| self.open[&id].1.records().len());
            if drain {
                owned.dropped.extend(group.waiting.drain(running..).map(|w| w.offset));
                continue;
            }
            if let Some(id) = group.running.take() {
                let head = &group.waiting[0];
                let (offset, attempt) = (head.offset, head.attempts + 1);
                let claim = owned.claim;
                group.zombie = Some(Zombie { id, claim, offset, attempt, records: running });
            }
            group.waiting.clear();
        }
        if drain {
            owned.draining = true;
        } else {
            self.owned[p] = None;
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        self.groups.retain(|name, group| {
            let busy = !group.waiting.is_empty() || group.zombie.is_some();
            busy || (group.hold.is_some() && matches!(name, Name::Key(..)))
        });
        let groups = &self.groups;
        let lasts = |name: &Name| matches!(name, Name::Key(..)) || groups.contains_key(name);
        self.free_at.retain(|name, _| lasts(name));
    }

    fn hold(&mut self) {
        let p = self.rng.usize(0..PARTITIONS);
        let how = match self.rng.u8(0..8) {
            0 => Some(Hold::Blocked),
            1 => Some(Hold::Parked),
            2 => Some(Hold::Cascading),
            _ => None,
        };
        let key = self.random_key();
        self.set_hold(p, key, how);
    }

    fn set_hold(&mut self, p: usize, key: Option<GroupKey>, how: Option<Hold>) {
        self.chains.hold(&Scope { partition: partition(p), key: key.clone() }, how);
        if let Some(name) = self.lane(p, key.as_ref()) {
            let group = self.groups.entry(name).or_default();
            group.hold = how;
            group.eager |= group.is_diverted();
        } else if how.is_none() {
            let loose = |name: &Name| matches!(name, Name::Loose(of, _) if *of == p);
            self.groups.iter_mut().filter(|(name, _)| loose(name)).for_each(|(_, g)| g.hold = None);
        }
        self.tidy();
    }

    fn random_key(&mut self) -> Option<GroupKey> {
        let n = match self.rng.u8(0..10) {
            0 => return None,
            1..5 => self.rng.u32(0..2),
            _ => self.rng.u32(0..60),
        };
        Some(GroupKey::from(if n == 0 { String::new() } else { format!("k{n}") }))
    }

    fn grow_log(&mut self, p: usize) {
        let gap = if self.rng.bool() { 0 } else { self.rng.u64(0..5) };
        let from = self.logs[p].last().map_or(0, |last| last.offset.get() + 1);
        let payload = vec![p as u8; self.rng.usize(0..60)];
        let key = self.random_key();
        self.logs[p].push(Stored {
            offset: Offset::new(from + gap),
            sequence: self.rng.bool().then_some(Sequence::new(from)),
            log_time: Timestamp::from_millis(from as i64),
            routing: RoutingEpoch::new(1),
            record: Record::from_parts(key, Some(payload.into()), Headers::default(), None),
        });
    }

    /// The scope of a key; `None` where each record is its own.
    fn lane(&self, p: usize, key: Option<&GroupKey>) -> Option<Name> {
        match (self.order, key) {
            (Order::Unordered, _) => None,
            (Order::PerPartition, _) => Some(Name::Key(p, None)),
            (_, None) if self.spread => None,
            (_, key) => Some(Name::Key(p, key.map(|key| key.as_ref().to_vec()))),
        }
    }

    fn name(&self, p: usize, stored: &Stored) -> Name {
        let lane = self.lane(p, stored.record.key());
        lane.unwrap_or_else(|| Name::Loose(p, stored.offset.get()))
    }

    fn record(&self, p: usize, offset: u64) -> &Stored {
        let at = self.logs[p].binary_search_by_key(&offset, |stored| stored.offset.get());
        &self.logs[p][at.unwrap()]
    }

    /// A membership reads on, mostly within the credit that it was told.
    fn admit(&mut self) {
        let p = self.rng.usize(0..PARTITIONS);
        let Some((read, claim)) = self.owned[p].as_ref().map(|owned| (owned.read, owned.claim))
        else {
            return;
        };
        let overrun = self.rng.u8(0..20) == 0;
        let count = self.rng.usize(0..8);
        while self.logs[p].len() < read + count + 1 {
            self.grow_log(p);
        }
        let owned = self.owned[p].as_mut().unwrap();
        let left = owned.allowed.minus(owned.delivered);
        let mut given = Budget::ZERO;
        let mut records = Vec::new();
        for stored in &self.logs[p][read..read + count] {
            if !overrun && (given.records >= left.records || given.bytes >= left.bytes) {
                break;
            }
            given = given.plus(Budget::new(1, stored.record.size_bytes() as u64));
            records.push(stored.clone());
        }
        // Sometimes the gap that follows is known at once.
        let following = self.logs[p][read + records.len()].offset.get();
        let next = if self.rng.bool() {
            following.max(owned.fetch)
        } else {
            records.last().map_or(owned.fetch, |last| last.offset.get() + 1)
        };
        let chunk = Chunk {
            partition: partition(p).partition,
            records: records.clone(),
            next: Offset::new(next),
        };
        self.told = self.now;
        self.chains.admit(claim, chunk, self.now);
        if owned.draining {
            return;
        }
        owned.read += records.len();
        owned.fetch = next;
        owned.delivered = owned.delivered.plus(given);
        for stored in records {
            let owned = self.owned[p].as_mut().unwrap();
            if owned.start.covers(stored.offset) {
                continue;
            }
            let name = self.name(p, &stored);
            let group = self.groups.entry(name).or_default();
            let body = !self.rereadable || group.waiting.len() < BODIES_MAX;
            if group.waiting.is_empty() {
                group.begins(self.now);
            }
            group.waiting.push(Waiting { offset: stored.offset.get(), attempts: 0, body });
        }
    }

    fn answer_load(&mut self) {
        if self.loads.is_empty() {
            return;
        }
        let (claim, offset) = self.loads.swap_remove(self.rng.usize(0..self.loads.len()));
        let p = index(claim);
        let stored = self.record(p, offset).clone();
        let name = self.name(p, &stored);
        let live = self.owned[p].as_ref().is_some_and(|o| o.claim == claim && !o.draining);
        self.told = self.now;
        if self.rng.u8(0..4) == 0 {
            self.gone(claim, offset, live.then_some(&name));
            return;
        }
        let chunk = Chunk {
            partition: claim.partition.partition,
            next: stored.offset.after(),
            records: vec![stored],
        };
        self.chains.admit(claim, chunk, self.now);
        if live {
            let group = self.groups.get_mut(&name).unwrap();
            assert!(group.loading && group.waiting[0].offset == offset, "{}", self.at);
            group.loading = false;
            group.waiting[0].body = true;
        }
    }

    /// What was asked for is not in the log any more.
    fn gone(&mut self, claim: Claim, offset: u64, name: Option<&Name>) {
        let completed = self.chains.gone(claim, Offset::new(offset), self.now);
        let mut expected = Completed::default();
        if let Some(name) = name {
            let group = self.groups.get_mut(name).unwrap();
            assert!(group.loading && group.waiting[0].offset == offset, "{}", self.at);
            group.loading = false;
            group.waiting.remove(0);
            group.begins(self.now);
            self.owned[index(claim)].as_mut().unwrap().done.insert(offset);
            expected.progressed = true;
            expected.runnable = self.is_due(name);
            self.tidy();
        }
        assert_eq!(completed, expected, "{}", self.at);
    }

    /// The moments that the head of a group waits for, back-off and interval, then lingering;
    /// `None` if there is none, or it waits for something else.
    fn moments(&self, name: &Name) -> Option<(Option<Instant>, Option<Instant>)> {
        let group = &self.groups[name];
        let open = group.running.is_some() || group.zombie.is_some();
        let held = group.hold == Some(Hold::Blocked);
        if group.waiting.is_empty() || open || held || group.loading {
            return None;
        }
        let free = self.free_at.get(name).copied();
        let few = group.waiting.len() < self.turn_max && matches!(name, Name::Key(..));
        let lingers = few && !group.eager && !self.linger.is_zero();
        let end = lingers.then(|| group.since.max(free).unwrap() + self.linger);
        Some((group.not_before.max(free), end))
    }

    /// Whether the head of the group must be handed out now.
    fn is_due(&self, name: &Name) -> bool {
        self.moments(name).is_some_and(|(first, second)| first.max(second) <= Some(self.now))
    }

    fn next(&mut self) {
        self.told = self.now;
        match self.chains.next(self.now) {
            Next::Idle { until } => {
                for name in self.groups.keys() {
                    assert!(!self.is_due(name), "{name:?} could run: {}", self.at);
                }
                let waits = self.groups.keys().filter_map(|name| self.moments(name));
                let first = waits
                    .filter_map(|(first, second)| first.filter(|at| *at > self.now).or(second));
                assert_eq!(until, first.min(), "{}", self.at);
            }
            Next::Load { claim, offset } => {
                let p = index(claim);
                let owned = self.owned[p].as_ref().unwrap();
                assert!(owned.claim == claim && !owned.draining, "{}", self.at);
                let name = self.name(p, self.record(p, offset.get()));
                assert!(self.is_due(&name), "{name:?} may not load: {}", self.at);
                let group = self.groups.get_mut(&name).unwrap();
                assert_eq!((group.waiting[0].offset, group.waiting[0].body), (offset.get(), false));
                group.loading = true;
                self.loads.push((claim, offset.get()));
            }
            Next::Run(turn) => self.began(turn, false),
            Next::Divert(turn) => self.began(turn, true),
            other => panic!("{other:?}: {}", self.at),
        }
    }

    fn began(&mut self, turn: Turn, diverted: bool) {
        let at = &self.at;
        let p = index(turn.claim());
        let owned = self.owned[p].as_ref().unwrap();
        assert!(owned.claim == turn.claim() && !owned.draining, "a stale claim starts: {at}");
        let name = self.name(p, turn.record());
        assert!(self.is_due(&name), "{name:?} may not run: {at}");
        let group = &self.groups[&name];
        let head = &group.waiting[0];
        let few = diverted || matches!(name, Name::Loose(..));
        let bodies = group.waiting.iter().take_while(|waiting| waiting.body);
        let expected = bodies.take(if few { 1 } else { self.turn_max });
        let records = turn.records().iter().map(|stored| stored.offset.get());
        assert!(records.eq(expected.map(|waiting| waiting.offset)), "out of order: {at}");
        for stored in turn.records() {
            assert_eq!(stored, self.record(p, stored.offset.get()), "{at}");
        }
        assert_eq!(turn.attempt(), head.attempts + 1, "{at}");
        assert_eq!(diverted, group.hold.is_some(), "{at}");
        let group = self.groups.get_mut(&name).unwrap();
        group.running = Some(turn.id());
        group.not_before = None;
        if !self.interval.is_zero() {
            self.free_at.insert(name.clone(), self.now + self.interval);
        }
        assert!(!self.ended.contains(&turn.id()), "an id is used again: {at}");
        assert!(self.open.insert(turn.id(), (name, turn)).is_none(), "{at}");
    }

    fn complete(&mut self) {
        let Some(id) = self.rng.choice(self.open.keys()).copied() else { return };
        let records = self.open[&id].1.records().len() as u32;
        let terminal = self.rng.u32(0..records);
        let verdict = match self.rng.u8(0..12) {
            0 => Verdict { terminal, rest: Rest::Hold },
            1 => Verdict { terminal, rest: Rest::Nothing },
            2..4 => {
                let at = self.now + Duration::from_millis(self.rng.u64(0..60));
                Verdict { terminal, rest: Rest::Again { at, counted: self.rng.bool() } }
            }
            _ => Verdict::done(records),
        };
        self.end(id, verdict);
    }

    fn end(&mut self, id: TurnId, verdict: Verdict) {
        let (name, turn) = self.open.remove(&id).unwrap();
        self.ended.push(id);
        self.told = self.now;
        let completed = self.chains.complete(id, verdict, self.now);
        let records = turn.records().len();
        let group = self.groups.get_mut(&name).unwrap();
        let mut expected = Completed::default();
        if group.zombie.as_ref().is_some_and(|zombie| zombie.id == id) {
            group.zombie = None;
            group.begins(self.now);
        } else {
            assert_eq!(group.running.take(), Some(id), "{}", self.at);
            let owned = self.owned[name.partition()].as_mut().unwrap();
            let terminal = verdict.terminal as usize;
            owned.done.extend(group.waiting.drain(..terminal).map(|waiting| waiting.offset));
            expected.progressed = terminal > 0;
            if terminal < records {
                group.eager = true;
                let head = &mut group.waiting[0];
                match verdict.rest {
                    Rest::Again { at, counted } => {
                        head.attempts += u32::from(counted);
                        group.not_before = (at > self.now).then_some(at);
                    }
                    Rest::Nothing => {}
                    _ => {
                        head.attempts += 1;
                        group.hold = Some(Hold::Blocked);
                    }
                }
            } else {
                group.begins(self.now);
            }
            if owned.draining {
                owned.dropped.extend(group.waiting.drain(..).map(|waiting| waiting.offset));
                group.not_before = None;
            }
            let left = self.open.values().any(|(_, other)| other.claim() == turn.claim());
            expected.drained = (owned.draining && !left).then_some(turn.claim());
        }
        expected.runnable = self.is_due(&name);
        self.tidy();
        assert_eq!(completed, expected, "{}", self.at);
    }

    fn progress(&mut self) {
        let p = self.rng.usize(0..PARTITIONS);
        let Some(owned) = &self.owned[p] else { return };
        let Some(snapshot) = self.chains.progress(owned.claim) else {
            assert_eq!(owned.committed, owned.done.len(), "progress is kept back: {}", self.at);
            return;
        };
        match self.unfinished(p).first() {
            Some(lowest) => assert_eq!(snapshot.next.get(), *lowest, "{}", self.at),
            None => assert!(snapshot.next.get() >= owned.fetch, "{}", self.at),
        }
        for stored in &self.logs[p] {
            let offset = stored.offset;
            let done = owned.done.contains(&offset.get()) || owned.start.covers(offset);
            assert_eq!(snapshot.covers(offset), done, "offset {offset}: {}", self.at);
        }
        assert_eq!(Progress::from_bytes(&snapshot.to_bytes()).unwrap(), snapshot, "{}", self.at);
        self.snapshots.push((owned.claim, snapshot, owned.done.len()));
    }

    fn unfinished(&self, p: usize) -> BTreeSet<u64> {
        let groups = self.groups.iter().filter(|(name, _)| name.partition() == p);
        let waiting = groups.flat_map(|(_, group)| group.waiting.iter().map(|w| w.offset));
        waiting.chain(self.owned[p].as_ref().unwrap().dropped.iter().copied()).collect()
    }

    /// The store answers, in the order of the commits, perhaps for a claim that is gone.
    fn committed(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let (claim, snapshot, done) = self.snapshots.remove(0);
        // Late answers change nothing that can be seen but how often the same is told again.
        let last = !self.snapshots.iter().any(|(other, ..)| *other == claim);
        self.chains.committed(claim, &snapshot);
        let p = index(claim);
        if let Some(owned) = self.owned[p].as_mut().filter(|owned| owned.claim == claim) {
            self.durable[p] = snapshot.clone();
            owned.committed = owned.committed.max(done);
            if last {
                let again = self.chains.progress(claim);
                assert!(again.is_none_or(|again| again != snapshot), "told again: {}", self.at);
            }
        }
    }

    fn credit(&mut self) {
        let sharing = self.owned.iter().flatten().filter(|owned| !owned.draining).count() as u64;
        let share = |all: u64| (all / sharing.max(1)).max(1);
        let share = Budget::new(share(self.budget.records), share(self.budget.bytes));
        while let Some((claim, window)) = self.chains.credit() {
            let room = self.returned(index(claim)).plus(share);
            let owned = self.owned[index(claim)].as_mut().unwrap();
            assert!(owned.claim == claim && !owned.draining, "{}", self.at);
            let before = owned.allowed;
            assert!(window.records >= before.records && window.bytes >= before.bytes);
            assert_ne!(window, before, "nothing has moved: {}", self.at);
            assert!(window.records <= room.records.max(before.records), "{}", self.at);
            assert!(window.bytes <= room.bytes.max(before.bytes), "{}", self.at);
            owned.allowed = window;
        }
        // What has nothing to run has all the room there is for it.
        for p in 0..PARTITIONS {
            if self.owned[p].as_ref().is_none_or(|owned| owned.draining) {
                continue;
            }
            let mut groups = self.groups.iter().filter(|(name, _)| name.partition() == p);
            if !groups.any(|(name, _)| self.is_due(name)) {
                let (room, told) = (self.returned(p).plus(share), self.owned[p].as_ref().unwrap());
                assert!(told.allowed.records >= room.records, "{}", self.at);
                assert!(told.allowed.bytes >= room.bytes, "{}", self.at);
            }
        }
    }

    /// What was delivered of a partition and is in memory no longer.
    fn returned(&self, p: usize) -> Budget {
        let groups = self.groups.iter().filter(|(name, _)| name.partition() == p);
        let held = groups.flat_map(|(_, group)| &group.waiting).map(|waiting| {
            let bytes = self.record(p, waiting.offset).record.size_bytes() as u64;
            Budget::new(1, if waiting.body { bytes } else { 0 })
        });
        self.owned[p].as_ref().unwrap().delivered.minus(held.fold(Budget::ZERO, Budget::plus))
    }

    fn stale(&mut self) {
        if let Some(id) = self.rng.choice(&self.ended) {
            let completed = self.chains.complete(*id, Verdict::done(1), self.now);
            self.told = self.now;
            assert_eq!(completed, Completed::default(), "{}", self.at);
        }
        let p = self.rng.usize(0..PARTITIONS);
        let Some(epoch) = self.epochs[p].checked_sub(1).and_then(Epoch::new) else { return };
        let claim = Claim { partition: partition(p), epoch };
        if self.owned[p].as_ref().is_some_and(|owned| owned.claim == claim) {
            return;
        }
        self.told = self.now;
        if let Some(owned) = &self.owned[p] {
            // Nobody waits for this one.
            let offset = self.rng.u64(0..owned.fetch + 2);
            if !self.loads.contains(&(owned.claim, offset)) {
                self.gone(owned.claim, offset, None);
            }
        }
        let gone = self.chains.gone(claim, Offset::ZERO, self.now);
        assert_eq!(gone, Completed::default(), "{}", self.at);
        let far = Offset::new(1 << 40);
        let chunk = Chunk { partition: claim.partition.partition, records: vec![], next: far };
        self.chains.admit(claim, chunk, self.now);
        assert_eq!(self.chains.progress(claim), None, "{}", self.at);
        self.chains.committed(claim, &Progress::at(far));
        assert_eq!(self.chains.revoke(claim, Revoke::Fence), 0, "{}", self.at);
    }

    fn check(&mut self) {
        let mut expected = Load { open: self.open.len(), ..Load::default() };
        for (name, group) in &self.groups {
            let busy = !group.waiting.is_empty() || group.zombie.is_some();
            expected.groups += usize::from(busy);
            for waiting in &group.waiting {
                let stored = self.record(name.partition(), waiting.offset);
                let bytes = if waiting.body { stored.record.size_bytes() } else { 0 };
                expected.held = expected.held.plus(Budget::new(1, bytes as u64));
            }
        }
        assert_eq!(self.chains.load(), expected, "{}", self.at);
        let Some(name) = self.rng.choice(self.groups.keys()).cloned() else { return };
        let (p, key) = match &name {
            Name::Loose(..) => return,
            // Any key names it.
            Name::Key(p, None) if self.order == Order::PerPartition => (*p, self.random_key()),
            Name::Key(p, key) => (*p, key.clone().map(GroupKey::from)),
        };
        let scope = Scope { partition: partition(p), key };
        let explain = self.chains.explain(&scope);
        let group = &self.groups[&name];
        let Some(head) = group.waiting.first() else {
            let zombie = group.zombie.as_ref().map(|z| (z.claim, z.offset, z.attempt, z.records));
            let told = explain.map(|e| (e.claim, e.head.get(), e.attempts, e.records));
            assert_eq!(told, zombie, "{}", self.at);
            return;
        };
        let explain = explain.unwrap();
        let running = group.running.is_some();
        let expected = (head.offset, head.attempts + u32::from(running), group.waiting.len());
        let told = (explain.head.get(), explain.attempts, explain.records);
        assert_eq!(told, expected, "{}", self.at);
        assert_eq!(Some(explain.claim), self.owned[p].as_ref().map(|o| o.claim), "{}", self.at);
        let (first, second) = self.moments(&name).unwrap_or_default();
        let state = match (explain.state, group.hold) {
            _ if running => GroupState::Running,
            _ if group.zombie.is_some() => GroupState::Shut,
            (_, Some(hold)) => GroupState::Held(hold),
            _ if group.loading => GroupState::Loading,
            // Over, but nobody has asked what to do next.
            (
                GroupState::BackingOff { until }
                | GroupState::Paced { until }
                | GroupState::Lingering { until },
                None,
            ) if until <= self.now && (Some(until) == first || Some(until) == second) => {
                explain.state
            }
            _ => match (first, second) {
                (Some(until), _) if until > self.now && group.not_before == first => {
                    GroupState::BackingOff { until }
                }
                (Some(until), _) if until > self.now => GroupState::Paced { until },
                (_, Some(until)) if until > self.now => GroupState::Lingering { until },
                _ => GroupState::Ready,
            },
        };
        assert_eq!(explain.state, state, "{}", self.at);
        assert!(explain.since <= self.now, "{}", self.at);
    }

    /// Lets everything go and ends everything: nothing is left.
    fn come_to_rest(&mut self) {
        self.at.push_str(", coming to rest");
        let held: Vec<Name> = self.groups.keys().cloned().collect();
        for name in held {
            match name {
                Name::Key(p, key) => self.set_hold(p, key.map(GroupKey::from), None),
                Name::Loose(p, _) => self.set_hold(p, None, None),
            }
        }
        self.now += Duration::from_secs(3_600);
        loop {
            self.now += Duration::from_secs(1);
            self.next();
            self.answer_load();
            if let Some(id) = self.open.keys().next().copied() {
                let records = self.open[&id].1.records().len() as u32;
                self.end(id, Verdict::done(records));
            } else if self.loads.is_empty() && self.groups.is_empty() {
                break;
            }
        }
        self.check();
        assert_eq!(self.chains.load(), Load::default(), "{}", self.at);
        self.credit();
        for p in 0..PARTITIONS {
            let Some(owned) = self.owned[p].as_ref() else { continue };
            if !owned.draining {
                assert!(self.unfinished(p).is_empty(), "{}", self.at);
            }
            assert_eq!(self.chains.revoke(owned.claim, Revoke::Fence), 0, "{}", self.at);
        }
        assert_eq!(self.chains.load(), Load::default(), "{}", self.at);
    }
}
