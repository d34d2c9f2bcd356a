//! What a subscription has finished in a partition.

use bytes::Bytes;

use super::{Offset, Ranges};
use crate::{Error, ErrorKind};

/// Everything below `next` is finished, and so is every offset in `done`.
///
/// A store keeps it as opaque bytes ([`to_bytes`](Self::to_bytes)); the format is versioned:
///
/// ```text
/// version: u8 = 1 | next: varint | ranges: varint | ranges x (gap: varint, length: varint) | marks: rest
/// ```
///
/// Each range starts `gap` above the end of the one before it (the first: above `next`). Varints
/// are unsigned LEB128. `marks` is empty for now: it is kept for durable attempts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// The lowest offset that may be unfinished: where reading goes on.
    pub next: Offset,
    /// Finished offsets above `next`.
    pub done: Ranges,
    /// Room for durable per-record marks; carried unread.
    pub marks: Bytes,
}

const VERSION: u8 = 1;

impl Progress {
    /// Nothing finished at or above `next`.
    #[must_use]
    pub fn at(next: Offset) -> Self {
        Self { next, ..Self::default() }
    }

    /// Progress with finished ranges above `next`.
    #[must_use]
    pub fn with_done(next: Offset, done: Ranges) -> Self {
        Self { next, done, marks: Bytes::new() }
    }

    /// Whether the record at `offset` is finished.
    #[must_use]
    pub fn covers(&self, offset: Offset) -> bool {
        offset < self.next || self.done.contains(offset)
    }

    /// The smallest offset above everything that this progress names.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.done.iter().last().map_or(self.next, |(_, to)| to)
    }

    /// The versioned encoding.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, self.next.get());
        put_varint(&mut out, self.done.len() as u64);
        let mut end = self.next;
        for (from, to) in self.done.iter() {
            put_varint(&mut out, from.get() - end.get());
            put_varint(&mut out, to.get() - from.get());
            end = to;
        }
        out.extend_from_slice(&self.marks);
        out
    }

    /// Reads the versioned encoding.
    ///
    /// # Errors
    /// [`ErrorKind::Version`] if a newer version wrote it, [`ErrorKind::Corrupt`] if it is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let corrupt = || Error::new(ErrorKind::Corrupt, "decode progress");
        let (version, mut rest) = bytes.split_first().ok_or_else(corrupt)?;
        if *version != VERSION {
            return Err(Error::new(
                ErrorKind::Version,
                format!("decode progress: version {version}, this build reads {VERSION}"),
            ));
        }
        let next = take_varint(&mut rest).ok_or_else(corrupt)?;
        let count = take_varint(&mut rest).ok_or_else(corrupt)?;
        let mut done = Ranges::default();
        let mut end = next;
        for _ in 0..count {
            let gap = take_varint(&mut rest).ok_or_else(corrupt)?;
            let length = take_varint(&mut rest).ok_or_else(corrupt)?;
            let from = end.checked_add(gap).ok_or_else(corrupt)?;
            end = from.checked_add(length).ok_or_else(corrupt)?;
            if gap == 0 || length == 0 {
                return Err(corrupt());
            }
            done.push(Offset::new(from), Offset::new(end));
        }
        Ok(Self { next: Offset::new(next), done, marks: Bytes::copy_from_slice(rest) })
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        if shift == 63 && low > 1 {
            return None;
        }
        value |= low << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Progress {
        let mut done = Ranges::default();
        done.push(Offset::new(11), Offset::new(300));
        done.push(Offset::new(1 << 40), Offset::new(u64::MAX));
        Progress::with_done(Offset::new(10), done)
    }

    #[test]
    fn survives_a_round_trip() {
        for progress in [Progress::default(), Progress::at(Offset::new(u64::MAX)), sample()] {
            assert_eq!(Progress::from_bytes(&progress.to_bytes()).unwrap(), progress);
        }
    }

    #[test]
    fn a_cut_encoding_is_corrupt_and_a_newer_one_is_a_version_error() {
        let bytes = sample().to_bytes();
        for cut in 0..bytes.len() {
            assert_eq!(Progress::from_bytes(&bytes[..cut]).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let mut newer = bytes;
        newer[0] = 9;
        assert_eq!(Progress::from_bytes(&newer).unwrap_err().kind(), ErrorKind::Version);
    }

    #[test]
    fn covers_what_is_finished_and_nothing_else() {
        let progress = sample();
        assert!(progress.covers(Offset::new(9)) && !progress.covers(Offset::new(10)));
        assert!(progress.covers(Offset::new(11)) && !progress.covers(Offset::new(300)));
    }
}
