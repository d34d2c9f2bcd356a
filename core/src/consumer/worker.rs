//! A worker: takes turns from the executor, runs the handler in its places, hands verdicts back.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::engine::{EndKind, Ended, Engine};
use super::failure::{BoxError, Failure};
use super::places::{Panic, Places};
use crate::executor::{Rest, Turn, TurnId, Verdict};
use crate::runtime::later;
use crate::types::{Claim, GroupKey, Offset};
use crate::{Error, ErrorKind};

/// Polls in one go before the worker lets other tasks of its thread run.
const POLLS_MAX: usize = 512;
/// Turns taken under one lock at the most, so that several workers share fairly.
const TAKE_MAX: usize = 64;

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
}

/// What runs in a place.
struct Running {
    id: TurnId,
    claim: Claim,
    attempt: u32,
    records: u32,
    group: Option<GroupKey>,
    offset: Offset,
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
        engine.worker_begins();
        Self {
            engine,
            index,
            handler,
            places: Places::new(places),
            ended: Vec::new(),
            started: Vec::new(),
            random,
            cuts_seen: 0,
        }
    }

    /// Runs what can run. Ready when the engine is closed; everything was dropped by then.
    pub(crate) fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.engine.workers[self.index].waker.register(cx.waker());
        self.places.register(cx.waker());
        let mut polls = 0;
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
            if polls >= POLLS_MAX {
                // Turns that wake themselves all the time must not keep others from starting.
                self.exchange();
                self.start();
                // Hand over what has ended before giving way.
                self.exchange_ended();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Whether there was a woken turn to poll.
    fn poll_woken(&mut self) -> bool {
        let Some(polled) = self.places.poll_woken() else { return false };
        if let Some((running, output)) = polled {
            self.ended.push(judge(&self.engine, running, output, &mut self.random));
        }
        true
    }

    fn exchange(&mut self) {
        let room = self.places.free().min(TAKE_MAX);
        if room > 0 || !self.ended.is_empty() {
            self.engine.exchange(self.index, &mut self.ended, &mut self.started, room);
        }
    }

    fn start(&mut self) -> usize {
        let count = self.started.len();
        for turn in self.started.drain(..) {
            let running = Running {
                id: turn.id(),
                claim: turn.claim(),
                attempt: turn.attempt(),
                records: turn.records().len() as u32,
                group: turn.group().cloned(),
                offset: turn.record().offset,
            };
            let made = catch_unwind(AssertUnwindSafe(|| (self.handler)(turn)));
            let ended = match made {
                Ok(future) => self.places.start(future, running),
                Err(panic) => Some((running, Err(panic))),
            };
            if let Some((running, output)) = ended {
                self.ended.push(judge(&self.engine, running, output, &mut self.random));
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
        let verdict = Verdict::again(engine.runtime.now(), false);
        places.evict(which, |Running { id, .. }| {
            ended.push(Ended { id, verdict, failure: None, kind: EndKind::Cancelled });
        });
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
        self.engine.worker_ends();
    }
}

/// What a turn's end means.
fn judge<E: Into<BoxError>>(
    engine: &Engine,
    running: Running,
    output: Result<Result<(), E>, Panic>,
    random: &mut fastrand::Rng,
) -> Ended {
    let (failure, kind) = match output {
        Ok(Ok(())) => {
            let verdict = Verdict::done(running.records);
            return Ended { id: running.id, verdict, failure: None, kind: EndKind::Done };
        }
        Ok(Err(error)) => {
            // User code as well: the conversion, and what says of which class it is.
            let of = || Failure::of(error.into(), engine.options.classify.as_deref());
            match catch_unwind(AssertUnwindSafe(of)) {
                Ok(failure) => (failure, EndKind::Failed),
                Err(panic) => (Failure::panic(&*panic), EndKind::Panicked),
            }
        }
        Err(panic) => (Failure::panic(&*panic), EndKind::Panicked),
    };
    let retry = (failure.class() == super::Class::Transient)
        .then(|| engine.options.retry.delay(running.attempt, random))
        .flatten()
        .map(|back_off| later(engine.runtime.now(), failure.delay().unwrap_or(back_off)));
    match retry {
        Some(at) => {
            Ended { id: running.id, verdict: Verdict::again(at, true), failure: None, kind }
        }
        None => {
            let super::Policy::Stop = engine.options.policy;
            let verdict = Verdict { terminal: 0, rest: Rest::Hold };
            let failure = Some(exhausted(engine, &running, failure));
            Ended { id: running.id, verdict, failure, kind }
        }
    }
}

fn exhausted(engine: &Engine, running: &Running, failure: Failure) -> Error {
    let operation = format!("run subscription \"{}\"", engine.subscription);
    let times = if running.attempt == 1 { "attempt" } else { "attempts" };
    let hint = format!("{failure} after {} {times}", running.attempt);
    let error = Error::new(ErrorKind::Exhausted, operation)
        .in_partition(running.claim.partition)
        .at_offset(running.offset)
        .with_hint(hint)
        .caused_by(failure.into_inner());
    match &running.group {
        Some(group) => error.in_group(group.clone()),
        None => error,
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
