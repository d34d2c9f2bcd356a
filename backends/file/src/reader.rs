//! Reading: one pass over the stream serves every partition that is asked for.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::channel::oneshot;
use procession_core::{
    Budget, Chunk, Error, ErrorKind, Offset, Partition, PartitionId, RoutingEpoch, Stored,
    Timestamp, Want,
};

use crate::disk::{DiskFile, read_full};
use crate::errors::system;
use crate::format::batch::{BATCH_HEADER, BatchHeader};
use crate::format::frame::{FRAME_HEADER, Frame};
use crate::index::{self, Spots};
use crate::segments::Segment;
use crate::shared::Shared;
use crate::worker::{Bell, Pace, Worker};

/// Records are slices of blocks of this size; one kept record keeps its block alive.
const BLOCK: usize = if cfg!(test) { 1 << 12 } else { 1 << 18 };
/// A pass that has found something stops after so many bytes.
const PASS_MAX: u64 = if cfg!(test) { 1 << 14 } else { 1 << 23 };
/// Sealed segments that were opened for reading stay open up to this number.
const OPEN_MAX: usize = 64;

/// A question to the reader, and where the answer goes.
#[derive(Debug)]
pub(crate) enum Question {
    Read(Vec<Want>, Budget, oneshot::Sender<Result<Vec<Chunk>, Error>>),
    At(Timestamp, oneshot::Sender<Result<Vec<Offset>, Error>>),
}

#[derive(Debug, Default)]
pub(crate) struct Reading {
    queue: Mutex<(VecDeque<Question>, bool)>,
    pub(crate) bell: Bell,
}

impl Reading {
    /// Asks. Once closed the question is dropped, and with it the sender.
    pub(crate) fn ask(&self, question: Question) {
        {
            let mut queue = self.queue();
            if queue.1 {
                return;
            }
            queue.0.push_back(question);
        }
        self.bell.ring();
    }

    pub(crate) fn close(&self) {
        self.queue().1 = true;
        self.bell.ring();
    }

    fn queue(&self) -> MutexGuard<'_, (VecDeque<Question>, bool)> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    opened: VecDeque<Arc<Segment>>,
}

impl Reader {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, opened: VecDeque::new() }
    }
}

impl Worker for Reader {
    fn step(&mut self) -> Pace {
        let (question, closed) = {
            let mut queue = self.shared.reading.queue();
            (queue.0.pop_front(), queue.1)
        };
        // Whoever asked may be gone; that is no concern of ours.
        match question {
            Some(Question::Read(wants, max, answer)) if !answer.is_canceled() => {
                let _ = answer.send(self.read(&wants, max));
                Pace::More
            }
            Some(Question::At(time, answer)) if !answer.is_canceled() => {
                let _ = answer.send(self.at_time(time));
                Pace::More
            }
            Some(_) => Pace::More,
            None if closed => Pace::Stop,
            None => Pace::Idle(None),
        }
    }
}

/// One want on its way through the stream.
struct Track {
    partition: Partition,
    from: u64,
    end: u64,
    left: Budget,
    records: Vec<Stored>,
    next: u64,
    start: Start,
    done: bool,
}

/// Where a pass may begin: number of the segment in the list, batch header, frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    segment: usize,
    frame: u64,
    batch: u64,
}

impl Reader {
    fn read(&mut self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        let mut tracks = self.tracks(wants)?;
        let segments = self.shared.segments.all();
        for track in &mut tracks {
            if !track.done {
                track.start = self.start(&segments, track.partition, track.from)?;
            }
        }
        let mut pass = Pass::new(&mut tracks, self.shared.info.partitions.get() as usize, max);
        while let Some(start) = pass.next_start() {
            let segment = &segments[start.segment];
            let file = self.open(segment)?;
            let mut scan = Scan::new(segment, &*file, start.batch);
            match pass.run(&mut scan, start, segments.len()) {
                Ok(()) => {}
                Err(Stop::Damaged(at)) => {
                    let hint = format!(
                        "the bytes at {at} do not read back as they were written; restore the file \
                         from a copy, or open with `skip_corruption(true)`"
                    );
                    return Err(self
                        .error(ErrorKind::Corrupt)
                        .at_path(&segment.path)
                        .with_hint(hint));
                }
                Err(Stop::System(e)) => {
                    let operation = format!("read log \"{}\"", self.shared.info.name);
                    return Err(system(operation, &segment.path, e));
                }
            }
        }
        let chunk = |t: Track| Chunk {
            partition: t.partition,
            records: t.records,
            next: Offset::new(t.next),
        };
        Ok(tracks.into_iter().filter(|t| t.next != t.from).map(chunk).collect())
    }

    fn tracks(&self, wants: &[Want]) -> Result<Vec<Track>, Error> {
        let tail = self.shared.tail();
        wants
            .iter()
            .map(|want| {
                let (at, from) = (want.partition.get() as usize, want.from.get());
                let id = PartitionId { partition: want.partition, ..PartitionId::default() };
                let (Some(&earliest), Some(&end)) = (tail.earliest.get(at), tail.ends.get(at))
                else {
                    let hint = format!("the log has {} partitions, from 0", tail.ends.len());
                    return Err(self.error(ErrorKind::NotFound).in_partition(id).with_hint(hint));
                };
                let misplaced = |kind| self.error(kind).in_partition(id).at_offset(want.from);
                if from < earliest {
                    return Err(misplaced(ErrorKind::Trimmed));
                }
                if from > end {
                    return Err(misplaced(ErrorKind::NotYetWritten)
                        .with_hint(format!("not yet written, the partition ends at {end}")));
                }
                Ok(Track {
                    partition: want.partition,
                    from,
                    end,
                    left: want.max,
                    records: Vec::new(),
                    next: from,
                    start: Start { segment: 0, frame: 0, batch: 0 },
                    done: from == end,
                })
            })
            .collect()
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, format!("read log \"{}\"", self.shared.info.name))
    }

    /// The best place at or before a record.
    fn start(
        &mut self,
        segments: &[Arc<Segment>],
        partition: Partition,
        from: u64,
    ) -> Result<Start, Error> {
        let at = partition.get();
        let after = segments.partition_point(|s| s.header.base[at as usize] <= from);
        let number = after.saturating_sub(1);
        let segment = &segments[number];
        self.load(segment)?;
        let header = SegmentStart::of(segment);
        let cached = segment.cached();
        let spot = cached.spots.as_ref().and_then(|spots| spots.before(at, from));
        Ok(match spot {
            Some(spot) => {
                Start { segment: number, frame: spot.frame.into(), batch: spot.batch.into() }
            }
            None => Start { segment: number, frame: header, batch: header },
        })
    }

    /// Loads the spots of a sealed segment; without an index file reading begins at its start.
    fn load(&mut self, segment: &Arc<Segment>) -> Result<(), Error> {
        if segment.cached().spots.is_some() {
            return Ok(());
        }
        let shared = &*self.shared;
        let (path, partitions) = (shared.folder.index(segment.id()), segment.header.base.len());
        let disk = &shared.folder.disk;
        let read = index::read(disk, &path, shared.log, segment.id(), segment.end(), partitions)
            .map_err(|e| system(format!("read log \"{}\"", shared.info.name), &path, e))?;
        let spots = read.map_or_else(|| Spots::new(partitions), |(spots, _)| spots);
        segment.cached().spots = Some(spots);
        self.keep_open(segment);
        Ok(())
    }

    fn open(&mut self, segment: &Arc<Segment>) -> Result<Arc<dyn DiskFile>, Error> {
        let was_open = segment.cached().file.is_some();
        let file = segment.file(&*self.shared.folder.disk).map_err(|e| {
            system(format!("read log \"{}\"", self.shared.info.name), &segment.path, e)
        })?;
        if !was_open {
            self.keep_open(segment);
        }
        Ok(file)
    }

    fn keep_open(&mut self, segment: &Arc<Segment>) {
        if self.opened.iter().any(|open| open.id() == segment.id()) {
            return;
        }
        self.opened.push_back(Arc::clone(segment));
        if self.opened.len() > OPEN_MAX
            && let Some(cold) = self.opened.pop_front()
        {
            *cold.cached() = crate::segments::Cached::default();
        }
    }

    /// For each partition the first offset that was taken at or after `time`.
    fn at_time(&mut self, time: Timestamp) -> Result<Vec<Offset>, Error> {
        let time = time.as_millis();
        let segments = self.shared.segments.all();
        let after = segments.partition_point(|s| s.header.log_time < time);
        let mut offsets = segments[after.saturating_sub(1)].header.base.clone();
        for segment in &segments[after.saturating_sub(1)..] {
            if segment.header.log_time >= time {
                break;
            }
            let file = self.open(segment)?;
            let mut scan = Scan::new(segment, &*file, SegmentStart::of(segment));
            let walked = scan.walk(|header, frame| {
                if header.log_time < time {
                    offsets[frame.place.partition as usize] = frame.place.offset + 1;
                }
                header.log_time < time
            });
            if let Err(stop) = walked {
                let operation = format!("look up a time in log \"{}\"", self.shared.info.name);
                return Err(match stop {
                    Stop::System(e) => system(operation, &segment.path, e),
                    Stop::Damaged(at) => Error::new(ErrorKind::Corrupt, operation)
                        .at_path(&segment.path)
                        .with_hint(format!("damaged bytes at {at}")),
                });
            }
        }
        let tail = self.shared.tail();
        let known = offsets.into_iter().zip(tail.earliest.iter().zip(&tail.ends));
        Ok(known.map(|(at, (low, high))| Offset::new(at.clamp(*low, *high))).collect())
    }
}

struct SegmentStart;

impl SegmentStart {
    fn of(segment: &Segment) -> u64 {
        crate::format::segment::SegmentHeader::size(segment.header.base.len()) as u64
    }
}

enum Stop {
    Damaged(u64),
    System(io::Error),
}

/// What is still wanted, while the stream goes by.
struct Pass<'a> {
    tracks: &'a mut [Track],
    /// Number of the track of each partition.
    by_partition: Vec<u32>,
    left: Budget,
    found: bool,
    scanned: u64,
    at: Start,
}

const NOBODY: u32 = u32::MAX;

impl<'a> Pass<'a> {
    fn new(tracks: &'a mut [Track], partitions: usize, max: Budget) -> Self {
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
    fn next_start(&self) -> Option<Start> {
        if self.found && self.scanned > PASS_MAX {
            return None;
        }
        let first = self.tracks.iter().filter(|t| !t.done).map(|t| t.start).min()?;
        Some(first.max(self.at))
    }

    fn finish(&mut self) {
        for track in &mut *self.tracks {
            track.done = true;
        }
    }

    /// Reads to the end of the segment, or as long as somebody who wants something has begun.
    fn run(&mut self, scan: &mut Scan<'_>, start: Start, segments: usize) -> Result<(), Stop> {
        let mut frame_at = (start.frame > start.batch).then_some(start.frame);
        let begin = start.batch;
        while let Some(header) = scan.header()? {
            let body_at = scan.at + BATCH_HEADER as u64;
            let end = body_at + u64::from(header.body);
            let mut at = frame_at.take().unwrap_or(body_at);
            let mut changed = false;
            while at < end {
                let frame = scan.frame(at, end)?;
                changed |= self.take(scan, &frame, &header, at)?;
                at += frame.length as u64;
            }
            scan.at = end;
            self.at = Start { segment: start.segment, frame: end, batch: end };
            self.scanned += end - begin.max(body_at - BATCH_HEADER as u64);
            let full = self.found && self.scanned > PASS_MAX;
            if full || (changed && self.next_start().is_none_or(|next| next > self.at)) {
                return Ok(());
            }
        }
        let next = start.segment + 1;
        if next == segments {
            // Everything that could be read was read: what is still wanted is not there.
            for track in self.tracks.iter_mut().filter(|t| !t.done) {
                track.next = track.end.max(track.next);
                track.done = true;
            }
        }
        self.at = Start { segment: next, frame: 0, batch: 0 };
        Ok(())
    }

    /// Gives the frame to who wants it. True if somebody has had enough.
    fn take(
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

/// A segment, block by block.
struct Scan<'a> {
    segment: &'a Segment,
    file: &'a dyn DiskFile,
    /// The batch that comes next.
    at: u64,
    end: u64,
    block: Bytes,
    block_at: u64,
}

impl<'a> Scan<'a> {
    fn new(segment: &'a Segment, file: &'a dyn DiskFile, at: u64) -> Self {
        let at = at.max(SegmentStart::of(segment));
        Self { segment, file, at, end: segment.end(), block: Bytes::new(), block_at: 0 }
    }

    /// The header of the batch at `at`; `None` at the end of the segment.
    fn header(&mut self) -> Result<Option<BatchHeader>, Stop> {
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

    /// The frame at `at`, whole in the current block. Its checksum is not looked at yet.
    fn frame(&mut self, at: u64, end: u64) -> Result<Frame, Stop> {
        if at + FRAME_HEADER as u64 > end {
            return Err(Stop::Damaged(at));
        }
        let limit = (end - at) as usize;
        let bytes = self.bytes(at, FRAME_HEADER)?;
        let frame = Frame::peek(bytes, limit).ok_or(Stop::Damaged(at))?;
        self.bytes(at, frame.length)?;
        Ok(frame)
    }

    fn record(&self, frame: &Frame, at: u64) -> Result<procession_core::Record, Stop> {
        let from = (at - self.block_at) as usize;
        let sound = Frame::check(&self.block[from..from + frame.length], self.segment.salt);
        let record = sound.and_then(|_| frame.record(&self.block, from));
        record.ok_or(Stop::Damaged(at))
    }

    /// At least `len` bytes from `at` on, which lie before the end.
    fn bytes(&mut self, at: u64, len: usize) -> Result<&[u8], Stop> {
        let inside =
            at >= self.block_at && at + len as u64 <= self.block_at + self.block.len() as u64;
        if !inside {
            let size = (BLOCK.max(len) as u64).min(self.end.saturating_sub(at)) as usize;
            let mut block = vec![0; size];
            let n = read_full(self.file, &mut block, at).map_err(Stop::System)?;
            if n < len {
                return Err(Stop::Damaged(at));
            }
            block.truncate(n);
            (self.block, self.block_at) = (Bytes::from(block), at);
        }
        Ok(&self.block[(at - self.block_at) as usize..])
    }

    /// Every frame in order, without looking at checksums, as long as `visit` says so.
    fn walk(&mut self, mut visit: impl FnMut(&BatchHeader, &Frame) -> bool) -> Result<(), Stop> {
        while let Some(header) = self.header()? {
            let mut at = self.at + BATCH_HEADER as u64;
            let end = at + u64::from(header.body);
            while at < end {
                let frame = self.frame(at, end)?;
                if !visit(&header, &frame) {
                    return Ok(());
                }
                at += frame.length as u64;
            }
            self.at = end;
        }
        Ok(())
    }
}
