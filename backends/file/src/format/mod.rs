//! What lies on the disk, as pure functions over bytes. Nothing here does I/O.

pub(crate) mod batch;
pub(crate) mod codec;
pub(crate) mod frame;
pub(crate) mod meta;
pub(crate) mod producers;
pub(crate) mod segment;

/// The version of every file of a log, except its segments. A build refuses newer ones.
pub(crate) const VERSION: u16 = 1;

/// The start value of the checksums of one segment, so that bytes of another segment, or of the
/// same file before it was used again, never decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salt(pub(crate) u32);

impl Salt {
    pub(crate) fn of(log: u128, segment: u64, open_count: u64) -> Self {
        let mut crc = crc32c::crc32c(&log.to_le_bytes());
        crc = crc32c::crc32c_append(crc, &segment.to_le_bytes());
        Self(crc32c::crc32c_append(crc, &open_count.to_le_bytes()))
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// `N` bytes from `at` on. Callers have checked the length of the structure they read.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
