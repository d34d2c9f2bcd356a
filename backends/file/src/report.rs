//! What recovery found.

use std::path::PathBuf;

use procession_core::Offset;

/// What opening a log had to do, for people and for tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The log was new.
    pub created: bool,
    /// The log had been closed in order, so there was nothing to recover.
    pub clean: bool,
    /// Records whose last write was not proven durable: they were read back, rewritten and synced.
    pub rewritten_records: u64,
    /// Bytes behind the last whole record that were cut: a write that the crash tore. They may have
    /// been acknowledged only if the disk lost what it had called synced.
    pub cut_bytes: u64,
    /// Whether what was cut may have been acknowledged: there was no proof either way.
    pub cut_may_have_been_acknowledged: bool,
    /// Damaged bytes below the proven position, set aside with `skip_corruption(true)`.
    pub quarantined: Vec<Quarantined>,
    /// Partitions in which progress names offsets that the log does not hold. Progress is only made
    /// of what was synced, so records that were finished are gone: a segment was deleted or cut, or
    /// progress was committed by hand.
    pub progress_ahead: Vec<ProgressAhead>,
    /// Numbers of segments that were missing without having been removed by retention, and were
    /// given up with `skip_corruption(true)`. Their records are lost. From now on they count as
    /// removed.
    pub segments_missing: Vec<u64>,
    /// Index files that were missing or damaged, and rebuilt.
    pub indexes_rebuilt: u64,
}

/// Progress that names more than the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgressAhead {
    /// In which partition.
    pub partition: u32,
    /// Where the log ends.
    pub end: Offset,
    /// Up to where progress goes; the next record gets this offset.
    pub named: Offset,
}

/// Damaged bytes that were set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantined {
    /// In which file they were.
    pub file: PathBuf,
    /// From which byte on.
    pub at: u64,
    /// How many.
    pub bytes: u64,
    /// Where the copy is.
    pub copy: PathBuf,
}
