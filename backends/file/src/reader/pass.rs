//! What is wanted of the stream, while it goes by.

use std::sync::Arc;

use procession_core::{Budget, Partition, RoutingEpoch, Stored, Timestamp};

use super::scan::{Scan, Stop};
use crate::format::batch::BatchHeader;
use crate::format::frame::Frame;
use crate::segments::Segment;

/// A pass that has found something stops after so many bytes.
const PASS_MAX: u64 = if cfg!(test) { 1 << 14 } else { 1 << 23 };
/// One want on its way through the stream.
pub(super) struct Track {
    pub(super) partition: Partition,
    pub(super) from: u64,
    pub(super) end: u64,
    pub(super) left: Budget,
    pub(super) records: Vec<Stored>,
    pub(super) next: u64,
    pub(super) start: Start,
    pub(super) done: bool,
}

/// Where a pass may begin: number of the segment in the list, batch header, frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Start {
    pub(super) segment: usize,
    pub(super) frame: u64,
    pub(super) batch: u64,
}

/// What is still wanted, while the stream goes by.
pub(super) struct Pass<'a> {
    pub(super) tracks: &'a mut [Track],
    /// Number of the track of each partition.
    pub(super) by_partition: Vec<u32>,
    pub(super) left: Budget,
    pub(super) found: bool,
    pub(super) scanned: u64,
    pub(super) at: Start,
}

const NOBODY: u32 = u32::MAX;

impl<'a> Pass<'a> {
    pub(super) fn new(tracks: &'a mut [Track], partitions: usize, max: Budget) -> Self {
        let mut by_partition = vec![NOBODY; partitions];
        for (number, track) in tracks.iter_mut().enumerate() {
            let place = &mut by_partition[track.partition.get() as usize];
            if *place == NOBODY {
                *place = number as u32;
            } else {
                // Asked for twice: the first one is served.
                track.done = true;
            }
        }
        let at = Start { segment: 0, frame: 0, batch: 0 };
        Self { tracks, by_partition, left: max, found: false, scanned: 0, at }
    }

    /// Where to read on: at the stream position, or further if nobody wants what lies before.
    pub(super) fn next_start(&self) -> Option<Start> {
        if self.found && self.scanned > PASS_MAX {
            return None;
        }
        let first = self.tracks.iter().filter(|t| !t.done).map(|t| t.start).min()?;
        Some(first.max(self.at))
    }

    /// Goes on behind damage: at the next batch, or in the next segment.
    pub(super) fn skip_to(&mut self, segment: usize, next: Option<u64>, segments: &[Arc<Segment>]) {
        match next {
            Some(byte) => self.at = Start { segment, frame: byte, batch: byte },
            None => self.end_segment(segment, segments),
        }
    }

    pub(super) fn end_segment(&mut self, segment: usize, segments: &[Arc<Segment>]) {
        let next = segment + 1;
        for track in self.tracks.iter_mut().filter(|t| !t.done) {
            match segments.get(next) {
                // Everything that could be read was read: what is still wanted is not there.
                None => track.next = track.end.max(track.next),
                // Between the two there may be segments that retention removed.
                Some(next) if track.start.segment <= segment => {
                    let base = next.header.base[track.partition.get() as usize];
                    track.next = track.next.max(base.min(track.end));
                }
                Some(_) => {}
            }
            track.done = track.next >= track.end;
        }
        self.at = Start { segment: next, frame: 0, batch: 0 };
    }

    pub(super) fn finish(&mut self) {
        for track in &mut *self.tracks {
            track.done = true;
        }
    }

    /// Reads to the end of the segment, or as long as somebody who wants something has begun.
    pub(super) fn run(
        &mut self,
        scan: &mut Scan<'_>,
        start: Start,
        segments: &[Arc<Segment>],
    ) -> Result<(), Stop> {
        let mut frame_at = (start.frame > start.batch).then_some(start.frame);
        let begin = start.batch;
        while let Some(header) = scan.header()? {
            let batch_at = scan.at;
            let (body_at, end) = scan.frames(&header)?;
            let mut at = frame_at.take().unwrap_or(body_at);
            let mut changed = false;
            while at < end {
                let frame = scan.frame(at, end)?;
                changed |= self.take(scan, &frame, &header, at)?;
                at += frame.length as u64;
            }
            scan.leave(&header);
            self.at = Start { segment: start.segment, frame: scan.at, batch: scan.at };
            self.scanned += scan.at - begin.max(batch_at);
            let full = self.found && self.scanned > PASS_MAX;
            if full || (changed && self.next_start().is_none_or(|next| next > self.at)) {
                return Ok(());
            }
        }
        self.end_segment(start.segment, segments);
        Ok(())
    }

    /// Gives the frame to who wants it. True if somebody has had enough.
    pub(super) fn take(
        &mut self,
        scan: &Scan<'_>,
        frame: &Frame,
        header: &BatchHeader,
        at: u64,
    ) -> Result<bool, Stop> {
        let number =
            *self.by_partition.get(frame.place.partition as usize).ok_or(Stop::Damaged(at))?;
        if number == NOBODY {
            return Ok(false);
        }
        let track = &mut self.tracks[number as usize];
        if track.done || frame.place.offset < track.from {
            return Ok(false);
        }
        let size = frame.body() as u64;
        let fits = |left: Budget| left.records > 0 && left.bytes >= size;
        if self.found && !fits(self.left) {
            self.finish();
            return Ok(true);
        }
        if !track.records.is_empty() && !fits(track.left) {
            track.done = true;
            return Ok(true);
        }
        let record = scan.record(frame, at)?;
        let used = Budget::new(1, size);
        self.left = self.left.minus(used);
        track.left = track.left.minus(used);
        self.found = true;
        track.next = frame.place.offset + 1;
        track.records.push(Stored {
            offset: frame.offset(),
            sequence: frame.sequence(),
            log_time: Timestamp::from_millis(header.log_time),
            routing: RoutingEpoch::new(header.routing),
            record,
        });
        track.done = track.next >= track.end;
        Ok(track.done)
    }
}
