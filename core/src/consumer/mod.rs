//! Running a handler over a subscription.

mod builder;
mod control;
mod drain;
mod engine;
mod failure;
mod options;
mod places;
mod retry;
mod summary;
mod worker;

pub use builder::ConsumerBuilder;
pub use drain::Drain;
pub use failure::{BoxError, Class, Failure};
pub use options::Start;
pub use retry::{Policy, Retry};
pub use summary::Summary;

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use crate::Error;
use crate::executor::{Explain, Load, Scope, Turn};
use crate::membership::{Membership, Subscription};
use crate::signal::Seen;
use crate::store::OffsetStore;
use crate::types::{GroupKey, LogId, Partition, PartitionId};
use control::Control;
use engine::{Engine, Stop};
use worker::Worker;

/// A consumer that is ready to run: one member of a subscription.
///
/// # Ordering
/// The turns of one group never overlap and follow the order of its records, through retries; the
/// turns of different groups run side by side, up to the concurrency.
///
/// # Durability
/// At least once: a record whose turn ended well is finished for ever once its progress was
/// committed. After a crash, what had no durable progress runs again.
#[must_use = "a consumer does nothing until it is run"]
pub struct Consumer {
    guard: CloseOnDrop,
    store: Arc<dyn OffsetStore>,
    membership: Arc<dyn Membership>,
    subscription: Subscription,
}

impl Consumer {
    fn new(
        engine: Arc<Engine>,
        store: Arc<dyn OffsetStore>,
        membership: Arc<dyn Membership>,
        subscription: Subscription,
    ) -> Self {
        Self { guard: CloseOnDrop(engine), store, membership, subscription }
    }

    /// A handle to look at the run and to end it, from anywhere.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { engine: Arc::clone(&self.guard.0) }
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
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when a record failed for good (the error names group,
    /// partition, offset, attempts and, as its source, the cause), [`Fenced`](crate::ErrorKind::Fenced)
    /// when another member has claimed a partition, [`Locked`](crate::ErrorKind::Locked) when the
    /// subscription has a live member (one that is over, with turns still blocked inside a poll, is
    /// waited for); else what the log or the store failed with. What was
    /// finished is committed before the error is returned, where the store allows it.
    pub async fn run<H, F, E>(self, handler: H) -> Result<Summary, Error>
    where
        H: Fn(Turn) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let Self { guard, store, membership, subscription } = self;
        let engine = &guard.0;
        let control = Control { engine: Arc::clone(engine), store, membership, subscription };
        let mut control = Box::pin(control.run());
        if engine.options.runtime.is_none() {
            let engine = Arc::clone(engine);
            let places = engine.options.concurrency;
            let mut worker = Box::new(Worker::new(engine, 0, handler, places));
            return poll_fn(|cx| {
                if let Poll::Ready(result) = control.as_mut().poll(cx) {
                    return Poll::Ready(result);
                }
                // Ready only once the engine is closed, which the control loop reports.
                let _ = worker.poll_run(cx);
                Poll::Pending
            })
            .await;
        }
        let (workers, places) = (engine.workers.len(), engine.options.concurrency);
        let handler = Arc::new(handler);
        for index in 0..workers {
            let handler = Arc::clone(&handler);
            let share = places / workers + usize::from(index < places % workers);
            let engine = Arc::clone(engine);
            let worker = Worker::new(engine, index, move |turn| handler(turn), share);
            guard.0.runtime.spawn(Box::pin(worker));
        }
        control.await
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("subscription", &self.subscription).finish_non_exhaustive()
    }
}

/// Ends the engine when its run is over or dropped: workers drop what they hold.
struct CloseOnDrop(Arc<Engine>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if !self.0.is_closed() {
            self.0.close();
        }
    }
}

/// Looks at a run and ends it. Cheap to clone; from any thread.
///
/// ```no_run
/// # use procession_core::{ConsumerBuilder, Handle};
/// # fn on_ctrl_c(_: impl FnMut() + 'static) {}
/// # async fn f(builder: ConsumerBuilder) -> Result<(), procession_core::Error> {
/// let consumer = builder.build()?;
/// let handle = consumer.handle();
/// // The request is made at the call; the future need not be awaited.
/// on_ctrl_c(move || drop(handle.shutdown()));
/// consumer.run(|turn| async move { Ok::<_, std::io::Error>(println!("{turn:?}")) }).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Handle {
    engine: Arc<Engine>,
}

impl Handle {
    /// Asks the run to end, at the call: no new turn starts; running ones may end within
    /// [`drain_within`](ConsumerBuilder::drain_within), then they are dropped at their await
    /// points; what is finished is committed. The future resolves when the run is over, with the
    /// number of turns that are still open because they are blocked inside a poll.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the shutdown.
    pub fn shutdown(&self) -> impl Future<Output = usize> + Send + use<> {
        self.engine.stop(Stop::Shutdown);
        let engine = Arc::clone(&self.engine);
        async move {
            let mut seen = Seen::default();
            loop {
                if let Some(summary) = engine.summary() {
                    return summary.open;
                }
                engine.finished.changed(&mut seen).await;
            }
        }
    }

    /// Why a group is where it is: its head, what that is doing, since when, how often it was
    /// tried. `None` when nothing of the group is waiting or running here.
    #[must_use]
    pub fn explain(&self, group: impl Into<GroupKey>) -> Option<Explain> {
        let group = group.into();
        self.engine.logs.iter().enumerate().find_map(|(log, l)| {
            let info = l.info();
            let partition = Partition::new(info.router.route(group.as_ref(), info.partitions));
            let partition = PartitionId::new(LogId::new(log as u32), partition);
            self.engine.explain(&Scope::new(partition, group.clone()))
        })
    }

    /// What the run has come to so far; `open` is the turns running now.
    #[must_use]
    pub fn counts(&self) -> Summary {
        self.engine.counts()
    }

    /// Groups, open turns, records and bytes held right now.
    #[must_use]
    pub fn load(&self) -> Load {
        self.engine.load()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subscription = &self.engine.subscription;
        f.debug_struct("Handle").field("subscription", subscription).finish_non_exhaustive()
    }
}
