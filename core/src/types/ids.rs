//! Numbers with a meaning: offsets, partitions, epochs, times. None of them can be mixed up.

use std::fmt;
use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// Wraps the plain number.
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

number! {
    /// A record's place in its partition. Offsets grow, and may have gaps: never compute the
    /// neighbour of one, ask the log.
    Offset(u64)
}
number! {
    /// The number of a partition inside its log, from 0.
    Partition(u32)
}
number! {
    /// A record's number inside its group, minted by our own logs from 0; absent on logs that
    /// others write. Inside one group it grows by one, without gaps, for as long as the log keeps
    /// a record of the group; after that it may jump, but never falls.
    Sequence(u64)
}
number! {
    /// The number that a log gave to the name of a producer, from 1; never used again for another.
    ProducerId(u64)
}
number! {
    /// The generation of a log's routing (which group goes to which partition). Fixed at 1 until
    /// a log can be resized.
    RoutingEpoch(u32)
}
number! {
    /// A log as one subscription knows it: the index into its list of logs.
    LogId(u32)
}

impl Offset {
    /// The first offset there can be.
    pub const ZERO: Self = Self(0);

    /// The smallest offset above this one. It is a *bound* ("read from here"), not a promise that
    /// a record lies there.
    #[must_use]
    pub const fn after(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Milliseconds since the Unix epoch, UTC. May be negative: producers choose their own times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let millis = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
        Self(match time.duration_since(UNIX_EPOCH) {
            Ok(after) => millis(after),
            Err(before) => -millis(before.duration()),
        })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// The ownership generation of a partition for a subscription. It grows at every claim and fences
/// the past. Non-zero and below 2^53, so that it survives a trip through JSON and SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(NonZeroU64);

impl Epoch {
    /// The lowest epoch.
    pub const FIRST: Self = Self(NonZeroU64::MIN);
    /// The highest epoch: 2^53 - 1.
    pub const LAST: Self = match NonZeroU64::new((1 << 53) - 1) {
        Some(last) => Self(last),
        None => unreachable!(),
    };

    /// The epoch of this number, or `None` outside `1 ..= 2^53 - 1`.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(n) if value <= Self::LAST.get() => Some(Self(n)),
            _ => None,
        }
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The next epoch, or `None` after the last one.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        Self::new(self.get() + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of a log for ever: copied or renamed folders keep it, two logs never share it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogUuid(u128);

impl LogUuid {
    /// Wraps the plain value. Backends draw it at random once, when a log is created.
    #[must_use]
    pub const fn from_u128(value: u128) -> Self {
        Self(value)
    }

    /// The plain value.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for LogUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for LogUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogUuid({self})")
    }
}

/// One partition of one log of a subscription.
///
/// `Display` names the log only where there are several, as errors do:
///
/// ```
/// use procession_core::{LogId, Partition, PartitionId};
/// let (first, second) = (LogId::new(0), LogId::new(1));
/// assert_eq!(PartitionId::new(first, Partition::new(3)).to_string(), "3");
/// assert_eq!(PartitionId::new(second, Partition::new(3)).to_string(), "3 of log 1");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// Which log of the subscription.
    pub log: LogId,
    /// Which partition of that log.
    pub partition: Partition,
}

impl PartitionId {
    /// The partition `partition` of the subscription's log `log`.
    #[must_use]
    pub const fn new(log: LogId, partition: Partition) -> Self {
        Self { log, partition }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.partition.fmt(f)?;
        // The first log is the only one for nearly everybody.
        if self.log.get() > 0 {
            write!(f, " of log {}", self.log)?;
        }
        Ok(())
    }
}

/// A member's right to a partition: everything that happens to a record carries it, and what
/// carries an older epoch than the latest claim is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// What is owned.
    pub partition: PartitionId,
    /// Since which generation.
    pub epoch: Epoch,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} (epoch {})", self.partition, self.epoch)
    }
}
