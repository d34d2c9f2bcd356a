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
use crate::shared::{Shared, Tail};
use crate::worker::{Bell, Pace, Worker};

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
    blocks: Blocks,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, blocks: Blocks::default() }
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
    /// Reads, and looks again if a segment was removed meanwhile: what its file holds by then says
    /// nothing. Every time there is one less of what was there at the call.
    fn read(&mut self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        loop {
            match self.read_once(wants, max) {
                Err(Failed::Removed) => {}
                Err(Failed::Error(error)) => return Err(error),
                Ok(chunks) => return Ok(chunks),
            }
        }
    }

    fn read_once(&mut self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Failed> {
        let (mut tracks, segments) = {
            let tail = self.shared.tail();
            // Under one lock: what is removed between the two would be skipped unseen.
            (self.tracks(&tail, wants)?, self.shared.segments.all())
        };
        for track in &mut tracks {
            if !track.done {
                track.start = self.start(&segments, track.partition, track.from)?;
            }
        }
        // The buffers leave the reader for the pass, so that it can open files meanwhile.
        let mut blocks = std::mem::take(&mut self.blocks);
        let mut pass = Pass::new(&mut tracks, self.shared.info.partitions.get() as usize, max);
        while let Some(start) = pass.next_start() {
            let segment = &segments[start.segment];
            let file = self.open(segment)?;
            let mut scan = Scan::new(segment, &*file, &mut blocks, start.batch);
            match pass.run(&mut scan, start, &segments) {
                Ok(()) => {}
                Err(_) if self.is_gone(segment) => return Err(self.removed(segment)),
                Err(Stop::Damaged(at)) if self.shared.skip_corruption => {
                    let next = scan.after(at).map_err(|e| self.system(e, &segment.path))?;
                    pass.skip_to(start.segment, next, &segments);
                }
                Err(Stop::Damaged(at)) => {
                    let hint = format!(
                        "the bytes at {at} do not read back as they were written; restore the file \
                         from a copy, or open with `skip_corruption(true)`"
                    );
                    let error = self.error(ErrorKind::Corrupt).at_path(&segment.path);
                    return Err(error.with_hint(hint).into());
                }
                Err(Stop::System(e)) => return Err(self.system(e, &segment.path).into()),
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

    fn tracks(&self, tail: &Tail, wants: &[Want]) -> Result<Vec<Track>, Error> {
        wants
            .iter()
            .map(|want| {
                let (at, from) = (want.partition.get() as usize, want.from.get());
                let id = PartitionId { partition: want.partition, ..PartitionId::default() };
                let Some(&end) = tail.ends.get(at) else {
                    let hint = format!("the log has {} partitions, from 0", tail.ends.len());
                    return Err(self.error(ErrorKind::NotFound).in_partition(id).with_hint(hint));
                };
                self.refuse_trimmed(want.partition, from, &tail.earliest)?;
                if from > end {
                    let error = self.error(ErrorKind::NotYetWritten).in_partition(id);
                    return Err(error
                        .at_offset(want.from)
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

    fn refuse_trimmed(&self, partition: Partition, from: u64, base: &[u64]) -> Result<(), Error> {
        let earliest = base.get(partition.get() as usize).copied().unwrap_or(0);
        if from >= earliest {
            return Ok(());
        }
        let id = PartitionId { partition, ..PartitionId::default() };
        let error = self.error(ErrorKind::Trimmed).in_partition(id).at_offset(Offset::new(from));
        Err(error.with_hint(format!(
            "removed by retention, the partition begins at {earliest} now; read from there on"
        )))
    }

    /// Whether the file of a segment is gone or another one by now: the segment was removed, here or
    /// by the writer of a log that this process only reads. It leaves the stream then, unless it is
    /// all that is left; that is for whoever follows the writer to see.
    fn is_gone(&self, segment: &Segment) -> bool {
        let shared = &*self.shared;
        let missing = || matches!(shared.folder.disk.kind(&segment.path), Ok(Kind::Missing));
        if segment.is_removed() {
            return true;
        }
        // Lost is not removed: that is an error of the read.
        let gone = shared.read_only
            && missing()
            && crate::progress::removed_segments(&shared.folder, shared.log).contains(segment.id());
        if gone && shared.segments.all().len() > 1 {
            shared.remove_these(&[segment.id()]);
        }
        gone
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, format!("read log \"{}\"", self.shared.info.name))
    }

    fn system(&self, cause: std::io::Error, path: &std::path::Path) -> Error {
        system(format!("read log \"{}\"", self.shared.info.name), path, cause)
    }

    /// The best place at or before a record.
    fn start(
        &self,
        segments: &[Arc<Segment>],
        partition: Partition,
        from: u64,
    ) -> Result<Start, Failed> {
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
    fn load(&self, segment: &Arc<Segment>) -> Result<(), Failed> {
        self.shared.files.note(segment);
        if segment.cached().spots.is_some() {
            return Ok(());
        }
        let shared = &*self.shared;
        let (path, partitions) = (shared.folder.index(segment.id()), segment.header.base.len());
        let disk = &shared.folder.disk;
        let read = index::read(disk, &path, shared.log, segment.id(), segment.end(), partitions)
            .map_err(|e| self.system(e, &path))?;
        let spots = read.map_or_else(|| Spots::new(partitions), |(spots, _)| spots);
        let mut cached = segment.cached();
        (cached.spots, cached.indexed) = (Some(spots), true);
        Ok(())
    }

    fn open(&self, segment: &Arc<Segment>) -> Result<Arc<dyn DiskFile>, Failed> {
        let opened = self.shared.files.file(segment, &*self.shared.folder.disk);
        match opened {
            Err(_) if self.is_gone(segment) => Err(self.removed(segment)),
            opened => Ok(opened.map_err(|e| self.system(e, &segment.path))?),
        }
    }

    /// The segment was removed: look again, unless there is nothing else to look at yet.
    fn removed(&self, segment: &Segment) -> Failed {
        if segment.is_removed() {
            return Failed::Removed;
        }
        Failed::Error(self.error(ErrorKind::Trimmed).at_path(&segment.path))
    }

    /// For each partition the first offset that was taken at or after `time`.
    fn at_time(&self, time: Timestamp) -> Result<Vec<Offset>, Error> {
        loop {
            match self.at_time_once(time) {
                Err(Failed::Removed) => {}
                Err(Failed::Error(error)) => return Err(error),
                Ok(offsets) => return Ok(offsets),
            }
        }
    }

    fn at_time_once(&self, time: Timestamp) -> Result<Vec<Offset>, Failed> {
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
                if self.is_gone(segment) {
                    return Err(self.removed(segment));
                }
                let operation = format!("look up a time in log \"{}\"", self.shared.info.name);
                let error = match stop {
                    Stop::System(e) => system(operation, &segment.path, e),
                    Stop::Damaged(at) => Error::new(ErrorKind::Corrupt, operation)
                        .at_path(&segment.path)
                        .with_hint(format!("damaged bytes at {at}")),
                };
                return Err(error.into());
            }
        }
        let tail = self.shared.tail();
        let known = offsets.into_iter().zip(tail.earliest.iter().zip(&tail.ends));
        Ok(known.map(|(at, (low, high))| Offset::new(at.clamp(*low, *high))).collect())
    }
}

/// Why a pass came to nothing.
enum Failed {
    /// A segment in its way was removed: look again.
    Removed,
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
