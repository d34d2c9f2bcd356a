//! One member: takes over what is its own, reads what it owns.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::{Either, join, select, select_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::Rolls;
use super::roll::{MemberId, Place, Roll};
use crate::consumer::OutOfRange;
use crate::log::{Chunk, Log, Position, Version, Want};
use crate::membership::{Event, Inlet, Seat, Subscription};
use crate::signal::{Seen, Signal};
use crate::types::{Budget, Claim, LogId, LogUuid, Offset, PartitionId};
use crate::{Error, ErrorKind};

/// The most that one read asks for: bounds what a read holds beside the budget of the consumer.
const READ_MAX: Budget = Budget::new(4096, 1 << 20);
/// The most of the first read after a claim: a partition that has just changed hands begins with
/// little and soon, where much would keep its groups waiting.
const FIRST_READ_MAX: Budget = Budget::new(64, 64 << 10);

pub(super) struct LocalSeat {
    rolls: Arc<Rolls>,
    subscription: Subscription,
    id: MemberId,
    desk: Arc<Desk>,
}

/// What others need of a member: how to reach it, and where it reads.
pub(super) struct Desk {
    inlet: Arc<dyn Inlet>,
    logs: Vec<LogUuid>,
    readers: Mutex<HashMap<PartitionId, Reader>>,
    windows: Signal,
}

/// Where a claim stands.
struct Reader {
    claim: Claim,
    /// Nothing before it was started.
    next: Option<Offset>,
    window: Budget,
    delivered: Budget,
    /// Nothing was asked for yet.
    fresh: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, HashMap<PartitionId, Reader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The member's own names of these places.
    fn partitions(&self, places: &[Place]) -> Vec<PartitionId> {
        let of = |(uuid, partition): &Place| {
            let log = self.logs.iter().position(|log| log == uuid)?;
            Some(PartitionId::new(LogId::new(log as u32), *partition))
        };
        places.iter().filter_map(of).collect()
    }

    /// Gives these up: their turns end, what is finished is committed, and they are let go.
    async fn give_up(&self, places: &[Place]) {
        let partitions = self.partitions(places);
        let drain = self.inlet.revoking(&partitions, Duration::MAX).until_ended();
        // Claims that are under way are seen through beside the drain, which waits for them. What
        // the store fails with is told by the member whose progress it is.
        let _ = join(drain, self.inlet.settle(&partitions)).await;
        let _ = self.inlet.settle(&partitions).await;
        self.lock().retain(|partition, _| !partitions.contains(partition));
        self.inlet.event(Event::Lost(partitions));
    }

    /// What may be read of one log now, by partition number.
    fn wants(&self, log: LogId) -> Vec<(Claim, Want)> {
        let readers = self.lock();
        let mut wants: Vec<_> = readers
            .values()
            .filter(|reader| reader.claim.partition.log == log)
            .filter_map(|reader| {
                let max = reader.window.minus(reader.delivered);
                let partition = reader.claim.partition.partition;
                let want = Want { partition, from: reader.next?, max };
                (!max.is_spent()).then_some((reader.claim, want))
            })
            .collect();
        wants.sort_unstable_by_key(|(claim, _)| *claim);
        wants
    }

    /// Whether nothing was asked for yet under this claim.
    fn is_fresh(&self, claim: Claim) -> bool {
        self.lock()
            .get(&claim.partition)
            .is_some_and(|reader| reader.claim == claim && reader.fresh)
    }

    fn asked(&self, wants: &[(Claim, Want)]) {
        let mut readers = self.lock();
        for (claim, _) in wants {
            if let Some(reader) = readers.get_mut(&claim.partition) {
                reader.fresh = false;
            }
        }
    }

    /// Hands a chunk to the consumer; says whether it moved anything.
    fn deliver(&self, claim: Claim, chunk: Chunk) -> bool {
        let bytes = chunk.records.iter().map(|r| r.record.size_bytes() as u64).sum();
        let got = Budget::new(chunk.records.len() as u64, bytes);
        {
            let mut readers = self.lock();
            let Some(reader) = readers.get_mut(&claim.partition) else { return false };
            let at = reader.next.filter(|_| reader.claim == claim);
            let Some(at) = at else { return false };
            if chunk.records.is_empty() && chunk.next <= at {
                return false;
            }
            reader.next = Some(chunk.next);
            reader.delivered = reader.delivered.plus(got);
        }
        self.inlet.event(Event::Records(claim, chunk));
        true
    }
}

impl LocalSeat {
    pub(super) fn new(
        rolls: Arc<Rolls>,
        subscription: Subscription,
        inlet: Arc<dyn Inlet>,
    ) -> Self {
        let infos: Vec<_> = subscription.logs.iter().map(|log| log.info()).collect();
        let logs = infos.iter().map(|info| (info.uuid, info.partitions.get())).collect();
        let desk = Arc::new(Desk {
            inlet: Arc::clone(&inlet),
            logs: infos.iter().map(|info| info.uuid).collect(),
            readers: Mutex::default(),
            windows: Signal::default(),
        });
        let (id, any) =
            rolls.with(&subscription.name, |roll| roll.join(logs, Arc::downgrade(&desk)));
        if !any {
            // Nothing is there for this member, which is worth a warning.
            inlet.event(Event::Assigned(Vec::new()));
        }
        rolls.changed.notify();
        Self { rolls, subscription, id, desk }
    }

    fn roll<T>(&self, change: impl FnOnce(&mut Roll) -> T) -> T {
        self.rolls.with(&self.subscription.name, change)
    }

    fn assign(&self, places: &[Place]) {
        if !places.is_empty() {
            self.desk.inlet.event(Event::Assigned(self.desk.partitions(places)));
        }
    }

    /// Takes what is this member's, from whoever has it.
    async fn take_over(&self) {
        let mut seen = Seen::default();
        let mut moves = FuturesUnordered::new();
        loop {
            let work = self.roll(|roll| roll.take_up(self.id));
            self.assign(&work.assigned);
            for (from, places) in work.moves {
                // One by one: none waits for the turns of another.
                for place in places {
                    moves.push(self.take_from(from, place).map(move |()| place));
                }
            }
            let changed = pin!(self.rolls.changed.changed(&mut seen));
            if moves.is_empty() {
                changed.await;
            } else {
                let Either::Left((Some(first), _)) = select(moves.next(), changed).await else {
                    continue;
                };
                // What is free at one time is claimed together.
                let mut free = vec![first];
                while let Some(Some(place)) = moves.next().now_or_never() {
                    free.push(place);
                }
                let ours = self.roll(|roll| roll.arrived(self.id, &free));
                self.assign(&ours);
                self.rolls.changed.notify();
            }
        }
    }

    /// Resolves when this is nobody's: given up, or their owner is gone with all its turns.
    async fn take_from(&self, from: MemberId, place: Place) {
        let desk = self.roll(|roll| roll.desk(from)).and_then(|desk| desk.upgrade());
        let Some(desk) = desk else { return };
        let gone = pin!(async {
            let mut seen = Seen::default();
            while self.roll(|roll| roll.has(from)) {
                self.rolls.changed.changed(&mut seen).await;
            }
        });
        select(pin!(desk.give_up(&[place])), gone).await;
    }

    /// Reads one log while there is room and something to read; otherwise waits for either.
    ///
    /// Who got nothing of one read is asked for alone in the next: a log may serve a partition that
    /// is far behind for as long as it has anything, and the others must not wait for that.
    async fn read_log(&self, id: LogId, log: &dyn Log) -> Error {
        let (mut version, mut windows) = (Version::NEVER, Seen::default());
        let mut unserved: Vec<Claim> = Vec::new();
        loop {
            let mut wants = self.desk.wants(id);
            if wants.is_empty() {
                self.desk.windows.changed(&mut windows).await;
                continue;
            }
            let some = wants.iter().any(|(claim, _)| unserved.contains(claim));
            if some {
                wants.retain(|(claim, _)| unserved.contains(claim));
            }
            let mut max = READ_MAX;
            let fresh = wants.iter().any(|(claim, _)| self.desk.is_fresh(*claim));
            if fresh {
                wants.retain(|(claim, _)| self.desk.is_fresh(*claim));
                max = FIRST_READ_MAX;
            }
            self.desk.asked(&wants);
            let ask: Vec<Want> = wants.iter().map(|(_, want)| *want).collect();
            let chunks = match log.read(&ask, max).await {
                Ok(chunks) => chunks,
                Err(error) if error.kind() == ErrorKind::Trimmed => {
                    match self.skip(log, &wants, error).await {
                        Ok(()) => continue,
                        Err(error) => return error,
                    }
                }
                Err(error) => return error,
            };
            let mut moved = false;
            for chunk in chunks {
                let of = |(_, want): &(Claim, Want)| want.partition == chunk.partition;
                if let Some(at) = wants.iter().position(of) {
                    let (claim, _) = wants.swap_remove(at);
                    moved |= self.desk.deliver(claim, chunk);
                }
            }
            unserved.clear();
            if moved {
                unserved.extend(wants.into_iter().map(|(claim, _)| claim));
            }
            // Others were left out of this read: they may have something, whatever it gave.
            if moved || some || fresh {
                continue;
            }
            let log_changed = log.changed(version);
            let windows_changed = pin!(self.desk.windows.changed(&mut windows));
            match select(log_changed, windows_changed).await {
                Either::Left((Ok(newer), _)) => version = newer,
                Either::Left((Err(error), _)) => return error,
                Either::Right(((), _)) => {}
            }
        }
    }

    /// Retention was faster: goes on behind what is gone, if that was asked for.
    async fn skip(
        &self,
        log: &dyn Log,
        wants: &[(Claim, Want)],
        error: Error,
    ) -> Result<(), Error> {
        let to = match self.subscription.out_of_range {
            OutOfRange::Fail => {
                return Err(error.with_hint(
                    "records were removed before this subscription had handled them; to go on \
                     without them, choose with `out_of_range`",
                ));
            }
            OutOfRange::Earliest => Position::Earliest,
            OutOfRange::Latest => Position::End,
        };
        let earliest = log.ends(Position::Earliest).await?;
        let to = log.ends(to).await?;
        let at = |ends: &[Offset], want: &Want| ends.get(want.partition.get() as usize).copied();
        let mut skipped = false;
        for (claim, want) in wants {
            let (Some(earliest), Some(to)) = (at(&earliest, want), at(&to, want)) else { continue };
            if want.from < earliest {
                skipped = true;
                let from = want.from;
                self.desk.inlet.event(Event::Skipped { claim: *claim, from, to });
                let chunk = Chunk { partition: want.partition, records: Vec::new(), next: to };
                self.desk.deliver(*claim, chunk);
            }
        }
        if skipped { Ok(()) } else { Err(error) }
    }
}

#[async_trait]
impl Seat for LocalSeat {
    fn start(&self, claim: Claim, from: Offset) {
        let mut readers = self.desk.lock();
        let reader = readers.entry(claim.partition).or_insert_with(|| Reader::new(claim));
        if reader.claim.epoch < claim.epoch {
            *reader = Reader::new(claim);
        }
        if reader.claim == claim {
            reader.next = Some(from);
        }
        drop(readers);
        self.desk.windows.notify();
    }

    fn credit(&self, claim: Claim, window: Budget) {
        {
            let mut readers = self.desk.lock();
            let reader = readers.entry(claim.partition).or_insert_with(|| Reader::new(claim));
            if reader.claim.epoch < claim.epoch {
                *reader = Reader::new(claim);
            }
            if reader.claim != claim {
                return;
            }
            reader.window.records = reader.window.records.max(window.records);
            reader.window.bytes = reader.window.bytes.max(window.bytes);
        }
        self.desk.windows.notify();
    }

    fn live(&self) -> bool {
        true
    }

    async fn drive(&self) -> Error {
        let _resigns = Resigns(self);
        let reads = self
            .subscription
            .logs
            .iter()
            .enumerate()
            .map(|(id, log)| Box::pin(self.read_log(LogId::new(id as u32), &**log)));
        match select(select_all(reads), pin!(self.take_over())).await {
            Either::Left(((error, ..), _)) => error,
            Either::Right(_) => unreachable!("taking over never ends by itself"),
        }
    }

    async fn leave(&self, _deadline: Instant) -> Result<(), Error> {
        // The seat is free when it is dropped: turns that cannot be dropped hold it.
        Ok(())
    }
}

impl Reader {
    const fn new(claim: Claim) -> Self {
        let (window, delivered, fresh) = (Budget::ZERO, Budget::ZERO, true);
        Self { claim, next: None, window, delivered, fresh }
    }
}

/// A member that is not driven any more takes nothing: the others share what it has. Its seat stays
/// as long as a turn of its runs.
struct Resigns<'a>(&'a LocalSeat);

impl Drop for Resigns<'_> {
    fn drop(&mut self) {
        self.0.roll(|roll| roll.resign(self.0.id));
        self.0.rolls.changed.notify();
    }
}

impl Drop for LocalSeat {
    fn drop(&mut self) {
        self.roll(|roll| roll.leave(self.id));
        self.rolls.changed.notify();
    }
}

/// How to reach a member that may be gone.
pub(super) type DeskRef = Weak<Desk>;
