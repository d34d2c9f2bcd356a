//! Following a group's chain backwards.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use procession_core::{Budget, Error, ErrorKind, Offset, PartitionId, RoutingEpoch};
use procession_core::{Stored, Timestamp};

use super::scan::{Blocks, Scan, SegmentStart, Stop};
use super::{Failed, Reader};
use crate::errors::system;
use crate::format::frame::{Frame, NO_PREVIOUS};
use crate::groups::Lookup;
use crate::history::{HistoryEnd, PageFound, PageWanted, Step};
use crate::index;
use crate::segments::Segment;

/// A record on its own, and the offset of its group's record before it.
struct Link {
    stored: Stored,
    previous: Option<Offset>,
    restarted: bool,
}

/// What was found where a record should be.
enum Found {
    Link(Link),
    /// Its segment is gone.
    Trimmed,
}

impl Reader {
    pub(super) fn history(&mut self, wanted: &PageWanted) -> Result<PageFound, Error> {
        let mut step = match wanted.step {
            Step::Newest => self.newest(wanted)?,
            step => step,
        };
        let (mut records, mut left) = (Vec::new(), wanted.page);
        while let Step::At(offset) = step {
            let link = match self.link(wanted, offset)? {
                Found::Link(link) => link,
                Found::Trimmed => {
                    step = Step::End(HistoryEnd::Trimmed);
                    break;
                }
            };
            let size = Budget::new(1, link.stored.record.size_bytes() as u64);
            let fits = left.records >= 1 && left.bytes >= size.bytes;
            if !(fits || records.is_empty()) {
                break;
            }
            left = left.minus(size);
            step = Step::before(link.previous, link.restarted);
            records.push(link.stored);
            if left.is_spent() {
                break;
            }
        }
        Ok((records, step))
    }

    /// The group's newest record that is synced.
    fn newest(&self, wanted: &PageWanted) -> Result<Step, Error> {
        let (partition, key) = (wanted.partition.get(), wanted.key.as_ref());
        let Some(end) = self.shared.tail().ends.get(partition as usize).copied() else {
            return Err(self.misplaced(wanted, ErrorKind::NotFound, None));
        };
        let hash = self.shared.hash.hash(partition, key);
        let known = match self.shared.read_only {
            // The groups are known to the writer.
            true => Ok(Some(u64::MAX)),
            false => self.shared.front().groups.last(hash, partition, key),
        };
        let known = known.map_err(|e| system(self.operation(), &self.shared.folder.path, e))?;
        match known {
            Some(offset) if offset < end => return Ok(Step::At(offset)),
            // The newest is on its way to the disk: the newest before it is in the segments.
            Some(_) => {}
            None => return self.unknown(hash, wanted),
        }
        let segments = self.shared.segments.all();
        for (number, segment) in segments.iter().enumerate().rev() {
            let above = segments.get(number + 1).map(|above| above.id());
            // What is below a gap is not the newest if there was anything in the gap.
            let id = segment.id();
            if self.may_be_in(id + 1..above.unwrap_or(0), hash, wanted)? {
                return Ok(Step::End(HistoryEnd::Trimmed));
            }
            let found = match self.indexed(segment, above.is_some(), hash, wanted)? {
                Some(found) => found,
                None => match self.scanned(segment, wanted) {
                    Ok(found) => found,
                    // It became a gap, or the beginning.
                    Err(Failed::Removed) if self.may_be_in(id..id + 1, hash, wanted)? => {
                        return Ok(Step::End(HistoryEnd::Trimmed));
                    }
                    Err(Failed::Removed) => None,
                    Err(Failed::Error(error)) => return Err(error),
                },
            };
            if let Some(offset) = found {
                return Ok(Step::At(offset));
            }
        }
        Ok(Step::End(self.without_records()))
    }

    /// The end of a group that the log does not know. It knows those in gaps by their indexes.
    fn unknown(&self, hash: u64, wanted: &PageWanted) -> Result<Step, Error> {
        for pair in self.shared.segments.all().windows(2) {
            if self.may_be_in(pair[0].id() + 1..pair[1].id(), hash, wanted)? {
                return Ok(Step::End(HistoryEnd::Trimmed));
            }
        }
        Ok(Step::End(self.without_records()))
    }

    /// Whether removed segments may have held the group: false only if the index of each of them is
    /// there and says so.
    fn may_be_in(&self, ids: Range<u64>, hash: u64, wanted: &PageWanted) -> Result<bool, Error> {
        let (folder, log) = (&self.shared.folder, self.shared.log);
        let partitions = self.shared.info.partitions.get() as usize;
        for id in ids {
            let path = folder.index(id);
            let fail = |e| system(self.operation(), &path, e);
            let read = index::read_orphan(&folder.disk, &path, log, id, partitions);
            let Some(groups) = read.map_err(fail)? else { return Ok(true) };
            let found = groups.find(hash, wanted.partition.get(), wanted.key.as_ref());
            if found.map_err(fail)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The end of a group that has no record here.
    fn without_records(&self) -> HistoryEnd {
        let segments = self.shared.segments.all();
        let whole = segments.first().is_none_or(|first| first.header.log_number == 0);
        if whole { HistoryEnd::First } else { HistoryEnd::Trimmed }
    }

    /// The group's last record in a sealed segment, by its index; `None` if there is no index.
    fn indexed(
        &self,
        segment: &Segment,
        sealed: bool,
        hash: u64,
        wanted: &PageWanted,
    ) -> Result<Option<Option<u64>>, Error> {
        if !sealed {
            return Ok(None);
        }
        let (folder, id) = (&self.shared.folder, segment.id());
        let (path, partitions) = (folder.index(id), segment.header.base.len());
        let fail = |e| system(self.operation(), &path, e);
        let read = index::read(&folder.disk, &path, self.shared.log, id, segment.end(), partitions);
        let Some((_, groups)) = read.map_err(fail)? else { return Ok(None) };
        let found = groups.find(hash, wanted.partition.get(), wanted.key.as_ref()).map_err(fail)?;
        Ok(Some(found.map(|(_, offset)| offset)))
    }

    /// The group's last record in a segment, by reading all of it.
    fn scanned(&self, segment: &Arc<Segment>, wanted: &PageWanted) -> Result<Option<u64>, Failed> {
        let file = self.open(segment)?;
        let mut blocks = Blocks::default();
        let mut scan = Scan::new(segment, &*file, &mut blocks, SegmentStart::of(segment));
        let mut last = None;
        let walked = scan.walk(|_, frame, bytes| {
            if is_of(frame, bytes, wanted) {
                last = Some(frame.place.offset);
            }
            true
        });
        match walked {
            Err(_) if self.is_gone(segment) => Err(Failed::Removed),
            Err(stop) => Err(self.stopped(stop, segment).into()),
            Ok(_) => Ok(last),
        }
    }

    /// The record at an offset that the chain names.
    fn link(&mut self, wanted: &PageWanted, offset: u64) -> Result<Found, Error> {
        let partition = wanted.partition.get() as usize;
        let segments = self.shared.segments.all();
        let first = segments.first().map_or(u64::MAX, |first| first.header.base[partition]);
        if offset < first {
            return Ok(Found::Trimmed);
        }
        let start = match self.start(&segments, wanted.partition, offset) {
            Ok(start) => start,
            Err(Failed::Removed) => return Ok(Found::Trimmed),
            Err(Failed::Error(e)) => return Err(e),
        };
        let segment = &segments[start.segment];
        let file = match self.open(segment) {
            Ok(file) => file,
            // Removed since the list was made.
            Err(Failed::Removed) => return Ok(Found::Trimmed),
            Err(Failed::Error(e)) => return Err(e),
        };
        let mut blocks = std::mem::take(&mut self.blocks);
        let mut scan = Scan::new(segment, &*file, &mut blocks, start.batch).in_small_blocks();
        let found = find(&mut scan, wanted, offset, start.frame.max(start.batch));
        self.blocks = blocks;
        if found.is_err() && self.is_gone(segment) {
            return Ok(Found::Trimmed);
        }
        match found.map_err(|stop| self.stopped(stop, segment))? {
            Some(link) => Ok(Found::Link(link)),
            // A segment in the middle was removed.
            None if segments.get(start.segment + 1).is_some_and(|n| n.id() > segment.id() + 1) => {
                Ok(Found::Trimmed)
            }
            None => Err(self.misplaced(wanted, ErrorKind::Corrupt, Some(offset))),
        }
    }

    fn stopped(&self, stop: Stop, segment: &Segment) -> Error {
        match stop {
            Stop::System(e) => system(self.operation(), &segment.path, e),
            Stop::Damaged(at) => {
                let hint = format!(
                    "the bytes at {at} do not read back as they were written; restore the file \
                     from a copy"
                );
                Error::new(ErrorKind::Corrupt, self.operation())
                    .at_path(&segment.path)
                    .with_hint(hint)
            }
        }
    }

    fn misplaced(&self, wanted: &PageWanted, kind: ErrorKind, offset: Option<u64>) -> Error {
        let id = PartitionId { partition: wanted.partition, ..PartitionId::default() };
        let error = Error::new(kind, self.operation()).in_group(wanted.key.clone());
        let error = error.in_partition(id);
        match offset {
            Some(offset) => error.at_offset(Offset::new(offset)).with_hint(
                "the record that the group's chain names is not there; damaged bytes may have been \
                 set aside",
            ),
            None => error.with_hint("there is no such partition"),
        }
    }

    fn operation(&self) -> String {
        format!("read the history of a group of \"{}\"", self.shared.info.name)
    }
}

fn is_of(frame: &Frame, bytes: &[u8], wanted: &PageWanted) -> bool {
    frame.place.partition == wanted.partition.get()
        && frame.has_key()
        && bytes[frame.key()] == *wanted.key.as_ref()
}

/// The record with this offset, at or behind `frame_at` in the batch where `scan` stands, or in a
/// later one.
fn find(
    scan: &mut Scan<'_>,
    wanted: &PageWanted,
    offset: u64,
    frame_at: u64,
) -> Result<Option<Link>, Stop> {
    let mut frame_at = (frame_at > scan.at).then_some(frame_at);
    while let Some(header) = scan.header()? {
        let (from, end) = scan.frames(&header)?;
        let mut at = frame_at.take().unwrap_or(from);
        while at < end {
            let frame = scan.frame(at, end)?;
            let place = frame.place;
            if place.partition == wanted.partition.get() && place.offset >= offset {
                let bytes = scan.bytes(at, frame.length)?;
                if place.offset > offset || !is_of(&frame, bytes, wanted) {
                    return Ok(None);
                }
                // A copy: a page must not keep a block alive for each of its records.
                let copy = Bytes::copy_from_slice(&bytes[..frame.length]);
                let record = frame.record(&copy, 0).ok_or(Stop::Damaged(at))?;
                let stored = Stored {
                    offset: frame.offset(),
                    sequence: frame.sequence(),
                    log_time: Timestamp::from_millis(header.log_time),
                    routing: RoutingEpoch::new(header.routing),
                    record,
                };
                let previous = (place.previous != NO_PREVIOUS).then(|| Offset::new(place.previous));
                return Ok(Some(Link { stored, previous, restarted: place.restarted }));
            }
            at += frame.length as u64;
        }
        scan.leave(&header);
    }
    Ok(None)
}
