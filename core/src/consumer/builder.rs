//! Building a consumer.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::failure::{BoxError, Class};
use super::options::{Options, Start};
use super::{Consumer, Policy, Retry, Summary};
use crate::executor::{Chains, ChainsOptions, GroupExecutor, Turn};
use crate::log::Log;
use crate::membership::{LocalMembership, Membership, Subscription};
use crate::runtime::{Bare, Runtime};
use crate::store::{Fence, OffsetStore};
use crate::types::Budget;
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
            subscription: Subscription { name: name.into(), logs: vec![Arc::new(log)] },
            store: Arc::new(store),
            membership: Arc::new(LocalMembership::new()),
            executor: None,
            options: Options::default(),
        }
    }

    /// Who decides which member owns which partition.
    pub fn membership(mut self, membership: impl Membership + 'static) -> Self {
        self.membership = Arc::new(membership);
        self
    }

    /// Where a new subscription starts; ignored once there is progress.
    pub const fn start(mut self, start: Start) -> Self {
        self.options.start = start;
        self
    }

    /// How many turns run at a time. Parallelism is the number of active groups, up to this.
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
    /// ended since the last commit runs again. Zero commits as fast as the store answers.
    pub const fn commit_every(mut self, interval: Duration) -> Self {
        self.options.commit_every = interval;
        self
    }

    /// How long running turns may take to end once the run is asked to; then they are dropped at
    /// their await point. That is not an attempt: their records run again.
    pub const fn drain_within(mut self, limit: Duration) -> Self {
        self.options.drain_within = limit;
        self
    }

    /// What becomes of records without a key.
    pub const fn absent_key(mut self, policy: AbsentKey) -> Self {
        self.options.absent_key = policy;
        self
    }

    /// Spreads the turns over worker tasks of this runtime, and uses its clock and timers.
    pub fn runtime(mut self, runtime: impl Runtime + 'static) -> Self {
        self.options.runtime = Some(Arc::new(runtime));
        self
    }

    /// How many worker tasks share the turns; only with a [`runtime`](Self::runtime). More than
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

    /// Another executor than [`Chains`].
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
        self.options.check(&self.subscription.name)?;
        let executor = self.executor.take().unwrap_or_else(|| self.chains());
        let Self { subscription, store, membership, options, .. } = self;
        let workers = match &options.runtime {
            None => 1,
            Some(_) => options.workers.unwrap_or_else(cores).min(options.concurrency),
        };
        let runtime = options.runtime.clone().unwrap_or_else(|| Arc::new(Bare));
        let (logs, name) = (subscription.logs.clone(), Arc::clone(&subscription.name));
        let engine = Arc::new(Engine::new(executor, logs, name, runtime, options, workers));
        Ok(Consumer::new(engine, store, membership, subscription))
    }

    /// Builds and runs; see [`Consumer::run`].
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

    fn chains(&self) -> Box<dyn GroupExecutor> {
        let rereadable = self.subscription.logs.iter().all(|log| log.info().rereadable);
        let mut options = ChainsOptions::new()
            .budget(self.options.budget)
            .absent_key(self.options.absent_key)
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

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
