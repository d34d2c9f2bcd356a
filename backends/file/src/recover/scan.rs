//! What the bytes of a segment say, before anything is believed.

use bytes::{Bytes, BytesMut};

use crate::format::Salt;
use crate::format::batch::{BATCH_HEADER, BatchHeader, CLOSED, PRODUCERS};
use crate::format::codec;
use crate::format::frame::Frame;
use crate::format::producers;
use crate::format::segment::SegmentHeader;

/// A run of sound frames of one batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) header: BatchHeader,
    /// Where its header was.
    pub(super) at: usize,
    pub(super) frames_from: usize,
    pub(super) frames_to: usize,
    pub(super) records: u32,
    pub(super) first_log_number: u64,
}

impl Piece {
    /// Its packed frames, which were sound when they were scanned.
    pub(super) fn unpack(&self, bytes: &[u8], salt: Salt) -> Bytes {
        let body = &bytes[self.frames_from..self.frames_to];
        let at = self.at as u64;
        codec::unpack(self.header.codec, body, salt, at, BytesMut::zeroed).unwrap_or_default()
    }

    pub(super) const fn is_whole(&self) -> bool {
        self.records == self.header.records
            && self.frames_to - self.frames_from == self.header.body as usize
    }
}

/// The last segment, read.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    pub(super) pieces: Vec<Piece>,
    /// Where sound bytes end.
    pub(super) end: usize,
    /// Everything before was durable when something later was written.
    pub(super) proven: usize,
    pub(super) closed: bool,
    pub(super) open_count: u64,
    pub(super) time: i64,
}

/// Reads batches from `at` on, as long as they make sense: the first one begins with log number
/// `expected`.
pub(super) fn scan(bytes: &[u8], segment: &SegmentHeader, at: usize, mut expected: u64) -> Scanned {
    let salt = segment.salt();
    let mut scanned = Scanned {
        end: at,
        open_count: segment.open_count,
        time: segment.log_time,
        ..Scanned::default()
    };
    while let Some(rest) = bytes.get(scanned.end..)
        && let Some(header) = BatchHeader::check(rest, salt, scanned.end as u64)
    {
        let body_at = scanned.end + BATCH_HEADER;
        // Above: damage in between was set aside once.
        let follows = header.log_number >= expected && header.open_count >= scanned.open_count;
        if !follows {
            break;
        }
        let body = bytes.get(body_at..).unwrap_or_default();
        let body = &body[..body.len().min(header.body as usize)];
        let mut at = 0;
        let mut records = 0;
        let packed = header.codec != 0;
        if packed {
            // All of it or nothing.
            let here = scanned.end as u64;
            let sound =
                body.len() == header.body as usize && is_sound(&header, body, segment, here);
            (at, records) = if sound { (body.len(), header.records) } else { (0, 0) };
        }
        while !packed
            && records < header.records
            && let Some(frame) = body.get(at..).and_then(|bytes| Frame::check(bytes, salt))
            && (frame.place.partition as usize) < segment.base.len()
        {
            at += frame.length;
            records += 1;
        }
        if header.flags & PRODUCERS != 0 {
            let here = scanned.end as u64;
            let sound =
                body.len() == header.body as usize && producers::decode(body, salt, here).is_some();
            at = if sound { body.len() } else { 0 };
        }
        scanned.pieces.push(Piece {
            header,
            at: scanned.end,
            frames_from: body_at,
            frames_to: body_at + at,
            records,
            first_log_number: header.log_number,
        });
        expected = header.log_number + u64::from(records);
        scanned.open_count = header.open_count;
        scanned.time = scanned.time.max(header.log_time);
        scanned.end = body_at + at;
        scanned.closed = header.flags & CLOSED != 0;
        if records < header.records || at != header.body as usize {
            scanned.closed = false;
            break;
        }
    }
    scanned
}

/// Whether the packed frames of a batch are whole and sound.
fn is_sound(header: &BatchHeader, body: &[u8], segment: &SegmentHeader, here: u64) -> bool {
    let salt = segment.salt();
    let Some(frames) = codec::unpack(header.codec, body, salt, here, BytesMut::zeroed) else {
        return false;
    };
    let (mut at, mut records) = (0, 0);
    while at < frames.len()
        && let Some(frame) = Frame::check(&frames[at..], salt)
        && (frame.place.partition as usize) < segment.base.len()
    {
        at += frame.length;
        records += 1;
    }
    at == frames.len() && records == header.records
}

/// How far the segment is proven durable, by any header in it, also behind damage.
pub(super) fn prove(
    bytes: &[u8],
    segment: &SegmentHeader,
    scanned: &Scanned,
    start: usize,
) -> usize {
    let mut proven = start;
    let mut learn = |header: &BatchHeader| {
        if header.synced.segment == segment.id {
            proven = proven.max(header.synced.byte as usize);
        }
    };
    scanned.pieces.iter().for_each(|piece| learn(&piece.header));
    if scanned.closed {
        return scanned.end.max(proven);
    }
    let mut at = scanned.end;
    while let Some((found, header)) = BatchHeader::search(bytes, segment.salt(), at) {
        learn(&header);
        at = found + 1;
    }
    proven
}

/// Bytes up to the last one that is not zero.
pub(super) fn used(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 4096] = [0; 4096];
    // Whole blocks first: most of a segment is zeros, and comparing them is quick.
    let mut end = bytes.len();
    while end >= ZEROS.len() && bytes[end - ZEROS.len()..end] == ZEROS {
        end -= ZEROS.len();
    }
    bytes[..end].iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
}

/// Every frame of these pieces of a segment: where reading may begin to find it, the frame, and its
/// bytes. Packed ones are unpacked batch by batch.
pub(super) fn for_each(
    bytes: &[u8],
    salt: Salt,
    pieces: &[Piece],
    mut visit: impl FnMut(&Piece, usize, &Frame, &[u8]),
) {
    for piece in pieces.iter().filter(|piece| piece.records > 0) {
        let packed = piece.header.codec != 0;
        let unpacked = if packed { piece.unpack(bytes, salt) } else { Bytes::new() };
        let frames = if packed { &unpacked } else { &bytes[piece.frames_from..piece.frames_to] };
        let mut at = 0;
        while at < frames.len()
            && let Some(frame) = Frame::peek(&frames[at..], frames.len() - at)
        {
            let spot = piece.frames_from + if packed { 0 } else { at };
            visit(piece, spot, &frame, &frames[at..at + frame.length]);
            at += frame.length;
        }
    }
}
