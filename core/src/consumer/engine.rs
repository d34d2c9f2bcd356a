//! What the workers, the control loop and the membership share: the executor behind one short lock.
//!
//! Nothing is done under the lock but to move the executor: no I/O, no user code, no wakers, no
//! calls into the membership but `Seat::live`, a look at an atomic. What must follow is collected
//! and done after it (`After`).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures::task::AtomicWaker;

use super::drain::{Drain, DrainHome, DrainState};
use super::options::Options;
use super::summary::Summary;
use crate::executor::{Completed, GroupExecutor, Next, Revoke, Turn, TurnId, Verdict};
use crate::log::{Chunk, Log};
use crate::membership::{Drained, Event, Inlet, Seat};
use crate::runtime::Runtime;
use crate::signal::Signal;
use crate::store::Key;
use crate::types::{Budget, Claim, Offset, PartitionId, Progress};
use crate::{AbsentKey, Error, ErrorKind};

pub(crate) struct Engine {
    state: Mutex<State>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) logs: Vec<Arc<dyn Log>>,
    pub(crate) subscription: Arc<str>,
    pub(crate) options: Options,
    pub(crate) workers: Vec<WorkerBell>,
    /// Something the control loop must look at has changed.
    pub(crate) control: Signal,
    /// The run is over: set once, with what it came to.
    pub(crate) finished: Signal,
    closed: AtomicBool,
    /// The run was asked to end: nothing begins any more.
    stopping: AtomicBool,
    /// Moves when claims are to be cut off.
    cuts: AtomicU64,
}

/// How a worker is woken when there is something to run.
#[derive(Default)]
pub(crate) struct WorkerBell {
    pub(crate) waker: AtomicWaker,
    /// It found nothing to run although it had a free place. Set and read under the state lock.
    idle: AtomicBool,
}

struct State {
    /// From join until the run is over and the last worker gone: until then turns may run that
    /// nobody could drop. It knows the engine, so it must not stay.
    seat: Option<Arc<dyn Seat>>,
    /// Workers that are not gone.
    workers: usize,
    executor: Box<dyn GroupExecutor>,
    claims: HashMap<PartitionId, Owned>,
    inbox: VecDeque<Event>,
    /// Partitions that are assigned and not yet claimed.
    claiming: usize,
    drains: Vec<Arc<DrainState>>,
    loads: Vec<(Claim, Offset)>,
    dirty: bool,
    commit_now: bool,
    retry_at: Option<Instant>,
    stop: Option<Stop>,
    failure: Option<Error>,
    summary: Summary,
    /// Every turn has ended or is given up: what is finished now is all there will be.
    drained: bool,
    over: bool,
}

/// A claimed partition.
struct Owned {
    claim: Claim,
    key: Arc<Key>,
    draining: bool,
    /// Everything below was given to the executor.
    admitted: Offset,
    /// Where the run may end, and whether everything below is finished.
    end: Option<Offset>,
    end_reached: bool,
    /// Its turns are to be dropped where they stand.
    cut: bool,
}

/// A claim that was accepted, and from where it goes on.
pub(crate) struct Accepted {
    pub(crate) claim: Claim,
    pub(crate) key: Arc<Key>,
    pub(crate) progress: Progress,
    /// Where the log ended, if the run ends there.
    pub(crate) end: Option<Offset>,
}

/// Why a run ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Shutdown,
    End,
    Failed,
}

/// What to do once the lock is free.
#[derive(Default)]
struct After {
    seat: Option<Arc<dyn Seat>>,
    credits: Vec<(Claim, Budget)>,
    reports: Vec<(Arc<DrainState>, Drained)>,
    ring: bool,
    control: bool,
}

/// A turn that ended, judged.
pub(crate) struct Ended {
    pub(crate) id: TurnId,
    pub(crate) verdict: Verdict,
    pub(crate) failure: Option<Error>,
    pub(crate) kind: EndKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndKind {
    Done,
    Failed,
    Panicked,
    Cancelled,
}

impl Engine {
    pub(crate) fn new(
        executor: Box<dyn GroupExecutor>,
        logs: Vec<Arc<dyn Log>>,
        subscription: Arc<str>,
        runtime: Arc<dyn Runtime>,
        options: Options,
        workers: usize,
    ) -> Self {
        Self {
            state: Mutex::new(State {
                seat: None,
                workers: 0,
                executor,
                claims: HashMap::new(),
                inbox: VecDeque::new(),
                claiming: 0,
                drains: Vec::new(),
                loads: Vec::new(),
                dirty: false,
                commit_now: false,
                retry_at: None,
                stop: None,
                failure: None,
                summary: Summary::default(),
                drained: false,
                over: false,
            }),
            runtime,
            logs,
            subscription,
            options,
            workers: (0..workers).map(|_| WorkerBell::default()).collect(),
            control: Signal::default(),
            finished: Signal::default(),
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a bug of an executor; what it holds is still the best we know.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then does what must follow outside the lock.
    fn with<T>(&self, change: impl FnOnce(&mut State, &mut After) -> T) -> T {
        let mut after = After::default();
        let (result, ring) = {
            let mut state = self.lock();
            let result = change(&mut state, &mut after);
            state.collect_credits(&mut after);
            state.check_end(self.options.until_end, &mut after);
            if state.stop.is_some() {
                self.stopping.store(true, Ordering::SeqCst);
            }
            // Idle flags are read under the lock: a worker that saw nothing set its flag before.
            let ring = after.ring && self.workers.iter().any(|w| w.idle.load(Ordering::SeqCst));
            (result, ring)
        };
        self.follow_up(after, ring);
        result
    }

    fn follow_up(&self, after: After, ring: bool) {
        if let Some(seat) = after.seat {
            after.credits.into_iter().for_each(|(claim, window)| seat.credit(claim, window));
        }
        after.reports.into_iter().for_each(|(drain, drained)| drain.report(drained));
        if ring {
            self.ring();
        }
        if after.control {
            self.control.notify();
        }
    }

    /// Wakes the workers that have nothing to do.
    fn ring(&self) {
        for worker in &self.workers {
            if worker.idle.swap(false, Ordering::SeqCst) {
                worker.waker.wake();
            }
        }
    }

    /// Wakes every worker, busy or not.
    fn ring_all(&self) {
        for worker in &self.workers {
            worker.idle.store(false, Ordering::SeqCst);
            worker.waker.wake();
        }
    }

    /// Claims were cut off: has every worker look which of its turns to drop.
    fn tell_cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        self.ring_all();
    }

    // ---- Workers ---------------------------------------------------------------------------

    /// A worker hands over ended turns and takes up to `room` new ones.
    pub(crate) fn exchange(
        &self,
        worker: usize,
        ended: &mut Vec<Ended>,
        started: &mut Vec<Turn>,
        room: usize,
    ) {
        let now = self.runtime.now();
        let bell = &self.workers[worker];
        let others = self.workers.len() > 1;
        self.with(|state, after| {
            for end in ended.drain(..) {
                state.end_turn(end, now, after);
            }
            let live = state.stop.is_none()
                && !state.over
                && state.seat.as_ref().is_some_and(|seat| seat.live());
            // Not yet, or no longer: whoever changes that rings.
            let mut idle = !live && room > 0;
            let room = if live { room } else { 0 };
            while started.len() < room {
                match state.executor.next(now) {
                    Next::Run(turn) => started.push(turn),
                    Next::Load { claim, offset } => {
                        state.loads.push((claim, offset));
                        after.control = true;
                    }
                    Next::Commit(_) => {
                        state.commit_now = true;
                        after.control = true;
                    }
                    Next::Divert(turn) => {
                        // No policy of this version parks or cascades, so nothing is diverted;
                        // an executor that does it anyway gets its record back, held.
                        let verdict = Verdict { terminal: 0, rest: crate::Rest::Hold };
                        state.executor.complete(turn.id(), verdict, now);
                    }
                    Next::Idle { until } => {
                        idle = true;
                        if until.is_some_and(|at| state.retry_at.is_none_or(|armed| at < armed)) {
                            state.retry_at = until;
                            after.control = true;
                        }
                        break;
                    }
                }
            }
            bell.idle.store(idle, Ordering::SeqCst);
            // Full, and perhaps more to run: somebody else may have a place.
            after.ring |= !idle && others && room > 0;
        });
    }

    pub(crate) fn worker_begins(&self) {
        self.lock().workers += 1;
    }

    /// A worker has dropped everything it held.
    pub(crate) fn worker_ends(&self) {
        if !self.is_closed() {
            let operation = format!("run subscription \"{}\"", self.subscription);
            self.fail(Error::new(ErrorKind::Unavailable, operation).with_hint(
                "a worker task was dropped before the run was over: is its runtime shut down?",
            ));
        }
        let seat = {
            let mut state = self.lock();
            state.workers -= 1;
            state.free_seat()
        };
        drop(seat);
    }

    /// Turns of these claims are to be dropped where they stand.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }

    /// Whether a turn of this claim is to be dropped: its claim was cut off or replaced.
    pub(crate) fn is_cut(&self, claim: Claim) -> bool {
        let state = self.lock();
        let owned = state.claims.get(&claim.partition);
        self.is_closed() || owned.is_none_or(|owned| owned.claim != claim || owned.cut)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    // ---- Control ---------------------------------------------------------------------------

    /// Claims were accepted: from here on their records may come.
    pub(crate) fn claimed(&self, accepted: Vec<Accepted>) {
        let seat = self.lock().seat.clone();
        if let Some(seat) = seat {
            accepted.iter().for_each(|a| seat.start(a.claim, a.progress.next));
        }
        let now = self.runtime.now();
        self.with(|state, _| {
            state.claiming -= accepted.len();
            if state.stop.is_some() {
                // Too late to start anything. The epochs are raised, which harms nobody.
                return;
            }
            for Accepted { claim, key, progress, end } in accepted {
                state.executor.assign(claim, &progress, now);
                let admitted = progress.next;
                let owned = Owned {
                    claim,
                    key,
                    draining: false,
                    admitted,
                    end,
                    end_reached: false,
                    cut: false,
                };
                state.claims.insert(claim.partition, owned);
            }
        });
    }

    /// The membership took us in.
    pub(crate) fn seated(&self, seat: Arc<dyn Seat>) {
        self.lock().seat = Some(seat);
    }

    pub(crate) fn take_event(&self) -> Option<Event> {
        let mut state = self.lock();
        let event = state.inbox.pop_front();
        if let Some(Event::Assigned(partitions)) = &event {
            state.claiming += partitions.len();
        }
        event
    }

    pub(crate) fn take_loads(&self) -> Vec<(Claim, Offset)> {
        std::mem::take(&mut self.lock().loads)
    }

    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.lock().retry_at
    }

    /// The first back-off is over.
    pub(crate) fn retry_due(&self) {
        self.lock().retry_at = None;
        self.ring();
    }

    /// Whether there is something to commit, and whether somebody waits for it.
    pub(crate) fn commit_wanted(&self) -> (bool, bool) {
        let state = self.lock();
        (state.dirty, state.commit_now)
    }

    /// Everything that is finished and not yet durable.
    pub(crate) fn snapshots(&self) -> Vec<(Claim, Arc<Key>, Progress)> {
        let mut state = self.lock();
        state.dirty = false;
        state.commit_now = false;
        let State { executor, claims, .. } = &mut *state;
        let mut all: Vec<_> = claims
            .values()
            .filter_map(|owned| {
                let progress = executor.progress(owned.claim)?;
                Some((owned.claim, Arc::clone(&owned.key), progress))
            })
            .collect();
        all.sort_unstable_by_key(|(claim, ..)| *claim);
        all
    }

    pub(crate) fn committed(&self, claim: Claim, progress: &Progress) {
        self.with(|state, after| {
            state.executor.committed(claim, progress);
            state.summary.commits += 1;
            if let Some(owned) = state.claims.get_mut(&claim.partition)
                && owned.claim == claim
                && owned.end.is_some_and(|end| progress.next >= end)
            {
                owned.end_reached = true;
            }
            after.ring = true;
        });
    }

    /// Not durable, but may be with the next try.
    pub(crate) fn commit_failed(&self) {
        self.with(|state, _| {
            state.dirty = true;
            state.summary.commits_failed += 1;
        });
    }

    /// The partition is somebody else's: forget the claim.
    pub(crate) fn fenced(&self, partition: PartitionId) {
        self.with(|state, after| {
            if let Some(owned) = state.claims.remove(&partition) {
                state.executor.revoke(owned.claim, Revoke::Fence);
                after.ring = true;
            }
        });
        self.tell_cut();
    }

    /// Every partition that is owned now.
    pub(crate) fn owned(&self) -> Vec<PartitionId> {
        let mut all: Vec<_> = self.lock().claims.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Drops the turns that still run, where they stand.
    pub(crate) fn cut_off(&self) {
        self.with(|state, _| {
            state.claims.values_mut().for_each(|owned| owned.cut = true);
        });
        self.tell_cut();
    }

    /// A body that was dropped is here again.
    pub(crate) fn reloaded(&self, claim: Claim, chunk: Chunk) {
        let now = self.runtime.now();
        self.with(|state, after| {
            state.executor.admit(claim, chunk, now);
            after.ring = true;
        });
    }

    pub(crate) fn set_drained(&self) {
        self.with(|state, after| {
            state.drained = true;
            after.control = true;
        });
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.lock().drained
    }

    pub(crate) fn open_turns(&self) -> usize {
        self.lock().executor.load().open
    }

    // ---- How it ends -----------------------------------------------------------------------

    /// Asks the run to end; the first reason stays.
    pub(crate) fn stop(&self, why: Stop) {
        self.with(|state, after| {
            state.stop.get_or_insert(why);
            after.control = true;
        });
    }

    /// Ends the run with an error; the first one stays.
    pub(crate) fn fail(&self, error: Error) {
        self.with(|state, after| {
            state.failure.get_or_insert(error);
            state.stop = Some(Stop::Failed);
            after.control = true;
        });
    }

    pub(crate) fn stopping(&self) -> Option<Stop> {
        self.lock().stop
    }

    /// The run is over, one way or the other: workers drop what they hold, nothing is taken in.
    pub(crate) fn close(&self) -> (Summary, Option<Error>) {
        self.closed.store(true, Ordering::SeqCst);
        let (summary, failure, seat) = {
            let mut state = self.lock();
            state.summary.open = state.executor.load().open;
            state.over = true;
            (state.summary.clone(), state.failure.clone(), state.free_seat())
        };
        drop(seat);
        self.ring_all();
        self.control.notify();
        self.finished.notify();
        (summary, failure)
    }

    /// What the run came to, once it is over.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let state = self.lock();
        state.over.then(|| state.summary.clone())
    }

    /// What the run has come to so far.
    pub(crate) fn counts(&self) -> Summary {
        let state = self.lock();
        Summary { open: state.executor.load().open, ..state.summary.clone() }
    }

    pub(crate) fn explain(&self, scope: &crate::Scope) -> Option<crate::Explain> {
        self.lock().executor.explain(scope)
    }

    pub(crate) fn load(&self) -> crate::Load {
        self.lock().executor.load()
    }
}

impl State {
    fn free_seat(&mut self) -> Option<Arc<dyn Seat>> {
        if self.over && self.workers == 0 { self.seat.take() } else { None }
    }

    fn end_turn(&mut self, end: Ended, now: Instant, after: &mut After) {
        let counts = &mut self.summary;
        match end.kind {
            EndKind::Done => counts.turns_done += 1,
            EndKind::Failed => counts.turns_failed += 1,
            EndKind::Panicked => {
                counts.turns_failed += 1;
                counts.turns_panicked += 1;
            }
            EndKind::Cancelled => counts.turns_cancelled += 1,
        }
        if let Some(error) = end.failure {
            self.failure.get_or_insert(error);
            self.stop = Some(Stop::Failed);
            after.control = true;
        }
        let Completed { runnable: _, progressed, drained } =
            self.executor.complete(end.id, end.verdict, now);
        if progressed && !self.dirty {
            self.dirty = true;
            after.control = true;
        }
        if let Some(claim) = drained {
            self.report_drained(claim, after);
        }
    }

    fn report_drained(&mut self, claim: Claim, after: &mut After) {
        self.drains.retain(|drain| !drain.is_settled());
        let progress = self.executor.progress(claim);
        for drain in &self.drains {
            let drained = Drained { claim, progress: progress.clone(), open: 0 };
            after.reports.push((Arc::clone(drain), drained));
        }
        after.control = true;
    }

    fn collect_credits(&mut self, after: &mut After) {
        while let Some(credit) = self.executor.credit() {
            after.credits.push(credit);
        }
        if !after.credits.is_empty() {
            after.seat.clone_from(&self.seat);
        }
    }

    /// Ends a run that should end where the logs ended when it started.
    fn check_end(&mut self, until_end: bool, after: &mut After) {
        let unsettled = self.claiming > 0 || !self.inbox.is_empty() || self.claims.is_empty();
        if !until_end || self.stop.is_some() || unsettled {
            return;
        }
        let idle = self.executor.load().held.records == 0;
        let reached = |owned: &Owned| {
            owned.end_reached || (idle && owned.end.is_some_and(|end| owned.admitted >= end))
        };
        if self.claims.values().all(reached) {
            self.stop = Some(Stop::End);
            after.control = true;
        }
    }
}

/// The engine as the membership sees it.
pub(crate) struct EngineInlet(pub(crate) Arc<Engine>);

impl Inlet for EngineInlet {
    fn event(&self, event: Event) {
        self.0.event(event);
    }

    fn revoking(&self, partitions: &[PartitionId], deadline: Instant) -> Drain {
        self.0.drain(partitions, deadline)
    }

    fn is_over(&self) -> bool {
        self.0.is_closed()
    }
}

impl Engine {
    fn event(&self, event: Event) {
        let Event::Records(claim, chunk) = event else {
            return self.with(|state, after| {
                state.inbox.push_back(event);
                after.control = true;
            });
        };
        let chunk = self.without_absent_keys(claim, chunk);
        let now = self.runtime.now();
        self.with(|state, after| {
            if let Some(owned) = state.claims.get_mut(&claim.partition)
                && owned.claim == claim
                && !owned.draining
            {
                owned.admitted = owned.admitted.max(chunk.next);
                state.executor.admit(claim, chunk, now);
                // A chunk without records still moves the position.
                if !state.dirty {
                    state.dirty = true;
                    after.control = true;
                }
                after.ring = true;
            }
        });
    }

    /// Starts the drain of these partitions; see [`Inlet::revoking`].
    pub(crate) fn drain(self: &Arc<Self>, partitions: &[PartitionId], deadline: Instant) -> Drain {
        let drain = self.with(|state, after| {
            let State { executor, claims, drains, .. } = state;
            let mut claimed = Vec::new();
            let mut open = Vec::new();
            for partition in partitions {
                if let Some(owned) = claims.get_mut(partition) {
                    owned.draining = true;
                    claimed.push(owned.claim);
                    open.push(executor.revoke(owned.claim, Revoke::Drain));
                }
            }
            let drain = DrainState::new(claimed.clone());
            drains.push(Arc::clone(&drain));
            for (claim, open) in claimed.into_iter().zip(open) {
                if open == 0 {
                    let progress = executor.progress(claim);
                    after.reports.push((Arc::clone(&drain), Drained { claim, progress, open }));
                }
            }
            drain
        });
        let home: Arc<dyn DrainHome> = Arc::<Self>::clone(self);
        Drain::new(drain, home, deadline, self.runtime.timer())
    }

    /// A consumer that refuses absent keys stops at the first: it and what follows stay unread.
    fn without_absent_keys(&self, claim: Claim, mut chunk: Chunk) -> Chunk {
        if self.options.absent_key != AbsentKey::Reject {
            return chunk;
        }
        let Some(at) = chunk.records.iter().position(|r| r.record.key().is_none()) else {
            return chunk;
        };
        let offset = chunk.records[at].offset;
        chunk.records.truncate(at);
        chunk.next = offset;
        let operation = format!("run subscription \"{}\"", self.subscription);
        self.fail(
            Error::new(ErrorKind::Unsupported, operation)
                .in_partition(claim.partition)
                .at_offset(offset)
                .with_hint(
                    "the record has no key; declare what becomes of such records with `absent_key`",
                ),
        );
        chunk
    }
}

impl DrainHome for Engine {
    fn expire(&self, claim: Claim) -> Drained {
        let drained = self.with(|state, _| {
            if let Some(owned) = state.claims.get_mut(&claim.partition)
                && owned.claim == claim
            {
                owned.cut = true;
            }
            let open = state.executor.revoke(claim, Revoke::Drain);
            Drained { claim, progress: state.executor.progress(claim), open }
        });
        self.tell_cut();
        drained
    }
}
