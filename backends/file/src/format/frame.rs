//! One record on disk.
//!
//! ```text
//!  0        4        8        12       16       20       24
//!  +--------+--------+--------+--------+--------+--------+
//!  | crc    | length | partit.| key len| headers| flags  |   little-endian
//!  +--------+--------+--------+--------+--------+--------+
//!  24                32                40                48                56
//!  +-----------------+-----------------+-----------------+-----------------+
//!  | offset          | sequence        | previous offset | timestamp (ms)  |
//!  +-----------------+-----------------+-----------------+-----------------+
//!  56
//!  +-----+---------+---------+
//!  | key | headers | payload |      length = 56 + the three
//!  +-----+---------+---------+
//! ```
//!
//! `crc` is the CRC-32C of everything behind it, started with the segment's salt. `previous` is
//! the offset of the group's record before this one, all ones if there is none. Flags: 1 the key
//! is absent (and the sequence means nothing), 2 the payload is absent, 4 the sequence restarted
//! at the record's log number because the group's past was trimmed away.

use std::ops::Range;

use bytes::Bytes;
use procession_core::{GroupKey, Headers, Offset, Record, Sequence, Timestamp};

use super::{Salt, put, u32_at, u64_at};

pub(crate) const FRAME_HEADER: usize = 56;
pub(crate) const NO_KEY: u32 = 1;
pub(crate) const NO_PAYLOAD: u32 = 2;
pub(crate) const RESTARTED: u32 = 4;
const FLAGS: u32 = NO_KEY | NO_PAYLOAD | RESTARTED;
/// `previous` of a group's first record.
pub(crate) const NO_PREVIOUS: u64 = u64::MAX;

/// The numbers a log gives to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
    pub(crate) previous: u64,
    pub(crate) restarted: bool,
}

/// Bytes the record takes on disk.
pub(crate) fn length(record: &Record) -> usize {
    FRAME_HEADER + record.size_bytes()
}

/// Appends the frame of `record` to `out`.
pub(crate) fn encode(out: &mut Vec<u8>, salt: Salt, place: Place, at: Timestamp, record: &Record) {
    let key = record.key().map_or(&[][..], AsRef::as_ref);
    let payload = record.payload().map_or(&[][..], AsRef::as_ref);
    let headers = &record.headers().encoded()[..];
    let mut flags = 0;
    if record.key().is_none() {
        flags |= NO_KEY;
    }
    if record.payload().is_none() {
        flags |= NO_PAYLOAD;
    }
    if place.restarted {
        flags |= RESTARTED;
    }
    let length = FRAME_HEADER + key.len() + headers.len() + payload.len();
    let mut head = [0; FRAME_HEADER];
    // Lengths fit: a record is at most `record_bytes_max`, which is checked to be below 2^31.
    put(&mut head, 4, &(length as u32).to_le_bytes());
    put(&mut head, 8, &place.partition.to_le_bytes());
    put(&mut head, 12, &(key.len() as u32).to_le_bytes());
    put(&mut head, 16, &(headers.len() as u32).to_le_bytes());
    put(&mut head, 20, &flags.to_le_bytes());
    put(&mut head, 24, &place.offset.to_le_bytes());
    put(&mut head, 32, &place.sequence.to_le_bytes());
    put(&mut head, 40, &place.previous.to_le_bytes());
    put(&mut head, 48, &record.timestamp().unwrap_or(at).as_millis().to_le_bytes());
    let start = out.len();
    out.extend_from_slice(&head);
    out.extend_from_slice(key);
    out.extend_from_slice(headers);
    out.extend_from_slice(payload);
    let crc = crc32c::crc32c_append(salt.0, &out[start + 4..]);
    put(out, start, &crc.to_le_bytes());
}

/// What [`Frame::content`] will be for this record.
pub(crate) fn content_of(record: &Record) -> u32 {
    let key = record.key().map_or(&[][..], AsRef::as_ref);
    let headers = &record.headers().encoded()[..];
    let payload = record.payload().map_or(&[][..], AsRef::as_ref);
    let absent = |absent: bool, flag| if absent { flag } else { 0 };
    let flags =
        absent(record.key().is_none(), NO_KEY) | absent(record.payload().is_none(), NO_PAYLOAD);
    let head = content([key.len(), headers.len()], flags, key);
    crc32c::crc32c_append(crc32c::crc32c_append(head, headers), payload)
}

fn content(lengths: [usize; 2], flags: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc32c::crc32c(&(flags & (NO_KEY | NO_PAYLOAD)).to_le_bytes());
    for length in lengths {
        crc = crc32c::crc32c_append(crc, &(length as u32).to_le_bytes());
    }
    crc32c::crc32c_append(crc, bytes)
}

/// Writes the checksum of a frame anew, under the salt of the segment it moves to.
pub(crate) fn reseal(frame: &mut [u8], salt: Salt) {
    let crc = crc32c::crc32c_append(salt.0, &frame[4..]);
    put(frame, 0, &crc.to_le_bytes());
}

/// The header of a frame whose lengths are sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) length: usize,
    pub(crate) place: Place,
    key_len: usize,
    headers_len: usize,
    flags: u32,
    timestamp: i64,
}

impl Frame {
    /// Reads the header at the start of `bytes`; `None` if it cannot be one, or if the frame would
    /// be longer than `limit`. Nothing is allocated on the word of a length.
    pub(crate) fn peek(bytes: &[u8], limit: usize) -> Option<Self> {
        if bytes.len() < FRAME_HEADER {
            return None;
        }
        let length = u32_at(bytes, 4) as usize;
        let key_len = u32_at(bytes, 12) as usize;
        let headers_len = u32_at(bytes, 16) as usize;
        let flags = u32_at(bytes, 20);
        let parts = FRAME_HEADER.checked_add(key_len)?.checked_add(headers_len)?;
        let absent_but_there =
            (flags & NO_KEY != 0 && key_len > 0) || (flags & NO_PAYLOAD != 0 && parts != length);
        if parts > length || length > limit || flags & !FLAGS != 0 || absent_but_there {
            return None;
        }
        let place = Place {
            partition: u32_at(bytes, 8),
            offset: u64_at(bytes, 24),
            sequence: u64_at(bytes, 32),
            previous: u64_at(bytes, 40),
            restarted: flags & RESTARTED != 0,
        };
        let timestamp = u64_at(bytes, 48) as i64;
        Some(Self { length, place, key_len, headers_len, flags, timestamp })
    }

    /// The frame at the start of `bytes`, whole and with the right checksum.
    pub(crate) fn check(bytes: &[u8], salt: Salt) -> Option<Self> {
        let frame = Self::peek(bytes, bytes.len())?;
        let crc = crc32c::crc32c_append(salt.0, &bytes[4..frame.length]);
        (crc == u32_at(bytes, 0)).then_some(frame)
    }

    pub(crate) const fn has_key(&self) -> bool {
        self.flags & NO_KEY == 0
    }

    /// Where the key lies, from the start of the frame.
    pub(crate) const fn key(&self) -> Range<usize> {
        FRAME_HEADER..FRAME_HEADER + self.key_len
    }

    /// What key, headers and payload are, in short: with other bytes it is another record. The
    /// frame is at the start of `bytes`.
    pub(crate) fn content(&self, bytes: &[u8]) -> u32 {
        content([self.key_len, self.headers_len], self.flags, &bytes[FRAME_HEADER..self.length])
    }

    /// Bytes of key, headers and payload.
    pub(crate) const fn body(&self) -> usize {
        self.length - FRAME_HEADER
    }

    pub(crate) fn sequence(&self) -> Option<Sequence> {
        self.has_key().then(|| Sequence::new(self.place.sequence))
    }

    pub(crate) const fn offset(&self) -> Offset {
        Offset::new(self.place.offset)
    }

    /// The record, as slices of the block that holds the frame from `at` on. `None` if its headers
    /// are not headers.
    pub(crate) fn record(&self, block: &Bytes, at: usize) -> Option<Record> {
        let key_at = at + FRAME_HEADER;
        let headers_at = key_at + self.key_len;
        let payload_at = headers_at + self.headers_len;
        let key = self.has_key().then(|| GroupKey::from(block.slice(key_at..headers_at)));
        let headers = if self.headers_len == 0 {
            Headers::default()
        } else {
            Headers::decode(block.slice(headers_at..payload_at)).ok()?
        };
        let payload =
            (self.flags & NO_PAYLOAD == 0).then(|| block.slice(payload_at..at + self.length));
        Some(Record::from_parts(
            key,
            payload,
            headers,
            Some(Timestamp::from_millis(self.timestamp)),
        ))
    }
}
