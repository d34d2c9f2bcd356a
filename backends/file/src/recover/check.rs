//! Whether a segment reads back as it was written, for whoever copies it.

use super::scan::{for_each, scan};
use crate::format::batch::{BATCH_HEADER, BatchHeader, CLOSED, StreamPosition};
use crate::format::segment::SegmentHeader;

/// How far the bytes of a segment are sound, and a batch header that may follow them.
pub(crate) struct Sound {
    /// Up to where all batches and frames are whole.
    pub(crate) end: usize,
    /// By partition, the next offset behind them.
    pub(crate) ends: Vec<u64>,
    next: BatchHeader,
}

/// Reads the bytes of a segment, its header included.
pub(crate) fn check_segment(bytes: &[u8], header: &SegmentHeader, routing: u32) -> Sound {
    let start = SegmentHeader::size(header.base.len());
    let scanned = scan(bytes, header, start, header.log_number);
    let numbers = scanned.pieces.iter().map(|p| p.first_log_number + u64::from(p.records));
    let next = BatchHeader {
        log_number: numbers.max().unwrap_or(header.log_number),
        open_count: scanned.open_count,
        log_time: scanned.time,
        synced: StreamPosition { segment: header.id, byte: scanned.end as u64 },
        routing,
        ..BatchHeader::default()
    };
    let mut ends = header.base.clone();
    for_each(bytes, header.salt(), &scanned.pieces, |_, _, frame, _| {
        let place = frame.place;
        ends[place.partition as usize] = ends[place.partition as usize].max(place.offset + 1);
    });
    Sound { end: scanned.end, ends, next }
}

impl Sound {
    /// The mark of an orderly close behind what is sound.
    pub(crate) fn closing_mark(&self, header: &SegmentHeader) -> [u8; BATCH_HEADER] {
        let mut mark = [0; BATCH_HEADER];
        let next = BatchHeader { flags: CLOSED, ..self.next };
        next.encode(&mut mark, header.salt(), self.end as u64);
        mark
    }
}
