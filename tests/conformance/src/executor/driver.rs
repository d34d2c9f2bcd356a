//! Drives an executor by hand, the way a consumer would.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use procession_core::{
    Budget, Chunk, Claim, Completed, Epoch, GroupExecutor, LogId, Next, Offset, Partition,
    PartitionId, Progress, Record, RoutingEpoch, Scope, Stored, Timestamp, Turn, Verdict,
};

use super::{ExecutorSetup, Factory, Knob, Subject};
use crate::declared;

/// What an executor wants done, once commits and loads have been seen to.
#[derive(Debug)]
pub(super) enum Step {
    Run(Turn),
    Divert(Turn),
    Idle(Option<Instant>),
}

pub(super) struct Driver {
    check: &'static str,
    subject: Subject,
    pub(super) now: Instant,
    /// Every record that was admitted, to be loaded again.
    log: BTreeMap<(PartitionId, Offset), Stored>,
    /// What was committed because the executor asked for it.
    committed: BTreeMap<Claim, Progress>,
    /// How many bodies had to be loaded.
    pub(super) loads: usize,
}

impl Driver {
    pub(super) fn new(check: &'static str, factory: Factory<'_>, setup: ExecutorSetup) -> Self {
        let now = Instant::now();
        Self {
            check,
            subject: factory(setup),
            now,
            log: BTreeMap::new(),
            committed: BTreeMap::new(),
            loads: 0,
        }
    }

    pub(super) fn executor(&mut self) -> &mut dyn GroupExecutor {
        &mut *self.subject.executor
    }

    /// Whether the executor has this knob; says so loudly if not.
    pub(super) fn has(&self, knob: Knob) -> bool {
        let has = self.subject.has(knob);
        if !has {
            declared(self.check, &format!("no {knob:?}"));
        }
        has
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// A new claim from the beginning.
    pub(super) fn assign(&mut self, partition: PartitionId, epoch: u64) -> Claim {
        self.assign_from(partition, epoch, &Progress::default())
    }

    pub(super) fn assign_from(
        &mut self,
        partition: PartitionId,
        epoch: u64,
        progress: &Progress,
    ) -> Claim {
        let claim = claim(partition, epoch);
        let now = self.now;
        self.executor().assign(claim, progress, now);
        claim
    }

    /// Admits records, given by offset and key; reading goes on right above the last one.
    pub(super) fn admit<'a>(
        &mut self,
        claim: Claim,
        records: impl IntoIterator<Item = (u64, &'a str)>,
    ) {
        let records: Vec<_> =
            records.into_iter().map(|(offset, key)| record(offset, key, 10)).collect();
        let next = records.last().expect("a check admits records").offset.after();
        self.admit_chunk(claim, records, next);
    }

    pub(super) fn admit_chunk(&mut self, claim: Claim, records: Vec<Stored>, next: Offset) {
        for record in &records {
            self.log.insert((claim.partition, record.offset), record.clone());
        }
        let chunk = Chunk { partition: claim.partition.partition, records, next };
        let now = self.now;
        self.executor().admit(claim, chunk, now);
    }

    /// Answers a `Load`.
    pub(super) fn load(&mut self, claim: Claim, offset: Offset) {
        let record = self.log.get(&(claim.partition, offset)).cloned();
        let record = record.expect("a load asks for a record that was admitted");
        self.loads += 1;
        let (partition, next) = (claim.partition.partition, offset.after());
        let chunk = Chunk { partition, records: vec![record], next };
        let now = self.now;
        self.executor().admit(claim, chunk, now);
    }

    /// Says that what a `Load` asked for is not there any more.
    pub(super) fn gone(&mut self, claim: Claim, offset: Offset) -> Completed {
        let now = self.now;
        self.executor().gone(claim, offset, now)
    }

    pub(super) fn commit(&mut self, claim: Claim) {
        if let Some(progress) = self.executor().progress(claim) {
            self.executor().committed(claim, &progress);
            self.committed.insert(claim, progress);
        }
    }

    /// What is finished, whether or not the executor has already asked for a commit of it.
    #[track_caller]
    pub(super) fn finished(&mut self, claim: Claim, why: &str) -> Progress {
        let progress = self.executor().progress(claim);
        progress.or_else(|| self.committed.get(&claim).cloned()).expect(why)
    }

    /// What to do now, commits and loads answered at once.
    pub(super) fn step(&mut self) -> Step {
        for _ in 0..10_000 {
            let now = self.now;
            match self.executor().next(now) {
                Next::Run(turn) => return Step::Run(turn),
                Next::Divert(turn) => return Step::Divert(turn),
                Next::Idle { until } => return Step::Idle(until),
                Next::Load { claim, offset } => self.load(claim, offset),
                Next::Commit(claim) => self.commit(claim),
                other => panic!("the suite does not know {other:?}"),
            }
        }
        panic!("ten thousand loads and commits in a row, and nothing to run: the executor spins")
    }

    /// The next turn, which must be there.
    #[track_caller]
    pub(super) fn run(&mut self, why: &str) -> Turn {
        match self.step() {
            Step::Run(turn) => turn,
            other => panic!("{why}: expected a turn, got {other:?}"),
        }
    }

    /// Nothing may start now.
    #[track_caller]
    pub(super) fn idle(&mut self, why: &str) -> Option<Instant> {
        match self.step() {
            Step::Idle(until) => until,
            other => panic!("{why}: expected nothing to run, got {other:?}"),
        }
    }

    /// All turns that can start now.
    #[track_caller]
    pub(super) fn run_all(&mut self) -> Vec<Turn> {
        let mut turns = Vec::new();
        loop {
            match self.step() {
                Step::Run(turn) => turns.push(turn),
                Step::Divert(turn) => panic!("nobody holds this group, yet diverted: {turn:?}"),
                Step::Idle(_) => return turns,
            }
        }
    }

    pub(super) fn complete(&mut self, turn: &Turn, verdict: Verdict) -> Completed {
        let now = self.now;
        self.executor().complete(turn.id(), verdict, now)
    }

    pub(super) fn done(&mut self, turn: &Turn) -> Completed {
        self.complete(turn, Verdict::done(turn.records().len() as u32))
    }

    /// Runs everything there is to its end; the offsets in the order in which they ran.
    pub(super) fn finish_all(&mut self) -> Vec<u64> {
        let mut ran = Vec::new();
        loop {
            let turns = self.run_all();
            if turns.is_empty() {
                return ran;
            }
            for turn in turns {
                ran.extend(offsets(&turn));
                self.done(&turn);
            }
        }
    }
}

pub(super) const fn partition(log: u32, partition: u32) -> PartitionId {
    PartitionId::new(LogId::new(log), Partition::new(partition))
}

pub(super) fn claim(partition: PartitionId, epoch: u64) -> Claim {
    Claim { partition, epoch: Epoch::new(epoch).expect("the checks' epochs are in range") }
}

pub(super) fn scope(partition: PartitionId, key: &str) -> Scope {
    Scope::new(partition, key)
}

/// A record of `key` with a payload of `payload_bytes`.
pub(super) fn record(offset: u64, key: &str, payload_bytes: usize) -> Stored {
    Stored {
        offset: Offset::new(offset),
        sequence: None,
        log_time: Timestamp::from_millis(offset as i64),
        routing: RoutingEpoch::new(1),
        record: Record::new(key.to_owned(), vec![offset as u8; payload_bytes]),
    }
}

pub(super) fn size(stored: &Stored) -> Budget {
    Budget::new(1, stored.record.size_bytes() as u64)
}

pub(super) fn offsets(turn: &Turn) -> Vec<u64> {
    turn.records().iter().map(|record| record.offset.get()).collect()
}

pub(super) fn key(turn: &Turn) -> String {
    turn.group().expect("the checks' records have keys").to_string()
}
