//! The header in front of the frames of one batch, in front of a table of producers, or a *mark*
//! with nothing behind it. The batches of one round lie one behind the other.
//!
//! ```text
//!  0        4        8        12       16                24                32
//!  +--------+--------+--------+--------+-----------------+-----------------+
//!  | crc    | "BTCH" | body   | records| log number      | open count      |
//!  +--------+--------+--------+--------+-----------------+-----------------+
//!  32                40                48                56       60   62   64
//!  +-----------------+-----------------+-----------------+--------+----+----+
//!  | log time (ms)   | synced: segment | synced: byte    | routing|flag|codc|
//!  +-----------------+-----------------+-----------------+--------+----+----+
//!  64       68       72                80
//!  +--------+--------+-----------------+
//!  | prod.id| epoch  | base sequence   |      zero without a stamp
//!  +--------+--------+-----------------+
//!  80  `body` bytes of frames, or of what they were packed into, or of a table of producers
//! ```
//!
//! `crc` is over the header only, started with the segment's salt *and* the header's own position:
//! a copy of a header somewhere else is not a header. *Synced* says through which byte of which
//! segment everything was durable when this was written: it proves the past, never itself.
//!
//! A stamp says that the records are those of one producer, numbered from the base sequence on.
//! Version 1 of a segment has neither stamps nor tables nor packed frames.

use super::{Salt, put, u16_at, u32_at, u64_at};

pub(crate) const BATCH_HEADER: usize = 80;
const MAGIC: [u8; 4] = *b"BTCH";
/// A mark, written when the log went quiet: it proves the last round.
pub(crate) const QUIET: u16 = 1;
/// A mark, written by an orderly close: nothing comes behind it in this open.
pub(crate) const CLOSED: u16 = 2;

/// Behind the header lies a table of producers, and no frame.
pub(crate) const PRODUCERS: u16 = 4;

/// The producer of a batch, and the number of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchStamp {
    pub(crate) producer: u32,
    pub(crate) epoch: u32,
    pub(crate) base: u64,
}

/// A place in the segment stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamPosition {
    pub(crate) segment: u64,
    pub(crate) byte: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) body: u32,
    pub(crate) records: u32,
    pub(crate) log_number: u64,
    pub(crate) open_count: u64,
    pub(crate) log_time: i64,
    pub(crate) synced: StreamPosition,
    pub(crate) routing: u32,
    pub(crate) flags: u16,
    /// How the frames are packed, 0 if they are not.
    pub(crate) codec: u16,
    pub(crate) stamp: Option<BatchStamp>,
}

impl BatchHeader {
    /// Writes the header for the place `at` in its segment.
    pub(crate) fn encode(&self, out: &mut [u8], salt: Salt, at: u64) {
        out[..BATCH_HEADER].fill(0);
        put(out, 4, &MAGIC);
        put(out, 8, &self.body.to_le_bytes());
        put(out, 12, &self.records.to_le_bytes());
        put(out, 16, &self.log_number.to_le_bytes());
        put(out, 24, &self.open_count.to_le_bytes());
        put(out, 32, &self.log_time.to_le_bytes());
        put(out, 40, &self.synced.segment.to_le_bytes());
        put(out, 48, &self.synced.byte.to_le_bytes());
        put(out, 56, &self.routing.to_le_bytes());
        put(out, 60, &self.flags.to_le_bytes());
        put(out, 62, &self.codec.to_le_bytes());
        if let Some(stamp) = self.stamp {
            put(out, 64, &stamp.producer.to_le_bytes());
            put(out, 68, &stamp.epoch.to_le_bytes());
            put(out, 72, &stamp.base.to_le_bytes());
        }
        let crc = checksum(out, salt, at);
        put(out, 0, &crc.to_le_bytes());
    }

    /// The header at the start of `bytes`, if there is one that was written for the place `at`.
    pub(crate) fn check(bytes: &[u8], salt: Salt, at: u64) -> Option<Self> {
        if bytes.len() < BATCH_HEADER || bytes[4..8] != MAGIC {
            return None;
        }
        let whole = &bytes[..BATCH_HEADER];
        (checksum(whole, salt, at) == u32_at(whole, 0)).then(|| Self {
            body: u32_at(whole, 8),
            records: u32_at(whole, 12),
            log_number: u64_at(whole, 16),
            open_count: u64_at(whole, 24),
            log_time: u64_at(whole, 32) as i64,
            synced: StreamPosition { segment: u64_at(whole, 40), byte: u64_at(whole, 48) },
            routing: u32_at(whole, 56),
            flags: u16_at(whole, 60),
            codec: u16_at(whole, 62),
            stamp: (u32_at(whole, 64) > 0).then(|| BatchStamp {
                producer: u32_at(whole, 64),
                epoch: u32_at(whole, 68),
                base: u64_at(whole, 72),
            }),
        })
    }

    /// The next header after `from` in the bytes of a segment that start at position 0.
    pub(crate) fn search(segment: &[u8], salt: Salt, from: usize) -> Option<(usize, Self)> {
        let mut at = from;
        loop {
            let found = segment.get(at + 4..)?.windows(4).position(|w| w == MAGIC)?;
            at += found;
            if let Some(header) = Self::check(&segment[at..], salt, at as u64) {
                return Some((at, header));
            }
            at += 1;
        }
    }
}

fn checksum(header: &[u8], salt: Salt, at: u64) -> u32 {
    let crc = crc32c::crc32c_append(salt.0, &at.to_le_bytes());
    crc32c::crc32c_append(crc, &header[4..BATCH_HEADER])
}
