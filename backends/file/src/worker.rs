//! Threads that do one step after another, and sleep without losing a wake-up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Something that works in steps. The thread of a log only loops over it; a simulation calls
/// `step` itself.
pub(crate) trait Worker: Send {
    /// One unit of work.
    fn step(&mut self) -> Pace;
}

/// What to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// There may be more.
    More,
    /// Nothing to do before somebody rings, or this much time has passed.
    Idle(Option<Duration>),
    /// Never again.
    Stop,
}

/// Wakes one worker.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    asleep: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Bell {
    /// There is work. Cheap while the worker is awake.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst)
            && self.asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.sleeper.get()
        {
            thread.unpark();
        }
    }

    /// Waits until it rings. A short watchfulness first: a producer that waits for each record
    /// answers within microseconds, and waking a thread costs more.
    fn wait(&self, limit: Option<Duration>, watchful: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < watchful {
            if self.rung.swap(false, Ordering::SeqCst) {
                return;
            }
            thread::yield_now();
        }
        self.asleep.store(true, Ordering::SeqCst);
        if !self.rung.swap(false, Ordering::SeqCst) {
            match limit {
                Some(limit) => thread::park_timeout(limit),
                None => thread::park(),
            }
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

/// Steps until the worker stops.
pub(crate) fn run(mut worker: impl Worker, bell: &Bell, watchful: Duration) {
    // Only this thread sets it, once.
    let _ = bell.sleeper.set(thread::current());
    loop {
        match worker.step() {
            Pace::More => {}
            Pace::Idle(limit) => bell.wait(limit, watchful),
            Pace::Stop => return,
        }
    }
}
