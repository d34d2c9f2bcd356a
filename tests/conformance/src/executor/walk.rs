//! Random steps beside the model.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use procession_core::{
    Budget, Chunk, Claim, GroupExecutor, Hold, Load, Next, Offset, PartitionId, Progress, Rest,
    Revoke, Scope, TurnId, Verdict,
};

use super::driver::{claim, partition, record, scope, size};
use super::model::{Lane, Live, Model};
use super::{ExecutorSetup, Factory, Knob};
use crate::random::Random;

/// Random steps (chunks, turns, verdicts, holds, commits, drains, fences, returns, late and stale
/// answers) beside a naive model, which says of each whether it was right. From time to time
/// everything is let go, and must come to its end.
///
/// 20,000 steps by default; `PROCESSION_STEPS` asks for more. The seed is printed;
/// `PROCESSION_SEED` replays it.
///
/// # Panics
/// If the executor breaks the contract, with the last steps that led there.
pub fn agrees_with_the_model(factory: Factory<'_>) {
    let env = |name: &str| {
        std::env::var(name).ok().map(|value| {
            value
                .parse::<u64>()
                .unwrap_or_else(|_| panic!("{name} must be a number, not {value:?}"))
        })
    };
    let steps = env("PROCESSION_STEPS").unwrap_or(20_000);
    let seed = env("PROCESSION_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    eprintln!(
        "agrees_with_the_model: PROCESSION_SEED={seed} PROCESSION_STEPS={steps} replays this"
    );
    let mut random = Random::new(seed);
    let mut left = steps;
    while left > 0 {
        let run = left.min(2_000);
        Walk::new(factory, seed, random.next()).go(run);
        left -= run;
    }
}

const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

struct Walk {
    random: Random,
    executor: Box<dyn GroupExecutor>,
    model: Model,
    now: Instant,
    setup: ExecutorSetup,
    bounded: bool,
    trace: Trace,
    /// Ids of turns that have ended.
    ended: VecDeque<TurnId>,
    /// Nothing has happened since the executor was idle.
    was_idle: bool,
}

/// The last steps; printed when a check fails.
struct Trace {
    seed: u64,
    steps: VecDeque<String>,
}

impl Trace {
    fn add(&mut self, step: fmt::Arguments<'_>) {
        if self.steps.len() == 60 {
            self.steps.pop_front();
        }
        self.steps.push_back(step.to_string());
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last steps of PROCESSION_SEED={}:", self.seed);
            self.steps.iter().for_each(|step| eprintln!("    {step}"));
        }
    }
}

impl Walk {
    fn new(factory: Factory<'_>, seed: u64, own: u64) -> Self {
        let mut random = Random::new(own);
        let setup = ExecutorSetup {
            budget: Budget::new(4 + random.below(60), 200 + random.below(4_000)),
            bodies_per_group_max: 1 + random.below(12) as usize,
            seed: random.next(),
        };
        let subject = factory(setup);
        let strict = subject.has(Knob::LaneOfItsOwn);
        let lanes = [partition(0, 0), partition(0, 1), partition(1, 0)].map(|id| {
            let (log, durable) = (VecDeque::new(), Progress::default());
            (id, Lane { log, durable, epoch: 0, live: None })
        });
        Self {
            random,
            bounded: subject.has(Knob::Budget),
            executor: subject.executor,
            model: Model::new(BTreeMap::from(lanes), strict),
            now: Instant::now(),
            setup,
            trace: Trace { seed, steps: VecDeque::new() },
            ended: VecDeque::new(),
            was_idle: false,
        }
    }

    fn go(mut self, steps: u64) {
        for step in 0..steps {
            match self.random.below(100) {
                0..25 => self.deliver(),
                25..55 => drop(self.next()),
                55..75 => self.complete(),
                75..80 => self.pass(),
                80..83 => self.hold(),
                83..88 => self.commit(),
                88..91 => self.answer_a_load(),
                91..93 => self.assign(),
                93 => self.revoke(Revoke::Drain),
                94 => self.revoke(Revoke::Fence),
                95..97 => self.stale(),
                _ => self.explain(),
            }
            let load = self.executor.load();
            let verified = self.model.load(load);
            self.verify("load", verified);
            if step % 500 == 499 {
                self.settle();
            }
        }
        self.settle();
    }

    #[track_caller]
    fn verify(&self, what: &str, verified: Result<(), String>) {
        if let Err(broken) = verified {
            panic!("{what}: {broken} (PROCESSION_SEED={})", self.trace.seed);
        }
    }

    fn some_partition(&mut self) -> PartitionId {
        [partition(0, 0), partition(0, 1), partition(1, 0)][self.random.below(3) as usize]
    }

    fn some_claim(&mut self) -> Option<Claim> {
        let partition = self.some_partition();
        self.model.partitions[&partition].live.as_ref().map(|live| live.claim)
    }

    fn some_scope(&mut self) -> Scope {
        let key = KEYS[self.random.below(8) as usize];
        scope(self.some_partition(), key)
    }

    fn take_credit(&mut self) {
        for _ in 0..1_000 {
            let Some((claim, window)) = self.executor.credit() else { return };
            self.trace.add(format_args!("credit {claim} {window:?}"));
            let lane = self.model.partitions.get_mut(&claim.partition);
            let live = lane.and_then(|lane| lane.live.as_mut()).filter(|live| live.claim == claim);
            let Some(live) = live else { continue };
            assert!(
                window.records >= live.window.records && window.bytes >= live.window.bytes,
                "the window of {claim} fell from {:?} to {window:?}: totals only grow \
                 (PROCESSION_SEED={})",
                live.window,
                self.trace.seed
            );
            live.window = window;
        }
        panic!("`credit` answers for ever (PROCESSION_SEED={})", self.trace.seed);
    }

    /// Reads up to four records, as far as the window allows, and a gap behind them.
    fn deliver(&mut self) {
        self.take_credit();
        let Some(claim) = self.some_claim() else { return };
        let count = self.random.below(5);
        let lane = self.model.partitions.get_mut(&claim.partition).expect("a known partition");
        let live = lane.live.as_ref().expect("a live claim");
        let mut room = live.window.minus(live.delivered);
        let mut next = live.next;
        let mut records = Vec::new();
        while (records.len() as u64) < count && !room.is_spent() {
            // Skewed: the first keys are hot.
            let key = KEYS[(self.random.below(8) * self.random.below(8) / 8) as usize];
            let known = lane.log.iter().find(|stored| stored.offset >= next).cloned();
            let stored = known.unwrap_or_else(|| {
                let offset =
                    next.get() + if self.random.once_in(5) { self.random.below(9) } else { 0 };
                let stored = record(offset, key, self.random.below(80) as usize);
                lane.log.push_back(stored.clone());
                stored
            });
            if !records.is_empty() && size(&stored).bytes > room.bytes {
                break;
            }
            room = room.minus(size(&stored));
            next = stored.offset.after();
            records.push(stored);
        }
        let known = lane.log.iter().find(|stored| stored.offset >= next).map(|s| s.offset);
        if self.random.once_in(6) {
            next = known.unwrap_or_else(|| Offset::new(next.get() + self.random.below(5)));
        }
        self.admit(claim, records, next);
    }

    fn admit(&mut self, claim: Claim, records: Vec<procession_core::Stored>, next: Offset) {
        let offsets: Vec<_> = records.iter().map(|stored| stored.offset.get()).collect();
        self.trace.add(format_args!("admit {claim} {offsets:?}, next {next}"));
        self.was_idle = false;
        self.model.admitted(claim, &records, next);
        let chunk = Chunk { partition: claim.partition.partition, records, next };
        self.executor.admit(claim, chunk, self.now);
        let Load { held, .. } = self.executor.load();
        // Twice: what one claim was promised before another came is still on its way, or held. And
        // a first record per partition is always given.
        let most = |budget: u64, record: u64| 2 * budget + 3 * record;
        let Budget { records, bytes } = self.setup.budget;
        assert!(
            !self.bounded || held.records <= most(records, 1) && held.bytes <= most(bytes, 81),
            "{held:?} is held, the budget is {:?} (PROCESSION_SEED={})",
            self.setup.budget,
            self.trace.seed
        );
    }

    /// One `next`; whether it was anything but idle.
    fn next(&mut self) -> bool {
        let next = self.executor.next(self.now);
        match next {
            Next::Run(turn) => self.started(turn, false),
            Next::Divert(turn) => self.started(turn, true),
            Next::Load { claim, offset } => {
                self.trace.add(format_args!("load {claim} {offset}"));
                let verified = self.model.asked(claim, offset);
                self.verify("next", verified);
            }
            Next::Commit(claim) => {
                self.trace.add(format_args!("commit is asked for, {claim}"));
                self.commit_of(claim, true);
            }
            Next::Idle { until } => {
                self.trace
                    .add(format_args!("idle until {:?}", until.map(|until| until - self.now)));
                self.verify("next", self.model.idle(until, self.now));
                self.was_idle = true;
                return false;
            }
            other => panic!("the suite does not know {other:?}"),
        }
        true
    }

    fn started(&mut self, turn: procession_core::Turn, divert: bool) {
        let offsets: Vec<_> = turn.records().iter().map(|stored| stored.offset.get()).collect();
        self.trace.add(format_args!(
            "{} {:?} {} {:?} {offsets:?}, attempt {}",
            if divert { "divert" } else { "run" },
            turn.id(),
            turn.claim(),
            turn.group(),
            turn.attempt()
        ));
        assert!(
            !self.was_idle,
            "a turn starts though nothing has happened since the executor was idle, or the \
             completion since then did not say `runnable` (PROCESSION_SEED={})",
            self.trace.seed
        );
        let verified = self.model.started(turn, divert, self.now);
        self.verify("next", verified);
    }

    fn complete(&mut self) {
        let open = self.model.open.len() as u64;
        if open > 0 {
            let nth = self.random.below(open) as usize;
            let id = *self.model.open.keys().nth(nth).expect("an open turn");
            let verdict = self.some_verdict(id);
            self.end(id, verdict);
        }
    }

    fn some_verdict(&mut self, id: TurnId) -> Verdict {
        let open = &self.model.open[&id];
        let (count, zombie) = (open.turn.records().len() as u32, open.zombie);
        let wait = Duration::from_millis(self.random.below(20));
        let counted = self.random.once_in(2);
        let at = if zombie { self.now } else { self.now + wait };
        let terminal = self.random.below(u64::from(count)) as u32;
        match self.random.below(20) {
            0..14 => Verdict::done(count),
            14..19 => Verdict { terminal, rest: Rest::Again { at, counted } },
            _ if zombie => Verdict::done(count),
            _ => Verdict { terminal, rest: Rest::Hold },
        }
    }

    fn end(&mut self, id: TurnId, verdict: Verdict) {
        let completed = self.executor.complete(id, verdict, self.now);
        self.trace.add(format_args!("complete {id:?} {verdict:?} -> {completed:?}"));
        self.was_idle &= !completed.runnable;
        let verified = self.model.ended(id, verdict, completed, self.now);
        self.verify("complete", verified);
        self.ended.push_back(id);
        if self.ended.len() > 20 {
            self.ended.pop_front();
        }
    }

    fn pass(&mut self) {
        self.now += Duration::from_millis(self.random.below(8));
        self.was_idle = false;
    }

    fn hold(&mut self) {
        let scope = self.some_scope();
        let how = match self.random.below(6) {
            0 => Some(Hold::Blocked),
            1 => Some(Hold::Parked),
            2 => Some(Hold::Cascading),
            _ => None,
        };
        self.hold_as(&scope, how);
    }

    fn hold_as(&mut self, scope: &Scope, how: Option<Hold>) {
        self.trace.add(format_args!("hold {scope} {how:?}"));
        self.was_idle = false;
        self.executor.hold(scope, how);
        self.model.held(scope, how, self.now);
    }

    fn commit(&mut self) {
        if let Some(claim) = self.some_claim() {
            // Once in a while the snapshot is taken and never acknowledged.
            let acknowledged = !self.random.once_in(4);
            self.commit_of(claim, acknowledged);
        }
    }

    fn commit_of(&mut self, claim: Claim, acknowledged: bool) {
        let progress = self.executor.progress(claim);
        self.trace.add(format_args!("progress {claim} {progress:?}, commit {acknowledged}"));
        self.verify("progress", self.model.progress(claim, progress.as_ref()));
        if let Some(progress) = progress.filter(|_| acknowledged) {
            self.was_idle = false;
            self.executor.committed(claim, &progress);
            self.model.committed(claim, progress);
        }
    }

    /// The longest outstanding load, or any other, comes.
    fn answer_a_load(&mut self) {
        let loads = self.model.loads.len() as u64;
        if loads > 0 {
            let nth = self.random.below(loads) as usize;
            let (claim, offset) = *self.model.loads.iter().nth(nth).expect("a load");
            self.answer(claim, offset);
        }
    }

    fn answer(&mut self, claim: Claim, offset: Offset) {
        self.trace.add(format_args!("loaded {claim} {offset}"));
        self.was_idle = false;
        self.model.loads.remove(&(claim, offset));
        let live = self.model.live(claim).expect("loads of ended claims are forgotten");
        let Some(record) = live.waiting.get(&offset).cloned() else { return };
        let (partition, next) = (claim.partition.partition, offset.after());
        self.executor.admit(claim, Chunk { partition, records: vec![record], next }, self.now);
    }

    /// A partition comes, or comes back, with or without a fence of its old claim.
    fn assign(&mut self) {
        let partition = self.some_partition();
        self.assign_to(partition);
    }

    fn assign_to(&mut self, partition: PartitionId) {
        self.let_go(Some(partition));
        self.model.fence(partition);
        let lane = self.model.partitions.get_mut(&partition).expect("a known partition");
        lane.epoch += 1 + self.random.below(3);
        let (claim, progress) = (claim(partition, lane.epoch), lane.durable.clone());
        lane.live = Some(Live::new(claim, progress.next));
        self.trace.add(format_args!("assign {claim} {progress:?}"));
        self.was_idle = false;
        self.executor.assign(claim, &progress, self.now);
    }

    fn let_go(&mut self, of: Option<PartitionId>) {
        let held: Vec<_> = self.model.holds.keys().cloned().collect();
        for scope in held.iter().filter(|scope| of.is_none_or(|of| scope.partition == of)) {
            self.hold_as(scope, None);
        }
    }

    fn revoke(&mut self, how: Revoke) {
        let Some(claim) = self.some_claim() else { return };
        self.let_go(Some(claim.partition));
        let expected = self.model.open.values().filter(|open| open.turn.claim() == claim).count();
        let open = self.executor.revoke(claim, how);
        self.trace.add(format_args!("revoke {claim} {how:?} -> {open}"));
        self.was_idle = false;
        assert_eq!(
            open, expected,
            "turns of the claim still open at {how:?} (PROCESSION_SEED={})",
            self.trace.seed
        );
        match how {
            Revoke::Drain => {
                let lane = self.model.partitions.get_mut(&claim.partition);
                let live = lane.and_then(|lane| lane.live.as_mut()).expect("a live claim");
                live.draining = true;
                self.model.loads.retain(|(of, _)| *of != claim);
            }
            _ => self.model.fence(claim.partition),
        }
    }

    /// Something of the past: it must change nothing.
    fn stale(&mut self) {
        let partition = self.some_partition();
        let epoch = self.model.partitions[&partition].epoch;
        if epoch > 1 {
            let old = claim(partition, 1 + self.random.below(epoch - 1));
            self.trace.add(format_args!("stale {old}"));
            let records = vec![record(1_000_000, "a", 5)];
            let (partition, next) = (partition.partition, Offset::new(1_000_001));
            self.executor.admit(old, Chunk { partition, records, next }, self.now);
            self.executor.committed(old, &Progress::at(next));
            assert_eq!(self.executor.progress(old), None, "a stale claim has no progress");
            assert_eq!(self.executor.revoke(old, Revoke::Fence), 0, "a stale claim has no turns");
        }
        if let Some(&id) = self.ended.front()
            && !self.model.open.contains_key(&id)
        {
            let completed = self.executor.complete(id, Verdict::done(1), self.now);
            assert_eq!(completed, procession_core::Completed::default(), "{id:?} has ended before");
        }
    }

    fn explain(&mut self) {
        let scope = self.some_scope();
        let explain = self.executor.explain(&scope);
        self.trace.add(format_args!("explain {scope} {explain:?}"));
        self.verify("explain", self.model.explained(&scope, explain.as_ref(), self.now));
    }

    /// Everything is let go and ends well: then everything that was admitted must be terminal.
    fn settle(&mut self) {
        self.trace.add(format_args!("settle"));
        let draining: Vec<_> = self
            .model
            .partitions
            .iter()
            .filter(|(_, lane)| lane.live.as_ref().is_none_or(|live| live.draining))
            .map(|(id, _)| *id)
            .collect();
        for partition in draining {
            self.assign_to(partition);
        }
        self.let_go(None);
        for _ in 0..10_000 {
            while self.next() {}
            self.take_credit();
            let open: Vec<_> = self.model.open.keys().copied().collect();
            for &id in &open {
                let count = self.model.open[&id].turn.records().len() as u32;
                self.end(id, Verdict::done(count));
            }
            let loads: Vec<_> = self.model.loads.iter().copied().collect();
            for &(claim, offset) in &loads {
                self.answer(claim, offset);
            }
            if open.is_empty() && loads.is_empty() {
                let Some(last) = self.model.last_back_off().filter(|last| *last > self.now) else {
                    break;
                };
                self.now = last;
                self.was_idle = false;
            }
        }
        let claims: Vec<_> = self
            .model
            .partitions
            .values()
            .filter_map(|lane| lane.live.as_ref())
            .map(|live| (live.claim, live.waiting.keys().copied().collect::<Vec<_>>()))
            .collect();
        for (claim, waiting) in claims {
            assert!(
                waiting.is_empty(),
                "nothing runs, waits or is loaded any more, yet {waiting:?} of {claim} never ran \
                 (PROCESSION_SEED={})",
                self.trace.seed
            );
            self.commit_of(claim, true);
            let left = self.executor.progress(claim);
            self.verify("progress", self.model.progress(claim, left.as_ref()));
        }
        self.take_credit();
        for live in self.model.partitions.values().filter_map(|lane| lane.live.as_ref()) {
            assert!(
                !live.window.minus(live.delivered).is_spent(),
                "nothing is held, yet {} may deliver nothing: {:?} of {:?} (PROCESSION_SEED={})",
                live.claim,
                live.delivered,
                live.window,
                self.trace.seed
            );
        }
        let load = self.executor.load();
        assert_eq!(
            load,
            Load::default(),
            "at rest nothing is held (PROCESSION_SEED={})",
            self.trace.seed
        );
    }
}
