//! What a log tells of its subscriptions, and of what retention did.

use std::sync::Arc;

use procession_core::{Offset, Partition, Timestamp};

/// What one trim removed, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trimmed {
    /// How many segments went.
    pub segments: u64,
    /// Bytes they took on the disk. One of them may have become the spare segment.
    pub bytes: u64,
    /// The lowest offset that can be read, by partition number. Above it there may be gaps.
    pub earliest: Vec<Offset>,
    /// Who keeps segments that retention would remove.
    pub pinned_by: Vec<Pin>,
    /// Subscriptions that were forgotten because nobody used them for
    /// [`expire_subscriptions_after`](crate::OpenOptions::expire_subscriptions_after), also by
    /// trims that ran by themselves since the last report; the latest 1,000.
    pub expired: Vec<Arc<str>>,
}

/// A subscription that keeps segments which retention would remove.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pin {
    /// Its name.
    pub subscription: Arc<str>,
    /// Where its oldest unfinished record of those segments is.
    pub partition: Partition,
    /// The offset of that record.
    pub offset: Offset,
    /// Bytes of the segments it keeps, alone or with others.
    pub bytes: u64,
}

/// One subscription of a log, from its durable progress.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionState {
    /// Its name.
    pub name: Arc<str>,
    /// Its partitions, ascending. One that was never claimed is not here, and pins nothing.
    pub partitions: Vec<PartitionState>,
    /// Bytes on disk of the sealed segments in which it has unfinished records.
    pub pinned_bytes: u64,
    /// Whether it has unfinished records in the oldest segment, if that one is sealed.
    pub pins_oldest: bool,
    /// Wall time of its last claim or commit. While `expire_subscriptions_after` is on, a live
    /// member counts as one every eighth of that time.
    pub last_moved: Timestamp,
    /// Whether it has a live member in this process, joined through
    /// [`FileLog::subscribe`](crate::FileLog::subscribe).
    pub live: bool,
}

/// How far a subscription got in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionState {
    /// Which partition.
    pub partition: Partition,
    /// The lowest offset that may be unfinished.
    pub next: Offset,
    /// Unfinished records below the end. Offsets are counted: a gap that retention left counts
    /// until the subscription has passed it.
    pub unfinished: u64,
}

impl SubscriptionState {
    /// Unfinished records below the ends of all its partitions.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.unfinished).sum()
    }
}
