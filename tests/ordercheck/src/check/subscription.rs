//! What one subscription has done with the log.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::log::{Key, Log, Pos};
use super::progress::Progress;
use crate::ranges::Ranges;

/// The last thing that happened to a record that was never terminal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Touch {
    Stored(u64),
    Running(u64),
    Ended(u64),
}

/// A turn that has begun and not ended.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) partition: i64,
    pub(super) offset: i64,
    pub(super) attempt: i64,
    pub(super) member: u32,
    pub(super) epoch: i64,
    pub(super) line: u64,
    pub(super) counted_zombie: bool,
}

/// Which offsets of a partition are terminal now.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// Ended ok, skipped, dead or parked, and not put back since.
    pub(super) closed: Ranges,
    /// Put back and not terminal since.
    pub(super) redriven: BTreeMap<i64, (Key, Pos)>,
    /// The last reset.
    pub(super) reset: i64,
}

impl Standing {
    pub(super) fn is_terminal(&self, offset: i64, trim: i64) -> bool {
        let below = offset < self.reset.max(trim);
        !self.redriven.contains_key(&offset) && (below || self.closed.contains(offset))
    }
}

impl Default for Standing {
    fn default() -> Self {
        Self { closed: Ranges::default(), redriven: BTreeMap::new(), reset: i64::MIN }
    }
}

#[derive(Debug, Default)]
pub(super) struct SubPart {
    pub(super) standing: Standing,
    /// Ever ended ok, skipped, dead or parked.
    pub(super) closed_once: Ranges,
    /// Ended ok, with no redrive of it and no reset at or below it since.
    pub(super) ended_ok: Ranges,
    pub(super) begun: Ranges,
    /// Parked with the whole group behind it.
    pub(super) parked: BTreeMap<i64, (Key, Pos)>,
    pub(super) redriven_once: BTreeSet<i64>,
    /// The lines that first skipped, buried or parked a record.
    pub(super) parted: BTreeMap<i64, u64>,
    pub(super) resets: Vec<(u64, i64)>,
    /// Stored and never terminal; those a commit has covered nevertheless are in `ahead`.
    pub(super) pending: BTreeSet<i64>,
    pub(super) ahead: BTreeSet<i64>,
    /// The highest epoch that owned it, and the line.
    pub(super) top: Option<(i64, u64)>,
    pub(super) last_handoff: Option<u64>,
    /// Who gave an epoch up, with no turn running, before a newer one.
    pub(super) drained: HashSet<(u32, i64)>,
    pub(super) last_ok: Option<Progress>,
    pub(super) reset_since_ok: bool,
    /// The end of what any commit covered.
    pub(super) covered_to: Option<i64>,
    /// The lines of the first applied effects.
    pub(super) applied: BTreeMap<i64, u64>,
}

impl SubPart {
    pub(super) fn highest_reset(&self) -> i64 {
        self.resets.iter().map(|(_, offset)| *offset).max().unwrap_or(i64::MIN)
    }

    /// Whether the record has been terminal at any time. A redriven one was, to be redriven.
    pub(super) fn was_terminal(&self, offset: i64, trim: i64) -> bool {
        offset < trim
            || offset < self.highest_reset()
            || self.closed_once.contains(offset)
            || self.redriven_once.contains(&offset)
    }

    pub(super) fn is_zombie(&self, member: u32, epoch: i64) -> bool {
        self.top.is_some_and(|(top, _)| epoch < top) && !self.drained.contains(&(member, epoch))
    }
}

#[derive(Debug, Default)]
pub(super) struct SubGroup {
    /// Stored and never terminal.
    pub(super) undone: BTreeMap<Pos, Touch>,
    pub(super) redriven: BTreeMap<Pos, u64>,
    /// Parked with the whole group behind it.
    pub(super) parked: BTreeMap<Pos, u64>,
    pub(super) dead: BTreeMap<Pos, u64>,
    /// By rank and partition: first applied effects above all before them, with their lines.
    pub(super) peaks: BTreeMap<(i64, i64), Vec<(i64, u64)>>,
}

#[derive(Debug, Default)]
pub(super) struct Sub {
    pub(super) name: String,
    pub(super) parts: HashMap<i64, SubPart>,
    pub(super) groups: HashMap<Key, SubGroup>,
    pub(super) open: HashMap<Key, Vec<Open>>,
}

impl Sub {
    pub(super) fn new(name: &str, log: &Log) -> Self {
        let mut sub = Self { name: name.to_owned(), ..Self::default() };
        for (partition, part) in &log.partitions {
            for (offset, record) in &part.records {
                let pos = Pos { rank: record.rank, partition: *partition, offset: *offset };
                let key = log.key(*partition, record.group);
                sub.add(key, pos, part.trim, Touch::Stored(record.line));
            }
        }
        sub
    }

    pub(super) fn standings(&self) -> HashMap<i64, Standing> {
        self.parts.iter().map(|(partition, part)| (*partition, part.standing.clone())).collect()
    }

    pub(super) fn part(&mut self, partition: i64) -> &mut SubPart {
        self.parts.entry(partition).or_default()
    }

    pub(super) fn group(&mut self, key: Key) -> &mut SubGroup {
        self.groups.entry(key).or_default()
    }

    /// A stored record comes into sight.
    pub(super) fn add(&mut self, key: Key, pos: Pos, trim: i64, touch: Touch) {
        let part = self.part(pos.partition);
        if !part.was_terminal(pos.offset, trim) {
            part.pending.insert(pos.offset);
            self.group(key).undone.insert(pos, touch);
        }
    }

    /// The offset has been terminal once, whatever group the event said it is of.
    pub(super) fn settle(&mut self, partition: i64, offset: i64, log: &Log) {
        let part = self.part(partition);
        if !part.pending.remove(&offset) && !part.ahead.remove(&offset) {
            return;
        }
        let Some(record) = log.record(partition, offset) else { return };
        let pos = Pos { rank: record.rank, partition, offset };
        self.group(log.key(partition, record.group)).undone.remove(&pos);
    }

    /// The record waits for nothing any more: neither its redrive nor its park holds others.
    pub(super) fn release(&mut self, partition: i64, offset: i64) {
        let part = self.part(partition);
        let redriven = part.standing.redriven.remove(&offset);
        let parked = part.parked.remove(&offset);
        if let Some((key, pos)) = redriven {
            self.group(key).redriven.remove(&pos);
        }
        if let Some((key, pos)) = parked {
            self.group(key).parked.remove(&pos);
        }
    }

    /// Everything below an offset is terminal now.
    pub(super) fn settle_below(&mut self, partition: i64, offset: i64, log: &Log) {
        let part = self.part(partition);
        let above = part.standing.redriven.split_off(&offset);
        let again = std::mem::replace(&mut part.standing.redriven, above);
        let mut settled: Vec<i64> = part.pending.range(..offset).copied().collect();
        settled.extend(part.ahead.range(..offset));
        for (key, pos) in again.into_values() {
            self.group(key).redriven.remove(&pos);
        }
        for offset in settled {
            self.settle(partition, offset, log);
        }
    }

    /// The last thing that happened to a record, for the one who waits behind it.
    pub(super) fn touch(&mut self, key: Key, pos: Pos, touch: Touch) {
        if let Some(last) = self.group(key).undone.get_mut(&pos) {
            *last = touch;
        }
    }
}
