//! Plain values: what a record is, where it lies, who owns its partition.

mod budget;
mod ids;
mod key;
mod one_or_many;
mod progress;
mod ranges;
mod record;

pub use budget::{Budget, Credit, Permit};
pub use ids::{
    Claim, Epoch, LogId, LogUuid, Offset, Partition, PartitionId, ProducerId, RoutingEpoch,
    Sequence, Timestamp,
};
pub use key::GroupKey;
pub use one_or_many::{IntoIter as OneOrManyIntoIter, OneOrMany};
pub use progress::Progress;
pub use ranges::Ranges;
pub use record::{Headers, HeadersIter, Record, Stored};
