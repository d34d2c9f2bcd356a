//! One group's past, newest record first, without a scan of the log.

use std::fmt;
use std::sync::Arc;

use futures::channel::oneshot;
use procession_core::{Budget, Error, ErrorKind, GroupKey, Offset, Partition, Stored};

use crate::log::FileLog;
use crate::reader::Question;
use crate::shared::Shared;

/// Reads the records of one group backwards, page by page; made by [`FileLog::history`].
///
/// Every record on disk names the offset of its group's record before it, and this follows the
/// chain. It begins at the group's newest *synced* record when the first page is asked for, and
/// sees nothing that is appended later.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// use procession_core::{Budget, Record};
/// use procession_file::{FileLog, HistoryEnd};
/// # futures::executor::block_on(async {
/// let log = FileLog::open(folder.path().join("permits")).await?;
/// let producer = log.producer();
/// for state in ["submitted", "checked", "granted"] {
///     producer.send(Record::new("case-10011", state)).await?;
/// }
/// let mut history = log.history("case-10011");
/// let newest = history.next_page().await?;
/// assert_eq!(newest[0].record.payload().unwrap(), "granted");
///
/// // Or all of it, oldest first, up to a bound.
/// let past = log.history("case-10011").oldest_first(Budget::new(1_000, 1 << 20)).await?;
/// assert_eq!(past.records[0].record.payload().unwrap(), "submitted");
/// assert_eq!(past.end, Some(HistoryEnd::First));
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// # What a step costs
/// For each record: one look-up in the sparse index of its segment, which is read from its `.idx`
/// file when it is not in memory, then a read of its batch's header and of the block that holds
/// the record, 64 KiB each, from the page cache or the disk. Neighbours that lie within one block
/// share it. Within a compressed batch a step unpacks the whole batch. Where the group's newest
/// record is not synced yet when the first page is asked for, the segment being written is scanned
/// once instead. Reads of the log wait while a page is read.
///
/// # Bounds
/// A page holds at most [`page`](Self::page) records and bytes, 1,000 and 1 MiB unless told
/// otherwise; its records are copies, which keep no blocks alive.
#[must_use = "nothing is read until a page is asked for"]
pub struct History {
    log: Arc<Shared>,
    partition: Partition,
    key: GroupKey,
    page: Budget,
    step: Step,
}

/// Where a history ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryEnd {
    /// At the group's first record: it is whole.
    First,
    /// At a part of the log that was trimmed away: there may have been more.
    Trimmed,
}

/// Part of a group's past, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Past {
    /// The records.
    pub records: Vec<Stored>,
    /// Where the past ends; `None` if there is more of it beyond the bound.
    pub end: Option<HistoryEnd>,
}

/// Where a history goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// At the group's newest record.
    Newest,
    At(u64),
    End(HistoryEnd),
}

/// What the reader is asked for.
#[derive(Debug)]
pub(crate) struct PageWanted {
    pub(crate) partition: Partition,
    pub(crate) key: GroupKey,
    pub(crate) step: Step,
    pub(crate) page: Budget,
}

/// What it answers: records, newest first, and where to go on.
pub(crate) type PageFound = (Vec<Stored>, Step);

impl FileLog {
    /// The past of a group, newest record first, without a scan. The group is looked for where the
    /// log's router puts it; see [`History::in_partition`].
    pub fn history(&self, key: impl Into<GroupKey>) -> History {
        History::new(self.shared(), key.into())
    }
}

impl History {
    pub(crate) fn new(log: &Arc<Shared>, key: GroupKey) -> Self {
        let info = &log.info;
        let partition = Partition::new(info.router.route(key.as_ref(), info.partitions));
        let page = Budget::new(1_000, 1 << 20);
        Self { log: Arc::clone(log), partition, key, page, step: Step::Newest }
    }

    /// Looks in this partition instead: for records that were appended past the router.
    pub const fn in_partition(mut self, partition: Partition) -> Self {
        self.partition = partition;
        self
    }

    /// How much a page holds at the most; one record always fits.
    pub const fn page(mut self, max: Budget) -> Self {
        self.page = max;
        self
    }

    /// Where the history ends, once its last page was given.
    #[must_use]
    pub const fn end(&self) -> Option<HistoryEnd> {
        match self.step {
            Step::End(end) => Some(end),
            Step::Newest | Step::At(_) => None,
        }
    }

    /// The next records, newest first; empty at the end.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the same page is given next time.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) for damaged bytes, also those that were set aside;
    /// [`NotFound`](ErrorKind::NotFound) for a partition that does not exist;
    /// [`Closed`](ErrorKind::Closed) once the log is closed.
    pub async fn next_page(&mut self) -> Result<Vec<Stored>, Error> {
        let (records, step) = self.ask(self.page).await?;
        self.step = step;
        Ok(records)
    }

    /// All records that are left, oldest first, but no more than the newest `max` of them: that
    /// much is in memory.
    ///
    /// # Errors
    /// As [`next_page`](Self::next_page).
    pub async fn oldest_first(mut self, max: Budget) -> Result<Past, Error> {
        let (mut records, mut left) = (Vec::new(), max);
        while self.end().is_none() && !left.is_spent() {
            let most =
                Budget::new(self.page.records.min(left.records), self.page.bytes.min(left.bytes));
            let (page, step) = self.ask(most).await?;
            let bytes = page.iter().map(|stored| stored.record.size_bytes() as u64).sum();
            // One record always comes, also one that is over the bound.
            if !records.is_empty() && bytes > left.bytes {
                break;
            }
            left = left.minus(Budget::new(page.len() as u64, bytes));
            self.step = step;
            records.extend(page);
        }
        records.reverse();
        Ok(Past { records, end: self.end() })
    }

    async fn ask(&self, page: Budget) -> Result<PageFound, Error> {
        if self.end().is_some() {
            return Ok((Vec::new(), self.step));
        }
        let wanted =
            PageWanted { partition: self.partition, key: self.key.clone(), step: self.step, page };
        let (answer, answered) = oneshot::channel();
        self.log.reading.ask(Question::History(wanted, answer));
        answered.await.unwrap_or_else(|_| {
            let operation = format!("read the history of a group of \"{}\"", self.log.info.name);
            Err(Error::new(ErrorKind::Closed, operation).in_group(self.key.clone()))
        })
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History")
            .field("key", &self.key)
            .field("partition", &self.partition)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

impl Step {
    /// From a record to the one before it.
    pub(crate) const fn before(previous: Option<Offset>, restarted: bool) -> Self {
        match previous {
            Some(offset) => Self::At(offset.get()),
            None if restarted => Self::End(HistoryEnd::Trimmed),
            None => Self::End(HistoryEnd::First),
        }
    }
}
