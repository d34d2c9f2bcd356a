//! Which chain a key leads to.

use crate::AbsentKey;
use crate::executor::Order;
use crate::types::GroupKey;

/// Where a record waits: what the declared order makes of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane<'a> {
    /// In the chain of this name in its partition, behind the records that are there.
    Named(Option<&'a GroupKey>),
    /// In a chain of its own, which no look-up finds.
    Own,
}

/// The order that was declared, and what absent keys are in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    pub(super) order: Order,
    pub(super) absent_key: AbsentKey,
}

impl Lanes {
    #[inline]
    pub(super) fn of<'a>(&self, key: Option<&'a GroupKey>) -> Lane<'a> {
        match self.order {
            Order::PerGroup if key.is_none() && self.absent_key == AbsentKey::Spread => Lane::Own,
            Order::PerGroup => Lane::Named(key),
            Order::PerPartition => Lane::Named(None),
            Order::Unordered => Lane::Own,
        }
    }
}
