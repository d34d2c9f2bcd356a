//! Who sends, over restarts: so that a record that is sent again is stored once.

use std::fmt;

use super::{Producer, ProducerBuilder};
use crate::types::{Epoch, ProducerId};
use crate::{Error, ErrorKind};

/// Who sent a batch, and the numbers of its records. A log whose
/// [`absorbs`](crate::LogInfo::absorbs) is set stores each number of a producer once; others refuse
/// a batch that has one with [`Unsupported`](ErrorKind::Unsupported).
///
/// The numbers of a producer count its records from 0, over all its lives: an epoch fences the
/// lives before it, the numbers go on. For the record with number *n*, where *next* is the lowest
/// number that is not stored:
///
/// | | |
/// |---|---|
/// | *n* = *next* | it is stored |
/// | *n* < *next* | absorbed: answered with the receipt of the first time. With other bytes than then: refused, [`Mismatch`](ErrorKind::Mismatch). Too long ago to remember: refused, [`Repeated`](ErrorKind::Repeated) |
/// | *n* > *next* | a gap: refused, [`NotYetWritten`](ErrorKind::NotYetWritten) |
/// | older epoch | refused, [`Fenced`](ErrorKind::Fenced) |
///
/// What is refused comes back, as always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Who.
    pub producer: ProducerId,
    /// In which of its lives.
    pub epoch: Epoch,
    /// The number of the batch's first record (its *base sequence*); the others follow. `None`: the
    /// log takes the next numbers, see [`Appending::base`](crate::Appending::base).
    pub base: Option<u64>,
}

/// What a log knows of a producer that has just enlisted; see [`Log::enlist`](crate::Log::enlist).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enlisted {
    /// The number that the log gave to its name.
    pub producer: ProducerId,
    /// This life.
    pub epoch: Epoch,
    /// The number of its next record: all below are stored.
    pub next: u64,
}

impl Enlisted {
    /// For backends.
    #[must_use]
    pub const fn new(producer: ProducerId, epoch: Epoch, next: u64) -> Self {
        Self { producer, epoch, next }
    }
}

/// A producer with an identity, before it has enlisted; made by [`ProducerBuilder::id`].
#[must_use = "a builder does nothing until it is built"]
pub struct IdentityBuilder {
    pub(super) producer: ProducerBuilder,
    pub(super) name: String,
}

impl IdentityBuilder {
    /// Claims the next epoch of the name, durably, and gives the producer. From then on the
    /// producers that were built with this name before are fenced.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the log does not absorb repeats;
    /// [`Full`](ErrorKind::Full) if it knows as many producers as it can, or the disk is full;
    /// [`Config`](ErrorKind::Config) for a name it cannot take.
    ///
    /// # Cancel safety
    /// If this is dropped the epoch may or may not have been claimed.
    pub async fn build(self) -> Result<Producer, Error> {
        let Self { producer, name } = self;
        let enlisted = producer.log.enlist(&name).await?;
        Ok(producer.build_with(Some(enlisted)))
    }
}

impl fmt::Debug for IdentityBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityBuilder")
            .field("name", &self.name)
            .field("producer", &self.producer)
            .finish()
    }
}

pub(super) fn without_identity(log: &str) -> Error {
    Error::new(ErrorKind::Config, format!("send to log \"{log}\" with a number"))
        .with_hint("the producer has no identity; build it with `Producer::builder(log).id(name)`")
}
