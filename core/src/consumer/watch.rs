//! Looks at the keys that come in, for what should make a person think.
//!
//! One window of records in every million is looked at, the first one at the start, so that it
//! costs next to nothing; each kind of warning is given once a run.

use crate::log::Chunk;
use crate::types::GroupKey;

use super::Warning;
use super::engine::Engine;

/// Records of a window.
const WINDOW: u64 = 16_384;
/// Records from the start of one window to the start of the next.
const EVERY: u64 = 1 << 20;
/// Bits for linear counting: a window of different keys fills a quarter of them.
const BITS: usize = 1 << 16;
/// From this share of different keys on they count as nearly unique, in percent.
const UNIQUE_PERCENT: u64 = 95;

/// What was seen of the present window.
#[derive(Debug)]
pub(crate) struct Watch {
    records: u64,
    /// Empty outside a window.
    seen: Vec<u64>,
    set: u64,
    /// The only group that can have more than half of the window, and by how many records it has
    /// more than the others that came while it was the candidate.
    candidate: Option<GroupKey>,
    lead: u64,
    told_unique: bool,
    told_dominates: bool,
}

impl Watch {
    pub(crate) const fn new() -> Self {
        Self {
            records: 0,
            seen: Vec::new(),
            set: 0,
            candidate: None,
            lead: 0,
            told_unique: false,
            told_dominates: false,
        }
    }

    /// Looks at a chunk; answers with what it found at the end of a window.
    pub(crate) fn look(&mut self, chunk: &Chunk) -> [Option<Warning>; 2] {
        let count = chunk.records.len() as u64;
        let at = self.records % EVERY;
        if at >= WINDOW && at + count < EVERY {
            self.records += count;
            return [None, None];
        }
        let mut found = [None, None];
        for stored in &chunk.records {
            let at = self.records % EVERY;
            self.records += 1;
            if at >= WINDOW {
                continue;
            }
            if let Some(key) = stored.record.key() {
                self.count(key);
            }
            if at == WINDOW - 1 {
                found = self.judge();
            }
        }
        found
    }

    fn count(&mut self, key: &GroupKey) {
        if self.seen.is_empty() {
            self.seen = vec![0; BITS / 64];
        }
        let bit = (hash(key.as_ref()) >> 48) as usize;
        let word = &mut self.seen[bit / 64];
        self.set += u64::from(*word >> (bit % 64) & 1 == 0);
        *word |= 1 << (bit % 64);
        match &self.candidate {
            Some(candidate) if candidate == key => self.lead += 1,
            _ if self.lead == 0 => {
                self.candidate = Some(key.clone());
                self.lead = 1;
            }
            _ => self.lead -= 1,
        }
    }

    /// The window is full.
    fn judge(&mut self) -> [Option<Warning>; 2] {
        self.seen = Vec::new();
        let (set, lead) = (std::mem::take(&mut self.set), std::mem::take(&mut self.lead));
        let candidate = self.candidate.take();
        // Linear counting: bits that are still zero tell how many different keys there were.
        let zero = (BITS as u64 - set).max(1) as f64 / BITS as f64;
        let keys = ((-(BITS as f64) * zero.ln()).round() as u64).min(WINDOW);
        let unique = keys * 100 >= WINDOW * UNIQUE_PERCENT && !self.told_unique;
        self.told_unique |= unique;
        // It had at least this many: each of its lead is a record of its own.
        let dominates = lead >= WINDOW / 4 && !self.told_dominates;
        self.told_dominates |= dominates;
        [
            unique.then_some(Warning::KeysNearlyUnique { records: WINDOW, keys }),
            candidate.filter(|_| dominates).map(|group| Warning::GroupDominates {
                group,
                records: WINDOW,
                of_group: lead,
            }),
        ]
    }
}

/// FNV-1a with a mix at the end: quick, and good enough to count by. Nothing is placed by it, so
/// keys chosen to collide could only hide a warning.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^= hash >> 32;
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Engine {
    /// Looks at what has come, before it is taken in.
    pub(crate) fn look_at(&self, chunk: &Chunk) {
        if chunk.records.is_empty() {
            return;
        }
        for warning in self.watched(chunk).iter().flatten() {
            self.warn(warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::types::{Offset, Partition, Record, RoutingEpoch, Stored, Timestamp};

    fn chunk(keys: impl Iterator<Item = u64>) -> Chunk {
        let stored = |(offset, key): (usize, u64)| Stored {
            offset: Offset::new(offset as u64),
            sequence: None,
            log_time: Timestamp::default(),
            routing: RoutingEpoch::default(),
            record: Record::new(key.to_string(), Bytes::new()),
        };
        let records: Vec<_> = keys.enumerate().map(stored).collect();
        let next = Offset::new(records.len() as u64);
        Chunk { partition: Partition::new(0), records, next }
    }

    #[test]
    fn keys_that_are_nearly_unique_are_noticed_once() {
        let mut watch = Watch::new();
        let [unique, dominates] = watch.look(&chunk(0..20_000));
        let Some(Warning::KeysNearlyUnique { records, keys }) = unique else {
            panic!("not noticed: {unique:?}")
        };
        assert!((records * 95 / 100..=records).contains(&keys), "{keys}");
        assert_eq!(dominates, None);
        for _ in 0..120 {
            assert_eq!(watch.look(&chunk(0..20_000)), [None, None], "told twice");
        }
    }

    #[test]
    fn a_group_that_dominates_is_noticed_and_ten_equal_ones_are_not() {
        let mut watch = Watch::new();
        let mostly = |n: u64| if n.is_multiple_of(4) { n } else { 7 };
        let [unique, dominates] = watch.look(&chunk((0..16_384).map(mostly)));
        assert_eq!(unique, None);
        let Some(Warning::GroupDominates { group, of_group, records }) = dominates else {
            panic!("not noticed: {dominates:?}")
        };
        assert_eq!(group.to_string(), "7");
        assert!((records / 4..=records * 3 / 4).contains(&of_group), "{of_group}");
        let equal = Watch::new().look(&chunk((0..16_384).map(|n| n % 10)));
        assert_eq!(equal, [None, None]);
    }

    #[test]
    fn two_records_a_key_are_not_nearly_unique() {
        let mut watch = Watch::new();
        assert_eq!(watch.look(&chunk((0..16_384).map(|n| n / 2))), [None, None]);
    }
}
