//! Membership for members inside one process, over any log.
//!
//! ```text
//!  plan.rs   who should own what: a pure function
//!  roll.rs   who owns what now, and what is on its way: a state machine
//!  seat.rs   one member: takes over what is its own, reads what it owns
//! ```

mod plan;
mod roll;
mod seat;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use self::roll::Roll;
use self::seat::LocalSeat;
use super::{Inlet, Membership, Seat, Subscription};
use crate::Error;
use crate::signal::Signal;

/// Who is a member of what, inside this process. Share one per log (clones are the same).
///
/// Any number of members may join a subscription. Each owns its share of the partitions, as equal
/// as it can be, and no more of them move than must: a member that joins takes over its share, one
/// partition never has two owners, and what a member leaves goes to the others.
///
/// # Ordering
/// A partition that moves goes by way of revoking → its turns end (at the deadline they are dropped
/// at their await points) → commit → release → claim by the next owner. Turns of other partitions
/// run on meanwhile. A turn that cannot be dropped (blocked inside a poll, or held as a
/// [`Delivery`](crate::Delivery)) is waited for, however long it takes, also when its member's run
/// is over or was dropped: so turns of one group never overlap between two members.
///
/// The member that takes over does the work, and commits for the one that gives up: nobody needs to
/// poll that one.
#[derive(Clone, Default)]
pub struct LocalMembership {
    rolls: Arc<Rolls>,
}

/// One roll for each subscription's name.
#[derive(Default)]
struct Rolls {
    by_name: Mutex<HashMap<Arc<str>, Roll>>,
    /// Somebody joined or left, or something has arrived.
    changed: Signal,
}

impl LocalMembership {
    /// A membership without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many members a subscription has now, those included whose run is over while a turn of
    /// theirs still runs.
    #[must_use]
    pub fn members(&self, subscription: &str) -> usize {
        self.rolls.lock().get(subscription).map_or(0, Roll::members)
    }
}

impl Rolls {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Roll>> {
        // What is done under it does not panic half-way.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the roll of a subscription; whoever does tells the members (`changed`).
    fn with<T>(&self, name: &Arc<str>, change: impl FnOnce(&mut Roll) -> T) -> T {
        let mut rolls = self.lock();
        let roll = rolls.entry(Arc::clone(name)).or_default();
        let result = change(roll);
        if roll.members() == 0 {
            rolls.remove(name);
        }
        result
    }
}

impl fmt::Debug for LocalMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rolls = self.rolls.lock();
        let members = rolls.iter().map(|(name, roll)| (name, roll.members()));
        f.debug_map().entries(members).finish()
    }
}

#[async_trait]
impl Membership for LocalMembership {
    async fn join(
        &self,
        subscription: &Subscription,
        inlet: Arc<dyn Inlet>,
    ) -> Result<Box<dyn Seat>, Error> {
        Ok(Box::new(LocalSeat::new(Arc::clone(&self.rolls), subscription.clone(), inlet)))
    }
}
