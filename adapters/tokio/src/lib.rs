//! Runs procession on tokio: one [`Runtime`] value.
//!
//! ```
//! use procession_core::Runtime;
//! use procession_tokio::Tokio;
//!
//! let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
//! let tokio = Tokio::from(runtime.handle().clone());
//! let (sender, receiver) = std::sync::mpsc::channel();
//! tokio.spawn(Box::pin(async move { drop(sender.send("hello")) }));
//! assert_eq!(receiver.recv()?, "hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use procession_core::{Bare, BoxFuture, Error, ErrorKind, Runtime, Timer};
use tokio::runtime::Handle;
use tokio::time::Sleep;

/// A [`Runtime`] that spawns on a tokio runtime and waits on its timers.
///
/// It needs the time driver (`enable_time`, or `#[tokio::main]`), and works from any thread: what
/// it spawns and arms belongs to its runtime, not to the thread that calls. It holds a handle, so it
/// does not keep the runtime alive; once that is shut down, spawned futures are dropped.
///
/// Timers are as coarse as tokio's: they fire up to about a millisecond late, never early. The
/// clock is the real one: under `tokio::time::pause` timers would run ahead of it, so tests that
/// want a clock of their own bring a [`Runtime`] of their own.
#[derive(Clone, Debug)]
pub struct Tokio {
    handle: Handle,
}

impl Tokio {
    /// The runtime that the caller runs in.
    ///
    /// # Panics
    /// Outside a tokio runtime; see [`try_current`](Self::try_current).
    #[must_use]
    pub fn current() -> Self {
        Self::from(Handle::current())
    }

    /// The runtime that the caller runs in, if any.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] outside a tokio runtime.
    pub fn try_current() -> Result<Self, Error> {
        Handle::try_current().map(Self::from).map_err(|cause| {
            Error::new(ErrorKind::Unavailable, "find the current tokio runtime")
                .with_hint("call it inside a tokio runtime, or use `Tokio::from(handle)`")
                .caused_by(cause)
        })
    }
}

impl From<Handle> for Tokio {
    fn from(handle: Handle) -> Self {
        Self { handle }
    }
}

impl Runtime for Tokio {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(self.handle.spawn(task));
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(TokioTimer { handle: self.handle.clone(), sleep: None, orphaned: None })
    }
}

/// One boxed sleep, made at the first wait and re-armed ever after.
struct TokioTimer {
    handle: Handle,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Takes over once tokio's timers are gone.
    orphaned: Option<Box<dyn Timer>>,
}

impl Timer for TokioTimer {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if at <= Instant::now() {
            return Poll::Ready(());
        }
        if let Some(timer) = &mut self.orphaned {
            return timer.poll_at(at, cx);
        }
        let deadline = tokio::time::Instant::from_std(at);
        // The sleep finds its driver, and takes part in tokio's budget, by the thread's context.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _entered = self.handle.enter();
            let sleep =
                self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if sleep.deadline() != deadline {
                sleep.as_mut().reset(deadline);
            }
            sleep.as_mut().poll(cx)
        }));
        polled.unwrap_or_else(|_| {
            // A runtime that is being shut down panics at this, and there is no way to ask it first.
            // Whoever waits here may well outlive it: another member that takes a partition over.
            self.sleep = None;
            self.orphaned.insert(Bare.timer()).poll_at(at, cx)
        })
    }
}

impl fmt::Debug for TokioTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioTimer").field("sleep", &self.sleep).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
