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
//!  52       60
//!  +--------+
//!  | moved  |    `name` bytes: the subscription, then the progress
//!  +--------+
//! ```
//!
//! The checksum of a frame starts with the file's log, generation and the frame's own position.
//! *Synced* is the position through which the file was durable when the frame was written, *moved*
//! the wall time in ms. Flags: 1 the progress was forgotten (the epoch stays), 2 a mark of an
//! orderly close, 4 the segments that retention removed, in place of a progress.
//!
//! Version 1 has neither *moved* nor flag 4. It is read, and never written: opening goes on in the
//! other file, in the newest version.

use procession_core::{LogUuid, Partition};

use crate::format::{Salt, array, put, u16_at, u32_at, u64_at};

pub(super) const FILE_HEADER: usize = 4096;
const HEAD: usize = 40;
/// The version that is written.
pub(super) const VERSION: u16 = 2;
const FRAME: usize = 60;
const FRAME_V1: usize = 52;
const MAGIC: [u8; 8] = *b"PRCNPROG";
const FRAME_MAGIC: [u8; 4] = *b"PRGF";
const FORGOTTEN: u32 = 1;
const MARK: u32 = 2;
const TRIMS: u32 = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileHeader {
    Good {
        generation: u64,
        version: u16,
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
        found if found == log => FileHeader::Good { generation: u64_at(head, 32), version },
        foreign => FileHeader::Foreign(foreign),
    }
}

/// What one frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    /// Everything before was durable.
    Mark,
    Entry(Frame<'a>),
    /// The list of removed segments.
    Trims(&'a [u8]),
}

/// From now on, the entry of this key is this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) subscription: &'a str,
    pub(super) log: LogUuid,
    pub(super) partition: Partition,
    pub(super) epoch: u64,
    /// `None` once it was forgotten.
    pub(super) progress: Option<&'a [u8]>,
    /// Wall time in ms; 0 if it is not known.
    pub(super) moved: i64,
}

pub(super) struct Found<'a> {
    pub(super) length: usize,
    pub(super) synced: usize,
    pub(super) said: Said<'a>,
}

/// Appends a frame that will lie at `at` of its file.
pub(super) fn encode(out: &mut Vec<u8>, salt: Salt, at: usize, synced: usize, say: &Said<'_>) {
    let start = out.len();
    out.resize(start + FRAME, 0);
    match say {
        Said::Mark => {}
        Said::Entry(frame) => {
            out.extend_from_slice(frame.subscription.as_bytes());
            out.extend_from_slice(frame.progress.unwrap_or_default());
        }
        Said::Trims(trims) => out.extend_from_slice(trims),
    }
    let bytes = &mut out[start..];
    put(bytes, 4, &(bytes.len() as u32).to_le_bytes());
    put(bytes, 8, &FRAME_MAGIC);
    match say {
        Said::Mark => put(bytes, 12, &MARK.to_le_bytes()),
        Said::Trims(_) => put(bytes, 12, &TRIMS.to_le_bytes()),
        Said::Entry(frame) => {
            let flags = if frame.progress.is_none() { FORGOTTEN } else { 0 };
            put(bytes, 12, &flags.to_le_bytes());
            put(bytes, 16, &frame.partition.get().to_le_bytes());
            put(bytes, 20, &frame.log.as_u128().to_le_bytes());
            put(bytes, 36, &frame.epoch.to_le_bytes());
            put(bytes, 48, &(frame.subscription.len() as u32).to_le_bytes());
            put(bytes, 52, &frame.moved.to_le_bytes());
        }
    }
    put(bytes, 44, &(synced as u32).to_le_bytes());
    let crc = checksum(bytes, salt, at);
    put(bytes, 0, &crc.to_le_bytes());
}

/// The frame at `at` of a file of this version, if there is a sound one.
pub(super) fn decode(file: &[u8], salt: Salt, at: usize, version: u16) -> Option<Found<'_>> {
    let head = if version < 2 { FRAME_V1 } else { FRAME };
    let bytes = file.get(at..)?;
    if bytes.len() < head || bytes[8..12] != FRAME_MAGIC {
        return None;
    }
    let length = u32_at(bytes, 4) as usize;
    let bytes = bytes.get(..length).filter(|bytes| bytes.len() >= head)?;
    if checksum(bytes, salt, at) != u32_at(bytes, 0) {
        return None;
    }
    let flags = u32_at(bytes, 12);
    let (name, progress) = bytes[head..].split_at_checked(u32_at(bytes, 48) as usize)?;
    let entry = || {
        Some(Frame {
            subscription: std::str::from_utf8(name).ok()?,
            log: LogUuid::from_u128(u128::from_le_bytes(array(bytes, 20))),
            partition: Partition::new(u32_at(bytes, 16)),
            epoch: u64_at(bytes, 36),
            progress: (flags & FORGOTTEN == 0).then_some(progress),
            moved: if version < 2 { 0 } else { u64_at(bytes, 52) as i64 },
        })
    };
    let said = match flags {
        _ if flags & MARK != 0 => Said::Mark,
        _ if flags & TRIMS != 0 => Said::Trims(progress),
        _ => Said::Entry(entry()?),
    };
    Some(Found { length, synced: u32_at(bytes, 44) as usize, said })
}

/// The next sound frame at or after `from`.
pub(super) fn search(file: &[u8], salt: Salt, from: usize, version: u16) -> Option<usize> {
    let mut at = from;
    loop {
        at += file.get(at + 8..)?.windows(4).position(|w| w == FRAME_MAGIC)?;
        if decode(file, salt, at, version).is_some() {
            return Some(at);
        }
        at += 1;
    }
}

fn checksum(frame: &[u8], salt: Salt, at: usize) -> u32 {
    let crc = crc32c::crc32c_append(salt.0, &(at as u64).to_le_bytes());
    crc32c::crc32c_append(crc, &frame[4..])
}
