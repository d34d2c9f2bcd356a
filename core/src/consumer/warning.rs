//! What a person should look at, though it stops nothing.

use std::fmt;

use crate::types::{GroupKey, Offset, PartitionId};

/// Something that works, and probably not as it was meant. Given to
/// [`on_warning`](super::ConsumerBuilder::on_warning) and logged with `tracing`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Nearly every record has a key of its own, so there is next to no order to keep. Often the key
    /// holds an operation or a serial number where it should name the entity.
    KeysNearlyUnique {
        /// Records looked at.
        records: u64,
        /// About how many different keys they had.
        keys: u64,
    },
    /// One group has so many of the records that the others can add little to its speed: a group
    /// runs one turn at a time.
    GroupDominates {
        /// Which group.
        group: GroupKey,
        /// Records looked at.
        records: u64,
        /// At least so many of them were the group's.
        of_group: u64,
    },
    /// There are more members than partitions: this one has none.
    NothingAssigned,
    /// Retention removed records that this subscription had not handled.
    Skipped {
        /// In which partition.
        partition: PartitionId,
        /// The first that is gone.
        from: Offset,
        /// Where reading goes on.
        to: Offset,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeysNearlyUnique { records, keys } => write!(
                f,
                "about {keys} different keys in {records} records: order is kept inside a key, \
                 so hardly any is; does the key name the entity, and nothing else?"
            ),
            Self::GroupDominates { group, records, of_group } => write!(
                f,
                "group \"{group}\" has at least {of_group} of {records} records: a group runs one \
                 turn at a time, so more concurrency will not help; is its key too coarse?"
            ),
            Self::NothingAssigned => f.write_str(
                "no partition is left for this member: there are more members than partitions",
            ),
            Self::Skipped { partition, from, to } => write!(
                f,
                "partition {partition}: records from offset {from} up to {to} were removed by \
                 retention before they were handled"
            ),
        }
    }
}
