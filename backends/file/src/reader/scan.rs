//! A segment, read block by block.

use std::collections::VecDeque;
use std::io;

use bytes::{Bytes, BytesMut};

use crate::disk::{DiskFile, read_full};
use crate::format::batch::{BATCH_HEADER, BatchHeader};
use crate::format::codec;
use crate::format::frame::{FRAME_HEADER, Frame};
use crate::segments::Segment;

/// Records are slices of blocks of this size; one kept record keeps its block alive.
const BLOCK: usize = if cfg!(test) { 1 << 12 } else { 1 << 18 };
/// A segment, block by block.
pub(super) struct Scan<'a> {
    pub(super) segment: &'a Segment,
    pub(super) file: &'a dyn DiskFile,
    pub(super) blocks: &'a mut Blocks,
    /// The batch that comes next.
    pub(super) at: u64,
    pub(super) end: u64,
    pub(super) block: Bytes,
    pub(super) block_at: u64,
    /// How much is read at once.
    block_bytes: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        segment: &'a Segment,
        file: &'a dyn DiskFile,
        blocks: &'a mut Blocks,
        at: u64,
    ) -> Self {
        let at = at.max(SegmentStart::of(segment));
        let (block, block_at, block_bytes) = (Bytes::new(), 0, BLOCK);
        Self { segment, file, blocks, at, end: segment.end(), block, block_at, block_bytes }
    }

    /// Reads less at once, for a look at single records.
    pub(super) const fn in_small_blocks(mut self) -> Self {
        self.block_bytes = BLOCK / 4;
        self
    }

    /// The header of the batch at `at`; `None` at the end of the segment.
    pub(super) fn header(&mut self) -> Result<Option<BatchHeader>, Stop> {
        if self.at >= self.end {
            return Ok(None);
        }
        let at = self.at;
        let salt = self.segment.salt;
        let bytes = self.bytes(at, BATCH_HEADER)?;
        let header = BatchHeader::check(bytes, salt, at).ok_or(Stop::Damaged(at))?;
        if at + BATCH_HEADER as u64 + u64::from(header.body) > self.end {
            return Err(Stop::Damaged(at));
        }
        Ok(Some(header))
    }

    /// The frame at `at`, whole in the current block. Whose it is, is believed only if the whole is
    /// sound: a damaged one that nobody seems to want may be the one that is wanted.
    pub(super) fn frame(&mut self, at: u64, end: u64) -> Result<Frame, Stop> {
        if at + FRAME_HEADER as u64 > end {
            return Err(Stop::Damaged(at));
        }
        let limit = (end - at) as usize;
        let bytes = self.bytes(at, FRAME_HEADER)?;
        let frame = Frame::peek(bytes, limit).ok_or(Stop::Damaged(at))?;
        let salt = self.segment.salt;
        let bytes = self.bytes(at, frame.length)?;
        Frame::check(&bytes[..frame.length], salt).ok_or(Stop::Damaged(at))
    }

    pub(super) fn record(&self, frame: &Frame, at: u64) -> Result<procession_core::Record, Stop> {
        let from = (at - self.block_at) as usize;
        frame.record(&self.block, from).ok_or(Stop::Damaged(at))
    }

    /// Where the next sound batch header behind damage is.
    pub(super) fn after(&self, damage: u64) -> io::Result<Option<u64>> {
        let mut bytes = vec![0; self.end as usize];
        let n = read_full(self.file, &mut bytes, 0)?;
        let found = BatchHeader::search(&bytes[..n], self.segment.salt, damage as usize + 1);
        Ok(found.map(|(at, _)| at as u64))
    }

    /// At least `len` bytes from `at` on, which lie before the end.
    pub(super) fn bytes(&mut self, at: u64, len: usize) -> Result<&[u8], Stop> {
        let inside =
            at >= self.block_at && at + len as u64 <= self.block_at + self.block.len() as u64;
        if !inside {
            let size = (self.block_bytes.max(len) as u64).min(self.end.saturating_sub(at)) as usize;
            let mut block = self.blocks.take(size);
            let n = read_full(self.file, &mut block, at).map_err(Stop::System)?;
            if n < len {
                return Err(Stop::Damaged(at));
            }
            block.truncate(n);
            (self.block, self.block_at) = (block.freeze(), at);
            self.blocks.keep(self.block.clone());
        }
        Ok(&self.block[(at - self.block_at) as usize..])
    }

    /// Every frame in order with its bytes, as long as `visit` says so.
    pub(super) fn walk(
        &mut self,
        mut visit: impl FnMut(&BatchHeader, &Frame, &[u8]) -> bool,
    ) -> Result<(), Stop> {
        while let Some(header) = self.header()? {
            let (mut at, end) = self.frames(&header)?;
            while at < end {
                let frame = self.frame(at, end)?;
                if !visit(&header, &frame, self.bytes(at, frame.length)?) {
                    return Ok(());
                }
                at += frame.length as u64;
            }
            self.leave(&header);
        }
        Ok(())
    }

    /// From where to where `frame` finds the frames of the batch at `at`.
    pub(super) fn frames(&mut self, header: &BatchHeader) -> Result<(u64, u64), Stop> {
        let from = self.at + BATCH_HEADER as u64;
        if header.records == 0 {
            // A mark, or a table of producers.
            return Ok((from, from));
        }
        let body = header.body as usize;
        if header.codec == 0 {
            return Ok((from, from + body as u64));
        }
        self.bytes(from, body)?;
        let start = (from - self.block_at) as usize;
        let packed = self.block.slice(start..start + body);
        let (salt, at, blocks) = (self.segment.salt, self.at, &mut *self.blocks);
        let plain = codec::unpack(header.codec, &packed, salt, at, |length| blocks.take(length))
            .ok_or(Stop::Damaged(at))?;
        drop(packed);
        // As if they lay there in the file; `leave` forgets them.
        let end = from + plain.len() as u64;
        self.blocks.keep(plain.clone());
        (self.block, self.block_at) = (plain, from);
        Ok((from, end))
    }

    /// Goes on behind the batch at `at`.
    pub(super) fn leave(&mut self, header: &BatchHeader) {
        if header.codec != 0 {
            self.block = Bytes::new();
        }
        self.at += BATCH_HEADER as u64 + u64::from(header.body);
    }
}

/// The last few blocks: read into again once nobody holds a record of them, which saves zeroing
/// fresh memory.
#[derive(Debug, Default)]
pub(super) struct Blocks(VecDeque<Bytes>);

/// Four MiB of blocks are kept for this.
const BLOCKS_KEPT: usize = 16;

impl Blocks {
    /// A buffer of `size` bytes with any content.
    pub(super) fn take(&mut self, size: usize) -> BytesMut {
        let free = self.0.iter().position(|block| block.is_unique() && block.len() >= size);
        let kept = free.and_then(|at| self.0.remove(at));
        let Some(Ok(mut buffer)) = kept.map(Bytes::try_into_mut) else {
            return BytesMut::zeroed(size);
        };
        buffer.truncate(size);
        buffer
    }

    pub(super) fn keep(&mut self, block: Bytes) {
        if block.len() < BLOCK {
            return;
        }
        if self.0.len() >= BLOCKS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(block);
    }
}

pub(super) struct SegmentStart;

impl SegmentStart {
    pub(super) fn of(segment: &Segment) -> u64 {
        crate::format::segment::SegmentHeader::size(segment.header.base.len()) as u64
    }
}

pub(super) enum Stop {
    Damaged(u64),
    System(io::Error),
}
