//! Consuming as a stream of turns.

use std::fmt;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{Either, select};
use futures::stream::{FusedStream, Stream};

use super::control::Control;
use super::delivery::Delivery;
use super::engine::Engine;
use super::places::{Panic, Places};
use super::{CloseOnDrop, Handle, Summary};
use crate::executor::Turn;
use crate::runtime::BoxFuture;
use crate::{Error, ErrorKind};

/// A stream of [`Delivery`]s: each record when the turn of its group has come.
///
/// The same engine as [`Consumer::run`](super::Consumer::run), the other way round: the loop is the
/// user's. At most [`concurrency`](super::ConsumerBuilder::concurrency) deliveries are out at a
/// time; at the bound the stream waits until one has its verdict. After an error it ends; after
/// [`Handle::shutdown`], or at the end with
/// [`until_end`](super::ConsumerBuilder::until_end), it ends once every delivery has its verdict and
/// progress is committed.
///
/// ```
/// # use procession_core::*;
/// # use futures::StreamExt;
/// # async fn archive(_: &Turn) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn f(builder: ConsumerBuilder) -> Result<(), Error> {
/// // One at a time:
/// let mut deliveries = builder.stream()?;
/// while let Some(delivery) = deliveries.next().await {
///     let delivery = delivery?;
///     let result = archive(&delivery).await;
///     delivery.finish(result)?;
/// }
/// # Ok(()) }
/// # async fn g(builder: ConsumerBuilder) -> Result<(), Error> {
/// use futures::TryStreamExt;
/// // Sixty-four groups side by side, each in order:
/// builder.concurrency(64).stream()?.try_for_each_concurrent(64, |delivery| async move {
///     let result = archive(&delivery).await;
///     delivery.finish(result)
/// }).await?;
/// # Ok(()) }
/// ```
///
/// # Who does the work behind it
/// Reading, claiming and committing happen on the consumer's
/// [`runtime`](super::ConsumerBuilder::runtime), in a task of its own, from the first poll on.
/// Without a runtime they happen when the stream is polled: a loop that works for a minute between
/// two polls commits once a minute. Verdicts never need a poll, and neither does giving partitions
/// up to another member of this process, which commits for this one.
///
/// A stream that is not polled keeps its partitions; what lies in them waits.
///
/// # Combinators
/// - `while let`, `for_each_concurrent`, `try_for_each_concurrent`, `select!`, `StreamExt::fuse`,
///   spawning a task per delivery: work as they read.
/// - `buffer_unordered(n)`, `buffered(n)` after a `map` to futures: fine with n up to the
///   concurrency; `buffered` yields results in the order of deliveries, so one slow group holds
///   results (not turns) of others back.
/// - `chunks(n)`, `ready_chunks(n)`: hold deliveries of n *different* groups, since no second
///   record of a group comes before the first has its verdict. `chunks(n)` waits for ever while
///   fewer than n groups are active. For many records of one group use
///   [`batch`](super::ConsumerBuilder::batch).
/// - `take(n)`, `next().now_or_never()`, a `timeout` around `next()`: lose nothing; a delivery that
///   was not yielded is not out.
/// - Anything that drops items (`filter`, `skip`, `take_while`, `zip` with a shorter stream)
///   *releases* them: they come again. Decide inside and `ack` instead.
/// - `collect`, `fold` without a verdict inside: wait for ever once `concurrency` deliveries are
///   held.
/// - `peekable`, `buffer`-like adapters that hold a delivery: its group waits as long.
///
/// # Ordering
/// As in [`Consumer::run`](super::Consumer::run): deliveries of one group come one after the other,
/// in order, whatever tasks they are handled on.
///
/// # Cancel safety
/// Dropping a pending `next()` loses nothing. Dropping the stream is a crash without the loss:
/// nothing more is committed, deliveries that are still out are answered `Closed`, and what was
/// not committed runs again. For a clean end use [`Handle::shutdown`] and poll until `None`.
#[must_use = "streams do nothing unless polled"]
pub struct Deliveries {
    guard: CloseOnDrop,
    work: Work,
    /// Empty but for a moment: kept for its allocation.
    next: Vec<Turn>,
    over: bool,
}

/// Polls of the control loop in one poll of the stream, so that deliveries come in between.
const POLLS_MAX: usize = 16;

/// Who polls the control loop.
enum Work {
    /// Nobody yet.
    Idle(Option<Control>),
    /// This stream, whenever the loop was woken and not at every poll.
    Here(Places<BoxFuture<'static, Result<Summary, Error>>, ()>),
    /// A task of the runtime.
    Task,
}

impl Deliveries {
    pub(crate) fn new(guard: CloseOnDrop, control: Control) -> Self {
        guard.0.set_workers(1);
        Self { guard, work: Work::Idle(Some(control)), next: Vec::new(), over: false }
    }

    /// A handle to look at the run and to end it, from anywhere.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.guard.0))
    }

    fn begin(&mut self) {
        let Work::Idle(control) = &mut self.work else { return };
        let Some(control) = control.take() else { return };
        let engine = Arc::clone(&self.guard.0);
        let task: BoxFuture<'static, Result<Summary, Error>> = Box::pin(control.run());
        if engine.options.runtime.is_none() {
            let mut places = Places::new(1);
            let ended = places.start(task, ());
            self.work = Work::Here(places);
            if let Some(((), Err(panic))) = ended {
                self.come_out(panic);
            }
            return;
        }
        self.work = Work::Task;
        let runtime = Arc::clone(&engine.runtime);
        runtime.spawn(Box::pin(async move {
            let ends = EndsWithTask(engine);
            let closed = Box::pin(ends.0.until_closed());
            // A stream that was dropped has closed the engine: the loop has nothing more to do.
            if let Either::Right((_, loop_)) = select(task, closed).await {
                drop(loop_);
            }
        }));
    }

    /// Drives the control loop; ready when the run is over.
    fn poll_work(&mut self, cx: &Context<'_>) -> Poll<Result<Summary, Error>> {
        self.begin();
        match &mut self.work {
            Work::Idle(_) => {}
            Work::Here(places) => {
                places.register(cx.waker());
                // What it wakes itself for in between waits for the next poll.
                for _ in 0..POLLS_MAX {
                    match places.poll_woken() {
                        None => break,
                        Some(Some(((), Err(panic)))) => self.come_out(panic),
                        Some(_) => {}
                    }
                }
            }
            // Its end rings the bell of this stream, which keeps one waker.
            Work::Task => {}
        }
        self.guard.0.outcome().map_or(Poll::Pending, Poll::Ready)
    }

    /// The control loop has panicked: the stream is over, and the panic comes out of its poll as it
    /// would out of a run.
    fn come_out(&mut self, panic: Panic) -> ! {
        self.over = true;
        // What it came to is told by the panic.
        let _ = self.guard.0.close(Ok(()));
        resume_unwind(panic)
    }
}

impl Stream for Deliveries {
    type Item = Result<Delivery, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        this.guard.0.set_waker(0, cx.waker());
        if let Poll::Ready(outcome) = this.poll_work(cx) {
            this.over = true;
            return Poll::Ready(outcome.err().map(Err));
        }
        let engine = &this.guard.0;
        match engine.deliver(&mut this.next) {
            Some(turn) => Poll::Ready(Some(Ok(Delivery::new(turn, Arc::clone(engine))))),
            None => Poll::Pending,
        }
    }
}

impl FusedStream for Deliveries {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subscription = &self.guard.0.subscription;
        f.debug_struct("Deliveries").field("subscription", subscription).finish_non_exhaustive()
    }
}

/// Closes the engine when the task of the control loop is gone, ended or not.
struct EndsWithTask(Arc<Engine>);

impl Drop for EndsWithTask {
    fn drop(&mut self) {
        let error = self.0.error(ErrorKind::Unavailable).with_hint(
            "the consumer's task was dropped before the run was over: is its runtime shut down?",
        );
        // Of no effect when the run has come to its end.
        let _ = self.0.close(Err(error));
    }
}
