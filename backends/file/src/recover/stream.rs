//! Which segments there are, which were removed on purpose, and which were lost.

use std::sync::Arc;

use procession_core::{Error, ErrorKind};

use super::{Found, OPERATION, Recovery};
use crate::errors::system;
use crate::groups::Lookup;
use crate::index;
use crate::report::RecoveryReport;
use crate::segments::Segment;

/// All segments but the last one.
pub(super) struct Sealed {
    pub(super) segments: Vec<Arc<Segment>>,
    /// Where their groups are found, and those of removed segments between them.
    pub(super) older: Vec<(u64, Arc<dyn Lookup>)>,
    /// Whether groups may have had a past that nobody remembers.
    pub(super) trimmed: bool,
}

impl Recovery<'_> {
    /// The segments of the stream; `None` if there never were any. What was removed goes now if a
    /// crash came before its file did.
    pub(super) fn stream(
        &mut self,
        ids: &[u64],
        report: &mut RecoveryReport,
    ) -> Result<Option<Found>, Error> {
        let (gone, there): (Vec<u64>, Vec<u64>) =
            ids.iter().partition(|id| self.trims.contains(**id));
        let Some(last) = there.last().copied() else {
            return match self.trims.last() {
                Some(last) => Err(self.missing(last + 1)),
                None => Ok(None),
            };
        };
        let described = there.iter().map(|id| self.header(*id)).collect::<Result<Vec<_>, _>>()?;
        let (headers, sizes): (Vec<_>, Vec<_>) = described.into_iter().unzip();
        let found = Found { ids: there, headers, sizes };
        self.account_for_missing(&found, last, report)?;
        for id in gone {
            let path = self.folder.segment(id);
            let released = self.folder.file_size(&path).and_then(|s| self.folder.release(&path, s));
            released.map_err(|e| system(OPERATION, &path, e))?;
        }
        Ok(Some(found))
    }

    /// Every number up to the last one is there, or was removed.
    fn account_for_missing(
        &mut self,
        found: &Found,
        last: u64,
        report: &mut RecoveryReport,
    ) -> Result<(), Error> {
        let above = self.trims.last().filter(|removed| *removed > last);
        if let Some(removed) = above {
            // Whatever was behind the last removed one.
            return Err(self.missing(removed + 1));
        }
        let mut before = 0;
        for (number, id) in found.ids.iter().enumerate() {
            for missing in before + 1..*id {
                if self.trims.contains(missing) {
                    continue;
                }
                if !self.skip_corruption {
                    return Err(self.missing(missing));
                }
                let end = match number.checked_sub(1) {
                    Some(previous) => self.sound_end(found, previous)?,
                    None => 0,
                };
                report.segments_missing.push(missing);
                if !self.trims.add(missing, end) {
                    return Err(self.missing(missing));
                }
            }
            before = *id;
        }
        Ok(())
    }

    fn missing(&self, id: u64) -> Error {
        self.error(ErrorKind::Corrupt).at_path(self.folder.segment(id)).with_hint(
            "the segment is missing, and not removed by retention as far as the progress files \
             tell; restore what is missing from a copy, or open with `skip_corruption(true)` to go \
             on without its records",
        )
    }

    /// How far a segment reads well, where nothing says how far it must.
    fn sound_end(&self, found: &Found, number: usize) -> Result<u64, Error> {
        let id = found.ids[number];
        let file = self.open(id)?;
        let bytes = crate::disk::read_whole(&*file)
            .map_err(|e| system(OPERATION, &self.folder.segment(id), e))?;
        let header = &found.headers[number];
        let start = crate::format::segment::SegmentHeader::size(self.partitions);
        Ok(super::scan(&bytes, header, start, header.log_number).end as u64)
    }

    /// The sealed segments with their groups.
    pub(super) fn sealed_segments(
        &self,
        found: &Found,
        report: &mut RecoveryReport,
    ) -> Result<Sealed, Error> {
        let Found { ids, headers, sizes } = found;
        // The log's beginning is gone.
        let mut trimmed = ids.first().is_some_and(|first| *first > 1);
        let mut segments = Vec::with_capacity(ids.len() + 1);
        let mut older: Vec<(u64, Arc<dyn Lookup>)> = Vec::new();
        for (number, pair) in ids.windows(2).enumerate() {
            let (id, next) = (pair[0], pair[1]);
            let end = self.trims.end_of(id).unwrap_or(headers[number + 1].previous_end);
            let header = headers[number].clone();
            let (segment, lookup) = self.sealed(id, header, sizes[number], end, report)?;
            segments.push(segment);
            older.push((id, lookup));
            for removed in self.trims.between(id, next) {
                match self.orphan(removed)? {
                    Some(lookup) => older.push((removed, lookup)),
                    // A group found further down may have gone on in there.
                    None => {
                        older.clear();
                        trimmed = true;
                    }
                }
            }
        }
        Ok(Sealed { segments, older, trimmed })
    }

    /// The groups of a removed segment.
    fn orphan(&self, id: u64) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let path = self.folder.index(id);
        let disk = &self.folder.disk;
        let read = index::read_orphan(disk, &path, self.log, id, self.partitions);
        let read = read.map_err(|e| system(OPERATION, &path, e))?;
        Ok(read.map(|groups| Arc::new(groups) as Arc<dyn Lookup>))
    }
}
