//! Waiting for what must happen, but not for ever.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use procession_core::{Bare, Runtime};

static PATIENCE_MS: AtomicU64 = AtomicU64::new(20_000);

/// How long a check waits for something that must happen before it calls it lost: 20 seconds,
/// unless [`set_patience`] was called.
#[must_use]
pub fn patience() -> Duration {
    Duration::from_millis(PATIENCE_MS.load(Ordering::Relaxed))
}

/// Sets the [`patience`] of this process: longer for a backend behind a slow network, shorter to
/// see a check fail soon.
pub fn set_patience(patience: Duration) {
    let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    PATIENCE_MS.store(millis, Ordering::Relaxed);
}

/// Awaits `future`; panics with `else_` if it takes longer than the patience.
pub(crate) async fn soon<F: Future>(future: F, else_: &str) -> F::Output {
    let deadline = Instant::now() + patience();
    let mut timer = Bare.timer();
    let timeout = pin!(poll_fn(|cx| timer.poll_at(deadline, cx)));
    match select(pin!(future), timeout).await {
        Either::Left((output, _)) => output,
        Either::Right(_) => panic!("after {:?}: {else_}", patience()),
    }
}
