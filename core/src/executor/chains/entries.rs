//! The waiting records of one claim.

use std::num::NonZeroU64;

use crate::types::{Offset, Record, RoutingEpoch, Sequence, Stored, Timestamp};

/// No entry, no chain, no turn.
pub(super) const NIL: u32 = u32::MAX;

/// Records of one claim by the slot that its window gave them, so one free list serves both. The
/// records of a chain form a ring through `next`: the last one leads to the first, and a chain
/// needs to keep only its last.
///
/// The links lie apart from the bodies: following a chain of a deep backlog touches eight bytes a
/// record, which stay in a near cache, and not the body of each.
#[derive(Debug, Default)]
pub(super) struct Entries {
    links: Vec<Link>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    /// The chain it waits in; `NIL` once a drain has dropped it.
    chain: u32,
}

/// A record that is not terminal. Its offset is in the window; a [`Stored`] would hold it twice
/// and be padded, and there may be a million of these.
#[derive(Debug)]
pub(super) struct Entry {
    /// `None` when the body was dropped to save memory, or the slot is free.
    record: Option<Record>,
    /// The sequence's complement: never zero, since no group has 2^64 - 1 predecessors.
    sequence: Option<NonZeroU64>,
    log_time: Timestamp,
    routing: RoutingEpoch,
    /// Counted attempts that have ended.
    pub(super) attempts: u32,
}

impl Entries {
    /// Puts a record into `slot`; without its body if `keep` is false.
    #[inline]
    pub(super) fn put(&mut self, slot: u32, stored: Stored, chain: u32, keep: bool) {
        if slot as usize == self.entries.len() {
            self.entries.push(Entry::FREE);
            self.links.push(Link { next: NIL, chain: NIL });
        }
        self.links[slot as usize] = Link { next: NIL, chain };
        let entry = &mut self.entries[slot as usize];
        entry.attempts = 0;
        if keep {
            entry.fill(stored);
        }
    }

    /// Takes the body out of a slot; returns its bytes.
    #[inline]
    pub(super) fn clear(&mut self, slot: u32) -> u64 {
        self.links[slot as usize].chain = NIL;
        self.entries[slot as usize].record.take().map_or(0, |record| record.size_bytes() as u64)
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Entry {
        &self.entries[slot as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// The first of the ring that ends with `tail`.
    #[inline]
    pub(super) fn first(&self, tail: u32) -> u32 {
        self.links[tail as usize].next
    }

    /// Puts `slot` behind `tail` (`NIL` for an empty ring); `slot` is the new tail.
    #[inline]
    pub(super) fn push(&mut self, tail: u32, slot: u32) {
        let first = if tail == NIL {
            slot
        } else {
            std::mem::replace(&mut self.links[tail as usize].next, slot)
        };
        self.links[slot as usize].next = first;
    }

    /// Takes the first one out of the ring that ends with `tail`; returns it, and the new tail.
    #[inline]
    pub(super) fn pop(&mut self, tail: u32) -> (u32, u32) {
        let first = self.first(tail);
        if first == tail {
            return (first, NIL);
        }
        self.links[tail as usize].next = self.links[first as usize].next;
        (first, tail)
    }

    /// Ends the ring of `tail` after its first `keep` ones, at least one; returns the new tail and
    /// the first one cut off, from which `next_of` leads on to the old tail.
    pub(super) fn cut(&mut self, tail: u32, keep: u32) -> (u32, u32) {
        let first = self.first(tail);
        let mut last = first;
        for _ in 1..keep {
            last = self.links[last as usize].next;
        }
        let rest = std::mem::replace(&mut self.links[last as usize].next, first);
        (last, rest)
    }

    /// The chain of a record; `NIL` once it was dropped.
    pub(super) fn chain_of(&self, slot: u32) -> u32 {
        self.links[slot as usize].chain
    }

    pub(super) fn next_of(&self, slot: u32) -> u32 {
        self.links[slot as usize].next
    }
}

impl Entry {
    const FREE: Self = Self {
        record: None,
        sequence: None,
        log_time: Timestamp::from_millis(0),
        routing: RoutingEpoch::new(0),
        attempts: 0,
    };

    /// Gives it its body, the first time or again.
    #[inline]
    pub(super) fn fill(&mut self, stored: Stored) {
        // The complement is zero for the last number of all, which no group reaches.
        self.sequence = stored.sequence.and_then(|sequence| NonZeroU64::new(!sequence.get()));
        self.log_time = stored.log_time;
        self.routing = stored.routing;
        self.record = Some(stored.record);
    }

    /// The record as it was delivered, sharing its buffers: the entry keeps its own, for a retry.
    #[inline]
    pub(super) fn stored(&self, offset: Offset) -> Option<Stored> {
        self.record.as_ref().map(|record| Stored {
            offset,
            sequence: self.sequence.map(|complement| Sequence::new(!complement.get())),
            log_time: self.log_time,
            routing: self.routing,
            record: record.clone(),
        })
    }
}
