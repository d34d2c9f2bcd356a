//! A round on its way to the disk: which batches it has, and how they are written.

use crate::format::Salt;
use crate::format::batch::{BATCH_HEADER, BatchHeader, BatchStamp, PRODUCERS};
use crate::format::codec::Codec;
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

/// How a round lies on the disk.
#[derive(Debug, Default)]
pub(crate) struct Laid {
    /// What to write, if it is not the bytes of the round as they are.
    pub(crate) packed: Option<Vec<u8>>,
    /// The batches, if they lie elsewhere than in the round: where, and whether its frames are
    /// packed.
    batches: Vec<(usize, bool)>,
}

impl Laid {
    /// Where reading a record may begin, from the start of the round: at which header, and at which
    /// frame. `number` is that of its batch, `frame` where it lies in the round.
    pub(crate) fn spot(&self, number: usize, section: &Section, frame: usize) -> (usize, usize) {
        match self.batches.get(number) {
            None => (section.at, frame),
            // Packed frames can only be read from the first one on.
            Some((at, true)) => (*at, at + BATCH_HEADER),
            Some((at, false)) => (*at, at + (frame - section.at)),
        }
    }
}

impl Laid {
    /// Where the headers are, from the start of the round.
    pub(crate) fn headers(&self, sealed: &Sealed) -> Vec<usize> {
        match &self.packed {
            None => sealed.sections.iter().map(|section| section.at).collect(),
            Some(_) => self.batches.iter().map(|(at, _)| *at).collect(),
        }
    }
}

/// Makes of a round what is written at `at` of its segment: fills in the headers, and packs the
/// frames of batches that shrink.
pub(crate) fn seal(
    sealed: &mut Sealed,
    blank: BatchHeader,
    salt: Salt,
    at: u64,
    codec: Codec,
) -> Laid {
    let Sealed { bytes, entries, sections, first_log_number, time, .. } = sealed;
    let mut laid = Laid::default();
    let mut out = Vec::new();
    for (number, section) in sections.iter().enumerate() {
        let (end, last) = match sections.get(number + 1) {
            Some(next) => (next.at, next.first),
            None => (bytes.len(), entries.len()),
        };
        let packs = codec != Codec::Plain;
        let here = at + if packs { out.len() } else { section.at } as u64;
        let body_at = section.at + BATCH_HEADER;
        let is_table = section.change.is_some();
        if is_table {
            producers::seal(&mut bytes[body_at..end], salt, here);
        }
        let mut header = BatchHeader {
            body: (end - body_at) as u32,
            records: (last - section.first) as u32,
            log_number: *first_log_number + section.first as u64,
            log_time: *time,
            flags: if is_table { PRODUCERS } else { 0 },
            stamp: section.stamp,
            ..blank
        };
        if !packs {
            header.encode(&mut bytes[section.at..], salt, here);
            continue;
        }
        let start = out.len();
        out.resize(start + BATCH_HEADER, 0);
        let packed = !is_table && codec.pack(&bytes[body_at..end], salt, here, &mut out);
        if packed {
            header.body = (out.len() - start - BATCH_HEADER) as u32;
            header.codec = codec.number();
        } else {
            out.extend_from_slice(&bytes[body_at..end]);
        }
        header.encode(&mut out[start..], salt, here);
        laid.batches.push((start, packed));
    }
    laid.packed = (codec != Codec::Plain).then_some(out);
    laid
}

/// A table of producers as a batch of its own, to lie at `at`.
pub(crate) fn table_batch(mut table: Vec<u8>, blank: BatchHeader, salt: Salt, at: u64) -> Vec<u8> {
    producers::seal(&mut table, salt, at);
    let mut out = vec![0; BATCH_HEADER];
    let body = table.len() as u32;
    let header = BatchHeader { body, records: 0, flags: PRODUCERS, ..blank };
    header.encode(&mut out, salt, at);
    out.extend_from_slice(&table);
    out
}
