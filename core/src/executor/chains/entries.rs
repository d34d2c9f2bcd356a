//! The waiting records of one claim.

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::types::{GroupKey, Headers, Offset, Record, RoutingEpoch, Sequence, Stored, Timestamp};

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

/// A record that is not terminal, in two lines of the cache. Its offset is in the window; a
/// [`Stored`] would hold it twice and be padded, and there may be a million of these.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    key: Option<GroupKey>,
    payload: Option<Bytes>,
    headers: Headers,
    timestamp: Timestamp,
    /// The sequence's complement: never zero, since no group has 2^64 - 1 predecessors.
    sequence: Option<NonZeroU64>,
    log_time: Timestamp,
    routing: RoutingEpoch,
    /// Counted attempts that have ended, times four, and two flags.
    marks: u32,
}

/// The body is here: it was not dropped to save memory, and the slot is not free.
const BODY: u32 = 1;
/// The record has a timestamp.
const TIMED: u32 = 2;
const ATTEMPT: u32 = 4;

impl Entries {
    /// Puts a record into `slot`, moving its body out of `stored`; without it if `keep` is false.
    #[inline]
    pub(super) fn put(&mut self, slot: u32, stored: &mut Stored, chain: u32, keep: bool) {
        if slot as usize == self.entries.len() {
            self.entries.push(Entry::FREE);
            self.links.push(Link { next: NIL, chain: NIL });
        }
        self.links[slot as usize] = Link { next: NIL, chain };
        let entry = &mut self.entries[slot as usize];
        entry.marks = 0;
        if keep {
            entry.fill(stored);
        }
    }

    /// Takes the body out of a slot; returns its bytes.
    #[inline]
    pub(super) fn clear(&mut self, slot: u32) -> u64 {
        self.links[slot as usize].chain = NIL;
        self.entries[slot as usize].empty()
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
        key: None,
        payload: None,
        headers: Headers::EMPTY,
        timestamp: Timestamp::from_millis(0),
        sequence: None,
        log_time: Timestamp::from_millis(0),
        routing: RoutingEpoch::new(0),
        marks: 0,
    };

    /// Gives it its body, the first time or again; it is moved out of `stored`.
    #[inline(always)]
    pub(super) fn fill(&mut self, stored: &mut Stored) {
        let timestamp = stored.record.timestamp();
        let (key, payload, headers) = stored.record.take_parts();
        self.key = key;
        self.payload = payload;
        if !headers.is_empty() {
            self.headers = headers;
        }
        self.timestamp = timestamp.unwrap_or_default();
        // The complement is zero for the last number of all, which no group reaches.
        self.sequence = stored.sequence.and_then(|sequence| NonZeroU64::new(!sequence.get()));
        self.log_time = stored.log_time;
        self.routing = stored.routing;
        self.marks |= BODY | if timestamp.is_some() { TIMED } else { 0 };
    }

    /// Drops the body; returns its bytes.
    #[inline]
    fn empty(&mut self) -> u64 {
        let mut bytes = self.key.take().map_or(0, |key| key.as_bytes().len());
        bytes += self.payload.take().map_or(0, |payload| payload.len());
        // Most records have none.
        if !self.headers.is_empty() {
            bytes += std::mem::take(&mut self.headers).encoded().len();
        }
        self.marks &= !(BODY | TIMED);
        bytes as u64
    }

    pub(super) const fn has_body(&self) -> bool {
        self.marks & BODY != 0
    }

    /// Counted attempts that have ended.
    pub(super) const fn attempts(&self) -> u32 {
        self.marks / ATTEMPT
    }

    /// One attempt more; beyond a thousand million it stands still.
    pub(super) const fn count_attempt(&mut self) {
        if self.marks < u32::MAX - ATTEMPT {
            self.marks += ATTEMPT;
        }
    }

    /// The record as it was delivered, sharing its buffers: the entry keeps its own, for a retry.
    /// Only where there is a body.
    #[inline(always)]
    pub(super) fn stored(&self, offset: Offset) -> Stored {
        // Sharing an empty buffer is a call, making one is not.
        let headers = if self.headers.is_empty() { Headers::EMPTY } else { self.headers.clone() };
        let timestamp = (self.marks & TIMED != 0).then_some(self.timestamp);
        Stored {
            offset,
            sequence: self.sequence.map(|complement| Sequence::new(!complement.get())),
            log_time: self.log_time,
            routing: self.routing,
            record: Record::from_parts(self.key.clone(), self.payload.clone(), headers, timestamp),
        }
    }
}
