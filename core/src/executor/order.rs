//! The declared order.

/// Which records wait for each other: what a scope is.
///
/// Three modes, one code path: the mode says which lane a record's key has, and nothing else
/// differs. The narrower the order, the more runs side by side.
///
/// | order | one scope is | side by side |
/// |---|---|---|
/// | [`PerGroup`](Self::PerGroup) | a key in a partition | the active groups |
/// | [`PerPartition`](Self::PerPartition) | a partition | the partitions |
/// | [`Unordered`](Self::Unordered) | a record | the records |
///
/// A *global* order is [`PerPartition`](Self::PerPartition) over a log of one partition; it costs
/// all parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// Records of one key in order, keys side by side.
    #[default]
    PerGroup,
    /// All records of a partition in order, whatever their keys, absent ones included. A turn of
    /// several records may mix keys. Any [`Scope`](crate::Scope) of the partition names it.
    PerPartition,
    /// Each record by itself, as absent keys under [`AbsentKey::Spread`](crate::AbsentKey::Spread).
    /// No [`Scope`](crate::Scope) names a single one, so they cannot be held or explained; letting
    /// any scope of the partition go lets all its blocked records go.
    Unordered,
}
