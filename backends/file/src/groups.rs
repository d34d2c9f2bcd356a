//! The last sequence and offset of each group: exact for ever, bounded in memory.
//!
//! Groups of the segment being written are in memory. When a segment is sealed its groups go into
//! that segment's index file, and from then on they may be evicted (second chance, at
//! `groups_max`); a group that is not in memory is looked up in the index files, newest first,
//! behind one small filter each. So memory holds at most `groups_max` groups, or those of the
//! segments whose index is not written yet, if these are more.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::Hasher;
use std::io;
use std::sync::Arc;

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use crate::format::frame::{NO_PREVIOUS, Place};

/// Where groups of sealed segments are found.
pub(crate) trait Lookup: Send + Sync + fmt::Debug {
    /// The last sequence and offset of a group in one segment.
    fn find(&self, hash: u64, partition: u32, key: &[u8]) -> io::Result<Option<(u64, u64)>>;
}

/// What a sealed segment keeps of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupLast {
    pub(crate) hash: u64,
    pub(crate) partition: u32,
    pub(crate) key: Box<[u8]>,
    pub(crate) sequence: u64,
    pub(crate) offset: u64,
}

/// The hash of groups: keyed by the log's random UUID, so keys cannot be chosen to collide, and
/// the same in every process, so it can be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupHash(u64, u64);

impl GroupHash {
    pub(crate) const fn of(log: u128) -> Self {
        Self(log as u64, (log >> 64) as u64)
    }

    pub(crate) fn hash(self, partition: u32, key: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0 ^ u64::from(partition), self.1);
        hasher.write(key);
        hasher.finish()
    }
}

#[derive(Debug)]
pub(crate) struct Groups {
    table: HashTable<u32>,
    slots: Vec<Slot>,
    hand: usize,
    groups_max: usize,
    /// The segment that new records go to.
    current: u64,
    /// Slots with a record in `current`.
    touched: Vec<u32>,
    /// Index files hold the groups of all segments up to this one.
    indexed: u64,
    /// Those further up that are there already, or not needed any more.
    ahead: BTreeSet<u64>,
    /// The index files, oldest first: of segments that are there, and of removed ones behind an
    /// older one that is there, because a group may have records in both.
    older: Vec<(u64, Arc<dyn Lookup>)>,
    /// Whether the log lost groups: an unknown one may have had a past.
    trimmed: bool,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    key: Box<[u8]>,
    /// `NOTHING` if the group's only records were taken back.
    sequence: u64,
    offset: u64,
    segment: u64,
    partition: u32,
    used: bool,
}

const NOTHING: u64 = u64::MAX;

impl Groups {
    pub(crate) fn new(
        groups_max: usize,
        current: u64,
        older: Vec<(u64, Arc<dyn Lookup>)>,
        trimmed: bool,
    ) -> Self {
        Self {
            table: HashTable::new(),
            slots: Vec::new(),
            hand: 0,
            groups_max,
            current,
            touched: Vec::new(),
            indexed: current.saturating_sub(1),
            ahead: BTreeSet::new(),
            older,
            trimmed,
        }
    }

    /// The number of the group's next record, which gets `offset` and `log_number`.
    ///
    /// # Errors
    /// If the group is not in memory and an index file cannot be read; nothing has changed then.
    pub(crate) fn next(
        &mut self,
        hash: u64,
        partition: u32,
        key: &[u8],
        offset: u64,
        log_number: u64,
    ) -> io::Result<Place> {
        let at = match self.at(hash, partition, key) {
            Some(at) => at,
            None => {
                let (sequence, last) =
                    self.look_up(hash, partition, key)?.unwrap_or((NOTHING, NO_PREVIOUS));
                self.insert(hash, partition, key, sequence, last)
            }
        };
        let current = self.current;
        let slot = &mut self.slots[at];
        let (sequence, previous, restarted) = match slot.sequence {
            // Log numbers bound the sequences of every group, so it stays monotone.
            NOTHING if self.trimmed => (log_number, NO_PREVIOUS, true),
            NOTHING => (0, NO_PREVIOUS, false),
            last => (last + 1, slot.offset, false),
        };
        slot.sequence = sequence;
        slot.offset = offset;
        slot.used = true;
        if slot.segment != current {
            slot.segment = current;
            self.touched.push(at as u32);
        }
        Ok(Place { partition, offset, sequence, previous, restarted })
    }

    /// Takes back the group's last record, which had this place.
    pub(crate) fn undo(&mut self, hash: u64, key: &[u8], place: Place) {
        if let Some(at) = self.at(hash, place.partition, key) {
            let slot = &mut self.slots[at];
            slot.offset = place.previous;
            slot.sequence =
                if place.previous == NO_PREVIOUS { NOTHING } else { place.sequence - 1 };
        }
    }

    /// A record found by recovery.
    pub(crate) fn recovered(&mut self, hash: u64, key: &[u8], place: Place) {
        let at = match self.at(hash, place.partition, key) {
            Some(at) => at,
            None => self.insert(hash, place.partition, key, NOTHING, NO_PREVIOUS),
        };
        let current = self.current;
        let slot = &mut self.slots[at];
        slot.sequence = place.sequence;
        slot.offset = place.offset;
        if slot.segment != current {
            slot.segment = current;
            self.touched.push(at as u32);
        }
    }

    /// The next record goes to segment `to`. Gives what the index of the segment before must hold.
    pub(crate) fn roll(&mut self, to: u64) -> Rolled {
        let from = std::mem::replace(&mut self.current, to);
        let touched = std::mem::take(&mut self.touched);
        let groups = touched
            .iter()
            .map(|at| &self.slots[*at as usize])
            .filter(|slot| slot.sequence != NOTHING)
            .map(|slot| GroupLast {
                hash: slot.hash,
                partition: slot.partition,
                key: slot.key.clone(),
                sequence: slot.sequence,
                offset: slot.offset,
            })
            .collect();
        Rolled { from, touched, groups }
    }

    /// The roll did not happen.
    pub(crate) fn unroll(&mut self, rolled: Rolled) {
        let newer = std::mem::replace(&mut self.touched, rolled.touched);
        for at in newer {
            if !self.touched.contains(&at) {
                self.touched.push(at);
            }
        }
        self.current = rolled.from;
        for at in &self.touched {
            self.slots[*at as usize].segment = rolled.from;
        }
    }

    /// The index file of `segment` is written.
    pub(crate) fn indexed(&mut self, segment: u64, lookup: Arc<dyn Lookup>) {
        self.settle([segment]);
        let at = self.older.partition_point(|(id, _)| *id < segment);
        self.older.insert(at, (segment, lookup));
    }

    /// These segments were removed, and `oldest` is now the oldest one. Groups whose last record
    /// was below it are forgotten as soon as they leave the table; gives the segments whose index
    /// files nobody needs any more.
    pub(crate) fn removed(&mut self, segments: &[u64], oldest: u64) -> Vec<u64> {
        let below = segments.iter().copied().filter(|id| *id < oldest);
        self.trimmed |= segments.iter().any(|id| *id < oldest);
        let mut lost: BTreeSet<u64> = below.clone().collect();
        self.settle(below);
        let kept = self.older.partition_point(|(id, _)| *id < oldest);
        lost.extend(self.older.drain(..kept).map(|(id, _)| id));
        lost.into_iter().collect()
    }

    /// Groups of these segments may leave the table. Without a hole: while one index is missing,
    /// the groups behind it stay in memory.
    fn settle(&mut self, segments: impl IntoIterator<Item = u64>) {
        self.ahead.extend(segments);
        while self.ahead.first().is_some_and(|first| *first <= self.indexed + 1) {
            self.indexed = self.indexed.max(self.ahead.pop_first().unwrap_or_default());
        }
    }

    /// The offset of a group's last record; `None` if it has none.
    ///
    /// # Errors
    /// If the group is not in memory and an index file cannot be read.
    pub(crate) fn last(&self, hash: u64, partition: u32, key: &[u8]) -> io::Result<Option<u64>> {
        match self.at(hash, partition, key).map(|at| &self.slots[at]) {
            Some(slot) => Ok((slot.sequence != NOTHING).then_some(slot.offset)),
            None => Ok(self.look_up(hash, partition, key)?.map(|(_, offset)| offset)),
        }
    }

    fn at(&self, hash: u64, partition: u32, key: &[u8]) -> Option<usize> {
        let same = |at: &u32| {
            let slot = &self.slots[*at as usize];
            slot.hash == hash && slot.partition == partition && *slot.key == *key
        };
        self.table.find(hash, same).map(|at| *at as usize)
    }

    fn look_up(&self, hash: u64, partition: u32, key: &[u8]) -> io::Result<Option<(u64, u64)>> {
        for (_, older) in self.older.iter().rev() {
            if let Some(found) = older.find(hash, partition, key)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn insert(
        &mut self,
        hash: u64,
        partition: u32,
        key: &[u8],
        sequence: u64,
        offset: u64,
    ) -> usize {
        // Segment 0 does not exist: the slot counts as untouched.
        let slot =
            Slot { hash, key: key.into(), sequence, offset, segment: 0, partition, used: true };
        let at = match self.evict() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, at as u32, |at| slots[*at as usize].hash);
        at
    }

    /// Frees one slot if there are too many, looking at a few of them only.
    fn evict(&mut self) -> Option<usize> {
        if self.slots.len() < self.groups_max {
            return None;
        }
        for _ in 0..64 {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let indexed = self.indexed;
            let slot = &mut self.slots[at];
            if slot.segment <= indexed && !std::mem::take(&mut slot.used) {
                let hash = slot.hash;
                if let Ok(entry) = self.table.find_entry(hash, |i| *i as usize == at) {
                    entry.remove();
                }
                return Some(at);
            }
        }
        None
    }
}

/// What a roll took out of the table.
#[derive(Debug)]
pub(crate) struct Rolled {
    from: u64,
    touched: Vec<u32>,
    pub(crate) groups: Vec<GroupLast>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(groups: &mut Groups, key: &str, offset: u64) -> Place {
        groups
            .next(GroupHash::of(1).hash(0, key.as_bytes()), 0, key.as_bytes(), offset, offset)
            .unwrap()
    }

    #[derive(Debug)]
    struct One(GroupLast);

    impl Lookup for One {
        fn find(&self, hash: u64, partition: u32, key: &[u8]) -> io::Result<Option<(u64, u64)>> {
            let same = self.0.hash == hash && self.0.partition == partition && *self.0.key == *key;
            Ok(same.then_some((self.0.sequence, self.0.offset)))
        }
    }

    #[test]
    fn an_evicted_group_goes_on_counting_from_its_index() {
        let mut groups = Groups::new(2, 1, Vec::new(), false);
        next(&mut groups, "a", 0);
        next(&mut groups, "a", 1);
        let rolled = groups.roll(2);
        groups.indexed(1, Arc::new(One(rolled.groups[0].clone())));
        for (i, key) in ["b", "c", "d", "e", "f", "g"].iter().enumerate() {
            next(&mut groups, key, 2 + i as u64);
        }
        let place = next(&mut groups, "a", 9);
        assert_eq!((place.sequence, place.previous), (2, 1));
    }

    #[test]
    fn groups_without_an_index_are_never_evicted() {
        let mut groups = Groups::new(1, 1, Vec::new(), false);
        for i in 0..100 {
            next(&mut groups, &i.to_string(), i);
        }
        for i in 0..100 {
            assert_eq!(next(&mut groups, &i.to_string(), 100 + i).sequence, 1);
        }
    }

    #[test]
    fn what_was_taken_back_is_counted_again() {
        let mut groups = Groups::new(9, 1, Vec::new(), false);
        next(&mut groups, "a", 0);
        let rolled = groups.roll(2);
        let second = next(&mut groups, "a", 1);
        let hash = GroupHash::of(1).hash(0, b"a");
        groups.undo(hash, b"a", second);
        groups.unroll(rolled);
        assert_eq!(next(&mut groups, "a", 1), second);
        assert_eq!(groups.roll(2).groups.len(), 1);
    }

    #[test]
    fn an_unknown_group_of_a_trimmed_log_restarts_at_its_log_number() {
        let mut groups = Groups::new(9, 1, Vec::new(), true);
        let place = groups.next(5, 0, b"a", 3, 77).unwrap();
        assert!(place.restarted && place.sequence == 77);
        assert_eq!(groups.next(5, 0, b"a", 4, 90).unwrap().sequence, 78);
    }
}
