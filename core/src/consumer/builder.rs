//! Building a consumer.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::failure::{BoxError, Class};
use super::options::{Options, OutOfRange, Start};
use super::{Consumer, Deliveries, Policy, Retry, Summary, Warning};
use crate::executor::{Chains, ChainsOptions, GroupExecutor, Order, Turn};
use crate::log::Log;
use crate::membership::{LocalMembership, Membership, Subscription};
use crate::runtime::{Bare, Runtime};
use crate::store::{Fence, OffsetStore};
use crate::types::{Budget, Claim};
use crate::{AbsentKey, Error};

/// What a consumer will be. Every setting has a default:
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | [`start`](Self::start) | earliest | |
/// | [`concurrency`](Self::concurrency) | 256 turns at a time | ready groups wait, longest chain first |
/// | [`budget`](Self::budget) | 100,000 records, 64 MiB held | a partition whose share is used up waits; others go on |
/// | [`retry`](Self::retry) | 8 attempts, 100 ms doubling to 30 s, jittered | the policy decides |
/// | [`on_exhausted`](Self::on_exhausted) | [`Policy::Stop`] | |
/// | [`commit_every`](Self::commit_every) | 100 ms, while there is something to commit | |
/// | [`drain_within`](Self::drain_within) | 30 s | turns are dropped at their await point |
/// | [`absent_key`](Self::absent_key) | [`AbsentKey::Reject`] | the run ends with an error |
/// | [`order`](Self::order) | [`Order::PerGroup`] | |
/// | [`batch`](Self::batch) | one record a turn, no linger | |
/// | [`group_interval`](Self::group_interval), [`turns_per_second`](Self::turns_per_second) | no limit | turns wait |
/// | [`out_of_range`](Self::out_of_range) | [`OutOfRange::Fail`] | the run ends with an error |
/// | [`runtime`](Self::runtime) | none: inside the caller's future | |
/// | [`workers`](Self::workers) | with a runtime: one per core | |
#[must_use = "a consumer does nothing until it is run"]
pub struct ConsumerBuilder {
    subscription: Subscription,
    store: Arc<dyn OffsetStore>,
    membership: Arc<dyn Membership>,
    executor: Option<Box<dyn GroupExecutor>>,
    options: Options,
}

impl ConsumerBuilder {
    /// A consumer of the subscription `name` over one log, with its progress in `store`.
    ///
    /// The membership is private to this builder: nothing keeps a second consumer of the same
    /// subscription from running beside it, and fencing it. Logs that ship their own `subscribe`
    /// share one; see [`membership`](Self::membership).
    pub fn new(
        name: impl Into<Arc<str>>,
        log: impl Log + 'static,
        store: impl OffsetStore + 'static,
    ) -> Self {
        Self {
            subscription: Subscription::new(name, vec![Arc::new(log)]),
            store: Arc::new(store),
            membership: Arc::new(LocalMembership::new()),
            executor: None,
            options: Options::default(),
        }
    }

    /// Reads this log as well. May be called several times; each log has its partitions, its
    /// positions and its share of the budget, and none waits for another. A group is a key *in one
    /// log*: equal keys of two logs are two groups.
    pub fn log(mut self, log: impl Log + 'static) -> Self {
        self.subscription.logs.push(Arc::new(log));
        self
    }

    /// Keeps the progress in another store than the log's own: in the database where the effects are.
    /// What the log knows of its subscriptions (lag, what they pin) it knows of its own store alone.
    pub fn store(mut self, store: impl OffsetStore + 'static) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Who decides which member owns which partition.
    pub fn membership(mut self, membership: impl Membership + 'static) -> Self {
        self.membership = Arc::new(membership);
        self
    }

    /// Where a new subscription starts, the earliest record by default; ignored once there is
    /// progress. For a moment: `Start::At(system_time.into())`.
    pub const fn start(mut self, start: Start) -> Self {
        self.options.start = start;
        self
    }

    /// How many turns run at a time, 256 by default; 0 is refused when the consumer is built.
    /// Parallelism is the number of active groups, up to this.
    pub const fn concurrency(mut self, turns: usize) -> Self {
        self.options.concurrency = turns;
        self
    }

    /// How a transient failure is tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.options.retry = retry;
        self
    }

    /// What happens to a record that failed for good.
    pub const fn on_exhausted(mut self, policy: Policy) -> Self {
        self.options.policy = policy;
        self
    }

    /// The class of the handler's errors, where they are not [`Failure`](super::Failure)s.
    /// Without this, every error is transient.
    ///
    /// ```
    /// # use procession_core::*;
    /// # use std::io;
    /// # fn f(builder: ConsumerBuilder) -> ConsumerBuilder {
    /// builder.classify(|error| match error.downcast_ref::<io::Error>() {
    ///     Some(e) if e.kind() == io::ErrorKind::InvalidData => Class::Corrupt,
    ///     Some(e) if e.kind() == io::ErrorKind::PermissionDenied => Class::Permanent,
    ///     _ => Class::Transient,
    /// })
    /// # }
    /// ```
    ///
    /// It gets what the handler returned. A wrapper hides the type of what it carries, `anyhow` too:
    /// look along [`source`](StdError::source), or return [`Failure`](super::Failure)s.
    pub fn classify(
        mut self,
        classify: impl Fn(&(dyn StdError + 'static)) -> Class + Send + Sync + 'static,
    ) -> Self {
        self.options.classify = Some(Arc::new(classify));
        self
    }

    /// What may be held in memory: queued, running and waiting for a retry. Every partition has an
    /// equal share, so that one that is stuck starves no other; at least one record is always read.
    pub const fn budget(mut self, budget: Budget) -> Self {
        self.options.budget = budget;
        self
    }

    /// How often progress is made durable while there is something to commit. After a crash, what
    /// ended since the last commit runs again. 100 ms by default; zero commits as fast as the store
    /// answers.
    pub const fn commit_every(mut self, interval: Duration) -> Self {
        self.options.commit_every = interval;
        self
    }

    /// How long running turns may take to end once the run is asked to; then they are dropped at
    /// their await point. That is not an attempt: their records run again. As long, too, the last commit
    /// is tried again if the store is only busy. 30 s by default.
    pub const fn drain_within(mut self, limit: Duration) -> Self {
        self.options.drain_within = limit;
        self
    }

    /// What becomes of records without a key: [`AbsentKey::Reject`] by default, which ends the run
    /// at the first.
    pub const fn absent_key(mut self, policy: AbsentKey) -> Self {
        self.options.absent_key = policy;
        self
    }

    /// Spreads the turns over worker tasks of this runtime, and uses its clock and timers.
    pub fn runtime(mut self, runtime: impl Runtime + 'static) -> Self {
        self.options.runtime = Some(Arc::new(runtime));
        self
    }

    /// How many worker tasks share the turns, one per core by default; only with a
    /// [`runtime`](Self::runtime), refused without one when the consumer is built. More than
    /// [`concurrency`](Self::concurrency) makes no sense and is cut to it.
    pub const fn workers(mut self, workers: usize) -> Self {
        self.options.workers = Some(workers);
        self
    }

    /// A sink that is told of every claim before the first turn, so that it can refuse effects of
    /// an older epoch. May be called several times.
    pub fn fence(mut self, fence: impl Fence + 'static) -> Self {
        self.options.fences.push(Arc::new(fence));
        self
    }

    /// In which order records run; [`Order::PerGroup`] by default.
    pub const fn order(mut self, order: Order) -> Self {
        self.options.order = order;
        self.options.global_order = false;
        self
    }

    /// Runs all records one after the other, in the one order there is: that of a log with a single
    /// partition. Refused when the consumer is built if there are more: nothing orders the records
    /// of two partitions. Of this and [`order`](Self::order), the later call counts.
    pub const fn global_order(mut self) -> Self {
        self.options.order = Order::PerPartition;
        self.options.global_order = true;
        self
    }

    /// Turns of up to so many consecutive records of one group; see [`Turn::records`]. A group with
    /// fewer waits up to `linger` for more before its turn starts; with zero it never waits. A
    /// handler's `Ok` finishes all of them; [`Failure::after_first`](super::Failure::after_first)
    /// says how many leading ones are done, and the rest stays in order. One record by default.
    ///
    /// So a handler must look at all of [`Turn::records`]: [`Turn::payload`] and its like are those
    /// of the first alone, and `Ok` acknowledges the others unseen.
    ///
    /// ```
    /// # use procession_core::*;
    /// # async fn insert(_: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn f(builder: ConsumerBuilder) -> Result<(), Error> {
    /// builder.batch(100, std::time::Duration::from_millis(20)).run(|turn| async move {
    ///     for (done, stored) in turn.records().iter().enumerate() {
    ///         let failed = |e| Failure::transient(e).after_first(done as u32);
    ///         insert(stored.payload()).await.map_err(failed)?;
    ///     }
    ///     Ok::<_, Failure>(())
    /// }).await?;
    /// # Ok(()) }
    /// ```
    pub const fn batch(mut self, records_max: u32, linger: Duration) -> Self {
        self.options.batch = (records_max, linger);
        self
    }

    /// At least so much time from the start of one turn of a group to the start of its next, for a
    /// sink that takes so many changes of one entity a second. No limit by default.
    pub const fn group_interval(mut self, interval: Duration) -> Self {
        self.options.group_interval = interval;
        self
    }

    /// At most so many turns started a second, over all groups of this member, evenly spread; what
    /// is not used in a tenth of a second is gone. No limit by default; 0 is refused when the
    /// consumer is built.
    pub const fn turns_per_second(mut self, turns: u32) -> Self {
        self.options.turns_per_second = Some(turns);
        self
    }

    /// Called with the claims that were accepted, before the first turn under them starts: the
    /// place to fill a cache per group. From whatever thread the news comes on, one call after
    /// another and in order with [`on_revoked`](Self::on_revoked); it must not block for long, and
    /// a panic ends the run with an [`Unknown`](crate::ErrorKind::Unknown) error.
    ///
    /// ```
    /// # use procession_core::*;
    /// # use std::collections::HashMap;
    /// # use std::sync::{Arc, Mutex};
    /// # fn f(builder: ConsumerBuilder) -> ConsumerBuilder {
    /// // What a member knows of the groups it owns, and forgets with them.
    /// let cache: Arc<Mutex<HashMap<PartitionId, HashMap<GroupKey, u64>>>> = Arc::default();
    /// let (fill, empty) = (Arc::clone(&cache), cache);
    /// builder
    ///     .on_assigned(move |claims| {
    ///         let mut cache = fill.lock().expect("no holder panicked");
    ///         cache.extend(claims.iter().map(|claim| (claim.partition, HashMap::new())));
    ///     })
    ///     .on_revoked(move |claims| {
    ///         let mut cache = empty.lock().expect("no holder panicked");
    ///         for claim in claims {
    ///             cache.remove(&claim.partition);
    ///         }
    ///     })
    /// # }
    /// ```
    pub fn on_assigned(mut self, hook: impl Fn(&[Claim]) + Send + Sync + 'static) -> Self {
        self.options.hooks.assigned = Some(Arc::new(hook));
        self
    }

    /// Called with the claims that were given up, before another member may have their partitions.
    /// After a drain no turn of them runs any more and what is finished is committed; when a
    /// partition was lost without one, old turns may still run. Not called when the run is dropped.
    pub fn on_revoked(mut self, hook: impl Fn(&[Claim]) + Send + Sync + 'static) -> Self {
        self.options.hooks.revoked = Some(Arc::new(hook));
        self
    }

    /// Called with what a person should look at though it stops nothing; it is logged with
    /// `tracing` in any case.
    pub fn on_warning(mut self, hook: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.options.hooks.warning = Some(Arc::new(hook));
        self
    }

    /// What to do when records that were not handled are gone from the log:
    /// [`OutOfRange::Fail`] by default.
    pub const fn out_of_range(mut self, choice: OutOfRange) -> Self {
        self.options.out_of_range = choice;
        self
    }

    /// Another executor than [`Chains`]. [`budget`](Self::budget) and [`absent_key`](Self::absent_key)
    /// are its own matter then; an order, a batch or an interval that is set here is refused when the
    /// consumer is built, since it would do nothing.
    pub fn executor(mut self, executor: impl GroupExecutor + 'static) -> Self {
        self.executor = Some(Box::new(executor));
        self
    }

    /// Ends the run once everything is finished that could be read when it started.
    pub const fn until_end(mut self) -> Self {
        self.options.until_end = true;
        self
    }

    /// Fixes what is random (hash seeds, jitter), for replays.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.options.seed = Some(seed);
        self
    }

    /// Checks the settings. The consumer joins when it is run.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) if a setting makes no sense.
    pub fn build(mut self) -> Result<Consumer, Error> {
        self.options.check(&self.subscription)?;
        if self.executor.is_some() && self.options.shapes_chains() {
            return Err(self.options.refusal(
                &self.subscription.name,
                "`order`, `batch` and `group_interval` are settings of the default executor; give \
                 them to the one you pass to `executor`",
            ));
        }
        let executor = self.executor.take().unwrap_or_else(|| self.chains());
        let Self { mut subscription, store, membership, options, .. } = self;
        subscription.out_of_range = options.out_of_range;
        let runtime = options.runtime.clone().unwrap_or_else(|| Arc::new(Bare));
        let (logs, name) = (subscription.logs.clone(), Arc::clone(&subscription.name));
        let engine = Arc::new(Engine::new(executor, logs, store, name, runtime, options));
        Ok(Consumer::new(engine, membership, subscription))
    }

    /// Builds and runs; see [`Consumer::run`]. To end it from outside, [`build`](Self::build) first
    /// and keep the [`handle`](Consumer::handle).
    ///
    /// # Cancel safety
    /// As [`Consumer::run`].
    ///
    /// # Errors
    /// As [`build`](Self::build) and [`Consumer::run`].
    pub async fn run<H, F, E>(self, handler: H) -> Result<Summary, Error>
    where
        H: Fn(Turn) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        self.build()?.run(handler).await
    }

    /// Builds and runs inside this future, with a handler that may borrow; see
    /// [`Consumer::run_local`].
    ///
    /// # Cancel safety
    /// As [`Consumer::run_local`].
    ///
    /// # Errors
    /// As [`build`](Self::build) and [`Consumer::run_local`].
    pub async fn run_local<H, F, E>(self, handler: H) -> Result<Summary, Error>
    where
        H: Fn(Turn) -> F,
        F: Future<Output = Result<(), E>>,
        E: Into<BoxError>,
    {
        self.build()?.run_local(handler).await
    }

    /// Builds and runs a plain function on so many threads; see [`Consumer::run_blocking`].
    ///
    /// # Cancel safety
    /// As [`Consumer::run_blocking`].
    ///
    /// # Errors
    /// As [`build`](Self::build) and [`Consumer::run_blocking`].
    pub async fn run_blocking<H, E>(self, threads: usize, handler: H) -> Result<Summary, Error>
    where
        H: Fn(Turn) -> Result<(), E> + Send + Sync + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        self.build()?.run_blocking(threads, handler).await
    }

    /// Builds, and yields the turns as a stream; see [`Deliveries`].
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn stream(self) -> Result<Deliveries, Error> {
        Ok(self.build()?.stream())
    }

    fn chains(&self) -> Box<dyn GroupExecutor> {
        let rereadable = self.subscription.logs.iter().all(|log| log.info().rereadable);
        let mut options = ChainsOptions::new()
            .budget(self.options.budget)
            .absent_key(self.options.absent_key)
            .order(self.options.order)
            .batch(self.options.batch.0, self.options.batch.1)
            .group_interval(self.options.group_interval)
            .rereadable(rereadable);
        if let Some(seed) = self.options.seed {
            options = options.seed((seed, seed.rotate_left(32)));
        }
        Box::new(Chains::new(options))
    }
}

impl fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("subscription", &self.subscription)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
