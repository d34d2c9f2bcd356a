//! What a consumer can be told, with the defaults.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::engine::Hooks;
use super::failure::Classify;
use super::{Policy, Retry};
use crate::executor::Order;
use crate::membership::Subscription;
use crate::runtime::Runtime;
use crate::store::Fence;
use crate::types::{Budget, Timestamp};
use crate::{AbsentKey, Error, ErrorKind};

/// Where a new subscription starts. Resolved once and stored by the first claim: later runs go on
/// where the subscription stopped, whatever they say here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Start {
    /// At the lowest offset that can be read.
    #[default]
    Earliest,
    /// Above everything that can be read when the first run of the subscription claims the
    /// partition, soon after `run` is called: records sent meanwhile may be seen or not.
    Latest,
    /// At the first record that the log took at or after this time (log time).
    At(Timestamp),
}

/// What to do when a subscription's position lies below what its log still has: retention was told
/// not to wait for it, or it was away for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OutOfRange {
    /// The run ends with [`Trimmed`](ErrorKind::Trimmed): somebody should know that records were
    /// not handled.
    #[default]
    Fail,
    /// Go on at the lowest offset that can be read, with a
    /// [`Warning::Skipped`](super::Warning::Skipped).
    Earliest,
    /// Go on above everything that can be read now, with the same warning.
    Latest,
}

pub(crate) struct Options {
    pub(crate) start: Start,
    pub(crate) concurrency: usize,
    pub(crate) retry: Retry,
    pub(crate) policy: Policy,
    pub(crate) budget: Budget,
    pub(crate) commit_every: Duration,
    pub(crate) drain_within: Duration,
    pub(crate) runtime: Option<Arc<dyn Runtime>>,
    pub(crate) workers: Option<usize>,
    pub(crate) classify: Option<Arc<Classify>>,
    pub(crate) absent_key: AbsentKey,
    pub(crate) fences: Vec<Arc<dyn Fence>>,
    pub(crate) hooks: Hooks,
    pub(crate) out_of_range: OutOfRange,
    pub(crate) order: Order,
    pub(crate) global_order: bool,
    pub(crate) batch: (u32, Duration),
    pub(crate) group_interval: Duration,
    pub(crate) turns_per_second: Option<u32>,
    pub(crate) until_end: bool,
    pub(crate) seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: Start::Earliest,
            concurrency: 256,
            retry: Retry::default(),
            policy: Policy::Stop,
            budget: Budget::new(100_000, 64 << 20),
            commit_every: Duration::from_millis(100),
            drain_within: Duration::from_secs(30),
            runtime: None,
            workers: None,
            classify: None,
            absent_key: AbsentKey::Reject,
            fences: Vec::new(),
            hooks: Hooks::default(),
            out_of_range: OutOfRange::Fail,
            order: Order::PerGroup,
            global_order: false,
            batch: (1, Duration::ZERO),
            group_interval: Duration::ZERO,
            turns_per_second: None,
            until_end: false,
            seed: None,
        }
    }
}

impl Options {
    /// Whether anything is set that only the default executor knows.
    pub(crate) fn shapes_chains(&self) -> bool {
        let plain = (Order::default(), (1, Duration::ZERO), Duration::ZERO);
        (self.order, self.batch, self.group_interval) != plain
    }

    pub(crate) fn refusal(&self, subscription: &str, hint: &'static str) -> Error {
        let operation = format!("build a consumer of subscription \"{subscription}\"");
        Error::new(ErrorKind::Config, operation).with_hint(hint)
    }

    pub(crate) fn check(&self, subscription: &Subscription) -> Result<(), Error> {
        let Subscription { name, logs, .. } = subscription;
        let refuse = |hint: &'static str| Err(self.refusal(name, hint));
        let partitions: u64 = logs.iter().map(|log| u64::from(log.info().partitions.get())).sum();
        if self.global_order && partitions > 1 {
            return refuse(
                "a global order exists in one partition only; open the log with one, or ask for \
                 an order per group or per partition",
            );
        }
        let uuids: HashSet<_> = logs.iter().map(|log| log.info().uuid).collect();
        if uuids.len() < logs.len() {
            return refuse("the same log was given twice; each record would run twice");
        }
        if self.batch.0 == 0 {
            return refuse("a batch of 0 records would run nothing; it must be at least 1");
        }
        if name.is_empty() || name.len() > 255 {
            return refuse("a subscription's name has 1 to 255 bytes");
        }
        if self.concurrency == 0 {
            return refuse("concurrency 0 would run nothing; it must be at least 1");
        }
        if self.workers == Some(0) {
            return refuse("0 workers would run nothing; there must be at least 1");
        }
        if self.workers.is_some() && self.runtime.is_none() {
            return refuse("workers are tasks of a runtime; give one with `runtime`");
        }
        if self.turns_per_second == Some(0) {
            return refuse("0 turns per second would run nothing; leave the limit out for none");
        }
        if self.retry.attempts_max() == 0 {
            return refuse("0 attempts would never run the handler; there must be at least 1");
        }
        if self.budget.is_spent() {
            return refuse("a budget of 0 records or 0 bytes would read nothing");
        }
        Ok(())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("start", &self.start)
            .field("concurrency", &self.concurrency)
            .field("retry", &self.retry)
            .field("policy", &self.policy)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}
