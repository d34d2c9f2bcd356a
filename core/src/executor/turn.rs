//! One execution of the handler.

use std::fmt;
use std::num::NonZeroU32;

use crate::types::{
    Claim, Epoch, GroupKey, Headers, Offset, OneOrMany, PartitionId, Sequence, Stored,
};

/// What a chain is keyed by: a group inside a partition of a log. Identity is the key's bytes,
/// never a hash. Under another declared [`Order`](crate::Order) than per group, a scope names what
/// is said there.
///
/// A record with an absent key has no group; its scope is the partition's absent key
/// ([`AbsentKey::Serial`](crate::AbsentKey)) or it has none at all ([`AbsentKey::Spread`](crate::AbsentKey)).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// Where.
    pub partition: PartitionId,
    /// Which group; `None` for records without a key.
    pub key: Option<GroupKey>,
}

impl Scope {
    /// The group `key` in `partition`.
    pub fn new(partition: PartitionId, key: impl Into<GroupKey>) -> Self {
        Self { partition, key: Some(key.into()) }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "\"{key}\" in partition {}", self.partition),
            None => write!(f, "(no key) in partition {}", self.partition),
        }
    }
}

/// Names an open turn. Generational: the id of a turn that has ended is never mistaken for a
/// later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId {
    /// A place in the executor, used again.
    pub index: u32,
    /// How often the place was used before.
    pub generation: u32,
}

/// One execution of the handler for the head record of a group, or its next few.
///
/// The default executor gives one record a turn unless it was told
/// [otherwise](crate::ChainsOptions::batch), so a handler that looks at [`record`](Self::record)
/// alone misses nothing.
#[derive(Clone, Debug)]
pub struct Turn {
    id: TurnId,
    claim: Claim,
    attempt: NonZeroU32,
    records: OneOrMany<Stored>,
}

impl Turn {
    /// For executors. `records` must not be empty.
    #[must_use]
    pub const fn new(
        id: TurnId,
        claim: Claim,
        attempt: NonZeroU32,
        records: OneOrMany<Stored>,
    ) -> Self {
        Self { id, claim, attempt, records }
    }

    /// Its name while it is open.
    #[must_use]
    pub const fn id(&self) -> TurnId {
        self.id
    }

    /// The right under which it runs.
    #[must_use]
    pub const fn claim(&self) -> Claim {
        self.claim
    }

    /// Where its records come from.
    #[must_use]
    pub const fn partition(&self) -> PartitionId {
        self.claim.partition
    }

    /// The ownership generation: hand it to a fencing sink with every effect.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.claim.epoch
    }

    /// The group of the head record; `None` for a record without a key.
    #[must_use]
    pub fn group(&self) -> Option<&GroupKey> {
        self.record().key()
    }

    /// Which attempt this is, from 1. A turn that was cancelled or released does not count.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt.get()
    }

    /// The head record.
    ///
    /// # Panics
    /// If an executor made a turn without records, which is a bug there.
    #[must_use]
    pub fn record(&self) -> &Stored {
        &self.records.as_slice()[0]
    }

    /// The head record's place in its partition. With [`partition`](Self::partition) it names the
    /// record for ever: a key for idempotent effects.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.record().offset
    }

    /// The head record's number in its group, where the log mints one: as good a key for
    /// idempotent effects.
    #[must_use]
    pub fn sequence(&self) -> Option<Sequence> {
        self.record().sequence
    }

    /// The head record's payload, empty for a tombstone (see
    /// [`Record::payload`](crate::Record::payload) to tell the two apart).
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.record().payload()
    }

    /// The head record's headers.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        self.record().headers()
    }

    /// All its records: consecutive ones of one scope, each with its own offset. Their keys are
    /// equal, unless the declared [`Order`](crate::Order) is per partition.
    #[must_use]
    pub const fn records(&self) -> &[Stored] {
        self.records.as_slice()
    }
}
