//! Where the order is taken: one short lock under which records get their numbers and become
//! frames of the open round.
//!
//! ```text
//!  append ──> held ──> open ──> ready ──> the writer
//!          (by the user)  (filling)  (full; at most one)
//! ```
//!
//! Memory is bounded: at most one round is open, one ready and one being written, each at most
//! `round_bytes_max`. Beyond that a batch stays inside the future its caller holds.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use procession_core::{Durability, Error, ErrorKind, Partition, Permit, Record, Timestamp};

use crate::format::Salt;
use crate::format::batch::{BATCH_HEADER, BatchStamp};
use crate::format::frame::{self, Frame, NO_PREVIOUS, Place};
use crate::format::producers::{NumberedPlace, ProducerEntry};
use crate::groups::{GroupHash, Groups, Rolled};
use crate::parcel::Parcel;
use crate::producers::{Change, Producers};
use crate::round::{Entry, NO_SEQUENCE, Round};
use crate::sections::Section;

/// Full rounds that may wait behind the one being written.
const READY_MAX: usize = 1;

#[derive(Debug)]
pub(crate) struct Front {
    open: Open,
    ready: VecDeque<Sealed>,
    /// Batches for which there is no room yet, in the order of their calls.
    pub(crate) held: VecDeque<Weak<Parcel>>,
    /// The next offset of each partition.
    pub(crate) next: Vec<u64>,
    /// Log number of the next record.
    pub(crate) log_number: u64,
    pub(crate) groups: Groups,
    pub(crate) producers: Producers,
    pub(crate) plan: Plan,
    /// Log time of the last round.
    time: i64,
    pub(crate) state: State,
    spare: Vec<Vec<u8>>,
    limits: Limits,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    Open,
    /// No more appends; what is here is still written.
    Closing,
    /// Nothing more is written. The reason.
    Dead(Error),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) log: u128,
    pub(crate) open_count: u64,
    pub(crate) round_bytes_max: usize,
    pub(crate) segment_bytes: u64,
    /// Bytes of a segment's header.
    pub(crate) segment_header: u64,
}

/// Where the open round will go, if all before it succeed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) segment: u64,
    pub(crate) salt: Salt,
    pub(crate) byte: u64,
}

/// A round that takes records.
#[derive(Debug, Default)]
struct Open {
    round: Arc<Round>,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    sections: Vec<Section>,
    permits: Vec<Permit>,
    first_log_number: u64,
    time: i64,
    wants_sync: bool,
    roll: Option<Roll>,
}

/// A round on its way to the writer.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) round: Arc<Round>,
    /// Batches: room for the header, then the frames.
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) sections: Vec<Section>,
    pub(crate) permits: Vec<Permit>,
    pub(crate) first_log_number: u64,
    pub(crate) time: i64,
    pub(crate) wants_sync: bool,
    /// Under which its frames are sealed: that of the segment it must go to.
    pub(crate) salt: Salt,
    /// The next offsets after this round.
    pub(crate) ends: Vec<u64>,
    /// Set if the segment begins with this round.
    pub(crate) roll: Option<Roll>,
}

/// What a new segment must know of the one before.
#[derive(Debug)]
pub(crate) struct Roll {
    pub(crate) rolled: Rolled,
    pub(crate) base: Vec<u64>,
    pub(crate) log_number: u64,
    /// The table of producers that it begins with.
    pub(crate) table: Option<Vec<u8>>,
}

/// A record with what can be computed outside the lock.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) partition: Partition,
    pub(crate) record: Record,
    pub(crate) hash: u64,
    /// What it holds, in short; 0 unless its batch has a stamp.
    pub(crate) content: u32,
}

impl Ready {
    pub(crate) fn new(partition: Partition, record: Record, hash: GroupHash) -> Self {
        let hash = record.key().map_or(0, |key| hash.hash(partition.get(), key.as_ref()));
        Self { partition, record, hash, content: 0 }
    }

    /// With what a numbered record needs.
    pub(crate) fn stamped(mut self, stamped: bool) -> Self {
        if stamped {
            self.content = frame::content_of(&self.record);
        }
        self
    }
}

impl Front {
    pub(crate) fn new(
        limits: Limits,
        next: Vec<u64>,
        log_number: u64,
        time: i64,
        groups: Groups,
        producers: Producers,
        plan: Plan,
    ) -> Self {
        Self {
            open: Open::default(),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            next,
            log_number,
            groups,
            producers,
            plan,
            time,
            state: State::Open,
            spare: Vec::new(),
            limits,
        }
    }

    /// Whether the open round can take frames of `bytes`, which is at most a whole round; closes
    /// it and opens another if that helps.
    pub(crate) fn room(&mut self, bytes: usize) -> bool {
        loop {
            // Behind a batch with a stamp comes another header.
            let header = match self.open.sections.last() {
                Some(last) if !last.is_plain() => BATCH_HEADER,
                _ => 0,
            };
            let bytes = bytes + header;
            let used = self.open.bytes.len().max(BATCH_HEADER);
            // Behind every round there is room for the mark of an orderly close.
            let end = self.plan.byte + (used + bytes + BATCH_HEADER) as u64;
            let fits_round = used + bytes <= self.limits.round_bytes_max;
            let fits_segment = end <= self.limits.segment_bytes;
            if fits_round && fits_segment {
                return true;
            }
            if !self.open.bytes.is_empty() {
                if self.ready.len() >= READY_MAX {
                    return false;
                }
                self.seal();
            } else if fits_segment {
                // A round holds at least one batch.
                return true;
            } else {
                self.roll();
            }
        }
    }

    /// Gives the record its numbers and appends its frame to the open round, in which there is
    /// room. `now` is asked once a round.
    ///
    /// # Errors
    /// If the group's last sequence cannot be read; nothing has changed then.
    pub(crate) fn push(
        &mut self,
        ready: &Ready,
        stamp: Option<BatchStamp>,
        now: impl FnOnce() -> Timestamp,
    ) -> io::Result<()> {
        let partition = ready.partition.get();
        let offset = self.next[partition as usize];
        let place = match ready.record.key() {
            Some(key) => {
                self.groups.next(ready.hash, partition, key.as_ref(), offset, self.log_number)?
            }
            None => {
                Place { partition, offset, sequence: 0, previous: NO_PREVIOUS, restarted: false }
            }
        };
        let first = self.open.entries.len();
        let takes = |last: &Section| last.takes(stamp, first - last.first);
        if !self.open.sections.last().is_some_and(takes) {
            self.begin_section(stamp, None, now);
        }
        let at = self.open.bytes.len() as u32;
        let time = Timestamp::from_millis(self.open.time);
        frame::encode(&mut self.open.bytes, self.plan.salt, place, time, &ready.record);
        let sequence = if ready.record.key().is_some() { place.sequence } else { NO_SEQUENCE };
        self.open.entries.push(Entry { offset, sequence, partition, at });
        if let Some(stamp) = stamp {
            let place = NumberedPlace { partition, offset, sequence, content: ready.content };
            self.producers.queued(stamp.producer, place, &self.open.round, first as u32);
        }
        self.next[partition as usize] = offset + 1;
        self.log_number += 1;
        Ok(())
    }

    fn begin_section(
        &mut self,
        stamp: Option<BatchStamp>,
        change: Option<Change>,
        now: impl FnOnce() -> Timestamp,
    ) {
        if self.open.bytes.is_empty() {
            // Never falls, whatever the clock does.
            self.time = self.time.max(now().as_millis());
            self.open.time = self.time;
            self.open.first_log_number = self.log_number;
        }
        let (at, first) = (self.open.bytes.len(), self.open.entries.len());
        self.open.bytes.resize(at + BATCH_HEADER, 0);
        self.open.sections.push(Section { at, first, stamp, change });
    }

    /// Appends a change of the table of producers to the open round, in which there is room. Gives
    /// the round, and a number for this in it.
    pub(crate) fn push_table(
        &mut self,
        entry: ProducerEntry,
        change: Change,
        now: impl FnOnce() -> Timestamp,
    ) -> (Arc<Round>, u32) {
        self.begin_section(None, Some(change), now);
        let table = self.producers.table(entry);
        self.open.bytes.extend_from_slice(&table);
        self.open.wants_sync = true;
        (Arc::clone(&self.open.round), self.open.sections.len() as u32)
    }

    /// Notes what the batch that was just pushed wants of its round.
    pub(crate) fn wants(&mut self, level: Durability, permit: Option<Permit>) {
        self.open.wants_sync |= level >= Durability::Synced;
        let Some(mut permit) = permit else { return };
        for kept in &mut self.open.permits {
            match kept.merge(permit) {
                None => return,
                Some(other) => permit = other,
            }
        }
        self.open.permits.push(permit);
    }

    /// Bytes of frames that fit into an empty round.
    pub(crate) const fn round_room(&self) -> usize {
        self.limits.round_bytes_max - BATCH_HEADER
    }

    /// The round that records go to now, and how many it has.
    pub(crate) fn current(&self) -> (&Arc<Round>, u32) {
        (&self.open.round, self.open.entries.len() as u32)
    }

    pub(crate) fn receipt(&self, at: u32, level: Durability) -> procession_core::Receipt {
        self.open.entries[at as usize].receipt(level)
    }

    /// The next round to write, if there is one.
    pub(crate) fn take(&mut self) -> Option<Sealed> {
        if self.ready.is_empty() && !self.open.bytes.is_empty() {
            self.seal();
        }
        self.ready.pop_front()
    }

    /// Log time of the last round.
    pub(crate) const fn last_time(&self) -> i64 {
        self.time
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.open.bytes.is_empty()
    }

    /// Everything that is not written yet, oldest first.
    pub(crate) fn take_all(&mut self) -> Vec<Sealed> {
        std::iter::from_fn(|| self.take()).collect()
    }

    /// Gives a round's buffer back for the next one.
    pub(crate) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < READY_MAX + 1 {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// A round of `segment` took so many bytes less than it was thought to.
    pub(crate) fn shrunk(&mut self, segment: u64, bytes: u64) {
        if self.plan.segment == segment {
            self.plan.byte -= bytes;
        }
    }

    /// Forgets rounds that were not stored, oldest first, and goes on at `plan`: offsets and
    /// sequences are given again.
    pub(crate) fn undo(&mut self, rounds: &mut [Sealed], plan: Plan, hash: GroupHash) {
        // Newest first: the open round's segment was begun after all of these.
        if let Some(roll) = self.open.roll.take() {
            self.groups.unroll(roll.rolled);
        }
        for sealed in rounds.iter_mut().rev() {
            for entry in sealed.entries.iter().rev() {
                let bytes = &sealed.bytes[entry.at as usize..];
                let Some(frame) = Frame::peek(bytes, bytes.len()) else { continue };
                if frame.has_key() {
                    let key = &bytes[frame.key()];
                    self.groups.undo(hash.hash(entry.partition, key), key, frame.place);
                }
                self.next[entry.partition as usize] = entry.offset;
            }
            for section in sealed.sections.drain(..).rev() {
                if let Some(stamp) = section.stamp {
                    self.producers.undo(stamp);
                }
                if let Some(change) = section.change {
                    self.producers.take_back(change);
                }
            }
            self.log_number = sealed.first_log_number;
            if let Some(roll) = sealed.roll.take() {
                self.groups.unroll(roll.rolled);
            }
        }
        self.plan = plan;
    }

    fn roll(&mut self) {
        let segment = self.plan.segment + 1;
        let rolled = self.groups.roll(segment);
        let table = self.producers.snapshot();
        let table_bytes = table.as_ref().map_or(0, |table| (BATCH_HEADER + table.len()) as u64);
        let (base, log_number) = (self.next.clone(), self.log_number);
        self.open.roll = Some(Roll { rolled, base, log_number, table });
        self.plan = Plan {
            segment,
            salt: Salt::of(self.limits.log, segment, self.limits.open_count),
            byte: self.limits.segment_header + table_bytes,
        };
    }

    fn seal(&mut self) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        let entries = Vec::with_capacity(self.open.entries.len());
        let open = std::mem::replace(&mut self.open, Open { bytes, entries, ..Open::default() });
        self.plan.byte += open.bytes.len() as u64;
        self.ready.push_back(Sealed {
            round: open.round,
            bytes: open.bytes,
            entries: open.entries,
            sections: open.sections,
            permits: open.permits,
            first_log_number: open.first_log_number,
            time: open.time,
            wants_sync: open.wants_sync,
            salt: self.plan.salt,
            ends: self.next.clone(),
            roll: open.roll,
        });
    }
}

impl Sealed {
    /// The records come back to who sent them.
    pub(crate) fn refuse(self, error: Error) {
        self.round.resolve(crate::round::Fate::Refused(
            self.entries,
            Bytes::from(self.bytes),
            error,
        ));
        drop(self.permits);
    }

    /// Nobody knows.
    pub(crate) fn leave_unknown(self, error: Error) {
        self.round.resolve(crate::round::Fate::Unknown(error));
        drop(self.permits);
    }
}

impl State {
    /// Why nothing can be appended, if so.
    pub(crate) fn refusal(&self, name: &str) -> Option<Error> {
        match self {
            Self::Open => None,
            Self::Closing => {
                Some(Error::new(ErrorKind::Closed, format!("append to log \"{name}\"")))
            }
            Self::Dead(error) => Some(error.clone()),
        }
    }
}
