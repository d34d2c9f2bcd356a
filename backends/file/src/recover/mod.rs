//! From the files of a log to a log that goes on.
//!
//! Sealed segments were synced before the next one began, and the next one says where they end:
//! they are not scanned. The last one is. What a mark or a later header proves durable must read
//! back, else it is corruption; what nothing proves is cut where it stops making sense, and what is
//! left of it is rewritten into a fresh segment and synced, because after a failed sync a page
//! that reads well need not be on the disk. Without room for a fresh segment it is rewritten where
//! it is.

mod check;
mod in_place;
mod scan;
mod stream;

use std::collections::HashMap;
use std::sync::Arc;

use procession_core::{Error, ErrorKind, Sequence};

pub(crate) use self::check::check_segment;
use self::scan::{Piece, Scanned, for_each, prove, scan, used};
use self::stream::Sealed;
use crate::disk::{DiskFile, Kind, read_whole, write_all};
use crate::errors::{is_full, system};
use crate::format::batch::{BATCH_HEADER, BatchHeader, PRODUCERS, StreamPosition};
use crate::format::codec::{self, Codec};
use crate::format::frame::{self, Frame};
use crate::format::producers::{self as table, NumberedPlace};
use crate::format::segment::{self, BadSegment, SegmentHeader};
use crate::format::{Salt, u16_at};
use crate::groups::{GroupHash, GroupLast, Groups, Lookup};
use crate::index::{self, Spot, Spots};
use crate::producers::Producers;
use crate::report::{Quarantined, RecoveryReport};
use crate::round::NO_SEQUENCE;
use crate::sections;
use crate::segments::{Cached, Folder, QUARANTINE, Segment};
use crate::trims::Trims;

/// What to recover, and how.
#[derive(Debug)]
pub(crate) struct Recovery<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) log: u128,
    pub(crate) partitions: usize,
    pub(crate) routing: u32,
    pub(crate) groups_max: usize,
    pub(crate) skip_corruption: bool,
    pub(crate) segment_bytes: u64,
    /// How new batches are packed.
    pub(crate) codec: Codec,
    /// Log time of a new log.
    pub(crate) now: i64,
    /// What retention removed.
    pub(crate) trims: Trims,
}

/// A log that goes on.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Where the next batch goes.
    pub(crate) byte: u64,
    /// Whether the disk itself says that everything is durable.
    pub(crate) proven: bool,
    pub(crate) next: Vec<u64>,
    pub(crate) log_number: u64,
    pub(crate) time: i64,
    pub(crate) open_count: u64,
    pub(crate) groups: Groups,
    pub(crate) producers: Producers,
    /// What retention removed, and what was missing and is given up.
    pub(crate) trims: Trims,
}

/// The segments that are there, oldest first, and what they say of themselves.
struct Found {
    ids: Vec<u64>,
    headers: Vec<SegmentHeader>,
    sizes: Vec<u64>,
}

/// The last sequence and offset of each key of a partition.
type Lasts = HashMap<Box<[u8]>, (u64, u64)>;

impl Recovery<'_> {
    /// Recovers the stream, or begins it.
    pub(crate) fn run(
        &mut self,
        ids: &[u64],
        report: &mut RecoveryReport,
    ) -> Result<Recovered, Error> {
        let Some(found) = self.stream(ids, report)? else { return self.begin(report) };
        let Sealed { mut segments, older, trimmed } = self.sealed_segments(&found, report)?;
        segments.reserve(2);
        let (last, header) = match (found.ids.last(), found.headers.last()) {
            (Some(last), Some(header)) => (*last, header.clone()),
            _ => return Err(self.error(ErrorKind::Corrupt)),
        };
        let path = self.folder.segment(last);
        let file = self.open(last)?;
        let bytes = read_whole(&*file).map_err(|e| system(OPERATION, &path, e))?;
        let start = SegmentHeader::size(self.partitions);
        let mut scanned = scan(&bytes, &header, start, header.log_number);
        let used = used(&bytes);
        // A header may end in zeros: a little more than what is used.
        let readable = &bytes[..(used + BATCH_HEADER).min(bytes.len())];
        scanned.proven = prove(readable, &header, &scanned, start);
        if scanned.closed && used <= scanned.end {
            report.clean = true;
            // Nothing is added to a segment of an older format.
            // And its header must say how its batches are packed.
            let wanted = self.codec.bit();
            let goes_on = u16_at(&bytes, 8) == segment::VERSION && header.codecs & wanted == wanted;
            if !goes_on {
                let keep = scanned.end;
                return self.rewrite(
                    segments, older, header, &*file, &bytes, &scanned, keep, trimmed, report,
                );
            }
            return self.go_on(segments, older, header, file, &bytes, scanned, trimmed);
        }
        let mut keep = scanned.proven;
        if scanned.end < scanned.proven {
            // A batch that is only partly sound moves, with what is left of it.
            keep = scanned
                .pieces
                .last()
                .filter(|piece| !piece.is_whole())
                .map_or(scanned.end, |p| p.at);
            self.quarantine_damage(&bytes, &header, &mut scanned, report)?;
        }
        if used > scanned.end {
            report.cut_bytes = (used - scanned.end) as u64;
            report.cut_may_have_been_acknowledged = true;
        }
        // A fresh segment is safer: it leaves the doubtful pages alone. But it needs room.
        let spare = self.folder.ensure_spare();
        if spare.as_ref().is_err_and(is_full) && report.quarantined.is_empty() {
            self.rewrite_in_place(&*file, &path, &bytes, &mut scanned, keep, report)?;
            return self.go_on(segments, older, header, file, &bytes, scanned, trimmed);
        }
        self.rewrite(segments, older, header, &*file, &bytes, &scanned, keep, trimmed, report)
    }

    /// A new log: its first segment.
    fn begin(&self, report: &mut RecoveryReport) -> Result<Recovered, Error> {
        report.created = true;
        let header = SegmentHeader {
            log: self.log,
            codecs: self.codec.bit(),
            id: 1,
            open_count: 1,
            log_number: 0,
            log_time: self.now,
            previous_end: 0,
            base: vec![0; self.partitions],
        };
        let path = self.folder.segment(1);
        let (segment, file) = self
            .folder
            .begin(header, &[], self.partitions)
            .map_err(|e| system("create the first segment", &path, e))?;
        Ok(Recovered {
            byte: segment.end(),
            segments: vec![segment],
            file,
            proven: true,
            next: vec![0; self.partitions],
            log_number: 0,
            time: self.now,
            open_count: 1,
            groups: Groups::new(self.groups_max, 1, Vec::new(), false),
            producers: Producers::new(self.segment_bytes),
            trims: Trims::default(),
        })
    }

    pub(crate) fn header(&self, id: u64) -> Result<(SegmentHeader, u64), Error> {
        let path = self.folder.segment(id);
        let file = self.open(id)?;
        let mut bytes = vec![0; SegmentHeader::size(self.partitions)];
        crate::disk::read_full(&*file, &mut bytes, 0).map_err(|e| system(OPERATION, &path, e))?;
        let header = match SegmentHeader::decode(&bytes, self.partitions) {
            Ok(header) => header,
            Err(BadSegment::Newer(version)) => {
                return Err(self.error(ErrorKind::Version).at_path(path).with_hint(format!(
                    "format version {version}, this build reads {}; upgrade the program",
                    segment::VERSION
                )));
            }
            Err(BadSegment::Damaged) => {
                return Err(self.error(ErrorKind::Corrupt).at_path(path).with_hint(
                    "the header of the segment is damaged; restore the file from a copy",
                ));
            }
        };
        if header.log != self.log || header.id != id {
            return Err(self.error(ErrorKind::Mismatch).at_path(path).with_hint(format!(
                "the file is segment {} of log {:032x}, here belongs segment {id} of log {:032x}; \
                 put the right file back",
                header.id, header.log, self.log
            )));
        }
        if let Some(remedy) = codec::missing(header.codecs) {
            return Err(self.error(ErrorKind::Unsupported).at_path(path).with_hint(format!(
                "it may have compressed batches that this build cannot read; {remedy}"
            )));
        }
        let size = file.size().map_err(|e| system(OPERATION, &self.folder.segment(id), e))?;
        Ok((header, size))
    }

    fn open(&self, id: u64) -> Result<Arc<dyn DiskFile>, Error> {
        let path = self.folder.segment(id);
        self.folder.disk.open(&path, false).map_err(|e| system(OPERATION, &path, e))
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, OPERATION)
    }

    /// A sealed segment, with its index read or rebuilt.
    fn sealed(
        &self,
        id: u64,
        header: SegmentHeader,
        size: u64,
        end: u64,
        report: &mut RecoveryReport,
    ) -> Result<(Arc<Segment>, Arc<dyn Lookup>), Error> {
        let (path, index_path) = (self.folder.segment(id), self.folder.index(id));
        let disk = &self.folder.disk;
        let fail = |e| system(OPERATION, &index_path, e);
        let read =
            index::read(disk, &index_path, self.log, id, end, self.partitions).map_err(fail)?;
        if let Some((_, lookup)) = read {
            let cached = Cached { indexed: true, ..Cached::default() };
            let segment = Segment::new(header, path, end, size, cached);
            return Ok((Arc::new(segment), Arc::new(lookup)));
        }
        let file = self.open(id)?;
        let bytes = read_whole(&*file).map_err(|e| system(OPERATION, &path, e))?;
        let damaged = |at: usize| {
            self.error(ErrorKind::Corrupt).at_path(&path).with_hint(format!(
                "the bytes at {at} do not read back as they were written; restore the file \
                 from a copy"
            ))
        };
        let Some(bytes) = bytes.get(..end as usize) else { return Err(damaged(bytes.len())) };
        let start = SegmentHeader::size(self.partitions);
        let scanned = scan(bytes, &header, start, header.log_number);
        if scanned.end < bytes.len() && !self.skip_corruption {
            return Err(damaged(scanned.end));
        }
        let mut pieces = scanned.pieces;
        let mut at = scanned.end;
        while let Some((found, next)) = BatchHeader::search(bytes, header.salt(), at) {
            let mut more = scan(bytes, &header, found, next.log_number);
            pieces.append(&mut more.pieces);
            at = more.end.max(found + 1);
        }
        let (spots, groups) = self.contents(bytes, header.salt(), &pieces);
        let (cached, lookup) = self.index(id, end, spots, groups)?;
        report.indexes_rebuilt += u64::from(cached.indexed);
        Ok((Arc::new(Segment::new(header, path, end, size, cached)), lookup))
    }

    /// Writes the index of a segment and reads it back. A full disk must not keep a log closed:
    /// without room for the file its groups and spots stay in memory until the next open.
    fn index(
        &self,
        id: u64,
        end: u64,
        spots: Spots,
        mut groups: Vec<GroupLast>,
    ) -> Result<(Cached, Arc<dyn Lookup>), Error> {
        let (path, disk) = (self.folder.index(id), &self.folder.disk);
        let fail = |e| system(OPERATION, &path, e);
        match index::write(&**disk, &path, self.log, id, end, &spots, &mut groups) {
            Ok(()) => {}
            Err(e) if is_full(&e) => {
                let cached = Cached { spots: Some(spots), ..Cached::default() };
                return Ok((cached, Arc::new(index::GroupsList::new(groups))));
            }
            Err(e) => return Err(fail(e)),
        }
        let read = index::read(disk, &path, self.log, id, end, self.partitions).map_err(fail)?;
        let Some((_, lookup)) = read else {
            return Err(self.error(ErrorKind::Corrupt).at_path(path).with_hint(
                "an index that was just written does not read back; the disk or its memory is bad",
            ));
        };
        Ok((Cached { indexed: true, ..Cached::default() }, Arc::new(lookup)))
    }

    /// What an index holds of these batches.
    fn contents(&self, bytes: &[u8], salt: Salt, pieces: &[Piece]) -> (Spots, Vec<GroupLast>) {
        let hash = GroupHash::of(self.log);
        let mut spots = Spots::new(self.partitions);
        let mut last: Vec<Lasts> = Vec::new();
        last.resize_with(self.partitions, HashMap::new);
        for_each(bytes, salt, pieces, |piece, at, frame, bytes| {
            let place = frame.place;
            let (batch, at32) = (piece.at as u32, at as u32);
            spots.add(place.partition, Spot { offset: place.offset, batch, frame: at32 });
            if frame.has_key() {
                let (key, now) = (&bytes[frame.key()], (place.sequence, place.offset));
                let last = &mut last[place.partition as usize];
                match last.get_mut(key) {
                    Some(known) => *known = now,
                    None => drop(last.insert(key.into(), now)),
                }
            }
        });
        let groups = last.into_iter().zip(0_u32..).flat_map(|(last, partition)| {
            last.into_iter().map(move |(key, (sequence, offset))| {
                let hash = hash.hash(partition, &key);
                GroupLast { hash, partition, key, sequence, offset }
            })
        });
        (spots, groups.collect())
    }

    /// After an orderly close: the same segment takes more.
    #[expect(clippy::too_many_arguments, reason = "one call, and a struct would only rename them")]
    fn go_on(
        &self,
        mut segments: Vec<Arc<Segment>>,
        older: Vec<(u64, Arc<dyn Lookup>)>,
        header: SegmentHeader,
        file: Arc<dyn DiskFile>,
        bytes: &[u8],
        scanned: Scanned,
        trimmed: bool,
    ) -> Result<Recovered, Error> {
        let mut groups = Groups::new(self.groups_max, header.id, older, trimmed);
        let (spots, _) = self.contents(bytes, header.salt(), &scanned.pieces);
        let (next, log_number) = self.replay(bytes, &header, &scanned.pieces, &mut groups);
        let producers = self.producers(bytes, header.salt(), &scanned.pieces);
        let (spots, open) = (Some(spots), Some(Arc::clone(&file)));
        let cached = Cached { spots, file: open, indexed: false };
        let path = self.folder.segment(header.id);
        let (byte, size) = (scanned.end as u64, bytes.len() as u64);
        segments.push(Arc::new(Segment::new(header, path, byte, size, cached)));
        Ok(Recovered {
            segments,
            file,
            byte,
            proven: true,
            next,
            log_number,
            time: scanned.time,
            open_count: scanned.open_count + 1,
            groups,
            trims: self.trims.clone(),
            producers,
        })
    }

    /// After an unclean end: a fresh segment begins with what is not proven.
    #[expect(clippy::too_many_arguments, reason = "one call, and a struct would only rename them")]
    fn rewrite(
        &self,
        mut segments: Vec<Arc<Segment>>,
        mut older: Vec<(u64, Arc<dyn Lookup>)>,
        header: SegmentHeader,
        file: &dyn DiskFile,
        bytes: &[u8],
        scanned: &Scanned,
        keep: usize,
        trimmed: bool,
        report: &mut RecoveryReport,
    ) -> Result<Recovered, Error> {
        let split = scanned.pieces.partition_point(|piece| piece.frames_to <= keep);
        let (kept, tail) = scanned.pieces.split_at(split);
        let (spots, last) = self.contents(bytes, header.salt(), kept);
        let (id, end) = (header.id, keep as u64);
        let (cached, lookup) = self.index(id, end, spots, last)?;
        older.push((id, lookup));

        // Only for the numbers: the groups of `kept` are in the index now.
        let mut forget = Groups::new(usize::MAX, id, Vec::new(), trimmed);
        let (base, log_number) = self.replay(bytes, &header, kept, &mut forget);
        let open_count = scanned.open_count + 1;
        let fresh = SegmentHeader {
            log: self.log,
            // What is rewritten keeps its codec.
            codecs: self.codec.bit() | header.codecs,
            id: id + 1,
            open_count,
            log_number,
            log_time: tail.first().map_or(scanned.time, |piece| piece.header.log_time),
            previous_end: end,
            base,
        };
        let start = SegmentHeader::size(self.partitions);
        let synced = StreamPosition { segment: id, byte: end };
        let producers = self.producers(bytes, header.salt(), &scanned.pieces);
        let mut batches = producers.snapshot().map_or_else(Vec::new, |table| {
            let blank = BatchHeader {
                log_number,
                open_count,
                log_time: fresh.log_time,
                synced,
                routing: self.routing,
                ..BatchHeader::default()
            };
            sections::table_batch(table, blank, fresh.salt(), start as u64)
        });
        let tail_at = start + batches.len();
        let salts = [header.salt(), fresh.salt()];
        let (tail, pieces) = self.reseal(bytes, tail, tail_at, salts, open_count, synced);
        batches.extend_from_slice(&tail);
        report.rewritten_records = pieces.iter().map(|piece| u64::from(piece.records)).sum();

        let mut whole = vec![0; start];
        whole.extend_from_slice(&batches);
        let mut groups = Groups::new(self.groups_max, id + 1, older, trimmed);
        let (next, log_number) = self.replay(&whole, &fresh, &pieces, &mut groups);
        let (spots, _) = self.contents(&whole, fresh.salt(), &pieces);
        let path = self.folder.segment(id + 1);
        let (segment, fresh_file) = self
            .folder
            .begin(fresh, &batches, self.partitions)
            .map_err(|e| system("rewrite the unproven tail of the log", &path, e))?;
        segment.cached().spots = Some(spots);
        // What lies behind is never read again; without the room nothing is lost either.
        let _ = file.set_size(end);
        let size = file.size().unwrap_or(end);
        let old = Segment::new(header, self.folder.segment(id), end, size, cached);
        segments.push(Arc::new(old));
        segments.push(Arc::clone(&segment));
        Ok(Recovered {
            byte: segment.end(),
            segments,
            file: fresh_file,
            proven: false,
            next,
            log_number,
            time: scanned.time,
            open_count,
            groups,
            trims: self.trims.clone(),
            producers,
        })
    }

    /// Counts what these batches hold: the next offsets, and the next log number.
    fn replay(
        &self,
        bytes: &[u8],
        header: &SegmentHeader,
        pieces: &[Piece],
        groups: &mut Groups,
    ) -> (Vec<u64>, u64) {
        let hash = GroupHash::of(self.log);
        let mut next = header.base.clone();
        let mut log_number = header.log_number;
        for piece in pieces {
            log_number = log_number.max(piece.first_log_number + u64::from(piece.records));
        }
        for_each(bytes, header.salt(), pieces, |_, _, frame, bytes| {
            let place = frame.place;
            if let Some(next) = next.get_mut(place.partition as usize) {
                *next = (*next).max(place.offset + 1);
            }
            if frame.has_key() {
                let key = &bytes[frame.key()];
                groups.recovered(hash.hash(place.partition, key), key, place);
            }
        });
        (next, log_number)
    }

    /// Who has numbered records, as the segment's tables and stamps say.
    fn producers(&self, bytes: &[u8], salt: Salt, pieces: &[Piece]) -> Producers {
        let mut producers = Producers::new(self.segment_bytes);
        for piece in pieces {
            if piece.header.flags & PRODUCERS != 0 {
                let table = &bytes[piece.frames_from..piece.frames_to];
                if let Some((highest, entries)) = table::decode(table, salt, piece.at as u64) {
                    producers.recovered(highest, entries);
                }
            }
            let Some(stamp) = piece.header.stamp else { continue };
            let mut number = stamp.base;
            for_each(bytes, salt, std::slice::from_ref(piece), |_, _, frame, bytes| {
                let place = NumberedPlace {
                    partition: frame.place.partition,
                    offset: frame.place.offset,
                    sequence: frame.sequence().map_or(NO_SEQUENCE, Sequence::get),
                    content: frame.content(bytes),
                };
                producers.replayed(stamp.producer, number, place);
                number += 1;
            });
        }
        producers
    }

    /// The same frames, for another segment: from under one salt to another.
    fn reseal(
        &self,
        bytes: &[u8],
        tail: &[Piece],
        start: usize,
        [from, salt]: [Salt; 2],
        open_count: u64,
        synced: StreamPosition,
    ) -> (Vec<u8>, Vec<Piece>) {
        let mut out = Vec::new();
        let mut pieces = Vec::new();
        for piece in tail.iter().filter(|piece| piece.records > 0) {
            let at = start + out.len();
            let header_at = out.len();
            out.resize(header_at + BATCH_HEADER, 0);
            let frames_at = out.len();
            let mut frames = if piece.header.codec == 0 {
                bytes[piece.frames_from..piece.frames_to].to_vec()
            } else {
                piece.unpack(bytes, from).to_vec()
            };
            let mut frame_at = 0;
            while let Some(frame) = Frame::peek(&frames[frame_at..], frames.len() - frame_at) {
                frame::reseal(&mut frames[frame_at..frame_at + frame.length], salt);
                frame_at += frame.length;
            }
            let codec = Codec::of(piece.header.codec).unwrap_or_default();
            let packed = codec.pack(&frames, salt, at as u64, &mut out);
            if !packed {
                out.extend_from_slice(&frames);
            }
            let header = BatchHeader {
                codec: if packed { codec.number() } else { 0 },
                body: (out.len() - frames_at) as u32,
                records: piece.records,
                log_number: piece.first_log_number,
                open_count,
                synced,
                routing: self.routing,
                ..piece.header
            };
            header.encode(&mut out[header_at..], salt, at as u64);
            pieces.push(Piece {
                header,
                at,
                frames_from: start + frames_at,
                frames_to: start + out.len(),
                ..*piece
            });
        }
        (out, pieces)
    }

    /// Damage below the proven position: an error, or set aside and stepped over.
    fn quarantine_damage(
        &self,
        bytes: &[u8],
        header: &SegmentHeader,
        scanned: &mut Scanned,
        report: &mut RecoveryReport,
    ) -> Result<(), Error> {
        let path = self.folder.segment(header.id);
        while scanned.end < scanned.proven {
            let from = scanned.end;
            if !self.skip_corruption {
                return Err(self.error(ErrorKind::Corrupt).at_path(path).with_hint(format!(
                    "the bytes at {from} were proven durable and do not read back as they were \
                     written; restore the file from a copy, or open with `skip_corruption(true)` \
                     to set them aside and go on without them"
                )));
            }
            let to = BatchHeader::search(bytes, header.salt(), from + 1)
                .map_or(scanned.proven, |(at, _)| at);
            let damaged = &bytes[from.min(bytes.len())..to.min(bytes.len())];
            let copy = self.quarantine(header.id, from, damaged)?;
            let bytes_count = damaged.len() as u64;
            report.quarantined.push(Quarantined {
                file: path.clone(),
                at: from as u64,
                bytes: bytes_count,
                copy,
            });
            let rest = bytes.get(to..).unwrap_or_default();
            let expected = BatchHeader::check(rest, header.salt(), to as u64)
                .map_or(u64::MAX, |found| found.log_number);
            let mut more = scan(bytes, header, to, expected);
            scanned.pieces.append(&mut more.pieces);
            scanned.end = more.end.max(to);
            scanned.open_count = scanned.open_count.max(more.open_count);
            scanned.time = scanned.time.max(more.time);
        }
        Ok(())
    }

    fn quarantine(&self, id: u64, at: usize, bytes: &[u8]) -> Result<std::path::PathBuf, Error> {
        let folder = self.folder.at(QUARANTINE);
        let copy = folder.join(format!("{id:020}-{at}.bytes"));
        let disk = &self.folder.disk;
        let write = || {
            if disk.kind(&folder)? == Kind::Missing {
                disk.create_dir(&folder)?;
                disk.sync_dir(&self.folder.path)?;
            }
            let file = disk.open(&copy, true)?;
            write_all(&*file, bytes, 0)?;
            file.sync()?;
            disk.sync_dir(&folder)
        };
        write().map_err(|e| system("set damaged bytes aside", &copy, e))?;
        Ok(copy)
    }
}

const OPERATION: &str = "recover the log";
