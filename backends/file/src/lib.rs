//! The embedded, durable log of procession: no server, one folder.
//!
//! [`FileLog`] is a [`Log`](procession_core::Log), [`FileStore`] an
//! [`OffsetStore`](procession_core::OffsetStore) in the same folder.
//!
//! ```text
//!  append ──> front (numbers, frames) ──> round ──> writer: one write, one fdatasync
//!                                                     │ receipts, and readers wake
//!  read ──> reader: one pass over the stream for all partitions ──> slices of shared blocks
//!  claim, commit ──> desk: one fdatasync for all that came in meanwhile
//!  retention ──> keeper: asks the desk what may go, then unlinks it or makes the spare of it
//!  another process ──> follower: what headers say is synced ──> reader
//!
//!  folder:  meta   lock   00000000000000000001.seg (.idx)   …   spare.seg
//!           progress.a   progress.b   quarantine/
//! ```
//!
//! The disk is behind a seam ([`disk::Disk`]), and each worker is a `step()`: a simulation runs
//! the code that production runs.

mod ask;
mod backup;
pub mod disk;
mod enlist;
mod errors;
mod file_reader;
mod format;
mod front;
mod groups;
mod history;
mod index;
mod keeper;
mod log;
mod open_files;
mod options;
mod parcel;
mod producers;
mod progress;
mod reader;
mod recover;
mod report;
mod retention;
mod round;
mod sections;
mod segments;
mod shared;
mod subscribe;
mod subscriptions;
#[cfg(test)]
mod tests;
mod trims;
mod worker;
mod writer;

pub use backup::BackupReport;
pub use file_reader::FileReader;
pub use history::{History, HistoryEnd, Past};
pub use log::FileLog;
pub use options::{Compression, OpenOptions, ReadOnlyOptions};
pub use progress::FileStore;
pub use report::{ProgressAhead, Quarantined, RecoveryReport};
pub use subscriptions::{PartitionState, Pin, SubscriptionState, Trimmed};
