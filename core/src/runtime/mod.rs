//! The contract of a runtime: a clock, a spawner, a timer. A value, never a feature.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

mod bare;

pub use bare::Bare;
pub(crate) use bare::block_on;

/// A boxed future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the library needs of the world besides futures.
///
/// Without one, everything runs inside the caller's future on any executor, and waits use a
/// process-wide timer thread that starts at the first wait ([`Bare`]). With one, a consumer spreads
/// its turns over worker tasks. Simulations bring their own clock this way.
///
/// # For implementors
/// - `now` never falls
/// - a spawned future runs until it ends or the runtime is shut down
/// - a timer wakes the last waker it was polled with, at or after its time, without polling
pub trait Runtime: Send + Sync {
    /// The monotonic clock.
    fn now(&self) -> Instant;

    /// The wall clock, for timestamps only: nothing is ordered or expired by it.
    fn wall(&self) -> SystemTime;

    /// Runs a future beside the others.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// A timer that is not armed yet.
    fn timer(&self) -> Box<dyn Timer>;
}

#[deny(clippy::missing_trait_methods)]
impl<R: Runtime + ?Sized> Runtime for Arc<R> {
    fn now(&self) -> Instant {
        (**self).now()
    }
    fn wall(&self) -> SystemTime {
        (**self).wall()
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        (**self).spawn(task);
    }
    fn timer(&self) -> Box<dyn Timer> {
        (**self).timer()
    }
}

/// The moment `by` after `now`; as good as never if there is no such moment.
pub(crate) fn later(now: Instant, by: Duration) -> Instant {
    const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    now.checked_add(by.min(AGES)).unwrap_or(now)
}

/// One timer, armed again and again.
pub trait Timer: Send {
    /// Ready at or after `at`; otherwise arms the timer for `at` in place of an earlier moment,
    /// and keeps the waker.
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()>;
}
