//! Following a log that another process writes: what it has synced, and no more.
//!
//! ```text
//!  segment n                                     segment n+1
//!  [batch][batch][batch][batch]                  [ header: n ended at byte e ]
//!  ^ at          ^ proven: a later header says "synced through here"
//! ```
//!
//! A header's word is true from the moment it is written, because the writer has synced before: it
//! is enough that this process can read it. What is proven is read whole, once, and published. The
//! next segment says where this one ends; when there is one, all of this one is proven.

use std::io;
use std::sync::Arc;

use procession_core::{Error, ErrorKind};

use super::scan::{Blocks, Scan, SegmentStart, Stop};
use crate::disk::{DiskFile, read_full, read_whole};
use crate::errors::system;
use crate::format::batch::{BATCH_HEADER, BatchHeader};
use crate::format::codec::Codec;
use crate::format::segment::SegmentHeader;
use crate::index::{Spot, Spots};
use crate::progress::removed_segments;
use crate::recover::Recovery;
use crate::segments::{Cached, Folder, Segment};
use crate::shared::Shared;
use crate::trims::Trims;

#[derive(Debug)]
pub(crate) struct Follower {
    shared: Arc<Shared>,
    /// Everything before, in the last segment of the list, is published.
    at: u64,
    /// The next offsets there.
    ends: Vec<u64>,
    /// Where reading may begin there. What readers have is a copy: theirs may be dropped.
    spots: Spots,
    blocks: Blocks,
}

/// A folder that changes while it is looked at is looked at again, at most so often.
const LOOKS_MAX: usize = 1000;
const OPERATION: &str = "follow the log";

impl Follower {
    /// Reads the log of `shared`, which has no segments yet.
    pub(crate) fn open(shared: Arc<Shared>) -> Result<Self, Error> {
        let (spots, blocks) = (Spots::default(), Blocks::default());
        let mut this = Self { shared, at: 0, ends: Vec::new(), spots, blocks };
        let mut looks = 0;
        // What was listed may be removed before it is opened.
        while let Err(error) = this.begin() {
            looks += 1;
            if error.kind() != ErrorKind::Unavailable || looks == LOOKS_MAX {
                return Err(error);
            }
        }
        this.look()?;
        Ok(this)
    }

    /// Publishes what is proven by now.
    ///
    /// # Errors
    /// If the log cannot be followed any further; what was published stays.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        self.forget_removed()?;
        loop {
            let segments = self.shared.segments.all();
            let Some(last) = segments.last() else { return Ok(()) };
            let next = self.next_of(last)?;
            let proven = match &next {
                Some((_, end)) => *end,
                None => match self.proven(last) {
                    Ok(proven) => proven,
                    Err(e) => return self.failed(last, system(OPERATION, &last.path, e)),
                },
            };
            if let Err(error) = self.publish(last, proven) {
                return self.failed(last, error);
            }
            let Some((next, _)) = next else { return Ok(()) };
            self.go_on(next);
        }
    }

    /// The segments that are there, each of which ends where the next one says.
    fn begin(&mut self) -> Result<(), Error> {
        let There { ids, trims } = self.there()?;
        let error = |kind| Error::new(kind, OPERATION).at_path(&self.shared.folder.path);
        if ids.is_empty() {
            return Err(error(ErrorKind::NotFound)
                .with_hint("it has no segments yet; open it for writing once"));
        }
        let mut headers = Vec::new();
        for id in &ids {
            let header = self.header(*id)?;
            headers.push(header.ok_or_else(|| {
                error(ErrorKind::Unavailable).with_hint("its segments come and go too fast")
            })?);
        }
        let ends = ids.iter().zip(headers.iter().skip(1));
        let ends = ends.map(|(id, next)| trims.end_of(*id).unwrap_or(next.previous_end));
        let start = SegmentHeader::size(headers[0].base.len()) as u64;
        let ends: Vec<u64> = ends.chain([start]).collect();
        self.ends.clone_from(&headers[headers.len() - 1].base);
        self.at = start;
        let earliest = headers[0].base.clone();
        let segments = headers.into_iter().zip(ends).map(|(header, end)| {
            let path = self.shared.folder.segment(header.id);
            // How large its file is matters to whoever removes it.
            Arc::new(Segment::new(header, path, end, end, Cached::default()))
        });
        let segments: Vec<_> = segments.collect();
        self.spots = Spots::new(self.ends.len());
        if let Some(active) = segments.last() {
            active.cached().spots = Some(self.spots.clone());
        }
        let mut tail = self.shared.tail();
        self.shared.segments.replace(segments);
        tail.earliest = earliest;
        tail.ends.clone_from(&self.ends);
        tail.version += 1;
        Ok(())
    }

    /// Removed segments leave the list. If all are gone, reading goes on with what is there.
    fn forget_removed(&mut self) -> Result<(), Error> {
        let There { ids, .. } = self.there()?;
        if ids.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, OPERATION)
                .at_path(&self.shared.folder.path)
                .with_hint("its segments are gone"));
        }
        let segments = self.shared.segments.all();
        let kept = |segment: &Arc<Segment>| ids.binary_search(&segment.id()).is_ok();
        let gone: Vec<u64> = segments.iter().filter(|s| !kept(s)).map(|s| s.id()).collect();
        if gone.is_empty() {
            return Ok(());
        }
        // The last one too, or all: what is there is looked at from the beginning.
        if segments.last().is_some_and(|last| !kept(last)) {
            return self.begin();
        }
        self.shared.remove_these(&gone);
        Ok(())
    }

    /// The segment behind this one, and where this one ends; those between them were removed.
    fn next_of(&self, segment: &Segment) -> Result<Option<(SegmentHeader, u64)>, Error> {
        let id = segment.id();
        if let Some(next) = self.header(id + 1)? {
            let end = next.previous_end;
            return Ok(Some((next, end)));
        }
        let There { ids, trims } = self.there()?;
        let Some(next) = ids.into_iter().find(|there| *there > id) else { return Ok(None) };
        let Some(header) = self.header(next)? else { return Ok(None) };
        let end = trims.end_of(id).unwrap_or(header.previous_end);
        Ok(Some((header, end)))
    }

    /// The segments that are there and not removed. One that is neither was lost.
    fn there(&self) -> Result<There, Error> {
        let mut looks = 0;
        loop {
            // What is missing in this list was removed before it was made, so the progress files say
            // so by now.
            let mut ids = self.ids()?;
            let trims = removed_segments(&self.shared.folder, self.shared.log);
            ids.retain(|id| !trims.contains(*id));
            let last = ids.last().copied().unwrap_or(0);
            let lost = (1..last).find(|id| ids.binary_search(id).is_err() && !trims.contains(*id));
            let Some(lost) = lost.filter(|_| !self.shared.skip_corruption) else {
                return Ok(There { ids, trims });
            };
            looks += 1;
            // A list may miss what gets its name while it is made, and the files of the progress
            // may be in between two generations.
            if looks == LOOKS_MAX {
                return Err(Error::new(ErrorKind::Corrupt, OPERATION)
                    .at_path(self.shared.folder.segment(lost))
                    .with_hint(
                        "the segment is missing, and not removed by retention as far as the \
                         progress files tell; restore what is missing from a copy, or open with \
                         `skip_corruption(true)` to go on without its records",
                    ));
            }
        }
    }

    /// The segment may be gone by now: then there is nothing wrong with it.
    fn failed(&mut self, segment: &Segment, error: Error) -> Result<(), Error> {
        match self.there()?.ids.binary_search(&segment.id()) {
            Ok(_) => Err(error),
            Err(_) => self.forget_removed(),
        }
    }

    fn ids(&self) -> Result<Vec<u64>, Error> {
        let folder = &self.shared.folder;
        let names = folder.disk.list(&folder.path);
        let names = names.map_err(|e| system(OPERATION, &folder.path, e))?;
        let mut ids: Vec<u64> = names.iter().filter_map(|name| Folder::parse(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The header of a segment; `None` if it is not there.
    fn header(&self, id: u64) -> Result<Option<SegmentHeader>, Error> {
        let shared = &*self.shared;
        let recovery = Recovery {
            folder: &shared.folder,
            log: shared.log,
            partitions: shared.info.partitions.get() as usize,
            routing: shared.info.routing.get(),
            groups_max: 1,
            skip_corruption: shared.skip_corruption,
            segment_bytes: shared.folder.segment_bytes,
            codec: Codec::Plain,
            now: 0,
            trims: Trims::default(),
        };
        match recovery.header(id) {
            Ok((header, _)) => Ok(Some(header)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            // Removed and used again while it was read.
            Err(e) => match self.there()?.ids.binary_search(&id) {
                Ok(_) => Err(e),
                Err(_) => Ok(None),
            },
        }
    }

    /// How far a header in the last segment says that all was synced. Steps over what is written
    /// and not proven, without believing any of it: it may still be cut, and written anew.
    fn proven(&self, segment: &Arc<Segment>) -> io::Result<u64> {
        const BLOCK: usize = 1 << 16;
        let file = self.shared.files.file(segment, &*self.shared.folder.disk)?;
        let (mut at, mut proven) = (self.at, self.at);
        let (mut block, mut block_at) = (vec![0; BLOCK], u64::MAX);
        loop {
            if at < block_at || at + BATCH_HEADER as u64 > block_at + block.len() as u64 {
                block.resize(BLOCK, 0);
                let n = read_full(&*file, &mut block, at)?;
                block.truncate(n);
                block_at = at;
            }
            let rest = &block[(at - block_at) as usize..];
            let Some(header) = BatchHeader::check(rest, segment.salt, at) else {
                let blank = rest.iter().take(BATCH_HEADER).all(|byte| *byte == 0);
                // Half of a write that is under way, or damage: then a later header knows better.
                return if blank { Ok(proven) } else { self.proven_behind(segment, &*file, at) };
            };
            if header.synced.segment == segment.id() && header.synced.byte <= at {
                proven = proven.max(header.synced.byte);
            }
            at += BATCH_HEADER as u64 + u64::from(header.body);
        }
    }

    /// As [`proven`](Self::proven), but by the headers behind bytes that are none.
    fn proven_behind(&self, segment: &Segment, file: &dyn DiskFile, at: u64) -> io::Result<u64> {
        let bytes = read_whole(file)?;
        let (mut from, mut proven) = (at as usize + 1, self.at);
        while let Some((found, header)) = BatchHeader::search(&bytes, segment.salt, from) {
            if header.synced.segment == segment.id() && header.synced.byte <= found as u64 {
                proven = proven.max(header.synced.byte);
            }
            from = found + 1;
        }
        Ok(proven)
    }

    /// Reads what is proven, and lets readers have it.
    fn publish(&mut self, segment: &Arc<Segment>, proven: u64) -> Result<(), Error> {
        if proven > self.at {
            self.walk(segment, proven)?;
            self.at = proven;
        }
        segment.publish(self.at.max(SegmentStart::of(segment)));
        let wakers = {
            let mut tail = self.shared.tail();
            if tail.ends == self.ends {
                return Ok(());
            }
            tail.ends.clone_from(&self.ends);
            tail.version += 1;
            std::mem::take(&mut tail.wakers)
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
        Ok(())
    }

    fn walk(&mut self, segment: &Arc<Segment>, proven: u64) -> Result<(), Error> {
        let fail = |e| system(OPERATION, &segment.path, e);
        let file = self.shared.files.file(segment, &*self.shared.folder.disk).map_err(fail)?;
        let mut spots = std::mem::take(&mut self.spots);
        let mut at = self.at;
        let mut blocks = std::mem::take(&mut self.blocks);
        let result = loop {
            let mut scan = Scan::new(segment, &*file, &mut blocks, at);
            scan.end = proven;
            match self.walk_from(&mut scan, &mut spots) {
                Ok(()) => break Ok(()),
                Err(Stop::System(e)) => break Err(fail(e)),
                Err(Stop::Damaged(damaged)) if self.shared.skip_corruption => {
                    match scan.after(damaged).map_err(fail)? {
                        Some(next) => at = next,
                        None => break Ok(()),
                    }
                }
                Err(Stop::Damaged(damaged)) => {
                    break Err(Error::new(ErrorKind::Corrupt, OPERATION)
                        .at_path(&segment.path)
                        .with_hint(format!(
                            "the bytes at {damaged} were proven durable and do not read back as \
                             they were written; restore the file from a copy, or open with \
                             `skip_corruption(true)`"
                        )));
                }
            }
        };
        self.blocks = blocks;
        segment.cached().spots = Some(spots.clone());
        self.spots = spots;
        result
    }

    fn walk_from(&mut self, scan: &mut Scan<'_>, spots: &mut Spots) -> Result<(), Stop> {
        while let Some(header) = scan.header()? {
            let batch = scan.at;
            let (mut at, end) = scan.frames(&header)?;
            while at < end {
                let frame = scan.frame(at, end)?;
                let place = frame.place;
                let Some(next) = self.ends.get_mut(place.partition as usize) else {
                    return Err(Stop::Damaged(at));
                };
                *next = (*next).max(place.offset + 1);
                // Packed frames can only be read from the first one on.
                let frame_at = if header.codec == 0 { at } else { batch + BATCH_HEADER as u64 };
                let (offset, batch, frame_at) = (place.offset, batch as u32, frame_at as u32);
                spots.add(place.partition, Spot { offset, batch, frame: frame_at });
                at += frame.length as u64;
            }
            scan.leave(&header);
        }
        Ok(())
    }

    fn go_on(&mut self, next: SegmentHeader) {
        let start = SegmentHeader::size(next.base.len()) as u64;
        // Progress may have named more than the log held: then its offsets begin higher.
        for (end, base) in self.ends.iter_mut().zip(&next.base) {
            *end = (*end).max(*base);
        }
        self.spots = Spots::new(next.base.len());
        let spots = Some(self.spots.clone());
        let path = self.shared.folder.segment(next.id);
        let cached = Cached { spots, file: None, indexed: false };
        let segment = Segment::new(next, path, start, start, cached);
        let sealed = self.shared.segments.all().last().cloned();
        self.shared.segments.push(Arc::new(segment));
        self.at = start;
        if let Some(sealed) = sealed {
            // Its spots can be had from its index, or without one by reading from its start: they
            // need not stay when its file is closed.
            sealed.cached().indexed = true;
        }
    }
}

/// What is in the folder.
struct There {
    ids: Vec<u64>,
    trims: Trims,
}
