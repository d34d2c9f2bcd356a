//! Who has numbered records here, which numbers are stored, and where the last of them lie.
//!
//! Bounded: a log knows [`PRODUCERS_MAX`] producers, fewer if its segments are small, and refuses
//! more until one is forgotten; of each it remembers the last [`PLACES_MAX`] records. Every segment
//! begins with a table of this (in a sixteenth of a segment at the most, so a reopened log may
//! remember fewer records), and later tables and stamps change it: the last segment says it all.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use crate::format::batch::BatchStamp;
use crate::format::producers::{ENTRY, NumberedPlace, PLACE, ProducerEntry, encode};
use crate::round::Round;

/// Producers of a log with segments of 4 MiB and more.
const PRODUCERS_MAX: usize = 1000;
/// Records of one producer of which the receipts are remembered.
const PLACES_MAX: usize = if cfg!(test) { 64 } else { 1024 };
/// The longest name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Producers {
    by_number: HashMap<u32, Producer>,
    by_name: HashMap<Box<str>, u32>,
    /// No number is ever given twice.
    highest: u32,
    producers_max: usize,
    table_bytes_max: usize,
}

#[derive(Clone, Debug)]
struct Producer {
    name: Box<str>,
    epoch: u32,
    next: u64,
    /// The last records before `next`, without a gap.
    places: VecDeque<Remembered>,
}

#[derive(Clone, Debug)]
struct Remembered {
    place: NumberedPlace,
    /// While its round is under way somebody holds it; its number there.
    round: Weak<Round>,
    at: u32,
}

/// What becomes of a numbered record.
#[derive(Debug)]
pub(crate) enum Judged {
    /// It is the next one.
    Next(BatchStamp),
    /// It is stored.
    Repeat(NumberedPlace),
    /// It was queued before: the same becomes of it.
    Under(Arc<Round>, u32),
    /// Stored so long ago that its place is not known any more.
    Old,
    /// Another record has the number.
    Other,
    /// The next number is this.
    Gap(u64),
    /// The latest epoch is this.
    Fenced(u32),
    /// No such producer, or no such epoch.
    Unknown,
}

/// A change that can be taken back.
#[derive(Debug)]
pub(crate) struct Change {
    number: u32,
    before: Option<Producer>,
    highest: u32,
}

/// Why a producer cannot be enlisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    Producers(usize),
    Epochs,
}

impl Producers {
    pub(crate) fn new(segment_bytes: u64) -> Self {
        // Half of what the table may take is for names and numbers.
        let bytes = usize::try_from(segment_bytes / 32).unwrap_or(usize::MAX);
        let producers_max = (bytes / (ENTRY + NAME_BYTES_MAX)).clamp(1, PRODUCERS_MAX);
        let table_bytes_max = bytes.saturating_mul(2);
        Self { producers_max, table_bytes_max, ..Self::default() }
    }

    /// What becomes of a record with this content; `number` is `None` for the next one.
    pub(crate) fn judge(
        &self,
        producer: u64,
        epoch: u64,
        number: Option<u64>,
        content: u32,
    ) -> Judged {
        let found = u32::try_from(producer).ok().and_then(|n| Some((n, self.by_number.get(&n)?)));
        let Some((producer, known)) = found else { return Judged::Unknown };
        if epoch < known.epoch.into() {
            return Judged::Fenced(known.epoch);
        } else if epoch > known.epoch.into() {
            return Judged::Unknown;
        }
        let number = number.unwrap_or(known.next);
        if number > known.next {
            return Judged::Gap(known.next);
        }
        if number == known.next {
            return Judged::Next(BatchStamp { producer, epoch: known.epoch, base: number });
        }
        let back = usize::try_from(known.next - number).unwrap_or(usize::MAX);
        let Some(at) = known.places.len().checked_sub(back) else { return Judged::Old };
        let remembered = &known.places[at];
        if remembered.place.content != content {
            return Judged::Other;
        }
        match remembered.round.upgrade() {
            // It may still fail: not stored before its round is.
            Some(round) => Judged::Under(round, remembered.at),
            None => Judged::Repeat(remembered.place),
        }
    }

    /// The record was queued.
    pub(crate) fn queued(
        &mut self,
        producer: u32,
        place: NumberedPlace,
        round: &Arc<Round>,
        at: u32,
    ) {
        if let Some(known) = self.by_number.get_mut(&producer) {
            known.remember(Remembered { place, round: Arc::downgrade(round), at });
        }
    }

    /// Records from `base` on were not stored after all.
    pub(crate) fn undo(&mut self, stamp: BatchStamp) {
        if let Some(known) = self.by_number.get_mut(&stamp.producer) {
            while known.next > stamp.base {
                known.places.pop_back();
                known.next -= 1;
            }
        }
    }

    /// The next epoch of a producer, and the table that says so.
    pub(crate) fn enlist(&mut self, name: &str) -> Result<(Change, ProducerEntry), NoRoom> {
        let (number, highest) = match self.by_name.get(name) {
            Some(number) => (*number, self.highest),
            None if self.by_number.len() >= self.producers_max => {
                return Err(NoRoom::Producers(self.producers_max));
            }
            None => (self.highest.checked_add(1).ok_or(NoRoom::Epochs)?, self.highest),
        };
        let before = self.by_number.get(&number).cloned();
        let epoch = before.as_ref().map_or(0, |producer| producer.epoch);
        let epoch = epoch.checked_add(1).ok_or(NoRoom::Epochs)?;
        let known = self.by_number.entry(number).or_insert_with(|| Producer::new(name));
        known.epoch = epoch;
        let next = known.next;
        self.by_name.insert(name.into(), number);
        self.highest = self.highest.max(number);
        let entry = ProducerEntry { number, epoch, next, name: name.into(), places: Vec::new() };
        Ok((Change { number, before, highest }, entry))
    }

    /// Forgets a producer, if there is one of this name.
    pub(crate) fn forget(&mut self, name: &str) -> Option<(Change, ProducerEntry)> {
        let number = self.by_name.remove(name)?;
        let before = self.by_number.remove(&number);
        let next = before.as_ref().map_or(0, |producer| producer.next);
        let places = Vec::new();
        let entry = ProducerEntry { number, epoch: 0, next, name: name.into(), places };
        Some((Change { number, before, highest: self.highest }, entry))
    }

    /// The change was not stored after all.
    pub(crate) fn take_back(&mut self, change: Change) {
        if let Some(now) = self.by_number.remove(&change.number) {
            self.by_name.remove(&now.name);
        }
        if let Some(before) = change.before {
            self.by_name.insert(before.name.clone(), change.number);
            self.by_number.insert(change.number, before);
        }
        self.highest = change.highest;
    }

    pub(crate) fn table(&self, entry: ProducerEntry) -> Vec<u8> {
        encode(self.highest, &[entry])
    }

    /// All there is to know, for the start of a segment; `None` if there never was a producer.
    pub(crate) fn snapshot(&self) -> Option<Vec<u8>> {
        if self.highest == 0 {
            return None;
        }
        let fixed: usize = self.by_number.values().map(|known| ENTRY + known.name.len()).sum();
        let share = self.table_bytes_max.saturating_sub(fixed) / self.by_number.len().max(1);
        let most = share / PLACE;
        let mut entries: Vec<_> = self
            .by_number
            .iter()
            .map(|(number, known)| {
                let skip = known.places.len().saturating_sub(most);
                ProducerEntry {
                    number: *number,
                    epoch: known.epoch,
                    next: known.next,
                    name: known.name.clone(),
                    places: known.places.iter().skip(skip).map(|kept| kept.place).collect(),
                }
            })
            .collect();
        entries.sort_unstable_by_key(|entry| entry.number);
        Some(encode(self.highest, &entries))
    }

    /// A table found by recovery. It may say less than is known already.
    pub(crate) fn recovered(&mut self, highest: u32, entries: Vec<ProducerEntry>) {
        self.highest = self.highest.max(highest);
        for entry in entries {
            if entry.epoch == 0 {
                self.by_number.remove(&entry.number);
                self.by_name.remove(&entry.name);
                continue;
            }
            let fresh = || Producer::new(&entry.name);
            let known = self.by_number.entry(entry.number).or_insert_with(fresh);
            self.by_name.insert(entry.name.clone(), entry.number);
            known.epoch = known.epoch.max(entry.epoch);
            if entry.next > known.next || (entry.next == known.next && known.places.is_empty()) {
                known.next = entry.next;
                known.places = entry.places.into_iter().map(Remembered::settled).collect();
            }
        }
    }

    /// A record found by recovery.
    pub(crate) fn replayed(&mut self, producer: u32, number: u64, place: NumberedPlace) {
        let Some(known) = self.by_number.get_mut(&producer) else { return };
        if number < known.next {
            return;
        }
        if number > known.next {
            // Damage took what is between.
            known.places.clear();
            known.next = number;
        }
        known.remember(Remembered::settled(place));
    }

    /// The names that are known, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.by_name.keys().map(|name| name.to_string()).collect();
        names.sort_unstable();
        names
    }
}

impl Producer {
    fn new(name: &str) -> Self {
        Self { name: name.into(), epoch: 0, next: 0, places: VecDeque::new() }
    }

    fn remember(&mut self, place: Remembered) {
        if self.places.len() >= PLACES_MAX {
            self.places.pop_front();
        }
        self.places.push_back(place);
        self.next += 1;
    }
}

impl Remembered {
    const fn settled(place: NumberedPlace) -> Self {
        Self { place, round: Weak::new(), at: 0 }
    }
}
