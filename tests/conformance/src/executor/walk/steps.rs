//! The steps.

use std::time::Duration;

use procession_core::{
    Budget, Chunk, Claim, Completed, Hold, Load, Next, Offset, PartitionId, Progress, Rest, Revoke,
    Scope, Stored, Turn, TurnId, Verdict,
};

use super::Walk;
use crate::executor::driver::{claim, partition, record, scope, size};
use crate::executor::model::Live;

const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

impl Walk<'_> {
    pub(super) fn some_partition(&mut self) -> PartitionId {
        [partition(0, 0), partition(0, 1), partition(1, 0)][self.random.below(3) as usize]
    }

    pub(super) fn some_claim(&mut self) -> Option<Claim> {
        let partition = self.some_partition();
        self.model.partitions[&partition].live.as_ref().map(|live| live.claim)
    }

    pub(super) fn some_scope(&mut self) -> Scope {
        let key = KEYS[self.random.below(8) as usize];
        scope(self.some_partition(), key)
    }

    pub(super) fn take_credit(&mut self) {
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
    pub(super) fn deliver(&mut self) {
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

    pub(super) fn admit(&mut self, claim: Claim, records: Vec<Stored>, next: Offset) {
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
    pub(super) fn next(&mut self) -> bool {
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

    pub(super) fn started(&mut self, turn: Turn, divert: bool) {
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
        *(if divert { &mut self.seen.diverted } else { &mut self.seen.run }) += 1;
        let verified = self.model.started(turn, divert, self.now);
        self.verify("next", verified);
    }

    pub(super) fn complete(&mut self) {
        let open = self.model.open.len() as u64;
        if open > 0 {
            let nth = self.random.below(open) as usize;
            let id = *self.model.open.keys().nth(nth).expect("an open turn");
            let verdict = self.some_verdict(id);
            self.end(id, verdict);
        }
    }

    pub(super) fn some_verdict(&mut self, id: TurnId) -> Verdict {
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

    pub(super) fn end(&mut self, id: TurnId, verdict: Verdict) {
        let completed = self.executor.complete(id, verdict, self.now);
        self.trace.add(format_args!("complete {id:?} {verdict:?} -> {completed:?}"));
        self.was_idle &= !completed.runnable;
        let zombie = self.model.open[&id].zombie;
        self.seen.zombies += u64::from(zombie);
        self.seen.retried += u64::from(matches!(verdict.rest, Rest::Again { .. }));
        self.seen.drained += u64::from(completed.drained.is_some());
        let verified = self.model.ended(id, verdict, completed, self.now);
        self.verify("complete", verified);
        self.ended.push_back(id);
        if self.ended.len() > 20 {
            self.ended.pop_front();
        }
    }

    pub(super) fn pass(&mut self) {
        self.now += Duration::from_millis(self.random.below(8));
        self.was_idle = false;
    }

    /// A held group is let go, or another is held: few at a time, or nothing moves.
    pub(super) fn hold(&mut self) {
        let held = self.model.holds.len() as u64;
        if held > self.random.below(4) {
            let mut held: Vec<_> = self.model.holds.keys().cloned().collect();
            held.sort();
            let nth = self.random.below(held.len() as u64) as usize;
            return self.hold_as(&held[nth], None);
        }
        let scope = self.some_scope();
        let how = [Hold::Blocked, Hold::Parked, Hold::Cascading][self.random.below(3) as usize];
        self.hold_as(&scope, Some(how));
    }

    pub(super) fn hold_as(&mut self, scope: &Scope, how: Option<Hold>) {
        self.trace.add(format_args!("hold {scope} {how:?}"));
        self.was_idle = false;
        self.executor.hold(scope, how);
        self.model.held(scope, how, self.now);
    }

    pub(super) fn commit(&mut self) {
        if let Some(claim) = self.some_claim() {
            // Once in a while the snapshot is taken and never acknowledged.
            let acknowledged = !self.random.once_in(4);
            self.commit_of(claim, acknowledged);
        }
    }

    pub(super) fn commit_of(&mut self, claim: Claim, acknowledged: bool) {
        let progress = self.executor.progress(claim);
        self.trace.add(format_args!("progress {claim} {progress:?}, commit {acknowledged}"));
        self.verify("progress", self.model.progress(claim, progress.as_ref()));
        if let Some(progress) = progress.filter(|_| acknowledged) {
            self.was_idle = false;
            self.seen.committed += 1;
            self.executor.committed(claim, &progress);
            self.model.committed(claim, progress);
        }
    }

    /// The longest outstanding load, or any other, comes.
    pub(super) fn answer_a_load(&mut self) {
        let loads = self.model.loads.len() as u64;
        if loads > 0 {
            let nth = self.random.below(loads) as usize;
            let (claim, offset) = *self.model.loads.iter().nth(nth).expect("a load");
            if self.random.once_in(6) {
                self.gone(claim, offset);
            } else {
                self.answer(claim, offset);
            }
        }
    }

    /// What was asked for is not in the log any more.
    fn gone(&mut self, claim: Claim, offset: Offset) {
        let completed = self.executor.gone(claim, offset, self.now);
        self.trace.add(format_args!("gone {claim} {offset} -> {completed:?}"));
        self.was_idle &= !completed.runnable;
        self.seen.gone += 1;
        let verified = self.model.gone(claim, offset, completed);
        self.verify("gone", verified);
    }

    pub(super) fn answer(&mut self, claim: Claim, offset: Offset) {
        self.trace.add(format_args!("loaded {claim} {offset}"));
        self.was_idle = false;
        self.model.loads.remove(&(claim, offset));
        let live = self.model.live(claim).expect("loads of ended claims are forgotten");
        let Some(record) = live.waiting.get(&offset).cloned() else { return };
        self.seen.loaded += 1;
        let (partition, next) = (claim.partition.partition, offset.after());
        self.executor.admit(claim, Chunk { partition, records: vec![record], next }, self.now);
    }

    /// A partition comes, or comes back, with or without a fence of its old claim.
    pub(super) fn assign(&mut self) {
        let partition = self.some_partition();
        self.assign_to(partition);
    }

    pub(super) fn assign_to(&mut self, partition: PartitionId) {
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

    pub(super) fn let_go(&mut self, of: Option<PartitionId>) {
        let mut held: Vec<_> = self.model.holds.keys().cloned().collect();
        held.sort();
        for scope in held.iter().filter(|scope| of.is_none_or(|of| scope.partition == of)) {
            self.hold_as(scope, None);
        }
    }

    pub(super) fn revoke(&mut self, how: Revoke) {
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
    pub(super) fn stale(&mut self) {
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
            let gone = self.executor.gone(old, Offset::new(0), self.now);
            assert_eq!(gone, Completed::default(), "nothing is gone under a stale claim");
            assert_eq!(self.executor.revoke(old, Revoke::Fence), 0, "a stale claim has no turns");
        }
        if let Some(&id) = self.ended.front()
            && !self.model.open.contains_key(&id)
        {
            let completed = self.executor.complete(id, Verdict::done(1), self.now);
            assert_eq!(completed, Completed::default(), "{id:?} has ended before");
        }
    }

    pub(super) fn explain(&mut self) {
        let scope = self.some_scope();
        let explain = self.executor.explain(&scope);
        self.trace.add(format_args!("explain {scope} {explain:?}"));
        self.verify("explain", self.model.explained(&scope, explain.as_ref(), self.now));
    }
}
