//! What a run came to.

/// Counts of one run of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Turns that ended well.
    pub turns_done: u64,
    /// Records that became terminal.
    pub records_done: u64,
    /// Turns that ended with an error or a panic.
    pub turns_failed: u64,
    /// Of these, the ones that panicked.
    pub turns_panicked: u64,
    /// Turns that were dropped before their end and count as no attempt: the time to drain was over,
    /// the partition was lost, or a delivery was dropped without a verdict.
    pub turns_cancelled: u64,
    /// Of these, the deliveries that were dropped without a verdict.
    pub deliveries_abandoned: u64,
    /// Commits that the store acknowledged, one per partition and interval.
    pub commits: u64,
    /// Commits that failed and were tried again: the disk was full, the outcome unknown.
    pub commits_failed: u64,
    /// Turns still open when the run ended: blocked inside a poll, or held by the user as a
    /// [`Delivery`](super::Delivery), they could not be dropped.
    pub turns_open: usize,
}
