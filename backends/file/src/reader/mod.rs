//! Reading: one pass over the stream serves every partition that is asked for.

mod follow;
mod history;
mod pass;
mod scan;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use procession_core::{
    Budget, Chunk, Error, ErrorKind, Offset, Partition, PartitionId, Timestamp, Want,
};

pub(crate) use self::follow::Follower;
use self::pass::{Pass, Start, Track};
use self::scan::{Blocks, Scan, SegmentStart, Stop};
use crate::disk::{DiskFile, Kind};
use crate::errors::system;
use crate::history::{PageFound, PageWanted};
use crate::index::{self, Spots};
use crate::segments::Segment;
use crate::shared::Shared;
use crate::worker::{Bell, Pace, Worker};

/// Sealed segments that were opened for reading stay open up to this number.
const OPEN_MAX: usize = 64;

/// A question to the reader, and where the answer goes.
#[derive(Debug)]
pub(crate) enum Question {
    Read(Vec<Want>, Budget, oneshot::Sender<Result<Vec<Chunk>, Error>>),
    At(Timestamp, oneshot::Sender<Result<Vec<Offset>, Error>>),
    History(PageWanted, oneshot::Sender<Result<PageFound, Error>>),
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
    blocks: Blocks,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, opened: VecDeque::new(), blocks: Blocks::default() }
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
            Some(Question::History(wanted, answer)) if !answer.is_canceled() => {
                let _ = answer.send(self.history(&wanted));
                Pace::More
            }
            Some(_) => Pace::More,
            None if closed => Pace::Stop,
            None => Pace::Idle(None),
        }
    }
}

impl Reader {
    fn read(&mut self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        let mut tracks = self.tracks(wants)?;
        let segments = self.shared.segments.all();
        for track in &mut tracks {
            if !track.done {
                self.still_there(&segments, track)?;
                track.start = self.start(&segments, track.partition, track.from)?;
            }
        }
        // The buffers leave the reader for the pass, so that it can open files meanwhile.
        let mut blocks = std::mem::take(&mut self.blocks);
        let mut pass = Pass::new(&mut tracks, self.shared.info.partitions.get() as usize, max);
        while let Some(start) = pass.next_start() {
            let segment = &segments[start.segment];
            let file = self.open(segment).map_err(|e| self.or_trimmed(segment, e))?;
            let mut scan = Scan::new(segment, &*file, &mut blocks, start.batch);
            match pass.run(&mut scan, start, segments.len()) {
                Ok(()) => {}
                Err(Stop::Damaged(_)) if self.is_gone(segment) => {
                    return Err(self.error(ErrorKind::Trimmed).at_path(&segment.path));
                }
                Err(Stop::Damaged(at)) if self.shared.skip_corruption => {
                    let next = scan.after(at).map_err(|e| {
                        let operation = format!("read log \"{}\"", self.shared.info.name);
                        system(operation, &segment.path, e)
                    })?;
                    pass.skip_to(start.segment, next, segments.len());
                }
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
        self.blocks = blocks;
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

    /// Since the earliest offsets were looked at, the list of segments may have become shorter.
    fn still_there(&self, segments: &[Arc<Segment>], track: &Track) -> Result<(), Error> {
        let at = track.partition.get() as usize;
        if segments.first().is_some_and(|first| track.from >= first.header.base[at]) {
            return Ok(());
        }
        let id = PartitionId { partition: track.partition, ..PartitionId::default() };
        let offset = Offset::new(track.from);
        Err(self.error(ErrorKind::Trimmed).in_partition(id).at_offset(offset))
    }

    /// Whether the writer of a log that this process only reads has removed a segment meanwhile:
    /// its file may be another one by now, with other bytes.
    fn is_gone(&self, segment: &Segment) -> bool {
        let kind = || self.shared.folder.disk.kind(&segment.path);
        self.shared.read_only && matches!(kind(), Ok(Kind::Missing))
    }

    fn or_trimmed(&self, segment: &Segment, error: Error) -> Error {
        match self.is_gone(segment) {
            true => self.error(ErrorKind::Trimmed).at_path(&segment.path),
            false => error,
        }
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
        let (time, mut blocks) = (time.as_millis(), Blocks::default());
        let segments = self.shared.segments.all();
        let after = segments.partition_point(|s| s.header.log_time < time);
        let mut offsets = segments[after.saturating_sub(1)].header.base.clone();
        for segment in &segments[after.saturating_sub(1)..] {
            if segment.header.log_time >= time {
                break;
            }
            let file = self.open(segment)?;
            let mut scan = Scan::new(segment, &*file, &mut blocks, SegmentStart::of(segment));
            let walked = scan.walk(|header, frame, _| {
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
