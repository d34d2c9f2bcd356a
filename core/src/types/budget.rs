//! Counting records and bytes, and giving them back.

use std::fmt;
use std::sync::Arc;

/// An amount of records and of bytes (key + payload + headers). What it bounds is said where it
/// is used; a bound is reached when either of the two is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Budget {
    /// Number of records.
    pub records: u64,
    /// Bytes of their keys, payloads and headers.
    pub bytes: u64,
}

impl Budget {
    /// Nothing.
    pub const ZERO: Self = Self { records: 0, bytes: 0 };
    /// No bound.
    pub const MAX: Self = Self { records: u64::MAX, bytes: u64::MAX };

    /// This many records of this many bytes.
    #[must_use]
    pub const fn new(records: u64, bytes: u64) -> Self {
        Self { records, bytes }
    }

    /// Both amounts added, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            records: self.records.saturating_add(other.records),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Both amounts subtracted, down to nothing.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            records: self.records.saturating_sub(other.records),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Whether records or bytes are used up.
    #[must_use]
    pub const fn is_spent(self) -> bool {
        self.records == 0 || self.bytes == 0
    }
}

/// Who gets bytes back when a [`Permit`] is dropped. Called on any thread; must not block.
pub trait Credit: Send + Sync {
    /// Takes back `bytes`.
    fn give_back(&self, bytes: u64);
}

/// Bytes taken from a bounded stock; dropping it gives them back.
#[must_use = "dropping a permit gives its bytes back at once"]
pub struct Permit {
    home: Arc<dyn Credit>,
    bytes: u64,
}

impl Permit {
    /// A permit for bytes that were already taken from `home`.
    pub fn new(home: Arc<dyn Credit>, bytes: u64) -> Self {
        Self { home, bytes }
    }

    /// Takes over the bytes of `other` if both come from one home; otherwise hands it back. Logs
    /// that hold many batches of one producer keep one permit instead of one a batch.
    #[must_use = "a permit of another home comes back"]
    pub fn merge(&mut self, mut other: Self) -> Option<Self> {
        if !Arc::ptr_eq(&self.home, &other.home) {
            return Some(other);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.home.give_back(self.bytes);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
