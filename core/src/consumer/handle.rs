//! Looking at a run, and ending it, from outside.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::engine::{Engine, Stop};
use super::summary::Summary;
use crate::executor::{Explain, Load, Scope};
use crate::signal::Seen;
use crate::types::{GroupKey, LogId, Partition, PartitionId};

/// Looks at a run and ends it. Cheap to clone; from any thread.
///
/// ```no_run
/// # use procession_core::{ConsumerBuilder, Handle};
/// # fn on_ctrl_c(_: impl FnMut() + 'static) {}
/// # async fn f(builder: ConsumerBuilder) -> Result<(), procession_core::Error> {
/// let consumer = builder.build()?;
/// let handle = consumer.handle();
/// on_ctrl_c(move || handle.request_shutdown());
/// consumer.run(|turn| async move { Ok::<_, std::io::Error>(println!("{turn:?}")) }).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Handle {
    engine: Arc<Engine>,
}

impl Handle {
    pub(crate) const fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Asks the run to end: no new turn starts; running ones may end within
    /// [`drain_within`](super::ConsumerBuilder::drain_within), then they are dropped at their await
    /// points; what is finished is committed, and the run returns. Waits for nothing, so it is for
    /// signal handlers and `select!` arms; whoever holds the run awaits that.
    pub fn request_shutdown(&self) {
        self.engine.stop(Stop::Shutdown);
    }

    /// As [`request_shutdown`](Self::request_shutdown), at the call and not at the first poll. The
    /// future resolves when the run is over, with the number of turns that are still open because
    /// they are blocked inside a poll, or held as a [`Delivery`](super::Delivery).
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the shutdown.
    pub fn shutdown(&self) -> impl Future<Output = usize> + Send + use<> {
        self.request_shutdown();
        let engine = Arc::clone(&self.engine);
        async move {
            let mut seen = Seen::default();
            loop {
                if let Some(open) = engine.left_open() {
                    return open;
                }
                engine.finished.changed(&mut seen).await;
            }
        }
    }

    /// Why a group is where it is: its head, what that is doing, since when, how often it was
    /// tried. `None` when nothing of the group is waiting or running here. It is looked for where the
    /// router of each log puts it; the first log that has something of it answers.
    ///
    /// ```
    /// # fn f(handle: &procession_core::Handle) {
    /// if let Some(why) = handle.explain("case-10011") {
    ///     // "backing off for 63 ms more, 1200 ms so far, attempt 2, at offset 14 of partition 0 …"
    ///     println!("case-10011: {why}");
    /// }
    /// # }
    /// ```
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

    /// What the run has come to so far; `turns_open` is the turns running now.
    #[must_use]
    pub fn counts(&self) -> Summary {
        self.engine.counts()
    }

    /// Groups, open turns, records and bytes held right now.
    #[must_use]
    pub fn load(&self) -> Load {
        self.engine.load()
    }

    /// The partitions that this member owns now, ascending.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionId> {
        self.engine.owned()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subscription = &self.engine.subscription;
        f.debug_struct("Handle").field("subscription", subscription).finish_non_exhaustive()
    }
}
