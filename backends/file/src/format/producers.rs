//! A table of producers: behind a batch header, instead of frames.
//!
//! ```text
//!  0      4        8         12
//!  +------+--------+---------+
//!  | crc  | count  | highest |   the highest number that a producer ever had
//!  +------+--------+---------+
//!  per producer:
//!  0        4        8                16         20       24
//!  +--------+--------+----------------+----------+--------+
//!  | number | epoch  | next           | name len | places |   epoch 0: forgotten
//!  +--------+--------+----------------+----------+--------+
//!  24  the name, then its last `places` records, up to `next`:
//!  +---------+--------+----------+---------+
//!  | partit. | offset | sequence | content |   24 bytes
//!  +---------+--------+----------+---------+
//! ```
//!
//! `crc` is over the rest, started with the segment's salt and the position of the batch header.
//! At the start of a segment the table is all there is to know; later ones have what was claimed
//! or forgotten.

use super::{Salt, put, u32_at, u64_at};

const HEAD: usize = 12;
pub(crate) const ENTRY: usize = 24;
pub(crate) const PLACE: usize = 24;

/// Where a numbered record lies, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedPlace {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    /// `NO_SEQUENCE` for a record without a key.
    pub(crate) sequence: u64,
    pub(crate) content: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProducerEntry {
    pub(crate) number: u32,
    /// 0 if it was forgotten.
    pub(crate) epoch: u32,
    pub(crate) next: u64,
    pub(crate) name: Box<str>,
    /// Of the records before `next`.
    pub(crate) places: Vec<NumberedPlace>,
}

/// The table, for [`seal`] to finish.
pub(crate) fn encode(highest: u32, entries: &[ProducerEntry]) -> Vec<u8> {
    let mut out = vec![0; HEAD];
    put(&mut out, 4, &(entries.len() as u32).to_le_bytes());
    put(&mut out, 8, &highest.to_le_bytes());
    for entry in entries {
        out.extend_from_slice(&entry.number.to_le_bytes());
        out.extend_from_slice(&entry.epoch.to_le_bytes());
        out.extend_from_slice(&entry.next.to_le_bytes());
        out.extend_from_slice(&(entry.name.len() as u32).to_le_bytes());
        out.extend_from_slice(&(entry.places.len() as u32).to_le_bytes());
        out.extend_from_slice(entry.name.as_bytes());
        for place in &entry.places {
            out.extend_from_slice(&place.partition.to_le_bytes());
            out.extend_from_slice(&place.offset.to_le_bytes());
            out.extend_from_slice(&place.sequence.to_le_bytes());
            out.extend_from_slice(&place.content.to_le_bytes());
        }
    }
    out
}

/// Sets the checksum, for the place where the table will lie.
pub(crate) fn seal(table: &mut [u8], salt: Salt, at: u64) {
    let crc = checksum(table, salt, at);
    put(table, 0, &crc.to_le_bytes());
}

/// The highest number and the entries, if the bytes are a sound table.
pub(crate) fn decode(table: &[u8], salt: Salt, at: u64) -> Option<(u32, Vec<ProducerEntry>)> {
    if table.len() < HEAD || checksum(table, salt, at) != u32_at(table, 0) {
        return None;
    }
    let (count, highest) = (u32_at(table, 4), u32_at(table, 8));
    let mut entries = Vec::new();
    let mut rest = &table[HEAD..];
    for _ in 0..count {
        let (head, more) = rest.split_at_checked(ENTRY)?;
        let (name, more) = more.split_at_checked(u32_at(head, 16) as usize)?;
        let bytes = (u32_at(head, 20) as usize).checked_mul(PLACE)?;
        let (places, more) = more.split_at_checked(bytes)?;
        rest = more;
        entries.push(ProducerEntry {
            number: u32_at(head, 0),
            epoch: u32_at(head, 4),
            next: u64_at(head, 8),
            name: std::str::from_utf8(name).ok()?.into(),
            places: places.chunks_exact(PLACE).map(place).collect(),
        });
    }
    rest.is_empty().then_some((highest, entries))
}

fn place(bytes: &[u8]) -> NumberedPlace {
    NumberedPlace {
        partition: u32_at(bytes, 0),
        offset: u64_at(bytes, 4),
        sequence: u64_at(bytes, 12),
        content: u32_at(bytes, 20),
    }
}

fn checksum(table: &[u8], salt: Salt, at: u64) -> u32 {
    let crc = crc32c::crc32c_append(salt.0, &at.to_le_bytes());
    crc32c::crc32c_append(crc, &table[4..])
}
