//! Runs procession on smol: one [`Runtime`] value.
//!
//! ```
//! use procession_core::Runtime;
//! use procession_smol::Smol;
//!
//! let (sender, receiver) = std::sync::mpsc::channel();
//! Smol::new().spawn(Box::pin(async move { drop(sender.send("hello")) }));
//! assert_eq!(receiver.recv()?, "hello");
//! # Ok::<(), std::sync::mpsc::RecvError>(())
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use procession_core::{BoxFuture, Runtime, Timer};
use smol::Timer as Alarm;

/// A [`Runtime`] that spawns on smol's global executor and waits on its reactor.
///
/// Both have threads of their own, which start at the first use, so this works from any thread and
/// inside any other runtime. The global executor has one thread unless the environment variable
/// `SMOL_THREADS` says otherwise: set it to spread turns over cores.
#[derive(Clone, Copy, Debug, Default)]
pub struct Smol(());

impl Smol {
    /// The global executor.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl Runtime for Smol {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        smol::spawn(task).detach();
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(SmolTimer { alarm: Alarm::never(), armed: None })
    }
}

/// One alarm, re-armed for every wait.
struct SmolTimer {
    alarm: Alarm,
    armed: Option<Instant>,
}

impl Timer for SmolTimer {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if at <= Instant::now() {
            return Poll::Ready(());
        }
        if self.armed != Some(at) {
            self.alarm.set_at(at);
            self.armed = Some(at);
        }
        match Pin::new(&mut self.alarm).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => {
                // The alarm is used up: the same moment must be armed anew.
                self.armed = None;
                Poll::Ready(())
            }
        }
    }
}

impl fmt::Debug for SmolTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmolTimer").field("armed", &self.armed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
