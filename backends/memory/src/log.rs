//! The log.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use procession_core::{
    Appending, Batch, Budget, Chunk, Error, ErrorKind, GroupKey, Log, LogId, LogInfo, Offset,
    OneOrMany, Outcome, Partition, PartitionId, Position, Receipt, Record, Sequence, Stored,
    Timestamp, Version, Want,
};

use crate::MemoryLogBuilder;
use crate::builder::Clock;
use crate::waiters::Waiters;

/// A log in memory. Clones are handles to the same log.
///
/// # Ordering
/// One lock orders all appends, and each is done when the call returns.
///
/// # Durability
/// *Buffered*: it survives nothing. A batch that asks for more is refused with
/// [`ErrorKind::Unsupported`], and so is one with a [`Stamp`](procession_core::Stamp): repeats are
/// not absorbed.
#[derive(Clone)]
pub struct MemoryLog(Arc<Shared>);

struct Shared {
    info: Arc<LogInfo>,
    capacity_bytes: u64,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    partitions: Vec<PartitionState>,
    /// The next sequence of each group that has a record here: bounded by the records.
    sequences: HashMap<GroupKey, u64>,
    /// Where the sequence of every other group starts: above those of all forgotten groups.
    first_sequence: u64,
    held_bytes: u64,
    log_time: Timestamp,
    version: u64,
    waiters: Waiters,
}

#[derive(Default)]
struct PartitionState {
    records: VecDeque<Stored>,
    next: u64,
}

/// What a record costs beside its bytes.
const RECORD_COST_BYTES: u64 = 128;

impl MemoryLog {
    /// A log with this many partitions and defaults for everything else.
    ///
    /// # Panics
    /// If there are no partitions.
    #[must_use]
    pub fn new(partitions: u32) -> Self {
        Self::builder().partitions(partitions).build().expect("a log has at least one partition")
    }

    /// Sets up a log.
    pub fn builder() -> MemoryLogBuilder {
        MemoryLogBuilder::default()
    }

    pub(crate) fn open(info: LogInfo, capacity_bytes: u64, clock: Clock) -> Self {
        let state = State {
            partitions: (0..info.partitions.get()).map(|_| PartitionState::default()).collect(),
            sequences: HashMap::new(),
            first_sequence: 0,
            held_bytes: 0,
            log_time: Timestamp::from_millis(i64::MIN),
            version: 1,
            waiters: Waiters::default(),
        };
        let state = Mutex::new(state);
        Self(Arc::new(Shared { info: Arc::new(info), capacity_bytes, clock, state }))
    }

    /// Removes the records of a partition below `offset`: reading them is
    /// [`Trimmed`](ErrorKind::Trimmed) from now on, and their room is free. Above the end it
    /// removes everything there is.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for a partition that does not exist.
    pub fn trim(&self, partition: Partition, offset: Offset) -> Result<(), Error> {
        let mut state = self.lock();
        let State { partitions, sequences, first_sequence, held_bytes, .. } = &mut *state;
        let Some(PartitionState { records, .. }) = partitions.get_mut(partition.get() as usize)
        else {
            return Err(self.error(ErrorKind::NotFound, "trim", partition));
        };
        let keep_from = records.partition_point(|stored| stored.offset < offset);
        for Stored { sequence, record, .. } in records.drain(..keep_from) {
            *held_bytes -= cost(&record);
            if let (Some(key), Some(sequence)) = (record.key(), sequence)
                && sequences.get(key) == Some(&(sequence.get() + 1))
            {
                sequences.remove(key);
                *first_sequence = (*first_sequence).max(sequence.get() + 1);
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; were it so, the lists would still be whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, kind: ErrorKind, doing: &str, partition: Partition) -> Error {
        // A log does not know its place in a subscription: it is the only one it speaks of.
        let partition = PartitionId::new(LogId::new(0), partition);
        Error::new(kind, format!("{doing} \"{}\"", self.0.info.name)).in_partition(partition)
    }

    /// Why the record cannot be stored, if so.
    fn objection(&self, state: &State, partition: Partition, record: &Record) -> Option<ErrorKind> {
        let Shared { info, capacity_bytes, .. } = &*self.0;
        if partition.get() >= info.partitions.get() {
            Some(ErrorKind::NotFound)
        } else if record.size_bytes() > info.record_bytes_max {
            Some(ErrorKind::TooLarge)
        } else if state.held_bytes.saturating_add(cost(record)) > *capacity_bytes {
            Some(ErrorKind::Full)
        } else {
            None
        }
    }
}

#[async_trait]
impl Log for MemoryLog {
    fn info(&self) -> Arc<LogInfo> {
        Arc::clone(&self.0.info)
    }

    fn append(&self, batch: Batch) -> Appending {
        let Batch { records, durability, stamp, permit } = batch;
        let info = &self.0.info;
        // The first objection that the rest of the batch shares. Were only the record that is too
        // much for the room left out, a smaller one of its group could take its place in the order.
        let beyond = stamp.is_some() || durability.is_some_and(|d| d > info.delivers);
        let mut all = beyond.then_some(ErrorKind::Unsupported);
        let now = Timestamp::from((self.0.clock)());
        let mut state = self.lock();
        state.log_time = state.log_time.max(now);
        let version = state.version;
        let outcomes = records.into_iter().map(|(partition, record)| {
            match all.or_else(|| self.objection(&state, partition, &record)) {
                None => {
                    state.version = version + 1;
                    Outcome::Stored(state.store(info, partition, record))
                }
                Some(kind) => {
                    if kind == ErrorKind::Full {
                        all = Some(kind);
                    }
                    Outcome::Refused(record, self.error(kind, "append to log", partition))
                }
            }
        });
        let outcomes: OneOrMany<Outcome> = outcomes.collect();
        let waiters = (state.version > version).then(|| state.waiters.take());
        // Both wakers and a permit that comes home may call us again: not under the lock.
        drop(state);
        drop(permit);
        waiters.into_iter().flatten().for_each(std::task::Waker::wake);
        Appending::ready(outcomes)
    }

    async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        let state = self.lock();
        let (mut chunks, mut left) = (Vec::new(), max);
        for want in wants {
            let error = |kind| self.error(kind, "read log", want.partition).at_offset(want.from);
            let partition = state
                .partitions
                .get(want.partition.get() as usize)
                .ok_or_else(|| error(ErrorKind::NotFound))?;
            if want.from < partition.earliest() {
                return Err(error(ErrorKind::Trimmed));
            }
            if want.from > partition.end() {
                return Err(error(ErrorKind::NotYetWritten));
            }
            let records = partition.read(want, &mut left, chunks.is_empty());
            if let Some(last) = records.last() {
                let next = last.offset.after();
                chunks.push(Chunk { partition: want.partition, records, next });
            }
        }
        Ok(chunks)
    }

    async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> {
        let state = self.lock();
        let end = |partition: &PartitionState| match at {
            Position::Earliest => Ok(partition.earliest()),
            Position::End => Ok(partition.end()),
            Position::Time(time) => Ok(partition.at(time)),
            _ => Err(Error::new(ErrorKind::Unsupported, "ask a memory log for its ends")),
        };
        state.partitions.iter().map(end).collect()
    }

    async fn changed(&self, seen: Version) -> Result<Version, Error> {
        Ok(Changed { log: self, seen, id: None }.await)
    }
}

impl State {
    fn store(&mut self, info: &LogInfo, partition: Partition, record: Record) -> Receipt {
        let log_time = self.log_time;
        let record = match record.timestamp() {
            Some(_) => record,
            None => record.with_timestamp(log_time),
        };
        let sequence = record.key().map(|key| {
            let next = self.sequences.entry(key.clone()).or_insert(self.first_sequence);
            *next += 1;
            Sequence::new(*next - 1)
        });
        self.held_bytes += cost(&record);
        let into = &mut self.partitions[partition.get() as usize];
        let offset = into.end();
        into.next += 1;
        into.records.push_back(Stored {
            offset,
            sequence,
            log_time,
            routing: info.routing,
            record,
        });
        Receipt::new(partition, offset, sequence, info.delivers)
    }
}

impl PartitionState {
    fn earliest(&self) -> Offset {
        self.records.front().map_or_else(|| self.end(), |first| first.offset)
    }

    const fn end(&self) -> Offset {
        Offset::new(self.next)
    }

    fn at(&self, time: Timestamp) -> Offset {
        let index = self.records.partition_point(|stored| stored.log_time < time);
        self.records.get(index).map_or_else(|| self.end(), |stored| stored.offset)
    }

    /// Reads up to the want's budget and to what is `left` of the whole read's. The first record of
    /// a want may go over its own budget, and over the whole one if it is the `first` of the read.
    fn read(&self, want: &Want, left: &mut Budget, first: bool) -> Vec<Stored> {
        let mut records = Vec::new();
        let mut own = want.max;
        let start = self.records.partition_point(|stored| stored.offset < want.from);
        for stored in self.records.range(start..) {
            let size = Budget::new(1, stored.record.size_bytes() as u64);
            let fits = |b: Budget| size.records <= b.records && size.bytes <= b.bytes;
            let free = records.is_empty();
            if !(fits(own) || free) || !(fits(*left) || free && first) {
                break;
            }
            (own, *left) = (own.minus(size), left.minus(size));
            records.push(stored.clone());
        }
        records
    }
}

/// Waits until the log's version is above `seen`.
struct Changed<'a> {
    log: &'a MemoryLog,
    seen: Version,
    id: Option<u64>,
}

impl Future for Changed<'_> {
    type Output = Version;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Version> {
        let log = self.log;
        // Looking and registering are one step under the lock: no change falls in between.
        let mut state = log.lock();
        if state.version > self.seen.0 {
            return Poll::Ready(Version(state.version));
        }
        state.waiters.keep(&mut self.id, cx.waker());
        Poll::Pending
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.log.lock().waiters.remove(id);
        }
    }
}

fn cost(record: &Record) -> u64 {
    record.size_bytes() as u64 + RECORD_COST_BYTES
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held_bytes = self.lock().held_bytes;
        f.debug_struct("MemoryLog")
            .field("info", &self.0.info)
            .field("held_bytes", &held_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
