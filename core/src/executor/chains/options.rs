//! What can be chosen about [`Chains`](super::Chains).

use std::time::Duration;

use crate::AbsentKey;
use crate::executor::Order;
use crate::types::Budget;

/// Options of [`Chains`](super::Chains); the defaults are good for most.
///
/// ```
/// use procession_core::{Budget, Chains, ChainsOptions};
/// let options = ChainsOptions::new().budget(Budget::new(10_000, 8 << 20)).rereadable(true);
/// let chains = Chains::new(options);
/// # let _ = chains;
/// ```
#[derive(Clone, Debug)]
pub struct ChainsOptions {
    pub(super) budget: Budget,
    pub(super) bodies_max: u32,
    /// Whether `bodies_max` holds while there is room, too.
    pub(super) bodies_strict: bool,
    pub(super) rereadable: bool,
    pub(super) ranges_max: usize,
    pub(super) turn_records_max: u32,
    pub(super) linger: Duration,
    pub(super) group_interval: Duration,
    pub(super) order: Order,
    pub(super) absent_key: AbsentKey,
    pub(super) seed: Option<(u64, u64)>,
}

impl Default for ChainsOptions {
    fn default() -> Self {
        Self {
            budget: Budget::new(100_000, 64 << 20),
            bodies_max: 64,
            bodies_strict: false,
            rereadable: false,
            ranges_max: 16_384,
            turn_records_max: 1,
            linger: Duration::ZERO,
            group_interval: Duration::ZERO,
            order: Order::PerGroup,
            absent_key: AbsentKey::Reject,
            seed: None,
        }
    }
}

impl ChainsOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How much may be held over all claims: records that are not terminal, and the bytes of their
    /// bodies. 100,000 records and 64 MiB by default.
    ///
    /// Every claim has an equal share of it, at least one record, so that one stuck partition never
    /// starves another. At its share a claim is read no further until some of it is terminal. When a
    /// claim is added, the shares shrink; what was delivered under a larger share stays until it is
    /// done, so the total may exceed the budget for that long.
    #[must_use]
    pub const fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// How many records of one group are kept with their bodies, at least one. Of further ones only
    /// the offset is kept, and the body is read again when its turn comes. Only where records are
    /// [`rereadable`](Self::rereadable).
    ///
    /// By default 64, and only while the partition holds more than half of its share of the bytes:
    /// reading again costs far more than keeping what there is room for. A number given here holds
    /// always.
    #[must_use]
    pub const fn bodies_max(mut self, records: u32) -> Self {
        self.bodies_max = if records == 0 { 1 } else { records };
        self.bodies_strict = true;
        self
    }

    /// Whether a record can be read a second time at any moment
    /// ([`LogInfo::rereadable`](crate::LogInfo::rereadable)). False by default.
    #[must_use]
    pub const fn rereadable(mut self, yes: bool) -> Self {
        self.rereadable = yes;
        self
    }

    /// From how many finished ranges on (records that are done behind one that is not) a claim is
    /// read no further, until there are fewer; 16,384 by default. What is already delivered still
    /// runs, so there are never more ranges than that and the claim's share of records together.
    #[must_use]
    pub const fn ranges_max(mut self, ranges: usize) -> Self {
        self.ranges_max = ranges;
        self
    }

    /// How many records a turn may have, at least one, and how long a group waits for so many. One
    /// record and no wait by default.
    ///
    /// A turn takes the head of a scope and those right behind it whose bodies are here (beyond
    /// [`bodies_max`](Self::bodies_max) a turn is shorter). Its verdict says how many of them became
    /// terminal; the rest stays the head, and a retry takes what has come since along.
    ///
    /// A head that nothing was done with lingers while fewer than `records_max` records of its
    /// scope are here, for at most `linger` since it became the head with nothing open. A retry does
    /// not, nor does a group that is held to be moved away (its turns have one record each), nor a
    /// record that is a scope of its own. Lingering delays only its group, and ends by time alone:
    /// also when a claim is at its share of the [`budget`](Self::budget), so that the records which
    /// the group waits for cannot come.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession_core::{Chains, ChainsOptions};
    /// // Up to sixteen records of one group at a time, none later than it must be.
    /// let greedy = Chains::new(ChainsOptions::new().batch(16, Duration::ZERO));
    /// // Fewer and fuller turns, up to five milliseconds later.
    /// let patient = Chains::new(ChainsOptions::new().batch(16, Duration::from_millis(5)));
    /// # let _ = (greedy, patient);
    /// ```
    #[must_use]
    pub const fn batch(mut self, records_max: u32, linger: Duration) -> Self {
        self.turn_records_max = if records_max == 0 { 1 } else { records_max };
        self.linger = linger;
        self
    }

    /// How far apart two turns of one group start, from start to start; zero by default. It holds
    /// for a retry too, for a record that is moved away, and for a partition that goes away and
    /// comes back to this member. Other groups are not concerned.
    ///
    /// A group that has become empty is remembered until its interval has passed, so at most as
    /// many are as turns start in one interval; nothing is allocated for it. Of a group whose
    /// partition goes away in the middle of a back-off, only the end of its last turn is known, and
    /// it waits from there. Under [`Order::Unordered`] every record is its own scope: only its own
    /// retries are kept apart.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession_core::{Chains, ChainsOptions};
    /// // No account is called more than ten times a second.
    /// let options = ChainsOptions::new().group_interval(Duration::from_millis(100));
    /// # let _ = Chains::new(options);
    /// ```
    #[must_use]
    pub const fn group_interval(mut self, interval: Duration) -> Self {
        self.group_interval = interval;
        self
    }

    /// Which records wait for each other; [`Order::PerGroup`] by default. A promise of the
    /// subscription: the same for its whole life.
    ///
    /// ```
    /// use procession_core::{Chains, ChainsOptions, Order};
    /// // Whatever the keys: one record of a partition at a time.
    /// let chains = Chains::new(ChainsOptions::new().order(Order::PerPartition));
    /// # let _ = chains;
    /// ```
    #[must_use]
    pub const fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// What becomes of records without a key, under [`Order::PerGroup`]. `Spread`: each is a scope of its own. `Serial`: all
    /// of a partition are one scope. `Reject` is the consumer's matter, before it admits; here it
    /// is as `Serial`, the safe one. `Reject` by default.
    #[must_use]
    pub const fn absent_key(mut self, policy: AbsentKey) -> Self {
        self.absent_key = policy;
        self
    }

    /// Seeds the hash of keys, for a replay. Random per process by default: keys come from outside,
    /// and whoever knows the seed can choose keys that all collide.
    #[must_use]
    pub const fn seed(mut self, seed: (u64, u64)) -> Self {
        self.seed = Some(seed);
        self
    }
}
