//! The header of a segment file.
//!
//! ```text
//!  0          8      10     12       16                32           40
//!  +----------+------+------+--------+-----------------+------------+
//!  | PRCNSEGM | vers.| codc | partit.| log UUID        | segment id |
//!  +----------+------+------+--------+-----------------+------------+
//!  40           48           56           64             72
//!  +------------+------------+------------+--------------+
//!  | open count | log number | log time   | previous end |
//!  +------------+------------+------------+--------------+
//!  72  one u64 a partition: the next offset when this segment began
//!  ..  crc of all that, then zeros up to a multiple of 4,096; batches follow
//! ```
//!
//! The codecs are those that its batches may be packed with, one bit each.
//!
//! `previous end` says how many bytes of the segment before count. What lies behind them is the
//! rest of a crash, and is never read.

use super::{Salt, array, put, u16_at, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"PRCNSEGM";
/// 2 since batches can have stamps and codecs, and there are tables of producers; a segment of version 1 is
/// read, but nothing is added to it.
pub(crate) const VERSION: u16 = 2;
const FIXED: usize = 72;
const BLOCK: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) log: u128,
    /// Bits of the codecs that its batches may have.
    pub(crate) codecs: u16,
    pub(crate) id: u64,
    pub(crate) open_count: u64,
    /// Log number of the first record.
    pub(crate) log_number: u64,
    /// Log time when the segment began.
    pub(crate) log_time: i64,
    /// Bytes that count in the segment before.
    pub(crate) previous_end: u64,
    /// The next offset of each partition.
    pub(crate) base: Vec<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadSegment {
    Damaged,
    Newer(u16),
}

impl SegmentHeader {
    pub(crate) fn salt(&self) -> Salt {
        Salt::of(self.log, self.id, self.open_count)
    }

    /// Where the first batch begins.
    pub(crate) const fn size(partitions: usize) -> usize {
        (FIXED + 8 * partitions + 4).next_multiple_of(BLOCK)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; Self::size(self.base.len())];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 10, &self.codecs.to_le_bytes());
        put(&mut out, 12, &(self.base.len() as u32).to_le_bytes());
        put(&mut out, 16, &self.log.to_le_bytes());
        put(&mut out, 32, &self.id.to_le_bytes());
        put(&mut out, 40, &self.open_count.to_le_bytes());
        put(&mut out, 48, &self.log_number.to_le_bytes());
        put(&mut out, 56, &self.log_time.to_le_bytes());
        put(&mut out, 64, &self.previous_end.to_le_bytes());
        for (i, base) in self.base.iter().enumerate() {
            put(&mut out, FIXED + 8 * i, &base.to_le_bytes());
        }
        let end = FIXED + 8 * self.base.len();
        let crc = crc32c::crc32c(&out[..end]);
        put(&mut out, end, &crc.to_le_bytes());
        out
    }

    /// `bytes` is the start of a file, at least as long as the header of `partitions` partitions.
    pub(crate) fn decode(bytes: &[u8], partitions: usize) -> Result<Self, BadSegment> {
        let end = FIXED + 8 * partitions;
        if bytes.len() < end + 4 || bytes[..8] != MAGIC {
            return Err(BadSegment::Damaged);
        }
        let version = u16_at(bytes, 8);
        if version > VERSION {
            return Err(BadSegment::Newer(version));
        }
        let sound = u32_at(bytes, 12) as usize == partitions
            && crc32c::crc32c(&bytes[..end]) == u32_at(bytes, end);
        if !sound {
            return Err(BadSegment::Damaged);
        }
        Ok(Self {
            log: u128::from_le_bytes(array(bytes, 16)),
            codecs: u16_at(bytes, 10),
            id: u64_at(bytes, 32),
            open_count: u64_at(bytes, 40),
            log_number: u64_at(bytes, 48),
            log_time: u64_at(bytes, 56) as i64,
            previous_end: u64_at(bytes, 64),
            base: (0..partitions).map(|i| u64_at(bytes, FIXED + 8 * i)).collect(),
        })
    }
}
