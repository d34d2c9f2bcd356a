//! Random steps beside the model.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Instant;

use procession_core::{Budget, GroupExecutor, Load, Progress, Revoke, TurnId, Verdict};

use self::trace::{Seen, Trace};
use super::driver::partition;
use super::model::{Lane, Model};
use super::{ExecutorSetup, Factory, Knob};
use crate::declared;
use crate::random::Random;

mod steps;
mod trace;

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
    for lack in &factory(ExecutorSetup::default()).lacks {
        declared("agrees_with_the_model", &format!("no {lack:?}"));
    }
    let (mut random, mut seen, mut left) = (Random::new(seed), Seen::default(), steps);
    while left > 0 {
        let run = left.min(2_000);
        Walk::new(factory, seed, random.next(), &mut seen).go(run);
        left -= run;
    }
    eprintln!("agrees_with_the_model: {seen:?}");
    assert!(steps < 2_000 || seen.run > 0 && seen.retried > 0, "the walk met nothing: {seen:?}");
}

struct Walk<'a> {
    random: Random,
    executor: Box<dyn GroupExecutor>,
    model: Model,
    now: Instant,
    setup: ExecutorSetup,
    bounded: bool,
    trace: Trace,
    seen: &'a mut Seen,
    /// Ids of turns that have ended.
    ended: VecDeque<TurnId>,
    /// Nothing has happened since the executor was idle.
    was_idle: bool,
}

impl<'a> Walk<'a> {
    fn new(factory: Factory<'_>, seed: u64, own: u64, seen: &'a mut Seen) -> Self {
        let mut random = Random::new(own);
        let setup = ExecutorSetup {
            budget: Budget::new(4 + random.below(60), 200 + random.below(4_000)),
            bodies_per_group_max: 1 + random.below(12) as usize,
            turn_records_max: 1 + random.below(4) as u32,
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
            trace: Trace::new(seed),
            seen,
            ended: VecDeque::new(),
            was_idle: false,
        }
    }

    fn go(mut self, steps: u64) {
        for partition in self.model.partitions.keys().copied().collect::<Vec<_>>() {
            self.assign_to(partition);
        }
        for step in 0..steps {
            match self.random.below(200) {
                0..45 => self.deliver(),
                45..100 => drop(self.next()),
                100..148 => self.complete(),
                148..164 => self.pass(),
                164..170 => self.hold(),
                170..180 => self.commit(),
                180..186 => self.answer_a_load(),
                186..189 => self.assign(),
                189 => self.revoke(Revoke::Drain),
                190 => self.revoke(Revoke::Fence),
                191..194 => self.stale(),
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
