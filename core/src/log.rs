//! The contract of a log.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;

use crate::Error;
use crate::producer::{Enlisted, Stamp};
use crate::router::Router;
use crate::types::{
    Budget, LogUuid, Offset, OneOrMany, Partition, Permit, Record, RoutingEpoch, Sequence, Stored,
    Timestamp,
};

/// A named set of partitions to which records are appended, and from which they are read by
/// offset.
///
/// A log knows nothing of consumers, progress or groups beyond a record's key. It takes batches in
/// the order of the calls, says what became of each record, and gives back what has reached the
/// level of durability at which it delivers ([`LogInfo::delivers`]). Five methods, none of which
/// may block a thread for long: a backend that does blocking I/O brings its own thread.
///
/// **Append is not async.** The order is taken *at the call*, before any await, so the records of
/// one group that one thread appends in order are stored in order, however their futures are
/// polled, joined or dropped:
///
/// ```
/// # use procession_core::{Batch, Log, Partition, Record};
/// # fn f(log: &dyn Log) {
/// // Right: two calls, in order. Both are on their way before either future is polled.
/// let first = log.append(Batch::one(Partition::new(0), Record::new("case-7", "opened")));
/// let second = log.append(Batch::one(Partition::new(0), Record::new("case-7", "closed")));
/// # let _ = (first, second);
/// # }
/// ```
///
/// # Ordering
/// Inside a partition, the order of offsets is the order of the calls to [`append`](Self::append);
/// inside a batch, the order of the batch. [`read`](Self::read) gives ascending offsets, which may
/// have gaps.
///
/// # Durability
/// A receipt names the level reached. Only records at [`LogInfo::delivers`] are ever read or
/// counted by [`ends`](Self::ends); after a restart the next offset is above every offset that was
/// ever read.
///
/// # Cancel safety
/// Dropping an [`Appending`] cancels nothing. `read`, `ends` and `changed` change nothing and may
/// be dropped at any time.
///
/// # For implementors
/// Each bullet is the name of a check in `procession-conformance`, `log_suite!`:
/// - `appends_in_call_order_however_futures_are_polled`
/// - `a_batch_keeps_its_order_and_its_partitions`
/// - `receipts_name_the_place_and_the_level`
/// - `reads_back_every_part_of_a_record`: absent and empty keys, payloads, header values
/// - `reads_only_what_was_asked_for`: partitions, from an offset on, in ascending order
/// - `read_respects_its_budget_but_always_gives_one_record`
/// - `next_leads_to_the_end_across_gaps`
/// - `reading_at_the_end_is_empty_and_beyond_it_is_not_yet_written`
/// - `ends_answer_earliest_end_and_time`
/// - `changed_never_loses_a_wake_up`
/// - `an_unknown_partition_is_refused`: the record comes back, the others of the batch are stored
/// - `an_oversize_record_comes_back`
/// - `sequences_count_each_group_without_gaps`: where [`LogInfo::sequences`] says so
/// - `dropping_an_append_cancels_nothing`
/// - `log_time_never_falls`
/// - `survives_a_reopen`: where the factory can reopen
/// - `a_permit_comes_home_whatever_became_of_its_batch`, outside any lock: it may call `append`
/// - `a_stamped_batch_is_absorbed_or_refused`: as [`LogInfo::absorbs`] says
/// - `reading_below_the_earliest_is_trimmed`: where the factory can trim
///
/// A level that a log cannot reach is refused with
/// [`Unsupported`](crate::ErrorKind::Unsupported), never answered with a lower one; a record
/// without a timestamp gets the log's time.
#[async_trait]
pub trait Log: Send + Sync {
    /// What is fixed about this log while it is open. Cheap.
    fn info(&self) -> Arc<LogInfo>;

    /// Takes a batch, in the order of the calls. The returned future tells the outcome of each
    /// record; it need not be polled for the append to happen.
    ///
    /// # Errors
    /// None at the call: every record ends stored, refused (and handed back) or unknown.
    fn append(&self, batch: Batch) -> Appending;

    /// Reads from several partitions in one go: at least one record for some `want` that has any,
    /// otherwise up to the budgets. A want at the end of its partition yields no chunk, or an empty
    /// one whose `next` says how far the partition is known to hold nothing. Where records were
    /// removed between others, reading goes on behind the gap.
    ///
    /// # Errors
    /// [`Trimmed`](crate::ErrorKind::Trimmed) below the earliest offset,
    /// [`NotYetWritten`](crate::ErrorKind::NotYetWritten) above the end,
    /// [`NotFound`](crate::ErrorKind::NotFound) for a partition that does not exist,
    /// [`Corrupt`](crate::ErrorKind::Corrupt) for bytes that fail their checksum.
    async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error>;

    /// One offset per partition, by partition number.
    ///
    /// # Errors
    /// If the backend cannot be asked.
    async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error>;

    /// Claims the next epoch of the producer `name`, durably, and fences its earlier ones. Only
    /// logs that [`absorb`](LogInfo::absorbs) repeats can; the others refuse, as this default does.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where repeats are not absorbed,
    /// [`Full`](crate::ErrorKind::Full) if it knows as many producers as it can.
    async fn enlist(&self, name: &str) -> Result<Enlisted, Error> {
        let operation = format!("enlist producer \"{name}\" in log \"{}\"", self.info().name);
        Err(Error::new(crate::ErrorKind::Unsupported, operation)
            .with_hint("this log does not absorb repeats (`LogInfo::absorbs`)"))
    }

    /// Resolves at once if anything became readable since `seen`, else when something does. Start
    /// with [`Version::NEVER`].
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed) or [`Poisoned`](crate::ErrorKind::Poisoned) when
    /// nothing more will come.
    async fn changed(&self, seen: Version) -> Result<Version, Error>;
}

macro_rules! forward_log {
    ($($ty:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<L: Log + ?Sized> Log for $ty {
            fn info(&self) -> Arc<LogInfo> { (**self).info() }
            fn append(&self, batch: Batch) -> Appending { (**self).append(batch) }
            async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
                (**self).read(wants, max).await
            }
            async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> { (**self).ends(at).await }
            async fn enlist(&self, name: &str) -> Result<Enlisted, Error> { (**self).enlist(name).await }
            async fn changed(&self, seen: Version) -> Result<Version, Error> { (**self).changed(seen).await }
        }
    )*};
}
forward_log!(Arc<L>, Box<L>);

/// What is fixed about a log while it is open.
#[derive(Clone)]
pub struct LogInfo {
    /// Its identity for ever.
    pub uuid: LogUuid,
    /// Its name, for people: a path, a topic.
    pub name: String,
    /// How many partitions it has.
    pub partitions: NonZeroU32,
    /// The generation of its routing.
    pub routing: RoutingEpoch,
    /// Which group goes to which partition.
    pub router: Arc<dyn Router>,
    /// The level a record must reach before it is delivered.
    pub delivers: Durability,
    /// Whether it mints a [`Sequence`] for every record that has a key.
    pub sequences: bool,
    /// Whether a record can be read a second time at any moment. Only then may a long chain keep
    /// offsets instead of records.
    pub rereadable: bool,
    /// Whether it stores a record of a numbered producer once, however often it is appended; see
    /// [`Stamp`]. A log that does not must refuse batches that have a stamp.
    pub absorbs: bool,
    /// The largest record it takes, in bytes of key, payload and headers.
    pub record_bytes_max: usize,
}

impl fmt::Debug for LogInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogInfo")
            .field("uuid", &self.uuid)
            .field("name", &self.name)
            .field("partitions", &self.partitions)
            .field("router", &self.router.id())
            .field("delivers", &self.delivers)
            .finish_non_exhaustive()
    }
}

/// How much a record survives. Ordered: a higher level includes the lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// In this process's memory: survives nothing.
    Buffered,
    /// Handed to the operating system: survives the process.
    Flushed,
    /// Synced to the disk: survives a power cut.
    Synced,
    /// Acknowledged by the in-sync replicas of a broker.
    Replicated,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffered => "buffered",
            Self::Flushed => "flushed",
            Self::Synced => "synced",
            Self::Replicated => "replicated",
        })
    }
}

/// Records on their way into a log, each with the partition it was routed to.
#[derive(Debug)]
pub struct Batch {
    /// The records in order.
    pub records: OneOrMany<(Partition, Record)>,
    /// The level their receipts wait for; `None` is the log's own default.
    pub durability: Option<Durability>,
    /// Who sent them, and their numbers: only for logs that absorb repeats.
    pub stamp: Option<Stamp>,
    /// Dropped by the log when it holds the batch no longer, whatever became of it.
    pub permit: Option<Permit>,
}

impl Batch {
    /// One record.
    #[must_use]
    pub const fn one(partition: Partition, record: Record) -> Self {
        let records = OneOrMany::One((partition, record));
        Self { records, durability: None, stamp: None, permit: None }
    }

    /// Many records in order.
    pub fn many(records: impl IntoIterator<Item = (Partition, Record)>) -> Self {
        let records = records.into_iter().collect();
        Self { records, durability: None, stamp: None, permit: None }
    }
}

/// Where a stored record lies, and what it survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Its partition.
    pub partition: Partition,
    /// Its offset there.
    pub offset: Offset,
    /// Its number in its group, where the log mints one.
    pub sequence: Option<Sequence>,
    /// The level it had reached when the receipt was given.
    pub durability: Durability,
}

impl Receipt {
    /// For backends.
    #[must_use]
    pub const fn new(
        partition: Partition,
        offset: Offset,
        sequence: Option<Sequence>,
        durability: Durability,
    ) -> Self {
        Self { partition, offset, sequence, durability }
    }
}

/// What became of one appended record.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It is stored.
    Stored(Receipt),
    /// It is not stored and never will be; here it is again.
    Refused(Record, Error),
    /// It may or may not be stored. Sending it again may store it twice, unless its batch had a
    /// [`Stamp`]: then it may be sent again with the same number.
    Unknown(Error),
}

/// A future of one [`Outcome`] per record of a batch, in order. Dropping it cancels nothing.
#[must_use = "the outcome of an append is only known by awaiting it"]
pub struct Appending(AppendingState);

enum AppendingState {
    Ready(Option<OneOrMany<Outcome>>),
    Waiting { receipts: Arc<dyn Receipts>, first: u32, count: u32 },
}

/// Outcomes that many appends share: a log keeps one of these per write, and an [`Appending`] is
/// a reference and an index into it.
pub trait Receipts: Send + Sync {
    /// The outcomes of the `count` records from `first` on, once they are known; keeps the waker
    /// until then. Asked at most once after it was ready.
    fn poll(&self, first: u32, count: u32, cx: &mut Context<'_>) -> Poll<OneOrMany<Outcome>>;

    /// The number of the first record of a stamped batch, once it has one.
    fn base(&self) -> Option<u64> {
        None
    }
}

impl Appending {
    /// The outcomes are known already.
    pub fn ready(outcomes: impl Into<OneOrMany<Outcome>>) -> Self {
        Self(AppendingState::Ready(Some(outcomes.into())))
    }

    /// The outcomes of `count` records from `first` on will be known to `receipts`.
    pub const fn waiting(receipts: Arc<dyn Receipts>, first: u32, count: u32) -> Self {
        Self(AppendingState::Waiting { receipts, first, count })
    }

    /// The number that the first record of a stamped batch has, or was given by the log. `None`
    /// before the batch has room, after the outcomes were taken, and for batches without a stamp.
    #[must_use]
    pub fn base(&self) -> Option<u64> {
        match &self.0 {
            AppendingState::Ready(_) => None,
            AppendingState::Waiting { receipts, .. } => receipts.base(),
        }
    }
}

impl Future for Appending {
    type Output = OneOrMany<Outcome>;

    /// # Panics
    /// If polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            AppendingState::Ready(outcomes) => {
                Poll::Ready(outcomes.take().expect("`Appending` polled after it was ready"))
            }
            AppendingState::Waiting { receipts, first, count } => {
                let outcomes = std::task::ready!(receipts.poll(*first, *count, cx));
                self.0 = AppendingState::Ready(None);
                Poll::Ready(outcomes)
            }
        }
    }
}

impl fmt::Debug for Appending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            AppendingState::Ready(_) => f.write_str("Appending(ready)"),
            AppendingState::Waiting { first, count, .. } => {
                write!(f, "Appending(waiting for {count} from {first})")
            }
        }
    }
}

/// What to read of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Which partition.
    pub partition: Partition,
    /// From which offset on; it need not exist.
    pub from: Offset,
    /// How much at the most: reading stops before the record that would go over, but a first
    /// record is always given.
    pub max: Budget,
}

/// Records of one partition, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Which partition.
    pub partition: Partition,
    /// The records.
    pub records: Vec<Stored>,
    /// Where to read on: above the last record, and above any gap that follows it.
    pub next: Offset,
}

/// A place in every partition of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Position {
    /// The lowest offset that can be read.
    Earliest,
    /// Above the highest offset that can be read now.
    End,
    /// The first record that the log took at or after this time (log time); the end if none.
    Time(Timestamp),
}

/// A counter that moves whenever something new can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Older than any version a log gives: `changed(NEVER)` returns at once.
    pub const NEVER: Self = Self(0);
}
