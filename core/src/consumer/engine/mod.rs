//! What the workers, the control loop, the deliveries and the membership share: the executor behind
//! one short lock.
//!
//! Nothing is done under the lock but to move the executor: no I/O, no user code, no wakers, no
//! calls into the membership but `Seat::live`, a look at an atomic. What must follow is collected
//! and done after it ([`After`]).
//!
//! ```text
//!  work.rs       turns out to workers and deliveries, verdicts back in
//!  ownership.rs  partitions come (assigned, claimed) and go (drained, lost)
//!  commit.rs     snapshots to the store, by whoever polls
//!  end.rs        why and how a run ends
//! ```

mod commit;
mod end;
mod hooks;
mod ownership;
mod work;

pub(crate) use commit::may_pass;
pub(crate) use end::Stop;
pub(crate) use hooks::Hooks;
pub(crate) use ownership::{Accepted, EngineInlet};
pub(crate) use work::{EndKind, Ended};

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;

use futures::task::AtomicWaker;

use self::commit::Flight;
use self::hooks::HookQueue;
use self::ownership::{Owned, Pending};
use super::drain::DrainState;
use super::options::Options;
use super::pace::Pace;
use super::summary::Summary;
use super::warning::Warning;
use super::watch::Watch;
use crate::executor::{Explain, GroupExecutor, Load, Scope};
use crate::log::{Chunk, Log};
use crate::membership::{Drained, Seat};
use crate::runtime::Runtime;
use crate::signal::Signal;
use crate::store::OffsetStore;
use crate::types::{Budget, Claim, Offset, PartitionId};
use crate::{Error, ErrorKind};

pub(crate) struct Engine {
    state: Mutex<State>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) logs: Vec<Arc<dyn Log>>,
    pub(crate) store: Arc<dyn OffsetStore>,
    pub(crate) subscription: Arc<str>,
    pub(crate) options: Options,
    bells: OnceLock<Box<[WorkerBell]>>,
    /// Something the control loop must look at has changed.
    pub(crate) control: Signal,
    /// The run is over: set once, with what it came to.
    pub(crate) finished: Signal,
    closed: AtomicBool,
    /// The run was asked to end: nothing begins any more.
    stopping: AtomicBool,
    /// Moves when claims are to be cut off.
    cuts: AtomicU64,
    hooks: HookQueue,
    watch: Mutex<Watch>,
}

/// How a worker is woken when there is something to run.
#[derive(Default)]
pub(crate) struct WorkerBell {
    pub(crate) waker: AtomicWaker,
    /// It found nothing to run although it had a free place. Set and read under the state lock.
    idle: AtomicBool,
}

struct State {
    /// From join until the run is over and the last holder gone: until then turns may run that
    /// nobody could drop. It knows the engine, so it must not stay.
    seat: Option<Arc<dyn Seat>>,
    /// Workers that are not gone, and deliveries that are not completed.
    holders: usize,
    executor: Box<dyn GroupExecutor>,
    claims: HashMap<PartitionId, Owned>,
    /// Partitions that are assigned and not yet claimed.
    pending: HashMap<PartitionId, Pending>,
    /// Where each log ended when the run began, by log and partition, if it is to end there.
    ends: Option<Vec<Vec<Offset>>>,
    drains: Vec<Arc<DrainState>>,
    committing: Option<Flight>,
    loads: Vec<(Claim, Offset)>,
    /// How often a delivery of a record was dropped without a verdict; of records that are here.
    abandoned: HashMap<(PartitionId, Offset), u32>,
    pace: Option<Pace>,
    dirty: bool,
    commit_now: bool,
    retry_at: Option<Instant>,
    stop: Option<Stop>,
    failure: Option<Error>,
    summary: Summary,
    /// Every turn has ended or is given up: what is finished now is all there will be.
    drained: bool,
    outcome: Option<Result<Summary, Error>>,
}

/// What to do once the lock is free.
#[derive(Default)]
struct After {
    seat: Option<Arc<dyn Seat>>,
    starts: Vec<(Claim, Offset)>,
    credits: Vec<(Claim, Budget)>,
    reports: Vec<(Arc<DrainState>, Drained)>,
    hooks: bool,
    ring: bool,
    control: bool,
}

impl Engine {
    pub(crate) fn new(
        executor: Box<dyn GroupExecutor>,
        logs: Vec<Arc<dyn Log>>,
        store: Arc<dyn OffsetStore>,
        subscription: Arc<str>,
        runtime: Arc<dyn Runtime>,
        options: Options,
    ) -> Self {
        let pace = options.turns_per_second.and_then(NonZeroU32::new).map(Pace::new);
        Self {
            state: Mutex::new(State {
                seat: None,
                holders: 0,
                executor,
                claims: HashMap::new(),
                pending: HashMap::new(),
                ends: None,
                drains: Vec::new(),
                committing: None,
                loads: Vec::new(),
                abandoned: HashMap::new(),
                pace,
                dirty: false,
                commit_now: false,
                retry_at: None,
                stop: None,
                failure: None,
                summary: Summary::default(),
                drained: false,
                outcome: None,
            }),
            runtime,
            logs,
            store,
            subscription,
            options,
            bells: OnceLock::new(),
            control: Signal::default(),
            finished: Signal::default(),
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            hooks: HookQueue::default(),
            watch: Mutex::new(Watch::new()),
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
            let ring = after.ring && self.bells().iter().any(|w| w.idle.load(Ordering::SeqCst));
            (result, ring)
        };
        self.follow_up(after, ring);
        result
    }

    fn follow_up(&self, after: After, ring: bool) {
        if after.hooks {
            // Before the first record can come, and before a partition is anybody else's.
            self.call_hooks();
        }
        if let Some(seat) = after.seat {
            after.starts.into_iter().for_each(|(claim, from)| seat.start(claim, from));
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

    /// Says how many workers there are, once, before the first of them is made.
    pub(crate) fn set_workers(&self, count: usize) {
        self.bells.get_or_init(|| (0..count).map(|_| WorkerBell::default()).collect());
    }

    pub(crate) fn bells(&self) -> &[WorkerBell] {
        self.bells.get().map_or(&[], |bells| bells)
    }

    /// Whom to wake when there is something to run.
    pub(crate) fn set_waker(&self, worker: usize, waker: &Waker) {
        self.bells()[worker].waker.register(waker);
    }

    /// Wakes the workers that have nothing to do.
    fn ring(&self) {
        for worker in self.bells() {
            if worker.idle.swap(false, Ordering::SeqCst) {
                worker.waker.wake();
            }
        }
    }

    /// Wakes every worker, busy or not.
    fn ring_all(&self) {
        for worker in self.bells() {
            worker.idle.store(false, Ordering::SeqCst);
            worker.waker.wake();
        }
    }

    /// Claims were cut off: has every worker look which of its turns to drop.
    fn tell_cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        self.ring_all();
    }

    // ---- What the control loop looks at ----------------------------------------------------

    /// The membership took us in.
    pub(crate) fn seated(&self, seat: Arc<dyn Seat>) {
        self.lock().seat = Some(seat);
        // What was accepted before there was a seat could not be told to it: nothing is, until now.
        self.ring();
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

    pub(crate) fn open_turns(&self) -> usize {
        self.lock().executor.load().open
    }

    pub(crate) fn explain(&self, scope: &Scope) -> Option<Explain> {
        self.lock().executor.explain(scope)
    }

    pub(crate) fn load(&self) -> Load {
        self.lock().executor.load()
    }

    /// What the run has come to so far.
    pub(crate) fn counts(&self) -> Summary {
        let state = self.lock();
        Summary { turns_open: state.executor.load().open, ..state.summary.clone() }
    }

    /// Looks at the keys of what comes in.
    pub(crate) fn watched(&self, chunk: &Chunk) -> [Option<Warning>; 2] {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).look(chunk)
    }

    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, format!("run subscription \"{}\"", self.subscription))
    }
}

impl State {
    fn collect_credits(&mut self, after: &mut After) {
        while let Some(credit) = self.executor.credit() {
            after.credits.push(credit);
        }
        if !after.credits.is_empty() || !after.starts.is_empty() {
            after.seat.clone_from(&self.seat);
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("subscription", &self.subscription).finish_non_exhaustive()
    }
}
