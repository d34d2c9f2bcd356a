//! Which subscriptions have a live member in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use procession_core::{
    Budget, Claim, Error, Inlet, LocalMembership, Membership, Offset, Seat, Subscription,
};

/// The membership of a log: that of core, and a count of its seats by name.
///
/// A member counts from the moment it has joined, which is before its first claim, until the last
/// of its turns has ended. Members that join in another way than `FileLog::subscribe` are not seen:
/// of those only claims and commits are known.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    local: LocalMembership,
    seats: Arc<Seats>,
}

/// Seats that are taken, by the subscription's name.
#[derive(Debug, Default)]
pub(crate) struct Seats(Mutex<HashMap<Arc<str>, usize>>);

impl Members {
    pub(crate) fn new(seats: Arc<Seats>) -> Self {
        Self { local: LocalMembership::new(), seats }
    }
}

impl Seats {
    pub(crate) fn is_live(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Membership for Members {
    async fn join(
        &self,
        subscription: &Subscription,
        inlet: Arc<dyn Inlet>,
    ) -> Result<Box<dyn Seat>, Error> {
        let seat = self.local.join(subscription, inlet).await?;
        let (seats, name) = (Arc::clone(&self.seats), Arc::clone(&subscription.name));
        *seats.lock().entry(Arc::clone(&name)).or_default() += 1;
        Ok(Box::new(Counted { seat, seats, name }))
    }
}

/// A seat that is counted as long as it is there.
struct Counted {
    seat: Box<dyn Seat>,
    seats: Arc<Seats>,
    name: Arc<str>,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Seat for Counted {
    fn start(&self, claim: Claim, from: Offset) {
        self.seat.start(claim, from);
    }

    fn credit(&self, claim: Claim, window: Budget) {
        self.seat.credit(claim, window);
    }

    fn live(&self) -> bool {
        self.seat.live()
    }

    async fn drive(&self) -> Error {
        self.seat.drive().await
    }

    async fn leave(&self, deadline: Instant) -> Result<(), Error> {
        self.seat.leave(deadline).await
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut seats = self.seats.lock();
        if let Some(count) = seats.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                seats.remove(&self.name);
            }
        }
    }
}
