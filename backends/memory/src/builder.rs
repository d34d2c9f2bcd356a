//! How a [`MemoryLog`] is set up.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::SystemTime;

use procession_core::{
    Durability, Error, ErrorKind, LogInfo, LogUuid, Router, RoutingEpoch, SipRouter,
};

use crate::MemoryLog;

/// Options of a [`MemoryLog`]; each has a default.
///
/// ```
/// use procession_memory::MemoryLog;
/// let log = MemoryLog::builder().name("permits").partitions(4).capacity_bytes(1 << 20).build()?;
/// # Ok::<(), procession_core::Error>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct MemoryLogBuilder {
    name: String,
    partitions: u32,
    router: Arc<dyn Router>,
    record_bytes_max: usize,
    capacity_bytes: u64,
    clock: Clock,
}

/// The wall clock, or one of a test's.
pub(crate) type Clock = Box<dyn Fn() -> SystemTime + Send + Sync>;

impl Default for MemoryLogBuilder {
    fn default() -> Self {
        Self {
            name: "memory".to_owned(),
            partitions: 8,
            router: Arc::new(SipRouter::new(0)),
            record_bytes_max: 1 << 20,
            capacity_bytes: 1 << 30,
            clock: Box::new(SystemTime::now),
        }
    }
}

impl MemoryLogBuilder {
    /// The name, for people; "memory" by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many partitions; 8 by default.
    pub const fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    /// Which group goes to which partition; [`SipRouter`] of seed 0 by default.
    pub fn router(mut self, router: impl Router + 'static) -> Self {
        self.router = Arc::new(router);
        self
    }

    /// The largest record, in bytes of key, payload and headers; 1 MiB by default. A larger one is
    /// refused with [`ErrorKind::TooLarge`].
    pub const fn record_bytes_max(mut self, bytes: usize) -> Self {
        self.record_bytes_max = bytes;
        self
    }

    /// How much the log holds, in bytes of its records and 128 more for each; 1 GiB by default. At
    /// the bound a record and the rest of its batch are refused with [`ErrorKind::Full`], until
    /// [`MemoryLog::trim`] makes room.
    pub const fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// Where log time comes from; the wall clock by default. When it falls, log time stands still.
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// An empty log with an identity of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for no partition at all.
    pub fn build(self) -> Result<MemoryLog, Error> {
        let partitions = NonZeroU32::new(self.partitions).ok_or_else(|| {
            Error::new(ErrorKind::Config, format!("build memory log \"{}\"", self.name))
                .with_hint("a log needs at least one partition")
        })?;
        let info = LogInfo {
            uuid: random_uuid(),
            name: self.name,
            partitions,
            routing: RoutingEpoch::new(1),
            router: self.router,
            delivers: Durability::Buffered,
            sequences: true,
            rereadable: true,
            absorbs: false,
            record_bytes_max: self.record_bytes_max,
        };
        Ok(MemoryLog::open(info, self.capacity_bytes, self.clock))
    }
}

/// `std` has no random numbers, but the seeds of its hash maps are.
fn random_uuid() -> LogUuid {
    let half = || u128::from(RandomState::new().hash_one(0_u8));
    LogUuid::from_u128(half() << 64 | half())
}

impl fmt::Debug for MemoryLogBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLogBuilder")
            .field("name", &self.name)
            .field("partitions", &self.partitions)
            .field("router", &self.router.id())
            .field("record_bytes_max", &self.record_bytes_max)
            .field("capacity_bytes", &self.capacity_bytes)
            .finish_non_exhaustive()
    }
}
