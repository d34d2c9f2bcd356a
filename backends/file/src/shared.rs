//! What the handles and the workers of one open log share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession_core::{
    Appending, Batch, Durability, Error, ErrorKind, LogInfo, OneOrMany, Outcome, Partition,
    PartitionId, Record, Stamp, Version,
};

use crate::disk::Clock;
use crate::errors::system;
use crate::format::codec::Codec;
use crate::format::frame;
use crate::front::{Front, Ready, State};
use crate::groups::GroupHash;
use crate::keeper::Keeping;
use crate::open_files::OpenFiles;
use crate::parcel::Parcel;
use crate::producers::Judged;
use crate::reader::Reading;
use crate::retention::Decision;
use crate::segments::{Folder, Segment, Segments};
use crate::worker::Bell;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) info: Arc<LogInfo>,
    pub(crate) folder: Folder,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: u128,
    pub(crate) open_count: u64,
    pub(crate) durability: Durability,
    /// How batches are packed.
    pub(crate) codec: Codec,
    /// The longest time that a written record stays unsynced.
    pub(crate) sync_lag: Duration,
    /// After this much quiet a mark proves the last round.
    pub(crate) quiet: Duration,
    /// Whether reads step over damaged bytes.
    pub(crate) skip_corruption: bool,
    /// Whether somebody else may write this log, and remove segments.
    pub(crate) read_only: bool,
    pub(crate) hash: GroupHash,
    pub(crate) front: Mutex<Front>,
    pub(crate) bell: Bell,
    pub(crate) tail: Mutex<Tail>,
    pub(crate) segments: Segments,
    pub(crate) files: OpenFiles,
    pub(crate) keeping: Arc<Keeping>,
    /// Whether anything is ever removed by itself.
    pub(crate) retains: bool,
    pub(crate) reading: Reading,
}

/// What can be read.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The lowest offset of each partition.
    pub(crate) earliest: Vec<u64>,
    /// One above the highest readable offset of each partition.
    pub(crate) ends: Vec<u64>,
    pub(crate) version: u64,
    pub(crate) wakers: Vec<Waker>,
    /// Set when nothing more will come.
    pub(crate) over: Option<Error>,
}

impl Shared {
    pub(crate) fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the batch in the order of the calls.
    pub(crate) fn append(&self, batch: Batch) -> Appending {
        let level = batch.durability.unwrap_or(self.durability);
        // What is absorbed is stored for good: a numbered record is always synced.
        let level = if batch.stamp.is_some() { level.max(Durability::Synced) } else { level };
        let plain = batch.stamp.is_none() && level <= Durability::Synced;
        match batch.records {
            OneOrMany::One((partition, record)) if plain => {
                if let Some(error) = self.refusal(partition, &record, level) {
                    return Appending::ready(Outcome::Refused(record, error));
                }
                let ready = Ready::new(partition, record, self.hash);
                let size = frame::length(&ready.record);
                let mut front = self.front();
                let joins =
                    matches!(front.state, State::Open) && front.held.is_empty() && front.room(size);
                if !joins {
                    drop(front);
                    let waiting = VecDeque::from([(0, ready)]);
                    return self.append_parcel(vec![None], waiting, level, None, batch.permit);
                }
                let (round, at) = front.current();
                let round = Arc::clone(round);
                if let Err(e) = front.push(&ready, None, || self.clock.wall()) {
                    drop(front);
                    return Appending::ready(Outcome::Refused(ready.record, self.lost_groups(e)));
                }
                front.wants(level, batch.permit);
                let receipt = (level == Durability::Buffered).then(|| front.receipt(at, level));
                drop(front);
                if at == 0 {
                    self.bell.ring();
                }
                match receipt {
                    Some(receipt) => Appending::ready(Outcome::Stored(receipt)),
                    None => Appending::waiting(round, at, 1),
                }
            }
            records => {
                let stamped = batch.stamp.is_some();
                let mut outcomes = Vec::with_capacity(records.len());
                let mut waiting = VecDeque::with_capacity(records.len());
                for (number, (partition, record)) in records.into_iter().enumerate() {
                    match self.refusal(partition, &record, level) {
                        Some(error) => outcomes.push(Some(Outcome::Refused(record, error))),
                        None => {
                            outcomes.push(None);
                            let ready = Ready::new(partition, record, self.hash).stamped(stamped);
                            waiting.push_back((number, ready));
                        }
                    }
                }
                self.append_parcel(outcomes, waiting, level, batch.stamp, batch.permit)
            }
        }
    }

    fn append_parcel(
        &self,
        outcomes: Vec<Option<Outcome>>,
        waiting: VecDeque<(usize, Ready)>,
        level: Durability,
        stamp: Option<Stamp>,
        permit: Option<procession_core::Permit>,
    ) -> Appending {
        let count = outcomes.len() as u32;
        let parcel = Arc::new(Parcel::new(outcomes, waiting, level, stamp, permit));
        let mut front = self.front();
        if let Some(error) = front.state.refusal(&self.info.name) {
            drop(front);
            parcel.refuse(&error);
            return Appending::waiting(parcel, 0, count);
        }
        let mut admitted = None;
        if front.held.is_empty() {
            admitted = Some(self.admit(&parcel, &mut front));
        }
        if admitted.as_ref().is_none_or(|admitted| !admitted.all) {
            front.held.push_back(Arc::downgrade(&parcel));
        }
        drop(front);
        if admitted.is_some_and(|admitted| admitted.pushed) {
            self.bell.ring();
        }
        Appending::waiting(parcel, 0, count)
    }

    pub(crate) fn admit(&self, parcel: &Parcel, front: &mut Front) -> crate::parcel::Admitted {
        let objection = |judged: &Judged, ready: &Ready| self.objection(judged, ready);
        parcel.admit(front, || self.clock.wall(), |e| self.lost_groups(e), objection)
    }

    fn refusal(&self, partition: Partition, record: &Record, level: Durability) -> Option<Error> {
        let operation = || format!("append to log \"{}\"", self.info.name);
        let (size, max) = (record.size_bytes(), self.info.record_bytes_max);
        let error = if partition.get() >= self.info.partitions.get() {
            let hint = format!("the log has {} partitions, from 0", self.info.partitions);
            Error::new(ErrorKind::NotFound, operation()).with_hint(hint)
        } else if size > max {
            let hint = format!(
                "the record has {size} bytes, the limit is {max}; raise `record_bytes_max` or \
                 keep the body elsewhere"
            );
            Error::new(ErrorKind::TooLarge, operation()).with_hint(hint)
        } else if level > Durability::Synced {
            let hint =
                format!("a file log cannot reach the level \"{level}\"; \"synced\" is its highest");
            Error::new(ErrorKind::Unsupported, operation()).with_hint(hint)
        } else {
            return None;
        };
        let error = error.in_partition(PartitionId { partition, ..PartitionId::default() });
        Some(match record.key() {
            Some(key) => error.in_group(key.clone()),
            None => error,
        })
    }

    fn lost_groups(&self, cause: std::io::Error) -> Error {
        let operation = format!("look up the last sequence of a group of \"{}\"", self.info.name);
        system(operation, &self.folder.path, cause)
    }

    /// Takes segments out of the stream. Their files are there still, and nobody's any more.
    pub(crate) fn remove(&self, decision: &Decision) -> Vec<Arc<Segment>> {
        self.remove_these(&decision.segments)
    }

    pub(crate) fn remove_these(&self, ids: &[u64]) -> Vec<Arc<Segment>> {
        let removed = {
            // Who sees the shorter stream must see where it begins, or it would skip what is gone.
            let mut tail = self.tail();
            let removed = self.segments.remove(ids);
            if let Some(oldest) = self.segments.all().first() {
                tail.earliest.clone_from(&oldest.header.base);
            }
            removed
        };
        removed.iter().for_each(|segment| self.files.forget(segment));
        removed
    }

    /// Ready when something can be read that `seen` does not cover, or never will be.
    pub(crate) fn poll_changed(
        &self,
        seen: Version,
        cx: &Context<'_>,
    ) -> Poll<Result<Version, Error>> {
        let mut tail = self.tail();
        if tail.version > seen.0 {
            return Poll::Ready(Ok(Version(tail.version)));
        }
        if let Some(error) = &tail.over {
            return Poll::Ready(Err(error.clone()));
        }
        // Bounded by the number of tasks: a task's waker is kept once.
        if !tail.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            tail.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Nothing more will be readable.
    pub(crate) fn end_of_changes(&self, error: Error) {
        let wakers = {
            let mut tail = self.tail();
            tail.over.get_or_insert(error);
            std::mem::take(&mut tail.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}
