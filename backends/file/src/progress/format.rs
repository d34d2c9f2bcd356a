//! The bytes of a progress file.
//!
//! ```text
//!  0          8      10     16                32           40
//!  +----------+------+------+-----------------+------------+-------+
//!  | PRCNPROG | vers.| 0    | log UUID        | generation | crc   |    zeros up to 4,096
//!  +----------+------+------+-----------------+------------+-------+
//!
//!  frame:
//!  0      4        8       12      16        20               36       44       48
//!  +------+--------+-------+-------+---------+----------------+--------+--------+------+
//!  | crc  | length | "PRGF"| flags | partit. | log UUID       | epoch  | synced | name |
//!  +------+--------+-------+-------+---------+----------------+--------+--------+------+
//!  52  `name` bytes: the subscription, then the progress
//! ```
//!
//! The checksum of a frame starts with the file's log, generation and the frame's own position.
//! *Synced* is the position through which the file was durable when the frame was written. Flags:
//! 1 the progress was forgotten (the epoch stays), 2 a mark of an orderly close.

use procession_core::{LogUuid, Partition};

use crate::format::{Salt, VERSION, array, put, u16_at, u32_at, u64_at};

pub(super) const FILE_HEADER: usize = 4096;
const HEAD: usize = 40;
const FRAME: usize = 52;
const MAGIC: [u8; 8] = *b"PRCNPROG";
const FRAME_MAGIC: [u8; 4] = *b"PRGF";
const FORGOTTEN: u32 = 1;
const MARK: u32 = 2;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileHeader {
    Good {
        generation: u64,
    },
    /// Nothing was ever written, or it was wiped.
    Blank,
    Newer(u16),
    Foreign(u128),
    Damaged,
}

pub(super) fn encode_header(log: u128, generation: u64) -> Vec<u8> {
    let mut out = vec![0; HEAD + 4];
    put(&mut out, 0, &MAGIC);
    put(&mut out, 8, &VERSION.to_le_bytes());
    put(&mut out, 16, &log.to_le_bytes());
    put(&mut out, 32, &generation.to_le_bytes());
    let crc = crc32c::crc32c(&out[..HEAD]);
    put(&mut out, HEAD, &crc.to_le_bytes());
    out
}

pub(super) fn decode_header(bytes: &[u8], log: u128) -> FileHeader {
    let head = &bytes[..bytes.len().min(HEAD + 4)];
    if head.iter().all(|byte| *byte == 0) {
        return FileHeader::Blank;
    }
    if head.len() < HEAD + 4 || head[..8] != MAGIC {
        return FileHeader::Damaged;
    }
    let version = u16_at(head, 8);
    if version > VERSION {
        return FileHeader::Newer(version);
    }
    if crc32c::crc32c(&head[..HEAD]) != u32_at(head, HEAD) {
        return FileHeader::Damaged;
    }
    match u128::from_le_bytes(array(head, 16)) {
        found if found == log => FileHeader::Good { generation: u64_at(head, 32) },
        foreign => FileHeader::Foreign(foreign),
    }
}

/// What one frame says: from now on, the entry of this key is this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) subscription: &'a str,
    pub(super) log: LogUuid,
    pub(super) partition: Partition,
    pub(super) epoch: u64,
    /// `None` once it was forgotten.
    pub(super) progress: Option<&'a [u8]>,
}

pub(super) struct Found<'a> {
    pub(super) length: usize,
    pub(super) synced: usize,
    /// `None` for a mark.
    pub(super) frame: Option<Frame<'a>>,
}

/// Appends a frame that will lie at `at` of its file; a mark if there is none.
pub(super) fn encode(
    out: &mut Vec<u8>,
    salt: Salt,
    at: usize,
    synced: usize,
    frame: Option<&Frame<'_>>,
) {
    let start = out.len();
    out.resize(start + FRAME, 0);
    if let Some(frame) = frame {
        out.extend_from_slice(frame.subscription.as_bytes());
        out.extend_from_slice(frame.progress.unwrap_or_default());
    }
    let bytes = &mut out[start..];
    put(bytes, 4, &(bytes.len() as u32).to_le_bytes());
    put(bytes, 8, &FRAME_MAGIC);
    match frame {
        None => put(bytes, 12, &MARK.to_le_bytes()),
        Some(frame) => {
            let flags = if frame.progress.is_none() { FORGOTTEN } else { 0 };
            put(bytes, 12, &flags.to_le_bytes());
            put(bytes, 16, &frame.partition.get().to_le_bytes());
            put(bytes, 20, &frame.log.as_u128().to_le_bytes());
            put(bytes, 36, &frame.epoch.to_le_bytes());
            put(bytes, 48, &(frame.subscription.len() as u32).to_le_bytes());
        }
    }
    put(bytes, 44, &(synced as u32).to_le_bytes());
    let crc = checksum(bytes, salt, at);
    put(bytes, 0, &crc.to_le_bytes());
}

/// The frame at `at` of a file, if there is a sound one.
pub(super) fn decode(file: &[u8], salt: Salt, at: usize) -> Option<Found<'_>> {
    let bytes = file.get(at..)?;
    if bytes.len() < FRAME || bytes[8..12] != FRAME_MAGIC {
        return None;
    }
    let length = u32_at(bytes, 4) as usize;
    let bytes = bytes.get(..length).filter(|bytes| bytes.len() >= FRAME)?;
    if checksum(bytes, salt, at) != u32_at(bytes, 0) {
        return None;
    }
    let flags = u32_at(bytes, 12);
    let (name, progress) = bytes[FRAME..].split_at_checked(u32_at(bytes, 48) as usize)?;
    let frame = Frame {
        subscription: std::str::from_utf8(name).ok()?,
        log: LogUuid::from_u128(u128::from_le_bytes(array(bytes, 20))),
        partition: Partition::new(u32_at(bytes, 16)),
        epoch: u64_at(bytes, 36),
        progress: (flags & FORGOTTEN == 0).then_some(progress),
    };
    let frame = (flags & MARK == 0).then_some(frame);
    Some(Found { length, synced: u32_at(bytes, 44) as usize, frame })
}

/// The next sound frame at or after `from`.
pub(super) fn search(file: &[u8], salt: Salt, from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += file.get(at + 8..)?.windows(4).position(|w| w == FRAME_MAGIC)?;
        if decode(file, salt, at).is_some() {
            return Some(at);
        }
        at += 1;
    }
}

fn checksum(frame: &[u8], salt: Salt, at: usize) -> u32 {
    let crc = crc32c::crc32c_append(salt.0, &(at as u64).to_le_bytes());
    crc32c::crc32c_append(crc, &frame[4..])
}
