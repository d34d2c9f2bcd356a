//! A worker: takes turns from the executor, runs the handler in its places, hands verdicts back.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::engine::{Ended, Engine};
use super::failure::BoxError;
use super::judge::Running;
use super::places::Places;
use crate::ErrorKind;
use crate::executor::Turn;

/// Polls in one go before the worker lets other tasks of its thread run.
const POLLS_MAX: usize = 512;
/// Turns taken under one lock at the most, so that several workers share fairly.
const TAKE_MAX: usize = 64;
/// Handlers that hold the thread for longer than this are blocking it: from then on turns are
/// taken one at a time, and other tasks of the thread (commits, a shutdown) run in between.
const BLOCKING: Duration = Duration::from_millis(1);

/// A future that runs turns until the engine is closed. It owns its handler's futures: dropping it
/// drops them at their await points, and their records run again later.
pub(crate) struct Worker<H, F> {
    engine: Arc<Engine>,
    index: usize,
    handler: H,
    places: Places<F, Running>,
    ended: Vec<Ended>,
    started: Vec<Turn>,
    random: fastrand::Rng,
    cuts_seen: u64,
    /// How many turns to take under one lock: doubles while handlers return at once.
    take: usize,
}

impl<H, F, E> Worker<H, F>
where
    H: Fn(Turn) -> F,
    F: Future<Output = Result<(), E>>,
    E: Into<BoxError>,
{
    pub(crate) fn new(engine: Arc<Engine>, index: usize, handler: H, places: usize) -> Self {
        let random = match engine.options.seed {
            Some(seed) => fastrand::Rng::with_seed(seed.wrapping_add(index as u64)),
            None => fastrand::Rng::new(),
        };
        engine.holder_begins();
        Self {
            engine,
            index,
            handler,
            places: Places::new(places),
            ended: Vec::new(),
            started: Vec::new(),
            random,
            cuts_seen: 0,
            take: 1,
        }
    }

    /// Runs what can run. Ready when the engine is closed; everything was dropped by then.
    pub(crate) fn poll_run(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.engine.set_waker(self.index, cx.waker());
        self.places.register(cx.waker());
        let mut polls = 0;
        let mut begun = self.engine.runtime.now();
        loop {
            self.cut_off();
            if self.engine.is_closed() {
                return Poll::Ready(());
            }
            // One woken turn at a time: when it ends, its place is filled before the next is
            // polled, so that no place stands empty while others are busy.
            let mut moved = usize::from(self.poll_woken());
            if moved == 0 || !self.ended.is_empty() {
                self.exchange();
                moved += self.start();
            }
            if moved == 0 {
                return Poll::Pending;
            }
            polls += moved;
            let held = self.held_the_thread(&mut begun);
            if held || polls >= POLLS_MAX {
                if !held {
                    // Turns that wake themselves all the time must not keep others from starting.
                    self.exchange();
                    self.start();
                }
                // Hand over what has ended before giving way.
                self.exchange_ended();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Whether handlers blocked the thread since `begun`; counts from now on.
    fn held_the_thread(&mut self, begun: &mut Instant) -> bool {
        let now = self.engine.runtime.now();
        let held = now.saturating_duration_since(*begun) > BLOCKING;
        *begun = now;
        self.take = if held { 1 } else { (self.take * 2).min(TAKE_MAX) };
        held
    }

    /// Whether there was a woken turn to poll.
    fn poll_woken(&mut self) -> bool {
        let Some(polled) = self.places.poll_woken() else { return false };
        if let Some((running, output)) = polled {
            self.ended.push(running.judge(&self.engine, output, &mut self.random));
        }
        true
    }

    fn exchange(&mut self) {
        let room = self.places.free().min(self.take);
        if room > 0 || !self.ended.is_empty() {
            self.engine.exchange(self.index, &mut self.ended, &mut self.started, room);
        }
    }

    fn start(&mut self) -> usize {
        let count = self.started.len();
        for turn in self.started.drain(..) {
            if self.engine.is_stopping() {
                // Asked to end since it was taken: not begun.
                self.ended.push(Running::cancelled(turn.id(), &self.engine));
                continue;
            }
            let running = Running::of(&turn);
            let made = catch_unwind(AssertUnwindSafe(|| (self.handler)(turn)));
            let ended = match made {
                Ok(future) => self.places.start(future, running),
                Err(panic) => Some((running, Err(panic))),
            };
            if let Some((running, output)) = ended {
                self.ended.push(running.judge(&self.engine, output, &mut self.random));
            }
        }
        count
    }

    /// Drops the turns whose claim was cut off, where they stand.
    fn cut_off(&mut self) {
        let cuts = self.engine.cuts();
        if cuts == self.cuts_seen && !self.engine.is_closed() {
            return;
        }
        self.cuts_seen = cuts;
        let engine = Arc::clone(&self.engine);
        self.evict(|running| engine.is_cut(running.claim));
        self.exchange_ended();
    }
}

impl<H, F> Worker<H, F> {
    fn evict(&mut self, which: impl FnMut(&Running) -> bool) {
        let Self { engine, places, ended, .. } = self;
        places.evict(which, |running| ended.push(Running::cancelled(running.id, engine)));
    }

    fn exchange_ended(&mut self) {
        if !self.ended.is_empty() {
            self.engine.exchange(self.index, &mut self.ended, &mut self.started, 0);
        }
    }
}

impl<H, F> Drop for Worker<H, F> {
    fn drop(&mut self) {
        // The engine lets go of its seat with the last worker, so nothing may run behind this.
        self.evict(|_| true);
        self.exchange_ended();
        if !self.engine.is_closed() {
            let hint =
                "a worker task was dropped before the run was over: is its runtime shut down?";
            self.engine.fail(self.engine.error(ErrorKind::Unavailable).with_hint(hint));
        }
        self.engine.holder_ends();
    }
}

impl<H, F, E> Future for Worker<H, F>
where
    H: Fn(Turn) -> F + Unpin,
    F: Future<Output = Result<(), E>>,
    E: Into<BoxError>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().poll_run(cx)
    }
}

impl<H, F> fmt::Debug for Worker<H, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("index", &self.index).finish_non_exhaustive()
    }
}
