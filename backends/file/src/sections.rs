//! A round on its way to the disk: which batches it has, and how they are written.

use crate::format::Salt;
use crate::format::batch::{BATCH_HEADER, BatchHeader, BatchStamp, PRODUCERS};
use crate::format::producers;
use crate::front::Sealed;
use crate::producers::Change;

/// One batch of a round: a header, and what lies behind it.
#[derive(Debug)]
pub(crate) struct Section {
    /// Where its header goes, from the start of the round.
    pub(crate) at: usize,
    /// Its first record among those of the round.
    pub(crate) first: usize,
    pub(crate) stamp: Option<BatchStamp>,
    /// It is a table of producers; this is what to take back if it is not stored.
    pub(crate) change: Option<Change>,
}

impl Section {
    /// Whether a record with this stamp belongs to it, as the one behind `records` others.
    pub(crate) fn takes(&self, stamp: Option<BatchStamp>, records: usize) -> bool {
        let next = |stamp: BatchStamp| BatchStamp { base: stamp.base + records as u64, ..stamp };
        self.change.is_none() && self.stamp.map(next) == stamp
    }

    pub(crate) const fn is_plain(&self) -> bool {
        self.stamp.is_none() && self.change.is_none()
    }
}

/// Fills in the headers of a round that will lie at `at` of its segment.
pub(crate) fn seal(sealed: &mut Sealed, blank: BatchHeader, salt: Salt, at: u64) {
    let mut sections = sealed.sections.iter().peekable();
    while let Some(section) = sections.next() {
        let (end, last) = match sections.peek() {
            Some(next) => (next.at, next.first),
            None => (sealed.bytes.len(), sealed.entries.len()),
        };
        let here = at + section.at as u64;
        let body_at = section.at + BATCH_HEADER;
        let flags = if section.change.is_some() { PRODUCERS } else { 0 };
        if section.change.is_some() {
            producers::seal(&mut sealed.bytes[body_at..end], salt, here);
        }
        let header = BatchHeader {
            body: (end - body_at) as u32,
            records: (last - section.first) as u32,
            log_number: sealed.first_log_number + section.first as u64,
            log_time: sealed.time,
            flags,
            stamp: section.stamp,
            ..blank
        };
        header.encode(&mut sealed.bytes[section.at..], salt, here);
    }
}

/// A table of producers as a batch of its own, to lie at `at`.
pub(crate) fn table_batch(mut table: Vec<u8>, blank: BatchHeader, salt: Salt, at: u64) -> Vec<u8> {
    producers::seal(&mut table, salt, at);
    let mut out = vec![0; BATCH_HEADER];
    let body = table.len() as u32;
    let header = BatchHeader { body, records: 0, flags: PRODUCERS, stamp: None, ..blank };
    header.encode(&mut out, salt, at);
    out.extend_from_slice(&table);
    out
}
