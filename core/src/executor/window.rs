//! Which delivered records of a claim are finished.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::types::{Offset, Progress, Ranges};

/// Delivered-but-unfinished offsets of one claim.
///
/// Only *unfinished* records take memory: they form an ordered linked list, a finished one is
/// unlinked, and what is finished is the space between the links. One stuck record with a million
/// finished ones behind it is two numbers.
///
/// ```text
///  delivered    10  11  12      15  16  17  18      20 .. 23      read on at 24
///  unfinished   10              15              (nothing)
///  snapshot     next 10, done 11..15, 16..24
/// ```
///
/// A gap is nothing that could be unfinished: finished ranges that have only a gap between them
/// are one range, and no range begins or ends because of a gap. Gaps alone make no range, so a log
/// full of them (transaction markers) costs nothing.
///
/// ```
/// use procession_core::{Offset, OffsetWindow, Progress};
/// let mut window = OffsetWindow::new(&Progress::at(Offset::new(10)));
/// let stuck = window.deliver(Offset::new(10)).unwrap();
/// let quick = window.deliver(Offset::new(14)).unwrap(); // 11 to 13 do not exist
/// window.advance(Offset::new(15));
/// window.finish(quick);
/// assert_eq!(window.watermark(), Offset::new(10));
/// assert!(window.snapshot().covers(Offset::new(14)));
/// window.finish(stuck);
/// assert_eq!(window.watermark(), Offset::new(15));
/// ```
#[derive(Debug)]
pub struct OffsetWindow {
    nodes: Vec<Node>,
    free: u32,
    first: u32,
    last: u32,
    unfinished: u32,
    /// The fetch position: everything delivered lies below.
    next: Offset,
    /// Something finished lies between the last node and the fetch position.
    done_above: bool,
    /// How many finished ranges lie above the first node and below the fetch position.
    ranges: usize,
    /// What was finished before the claim, from the fetch position on.
    ahead: VecDeque<(Offset, Offset)>,
    marks: Bytes,
    version: u64,
}

const NIL: u32 = (1 << 31) - 1;
const DONE_BELOW: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Node {
    offset: Offset,
    /// The previous node; the top bit says that something finished lies between it and this one.
    prev_and_done: u32,
    next: u32,
}

impl Node {
    const fn prev(self) -> u32 {
        self.prev_and_done & !DONE_BELOW
    }

    const fn done_below(self) -> bool {
        self.prev_and_done & DONE_BELOW != 0
    }

    const fn set_prev(&mut self, prev: u32) {
        self.prev_and_done = prev | (self.prev_and_done & DONE_BELOW);
    }
}

impl OffsetWindow {
    /// Starts where `progress` stands; nothing is delivered yet.
    #[must_use]
    pub fn new(progress: &Progress) -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            first: NIL,
            last: NIL,
            unfinished: 0,
            next: progress.next,
            done_above: false,
            ranges: 0,
            ahead: progress.done.iter().collect(),
            marks: progress.marks.clone(),
            version: 0,
        }
    }

    /// The record at `offset` is delivered: returns its slot, a small number that is used again
    /// after [`finish`](Self::finish). `None` if it is below the fetch position, or was finished
    /// before the claim.
    ///
    /// # Panics
    /// If 2^31 - 1 records are unfinished.
    pub fn deliver(&mut self, offset: Offset) -> Option<u32> {
        if offset < self.next {
            return None;
        }
        self.pass(offset);
        if self.ahead.front().is_some_and(|(from, _)| *from <= offset) {
            self.advance(offset.after());
            return None;
        }
        self.next = offset.after();
        let done = if self.done_above { DONE_BELOW } else { 0 };
        self.done_above = false;
        let node = Node { offset, prev_and_done: self.last | done, next: NIL };
        let slot = self.allot(node);
        match self.last {
            NIL => self.first = slot,
            last => self.nodes[last as usize].next = slot,
        }
        self.last = slot;
        self.unfinished += 1;
        Some(slot)
    }

    /// Everything below `next` was delivered, or does not exist. Never goes back.
    pub fn advance(&mut self, next: Offset) {
        if next <= self.next {
            return;
        }
        let watermark = self.watermark();
        self.pass(next);
        if self.ahead.front().is_some_and(|(from, _)| *from < next) {
            self.note_done_above();
        }
        self.next = next;
        if self.watermark() != watermark {
            self.version += 1;
        }
    }

    /// The record in `slot` is finished. The slot must be one that [`deliver`](Self::deliver) gave
    /// and that is not finished yet.
    pub fn finish(&mut self, slot: u32) {
        let node = self.nodes[slot as usize];
        let (prev, next) = (node.prev(), node.next);
        match prev {
            NIL => self.first = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NIL => self.last = prev,
            next => self.nodes[next as usize].set_prev(prev),
        }
        if node.done_below() {
            self.ranges -= 1;
        }
        // Above the first unfinished record it joins the range above it, or becomes one; below,
        // the watermark takes the whole range in.
        let done = prev != NIL;
        let was = match next {
            NIL => std::mem::replace(&mut self.done_above, done),
            next => {
                let next = &mut self.nodes[next as usize];
                let was = next.done_below();
                next.prev_and_done = prev | if done { DONE_BELOW } else { 0 };
                was
            }
        };
        self.ranges = self.ranges + usize::from(done) - usize::from(was);
        self.nodes[slot as usize].next = self.free;
        self.free = slot;
        self.unfinished -= 1;
        self.version += 1;
    }

    /// The lowest unfinished offset; the fetch position if there is none.
    #[must_use]
    pub fn watermark(&self) -> Offset {
        match (self.nodes.get(self.first as usize), self.ahead.front()) {
            (Some(first), _) => first.offset,
            (None, Some((from, to))) if *from <= self.next => *to,
            (None, _) => self.next,
        }
    }

    /// Where reading goes on.
    #[must_use]
    pub const fn fetch_position(&self) -> Offset {
        self.next
    }

    /// How many delivered records are unfinished.
    #[must_use]
    pub const fn unfinished(&self) -> usize {
        self.unfinished as usize
    }

    /// How many finished ranges a snapshot has, or one more.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.ranges + self.ahead.len()
    }

    /// Grows whenever a record is finished or the watermark moves: two snapshots of one version
    /// say the same of every record.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The offset in `slot`.
    #[must_use]
    pub fn offset(&self, slot: u32) -> Offset {
        self.nodes[slot as usize].offset
    }

    /// The slots of unfinished records, by ascending offset.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        let first = (self.first != NIL).then_some(self.first);
        std::iter::successors(first, |slot| {
            let next = self.nodes[*slot as usize].next;
            (next != NIL).then_some(next)
        })
    }

    /// What is finished, in a walk over what is not.
    #[must_use]
    pub fn snapshot(&self) -> Progress {
        let next = self.watermark();
        let mut done = Ranges::default();
        let mut above = next;
        for slot in self.slots() {
            let node = self.nodes[slot as usize];
            if node.done_below() {
                done.push(above, node.offset);
            }
            above = node.offset.after();
        }
        if self.done_above {
            done.push(above, self.next);
        }
        for (from, to) in &self.ahead {
            let from = (*from).max(self.next).max(next);
            if from < *to {
                done.push(from, *to);
            }
        }
        Progress { next, done, marks: self.marks.clone() }
    }

    /// Drops what was finished beforehand and ends at or below `position`.
    fn pass(&mut self, position: Offset) {
        while self.ahead.front().is_some_and(|(_, to)| *to <= position) {
            self.ahead.pop_front();
            self.note_done_above();
        }
    }

    const fn note_done_above(&mut self) {
        if self.first != NIL && !self.done_above {
            self.done_above = true;
            self.ranges += 1;
        }
    }

    fn allot(&mut self, node: Node) -> u32 {
        if self.free == NIL {
            assert!(self.nodes.len() < NIL as usize, "2^31 - 1 unfinished records in one claim");
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let slot = self.free;
        self.free = self.nodes[slot as usize].next;
        self.nodes[slot as usize] = node;
        slot
    }
}

#[cfg(test)]
mod tests;
