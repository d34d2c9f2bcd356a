//! What can be chosen about [`Chains`](super::Chains).

use crate::AbsentKey;
use crate::types::Budget;

use crate::executor::Order;
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
