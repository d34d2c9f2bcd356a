//! Frames of a batch, packed.
//!
//! ```text
//!  0      4        8
//!  +------+--------+----------------+
//!  | crc  | length | packed frames  |   `length` bytes once unpacked
//!  +------+--------+----------------+
//! ```
//!
//! `crc` is over the rest, started with the segment's salt and the position of the batch header:
//! nothing is unpacked that was not written like this. The frames inside have their own.
//!
//! The batch header names the codec: 0 plain, 1 LZ4 (the block format, without a dictionary). The
//! segment header has a bit for each codec that its batches may have, so that a build that lacks
//! one refuses the log when it opens it.

use bytes::{Bytes, BytesMut};

use super::{Salt, put, u32_at};

const HEAD: usize = 8;
/// LZ4 cannot pack tighter than this many to one.
const RATIO_MAX: usize = 255;
/// No batch is longer than this once unpacked: a segment is below 4 GiB and a batch below half.
const LENGTH_MAX: usize = 1 << 31;

/// How frames are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Codec {
    #[default]
    Plain,
    #[cfg(feature = "lz4")]
    Lz4,
}

/// The bit of LZ4 in a segment header.
const LZ4: u16 = 1 << 1;

/// What a build must have to read a segment with these codecs, if this one has not.
pub(crate) fn missing(codecs: u16) -> Option<&'static str> {
    if codecs & !LZ4 != 0 {
        Some("upgrade the program")
    } else if codecs & LZ4 != 0 && !cfg!(feature = "lz4") {
        Some("build the program with the feature `lz4`")
    } else {
        None
    }
}

impl Codec {
    pub(crate) const fn number(self) -> u16 {
        match self {
            Self::Plain => 0,
            #[cfg(feature = "lz4")]
            Self::Lz4 => 1,
        }
    }

    /// As a bit of a segment header.
    pub(crate) const fn bit(self) -> u16 {
        match self {
            Self::Plain => 0,
            #[cfg(feature = "lz4")]
            Self::Lz4 => LZ4,
        }
    }

    pub(crate) const fn of(number: u16) -> Option<Self> {
        match number {
            0 => Some(Self::Plain),
            #[cfg(feature = "lz4")]
            1 => Some(Self::Lz4),
            _ => None,
        }
    }

    /// Appends the body of a batch to `out`, for a batch header at `at`; false, and nothing, if it
    /// would not be shorter than the frames by a sixteenth.
    pub(crate) fn pack(self, frames: &[u8], salt: Salt, at: u64, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let packed = match self {
            Self::Plain => false,
            #[cfg(feature = "lz4")]
            Self::Lz4 => {
                let most = lz4_flex::block::get_maximum_output_size(frames.len());
                out.resize(start + HEAD + most, 0);
                let length = lz4_flex::block::compress_into(frames, &mut out[start + HEAD..]);
                // An error would be one of room, which it has: then it is stored as it is.
                let length = length.unwrap_or(most);
                out.truncate(start + HEAD + length);
                // Unpacking is work too: a few bytes are not worth it.
                HEAD + length + frames.len() / 16 <= frames.len()
            }
        };
        if !packed {
            out.truncate(start);
            return false;
        }
        let body = &mut out[start..];
        put(body, 4, &(frames.len() as u32).to_le_bytes());
        let crc = checksum(body, salt, at);
        put(body, 0, &crc.to_le_bytes());
        true
    }
}

impl Codec {
    fn decompress(self, packed: &[u8], out: &mut [u8]) -> Option<usize> {
        match self {
            Self::Plain => {
                out.get_mut(..packed.len())?.copy_from_slice(packed);
                Some(packed.len())
            }
            #[cfg(feature = "lz4")]
            Self::Lz4 => lz4_flex::block::decompress_into(packed, out).ok(),
        }
    }
}

/// The frames of a batch whose header lies at `at` and names this codec; `None` if it is damaged.
/// `room` gives a buffer of so many bytes.
pub(crate) fn unpack(
    codec: u16,
    body: &[u8],
    salt: Salt,
    at: u64,
    room: impl FnOnce(usize) -> BytesMut,
) -> Option<Bytes> {
    if body.len() < HEAD || checksum(body, salt, at) != u32_at(body, 0) {
        return None;
    }
    let (length, packed) = (u32_at(body, 4) as usize, &body[HEAD..]);
    // Before anything is allocated on its word, sound as it is.
    if length > LENGTH_MAX.min(packed.len().saturating_mul(RATIO_MAX)) {
        return None;
    }
    let codec = Codec::of(codec).filter(|codec| *codec != Codec::Plain)?;
    let mut out = room(length);
    let unpacked = codec.decompress(packed, &mut out[..length])?;
    out.truncate(length);
    (unpacked == length).then(|| out.freeze())
}

fn checksum(body: &[u8], salt: Salt, at: u64) -> u32 {
    let crc = crc32c::crc32c_append(salt.0, &at.to_le_bytes());
    crc32c::crc32c_append(crc, &body[4..])
}

#[cfg(all(test, feature = "lz4"))]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_cannot_be_is_refused_before_anything_is_allocated() {
        let (salt, at) = (Salt(7), 4096);
        let frames = vec![7; 5000];
        let mut body = Vec::new();
        assert!(Codec::Lz4.pack(&frames, salt, at, &mut body));
        let unpacked = unpack(1, &body, salt, at, BytesMut::zeroed).unwrap();
        assert_eq!(unpacked, frames);
        for length in [u32::MAX, 1 << 30, (body.len() * 300) as u32] {
            put(&mut body, 4, &length.to_le_bytes());
            let crc = checksum(&body, salt, at);
            put(&mut body, 0, &crc.to_le_bytes());
            let room = |length| panic!("allocates {length} bytes");
            assert!(unpack(1, &body, salt, at, room).is_none());
        }
        for length in [4999, 5001_u32] {
            put(&mut body, 4, &length.to_le_bytes());
            let crc = checksum(&body, salt, at);
            put(&mut body, 0, &crc.to_le_bytes());
            assert!(unpack(1, &body, salt, at, BytesMut::zeroed).is_none(), "{length}");
        }
    }
}
