//! The I/O thread: takes a round, writes it, syncs it, tells everybody.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use procession_core::{Durability, Error, ErrorKind};

use crate::disk::{DiskFile, write_all};
use crate::errors::{is_full, poisoned, system};
use crate::format::batch::{BATCH_HEADER, BatchHeader, CLOSED, QUIET, StreamPosition};
use crate::format::segment::SegmentHeader;
use crate::front::{Plan, Roll, Sealed, State};
use crate::index::Spot;
use crate::keeper::Chore;
use crate::round::Fate;
use crate::sections::{self, Laid};
use crate::segments::Segment;
use crate::shared::Shared;
use crate::worker::{Pace, Worker};

#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    /// Where the next batch goes.
    byte: u64,
    /// Everything before is durable.
    synced: StreamPosition,
    /// Written, not synced: since when, and the next offsets once it is.
    unsynced: Option<(Duration, Vec<u64>)>,
    /// When the last round ended, until a mark proves it.
    unproven_since: Option<Duration>,
    /// Where the last mark is, if nothing was written behind it.
    marked: Option<u64>,
    log_number: u64,
    time: i64,
    ended: bool,
}

/// Written but unsynced bytes stay below this, so that every unproven tail fits into a spare.
const UNSYNCED_MAX: u64 = 16 << 20;

impl Writer {
    /// `byte` is the end of what was recovered, all of it synced; `proven` whether the disk says so.
    pub(crate) fn new(
        shared: Arc<Shared>,
        segment: Arc<Segment>,
        file: Arc<dyn DiskFile>,
        byte: u64,
        proven: bool,
    ) -> Self {
        let synced = StreamPosition { segment: segment.id(), byte };
        let (log_number, time) = {
            let front = shared.front();
            (front.log_number, front.last_time())
        };
        let unproven_since = (!proven).then(|| shared.clock.now());
        let (unsynced, marked, ended) = (None, None, false);
        Self {
            shared,
            segment,
            file,
            byte,
            synced,
            unsynced,
            unproven_since,
            marked,
            log_number,
            time,
            ended,
        }
    }

    /// The next round, with room made for the batches that wait.
    fn take(&self) -> (Option<Sealed>, State) {
        let mut done = Vec::new();
        let taken = {
            let mut front = self.shared.front();
            let mut sealed = front.take();
            while let Some(first) = front.held.front() {
                let Some(parcel) = first.upgrade() else {
                    front.held.pop_front();
                    continue;
                };
                let admitted = self.shared.admit(&parcel, &mut front);
                let all = admitted.all;
                done.push((parcel, admitted));
                if !all {
                    break;
                }
                front.held.pop_front();
            }
            if sealed.is_none() {
                sealed = front.take();
            }
            (sealed, front.state.clone())
        };
        for (_, admitted) in &mut done {
            if let Some(waker) = admitted.waker.take() {
                waker.wake();
            }
        }
        // Parcels and permits are dropped here, outside the lock: they may call back.
        drop(done);
        taken
    }

    fn write_round(&mut self, mut sealed: Sealed) {
        let info = Arc::clone(&self.shared.info);
        let operation = || format!("append to log \"{}\"", info.name);
        if let Some(roll) = sealed.roll.take() {
            match self.roll(roll, sealed.time) {
                Ok(()) => {}
                Err((e, Some(roll))) if is_full(&e) => {
                    sealed.roll = Some(roll);
                    return self.refuse(sealed, e);
                }
                Err((e, _)) => {
                    let error = poisoned(operation(), &self.segment.path, e);
                    // Its records were not written anywhere.
                    return self.die(error, |sealed, error| sealed.refuse(error), Some(sealed));
                }
            }
        }
        debug_assert_eq!(
            sealed.salt, self.segment.salt,
            "a round goes to the segment it was made for"
        );
        let at = self.byte;
        let (blank, salt) = (self.blank(), self.segment.salt);
        let laid = sections::seal(&mut sealed, blank, salt, at, self.shared.codec);
        let bytes = laid.packed.as_ref().unwrap_or(&sealed.bytes);
        if let Err(e) = write_all(&*self.file, bytes, at) {
            let cut = is_full(&e) && self.cut(at, laid.headers(&sealed)).is_ok();
            if cut {
                return self.refuse(sealed, e);
            }
            let error = poisoned(operation(), &self.segment.path, e);
            return self.die(error, |sealed, error| sealed.leave_unknown(error), Some(sealed));
        }
        self.byte = at + bytes.len() as u64;
        self.marked = None;
        let saved = (sealed.bytes.len() - bytes.len()) as u64;
        self.log_number = sealed.first_log_number + sealed.entries.len() as u64;
        self.time = sealed.time;
        self.remember(&sealed, &laid, at);
        let now = self.shared.clock.now();
        self.unproven_since = Some(now);
        let ends = std::mem::take(&mut sealed.ends);
        let since = self.unsynced.take().map_or(now, |(since, _)| since);
        self.unsynced = Some((since, ends));
        let level = if sealed.wants_sync || self.byte - self.synced.byte > UNSYNCED_MAX {
            if let Err(e) = self.sync() {
                let error = poisoned(operation(), &self.segment.path, e);
                return self.die(error, |sealed, error| sealed.leave_unknown(error), Some(sealed));
            }
            Durability::Synced
        } else {
            Durability::Flushed
        };
        let Sealed { round, bytes, entries, permits, .. } = sealed;
        {
            let mut front = self.shared.front();
            front.recycle(bytes);
            front.shrunk(self.segment.id(), saved);
        }
        round.resolve(Fate::Stored(entries, level));
        // Gives bytes back to the producer, which may append at once.
        drop(permits);
    }

    /// Where reading may begin.
    fn remember(&self, sealed: &Sealed, laid: &Laid, at: u64) {
        let mut cached = self.segment.cached();
        if let Some(spots) = &mut cached.spots {
            let mut batches = 0;
            for (number, entry) in sealed.entries.iter().enumerate() {
                // The last of the batches that begin at or before it.
                while sealed.sections.get(batches + 1).is_some_and(|next| next.first <= number) {
                    batches += 1;
                }
                let section = &sealed.sections[batches];
                let (batch, frame) = laid.spot(batches, section, entry.at as usize);
                let (batch, frame) = (at as u32 + batch as u32, at as u32 + frame as u32);
                spots.add(entry.partition, Spot { offset: entry.offset, batch, frame });
            }
        }
    }

    fn blank(&self) -> BatchHeader {
        BatchHeader {
            body: 0,
            records: 0,
            log_number: self.log_number,
            open_count: self.shared.open_count,
            log_time: self.time,
            synced: self.synced,
            routing: self.shared.info.routing.get(),
            flags: 0,
            codec: 0,
            stamp: None,
        }
    }

    /// Makes everything written durable, and lets readers have it.
    fn sync(&mut self) -> io::Result<()> {
        let Some((_, ends)) = &mut self.unsynced else { return Ok(()) };
        self.file.sync()?;
        let ends = std::mem::take(ends);
        self.unsynced = None;
        self.synced = StreamPosition { segment: self.segment.id(), byte: self.byte };
        self.segment.publish(self.byte);
        let wakers = {
            let mut tail = self.shared.tail();
            tail.ends = ends;
            tail.version += 1;
            std::mem::take(&mut tail.wakers)
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
        Ok(())
    }

    /// Goes on in a new segment. The roll comes back if nothing has changed.
    fn roll(&mut self, roll: Roll, time: i64) -> Result<(), (io::Error, Option<Roll>)> {
        if let Err(e) = self.sync() {
            return Err((io::Error::other(e), None));
        }
        let header = SegmentHeader {
            log: self.shared.log,
            codecs: self.shared.codec.bit(),
            id: self.segment.id() + 1,
            open_count: self.shared.open_count,
            log_number: roll.log_number,
            log_time: time,
            previous_end: self.byte,
            base: roll.base.clone(),
        };
        let partitions = roll.base.len();
        let table = roll.table.as_ref().map(|table| {
            let (salt, at) = (header.salt(), SegmentHeader::size(partitions) as u64);
            let (log_number, log_time) = (header.log_number, header.log_time);
            let blank = BatchHeader { log_number, log_time, ..self.blank() };
            sections::table_batch(table.clone(), blank, salt, at)
        });
        let table = table.as_deref().unwrap_or_default();
        let (segment, file) = match self.shared.folder.begin(header, table, partitions) {
            Ok(begun) => begun,
            Err(e) => return Err((e, Some(roll))),
        };
        let old = std::mem::replace(&mut self.segment, Arc::clone(&segment));
        self.file = file;
        self.marked = None;
        self.byte = segment.end();
        self.synced = StreamPosition { segment: segment.id(), byte: self.byte };
        // Before it counts as sealed: what retention removes has its index.
        self.shared.keeping.add(Chore::Index(old, roll.rolled.groups));
        self.shared.segments.push(segment);
        if self.shared.retains {
            self.shared.keeping.look_again();
        }
        self.shared.keeping.add(Chore::Spare);
        Ok(())
    }

    /// Makes sure that nothing of a refused round is ever found.
    fn cut(&self, at: u64, headers: Vec<usize>) -> io::Result<()> {
        // All of them: a later round may end where one of these begins.
        let size = self.file.size()?;
        for header in headers {
            let here = at + header as u64;
            if here < size || header == 0 {
                let most = usize::try_from(size.saturating_sub(here)).unwrap_or(BATCH_HEADER);
                let bytes = if header == 0 { BATCH_HEADER } else { most.min(BATCH_HEADER) };
                write_all(&*self.file, &[0; BATCH_HEADER][..bytes], here)?;
            }
        }
        self.file.sync()
    }

    /// The disk is full: everything that is not written goes back, and the log stays usable.
    fn refuse(&self, sealed: Sealed, cause: io::Error) {
        let operation = format!("append to log \"{}\"", self.shared.info.name);
        let error = system(operation, &self.segment.path, cause);
        let plan = Plan { segment: self.segment.id(), salt: self.segment.salt, byte: self.byte };
        let mut rounds = vec![sealed];
        {
            let mut front = self.shared.front();
            rounds.extend(front.take_all());
            front.undo(&mut rounds, plan, self.shared.hash);
        }
        for round in rounds {
            round.refuse(error.clone());
        }
    }

    /// A write or sync failed: nothing more is written, everybody is told.
    fn die(&mut self, error: Error, tell: impl FnOnce(Sealed, Error), attempted: Option<Sealed>) {
        let (rest, held) = {
            let mut front = self.shared.front();
            front.state = State::Dead(error.clone());
            (front.take_all(), std::mem::take(&mut front.held))
        };
        self.ended = true;
        if let Some(sealed) = attempted {
            tell(sealed, error.clone());
        }
        for sealed in rest {
            sealed.refuse(error.clone());
        }
        for parcel in held.iter().filter_map(std::sync::Weak::upgrade) {
            parcel.refuse(&error);
        }
        self.shared.end_of_changes(error);
    }

    /// A batch header without records, synced.
    fn mark(&mut self, flags: u16) -> io::Result<()> {
        let mut bytes = [0; BATCH_HEADER];
        BatchHeader { flags, ..self.blank() }.encode(&mut bytes, self.segment.salt, self.byte);
        match write_all(&*self.file, &bytes, self.byte) {
            // A mark only proves; the next round takes its place.
            Err(e) if is_full(&e) => return Ok(()),
            written => written?,
        }
        self.file.sync()?;
        self.marked = Some(self.byte);
        self.byte += BATCH_HEADER as u64;
        self.synced.byte = self.byte;
        self.segment.publish(self.byte);
        Ok(())
    }

    /// Takes room for a mark, unless records came in between or the segment has none left.
    fn reserve_mark(&self) -> bool {
        let mut front = self.shared.front();
        let free =
            front.is_empty() && self.byte + BATCH_HEADER as u64 <= self.shared.folder.segment_bytes;
        if free && front.plan.segment == self.segment.id() {
            front.plan.byte = self.byte + BATCH_HEADER as u64;
        }
        free
    }

    fn idle(&mut self) -> Result<Pace, io::Error> {
        let now = self.shared.clock.now();
        if let Some((since, _)) = &self.unsynced {
            let due = *since + self.shared.sync_lag;
            if now < due {
                return Ok(Pace::Idle(Some(due - now)));
            }
            self.sync()?;
            return Ok(Pace::More);
        }
        if let Some(since) = self.unproven_since {
            let due = since + self.shared.quiet;
            if now < due {
                return Ok(Pace::Idle(Some(due - now)));
            }
            self.unproven_since = None;
            if self.reserve_mark() {
                self.mark(QUIET)?;
                return Ok(Pace::More);
            }
        }
        Ok(Pace::Idle(None))
    }

    /// Everything was written: says so on the disk.
    fn close(&mut self) -> io::Result<()> {
        self.sync()?;
        if self.reserve_mark() {
            return self.mark(CLOSED);
        }
        // The last mark of a full segment gives way to this one. Were it torn, only the proof of the
        // last round would be lost, not the round.
        if let Some(at) = self.marked {
            (self.byte, self.synced.byte) = (at, at);
            self.mark(CLOSED)?;
        }
        Ok(())
    }
}

impl Worker for Writer {
    fn step(&mut self) -> Pace {
        if self.ended {
            let closing = matches!(self.shared.front().state, State::Closing | State::Dead(_));
            return if closing { Pace::Stop } else { Pace::Idle(None) };
        }
        let (sealed, state) = self.take();
        if let Some(sealed) = sealed {
            self.write_round(sealed);
            return Pace::More;
        }
        let operation = format!("sync log \"{}\"", self.shared.info.name);
        match state {
            State::Open => match self.idle() {
                Ok(pace) => pace,
                Err(e) => {
                    let error = poisoned(operation, &self.segment.path, e);
                    self.die(error, |_, _| {}, None);
                    Pace::Stop
                }
            },
            State::Closing => {
                if !self.shared.front().is_empty() {
                    return Pace::More;
                }
                match self.close() {
                    Ok(()) => {
                        let operation = format!("wait for log \"{}\"", self.shared.info.name);
                        self.shared.end_of_changes(Error::new(ErrorKind::Closed, operation));
                    }
                    Err(e) => {
                        let error = poisoned(operation, &self.segment.path, e);
                        self.die(error, |_, _| {}, None);
                    }
                }
                self.ended = true;
                Pace::Stop
            }
            State::Dead(_) => Pace::Stop,
        }
    }
}
