//! Running a handler over a subscription.

mod builder;
mod control;
mod delivery;
mod drain;
mod engine;
mod failure;
mod handle;
mod judge;
mod options;
mod pace;
mod places;
mod retry;
#[cfg(feature = "tower")]
mod service;
mod stream;
mod summary;
mod warning;
mod watch;
mod worker;

pub use builder::ConsumerBuilder;
pub use delivery::Delivery;
pub use drain::Drain;
pub use failure::{BoxError, Class, Failure};
pub use handle::Handle;
pub use options::{OutOfRange, Start};
pub use retry::{Policy, Retry};
pub use stream::Deliveries;
pub use summary::Summary;
pub use warning::Warning;

use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use crate::executor::Turn;
use crate::membership::{Membership, Subscription};
use crate::runtime::block_on;
use crate::{Error, ErrorKind};
use control::Control;
use engine::Engine;
use worker::Worker;

/// A consumer that is ready to run: one member of a subscription.
///
/// | way | the handler | runs |
/// |---|---|---|
/// | [`run`](Self::run) | async, `Send` | inside this future, or on worker tasks of a runtime |
/// | [`run_local`](Self::run_local) | async, may borrow and hold what is not `Send` | inside this future |
/// | [`run_blocking`](Self::run_blocking) | a plain function | on threads of its own |
/// | `run_service` (feature `tower`) | a tower `Service` | as `run` |
/// | [`stream`](Self::stream) | the caller's own loop | wherever the caller polls |
///
/// # Ordering
/// The turns of one group never overlap and follow the order of its records, through retries and
/// handoffs; the turns of different groups run side by side, up to the concurrency.
///
/// # Durability
/// At least once: a record whose turn ended well is finished for ever once its progress was
/// committed. After a crash, what had no durable progress runs again.
#[must_use = "a consumer does nothing until it is run"]
pub struct Consumer {
    guard: CloseOnDrop,
    membership: Arc<dyn Membership>,
    subscription: Subscription,
}

impl Consumer {
    fn new(
        engine: Arc<Engine>,
        membership: Arc<dyn Membership>,
        subscription: Subscription,
    ) -> Self {
        Self { guard: CloseOnDrop(engine), membership, subscription }
    }

    fn into_parts(self) -> (CloseOnDrop, Control) {
        let Self { guard, membership, subscription } = self;
        let control = Control { engine: Arc::clone(&guard.0), membership, subscription };
        (guard, control)
    }

    /// A handle to look at the run and to end it, from anywhere.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.guard.0))
    }

    /// Joins the subscription and runs `handler` for every record whose turn has come, until
    /// [`Handle::shutdown`], the end (with [`until_end`](ConsumerBuilder::until_end)) or a failure.
    ///
    /// Without a runtime everything happens inside this future, on whatever executor polls it;
    /// with one, the turns run on worker tasks and this future does the rest. A handler that blocks
    /// its thread is noticed and given one turn at a time, so that commits and a shutdown come
    /// through between its turns; it still keeps other turns of that thread waiting.
    ///
    /// An error counts as transient unless it is a [`Failure`] or
    /// [`classify`](ConsumerBuilder::classify) says otherwise; a panic is caught and counts as
    /// transient. Transient failures run again in place after a back-off: only their group waits.
    ///
    /// # Cancel safety
    /// Dropping the future is a crash without the loss: running turns are dropped at their await
    /// points (with a runtime: when their worker is next polled), nothing more is committed, and
    /// what was not committed runs again.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when a record failed for good (the error names group,
    /// partition, offset, attempts and, as its source, the cause), [`Fenced`](ErrorKind::Fenced)
    /// when somebody outside this membership has claimed a partition,
    /// [`Trimmed`](ErrorKind::Trimmed) when retention was faster than this subscription; else what
    /// the log or the store failed with. What was finished is committed before the error is
    /// returned, where the store allows it.
    pub async fn run<H, F, E>(self, handler: H) -> Result<Summary, Error>
    where
        H: Fn(Turn) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let engine = Arc::clone(&self.guard.0);
        if engine.options.runtime.is_none() {
            return self.run_local(handler).await;
        }
        let (_guard, control) = self.into_parts();
        let places = engine.options.concurrency;
        let workers = engine.options.workers.unwrap_or_else(cores).min(places);
        engine.set_workers(workers);
        let handler = Arc::new(handler);
        for index in 0..workers {
            let handler = Arc::clone(&handler);
            let share = places / workers + usize::from(index < places % workers);
            let worker = Worker::new(Arc::clone(&engine), index, move |turn| handler(turn), share);
            engine.runtime.spawn(Box::pin(worker));
        }
        control.run().await
    }

    /// As [`run`](Self::run), with a handler that may borrow from its surroundings and hold what is
    /// not `Send` across its awaits. Everything happens inside this future; a
    /// [`runtime`](ConsumerBuilder::runtime) is used for its clock alone.
    ///
    /// ```
    /// # use procession_core::*;
    /// # async fn f(builder: ConsumerBuilder) -> Result<(), Error> {
    /// let seen = std::cell::RefCell::new(Vec::new());
    /// builder.until_end().run_local(|turn| {
    ///     let seen = &seen;
    ///     async move {
    ///         seen.borrow_mut().push(turn.offset());
    ///         Ok::<_, Error>(())
    ///     }
    /// }).await?;
    /// println!("{} records", seen.into_inner().len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_local<H, F, E>(self, handler: H) -> Result<Summary, Error>
    where
        H: Fn(Turn) -> F,
        F: Future<Output = Result<(), E>>,
        E: Into<BoxError>,
    {
        let (guard, control) = self.into_parts();
        let engine = Arc::clone(&guard.0);
        let places = engine.options.concurrency;
        engine.set_workers(1);
        let mut control = Box::pin(control.run());
        let mut worker = Box::new(Worker::new(engine, 0, handler, places));
        poll_fn(|cx| {
            if let Poll::Ready(result) = control.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            // Ready only once the engine is closed, which the control loop reports.
            let _ = worker.poll_run(cx);
            Poll::Pending
        })
        .await
    }

    /// Runs a handler that is a plain function, on so many threads of its own, one turn at a time
    /// each. [`concurrency`](ConsumerBuilder::concurrency) plays no part. The future does the rest
    /// (reads, claims, commits): keep it polled.
    ///
    /// ```
    /// # use procession_core::*;
    /// # fn print(_: &Turn) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn f(builder: ConsumerBuilder) -> Result<(), Error> {
    /// builder.run_blocking(4, |turn| print(&turn)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// A function cannot be dropped half-way: at a shutdown, and when this future is dropped, a turn
    /// that is running runs to its end on its thread. Until then it keeps its partition from the
    /// next member, and [`Summary::turns_open`] counts it.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`Config`](ErrorKind::Config) for no thread at all,
    /// [`Unavailable`](ErrorKind::Unavailable) if the system refuses one.
    pub async fn run_blocking<H, E>(self, threads: usize, handler: H) -> Result<Summary, Error>
    where
        H: Fn(Turn) -> Result<(), E> + Send + Sync + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let (guard, control) = self.into_parts();
        let engine = &guard.0;
        if threads == 0 {
            let hint = "0 threads would run nothing; there must be at least 1";
            return Err(engine.error(ErrorKind::Config).with_hint(hint));
        }
        engine.set_workers(threads);
        let handler = Arc::new(handler);
        for index in 0..threads {
            let handler = Arc::clone(&handler);
            let worker =
                Worker::new(Arc::clone(engine), index, move |turn| ready(handler(turn)), 1);
            thread::Builder::new()
                .name(format!("procession-turns-{index}"))
                .spawn(move || block_on(worker))
                .map_err(|e| {
                    let hint = format!("thread {} of {threads} could not be started", index + 1);
                    engine.error(ErrorKind::Unavailable).with_hint(hint).caused_by(e)
                })?;
        }
        control.run().await
    }

    /// The turns as a stream, for a loop of the caller's own. See [`Deliveries`].
    pub fn stream(self) -> Deliveries {
        let (guard, control) = self.into_parts();
        Deliveries::new(guard, control)
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("subscription", &self.subscription).finish_non_exhaustive()
    }
}

/// Ends the engine when its run is over or dropped: workers drop what they hold.
pub(crate) struct CloseOnDrop(Arc<Engine>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if !self.0.is_closed() {
            // Nobody is there to be told what it came to.
            let _ = self.0.close(Ok(()));
        }
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
