//! Membership for members inside one process, over any log.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use async_trait::async_trait;
use futures::future::{Either, select, select_all};

use super::{Event, Inlet, Membership, Seat, Subscription};
use crate::log::{Chunk, Log, Version, Want};
use crate::signal::{Seen, Signal};
use crate::types::{Budget, Claim, LogId, LogUuid, Offset, Partition, PartitionId};
use crate::{Error, ErrorKind};

/// Who is a member of what, inside this process. Share one per log (clones are the same).
///
/// A subscription has one live member for now: it owns every partition. A second one is refused
/// with [`Locked`](ErrorKind::Locked) until the first one's run is over.
///
/// # Ordering
/// A run that is over, or was dropped, may leave turns behind on worker tasks that are not polled
/// yet, or blocked inside a poll. The next member joins when the last of them has ended, so turns of
/// one group never overlap between two runs.
#[derive(Clone, Default)]
pub struct LocalMembership {
    seats: Arc<Seats>,
}

#[derive(Default)]
struct Seats {
    taken: Mutex<HashMap<SeatKey, Weak<dyn Inlet>>>,
    left: Signal,
}

/// A subscription's name in one log.
type SeatKey = (Arc<str>, LogUuid);

impl LocalMembership {
    /// A membership without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SeatKey, Weak<dyn Inlet>>> {
        self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all of these seats, or none; says who has one of them.
    fn take(&self, keys: &[SeatKey], inlet: &Arc<dyn Inlet>) -> Result<(), Weak<dyn Inlet>> {
        let mut taken = self.lock();
        if let Some(holder) = keys.iter().find_map(|key| taken.get(key)) {
            return Err(Weak::clone(holder));
        }
        taken.extend(keys.iter().map(|key| (key.clone(), Arc::downgrade(inlet))));
        Ok(())
    }
}

impl fmt::Debug for LocalMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalMembership").field("members", &self.lock().len()).finish()
    }
}

#[async_trait]
impl Membership for LocalMembership {
    async fn join(
        &self,
        subscription: &Subscription,
        inlet: Arc<dyn Inlet>,
    ) -> Result<Box<dyn Seat>, Error> {
        let keys: Vec<SeatKey> = subscription
            .logs
            .iter()
            .map(|log| (Arc::clone(&subscription.name), log.info().uuid))
            .collect();
        let mut seen = Seen::default();
        while let Err(holder) = self.take(&keys, &inlet) {
            if holder.upgrade().is_some_and(|holder| !holder.is_over()) {
                return Err(Error::new(
                    ErrorKind::Locked,
                    format!("join subscription \"{}\"", subscription.name),
                )
                .with_hint(
                    "it already has a live member in this process; shut that one down first",
                ));
            }
            self.seats.left.changed(&mut seen).await;
        }
        let seat = LocalSeat {
            membership: self.clone(),
            keys,
            logs: subscription.logs.clone(),
            inlet: Arc::clone(&inlet),
            readers: Mutex::default(),
            windows: Signal::default(),
        };
        let all = seat.logs.iter().enumerate().flat_map(|(log, l)| {
            (0..l.info().partitions.get())
                .map(move |p| PartitionId::new(LogId::new(log as u32), Partition::new(p)))
        });
        inlet.event(Event::Assigned(all.collect()));
        Ok(Box::new(seat))
    }
}

/// The one member of a subscription.
struct LocalSeat {
    membership: LocalMembership,
    keys: Vec<SeatKey>,
    logs: Vec<Arc<dyn Log>>,
    inlet: Arc<dyn Inlet>,
    readers: Mutex<Readers>,
    windows: Signal,
}

/// Where each started claim stands.
type Readers = HashMap<PartitionId, Reader>;

struct Reader {
    claim: Claim,
    next: Offset,
    window: Budget,
    delivered: Budget,
}

/// The most that one read asks for: bounds what a read holds beside the budget of the consumer.
const READ_MAX: Budget = Budget::new(4096, 1 << 20);

impl LocalSeat {
    fn lock(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What may be read of one log now, by partition number.
    fn wants(&self, log: LogId) -> Vec<(Claim, Want)> {
        let readers = self.lock();
        let mut wants: Vec<_> = readers
            .values()
            .filter(|reader| reader.claim.partition.log == log)
            .map(|reader| (reader, reader.window.minus(reader.delivered)))
            .filter(|(_, room)| !room.is_spent())
            .map(|(reader, max)| {
                let partition = reader.claim.partition.partition;
                (reader.claim, Want { partition, from: reader.next, max })
            })
            .collect();
        wants.sort_unstable_by_key(|(claim, _)| *claim);
        wants
    }

    /// Hands a chunk to the consumer; says whether it moved anything.
    fn deliver(&self, claim: Claim, chunk: Chunk) -> bool {
        let bytes = chunk.records.iter().map(|r| r.record.size_bytes() as u64).sum();
        let got = Budget::new(chunk.records.len() as u64, bytes);
        {
            let mut readers = self.lock();
            let Some(reader) = readers.get_mut(&claim.partition) else { return false };
            if reader.claim != claim || (chunk.records.is_empty() && chunk.next <= reader.next) {
                return false;
            }
            reader.next = chunk.next;
            reader.delivered = reader.delivered.plus(got);
        }
        self.inlet.event(Event::Records(claim, chunk));
        true
    }

    /// Reads one log while there is room and something to read; otherwise waits for either.
    ///
    /// Who got nothing of one read is asked for alone in the next: a log may serve a partition that
    /// is far behind for as long as it has anything, and the others must not wait for that.
    async fn read_log(&self, id: LogId, log: &dyn Log) -> Error {
        let (mut version, mut windows) = (Version::NEVER, Seen::default());
        let mut unserved: Vec<Claim> = Vec::new();
        loop {
            let mut wants = self.wants(id);
            if wants.is_empty() {
                self.windows.changed(&mut windows).await;
                continue;
            }
            let some = wants.iter().any(|(claim, _)| unserved.contains(claim));
            if some {
                wants.retain(|(claim, _)| unserved.contains(claim));
            }
            let ask: Vec<Want> = wants.iter().map(|(_, want)| *want).collect();
            let chunks = match log.read(&ask, READ_MAX).await {
                Ok(chunks) => chunks,
                Err(error) => return error,
            };
            let mut moved = false;
            for chunk in chunks {
                let of = |(_, want): &(Claim, Want)| want.partition == chunk.partition;
                if let Some(at) = wants.iter().position(of) {
                    let (claim, _) = wants.swap_remove(at);
                    moved |= self.deliver(claim, chunk);
                }
            }
            unserved.clear();
            if moved {
                unserved.extend(wants.into_iter().map(|(claim, _)| claim));
            }
            if moved || some {
                continue;
            }
            let log_changed = log.changed(version);
            let windows_changed = pin!(self.windows.changed(&mut windows));
            match select(log_changed, windows_changed).await {
                Either::Left((Ok(newer), _)) => version = newer,
                Either::Left((Err(error), _)) => return error,
                Either::Right(((), _)) => {}
            }
        }
    }
}

#[async_trait]
impl Seat for LocalSeat {
    fn start(&self, claim: Claim, from: Offset) {
        let (window, delivered) = (Budget::ZERO, Budget::ZERO);
        self.lock().insert(claim.partition, Reader { claim, next: from, window, delivered });
    }

    fn credit(&self, claim: Claim, window: Budget) {
        if let Some(reader) = self.lock().get_mut(&claim.partition)
            && reader.claim == claim
        {
            reader.window.records = reader.window.records.max(window.records);
            reader.window.bytes = reader.window.bytes.max(window.bytes);
        }
        self.windows.notify();
    }

    fn live(&self) -> bool {
        true
    }

    async fn drive(&self) -> Error {
        let reads = self
            .logs
            .iter()
            .enumerate()
            .map(|(id, log)| Box::pin(self.read_log(LogId::new(id as u32), &**log)));
        select_all(reads).await.0
    }

    async fn leave(&self, _deadline: Instant) -> Result<(), Error> {
        // The seat is free when it is dropped: turns that cannot be dropped hold it.
        Ok(())
    }
}

impl Drop for LocalSeat {
    fn drop(&mut self) {
        {
            let mut taken = self.membership.lock();
            self.keys.iter().for_each(|key| drop(taken.remove(key)));
        }
        self.membership.seats.left.notify();
    }
}
