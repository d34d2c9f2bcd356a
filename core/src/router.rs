//! Which group goes to which partition.

use std::fmt;
use std::hash::Hasher;
use std::num::NonZeroU32;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

/// A pure function from a group's key to its partition.
///
/// The same key and the same count must give the same partition in every process and every
/// version, for as long as a log lives: its [`id`](Self::id) is recorded when a log is created and
/// checked whenever it is opened. Change the function, change the id.
///
/// ```
/// use procession_core::{Router, router};
/// use std::num::NonZeroU32;
/// let by_first_byte = router("first-byte", |key, partitions| {
///     u32::from(key.first().copied().unwrap_or(0)) % partitions.get()
/// });
/// assert_eq!(by_first_byte.route(b"a", NonZeroU32::new(8).unwrap()), 1);
/// ```
///
/// # For implementors
/// - the result is below `partitions` (a log refuses the record otherwise)
/// - no clock, no randomness, no state
pub trait Router: Send + Sync {
    /// What is recorded in the log.
    fn id(&self) -> RouterId;

    /// The partition of the group `key`, below `partitions`.
    fn route(&self, key: &[u8], partitions: NonZeroU32) -> u32;
}

#[deny(clippy::missing_trait_methods)]
impl<R: Router + ?Sized> Router for Arc<R> {
    fn id(&self) -> RouterId {
        (**self).id()
    }

    fn route(&self, key: &[u8], partitions: NonZeroU32) -> u32 {
        (**self).route(key, partitions)
    }
}

/// The identity of a routing function: its name and seed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouterId {
    /// The name, at most 255 bytes.
    pub name: String,
    /// The seed, 0 where there is none.
    pub seed: u64,
}

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" seed {}", self.name, self.seed)
    }
}

/// The default router of our own logs: SipHash-1-3 of the key under the seed, modulo the number
/// of partitions.
///
/// Keyed, so that who chooses keys cannot choose partitions; hashed before the modulo, so that
/// serial keys spread; unsigned, so that there is no negative remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SipRouter {
    seed: u64,
}

impl SipRouter {
    /// The router of this seed. The seed is part of its identity.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }
}

impl Router for SipRouter {
    fn id(&self) -> RouterId {
        RouterId { name: "siphash-1-3".to_owned(), seed: self.seed }
    }

    fn route(&self, key: &[u8], partitions: NonZeroU32) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0x7072_6f63_6573_7369);
        hasher.write(key);
        // Below `partitions`, so it fits.
        (hasher.finish() % u64::from(partitions.get())) as u32
    }
}

/// A router of a plain function, under a name that must change when the function does.
pub fn router<F>(name: &str, route: F) -> impl Router + use<F>
where
    F: Fn(&[u8], NonZeroU32) -> u32 + Send + Sync,
{
    struct Named<F>(String, F);

    impl<F: Fn(&[u8], NonZeroU32) -> u32 + Send + Sync> Router for Named<F> {
        fn id(&self) -> RouterId {
            RouterId { name: self.0.clone(), seed: 0 }
        }

        fn route(&self, key: &[u8], partitions: NonZeroU32) -> u32 {
            (self.1)(key, partitions)
        }
    }

    Named(name.to_owned(), route)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    /// Golden vectors: these numbers may never change, logs on disk depend on them.
    #[test]
    fn routes_the_same_in_every_version() {
        let router = SipRouter::new(0);
        let routed: Vec<u32> = [&b""[..], b"case-7", b"case-891", b"\xff\xfe"]
            .iter()
            .map(|key| router.route(key, partitions(1000)))
            .collect();
        assert_eq!(routed, [816, 304, 873, 99]);
    }

    #[test]
    fn serial_keys_spread_evenly() {
        let (router, n, keys) = (SipRouter::new(7), 64_usize, 64_000_u32);
        let mut counts = vec![0_f64; n];
        for key in 0..keys {
            counts[router.route(&key.to_be_bytes(), partitions(n as u32)) as usize] += 1.0;
        }
        let expected = f64::from(keys) / n as f64;
        let chi_square: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
        // 63 degrees of freedom: 103 is exceeded by chance once in a thousand seeds; ours is fixed.
        assert!(chi_square < 103.0, "chi square {chi_square}");
    }
}
