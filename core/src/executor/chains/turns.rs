//! Turns that are open.

use std::collections::HashMap;

use crate::executor::TurnId;
use crate::types::{Claim, Offset};

use super::clock::Nanos;
use super::entries::NIL;

/// Open turns by their id. A place is used again with the next generation, so the id of a turn
/// that has ended finds nothing.
#[derive(Debug)]
pub(super) struct Turns {
    places: Vec<Place>,
    free: u32,
    open: usize,
    /// Turns of fenced claims, by their places. They only keep their chains shut.
    zombies: HashMap<u32, Zombie>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    generation: u32,
    /// The turn's chain; of a free place, the next free one.
    link: u32,
    /// How many records of the chain the turn runs; none if the place is free.
    records: u32,
    zombie: bool,
}

/// A turn that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) chain: u32,
    pub(super) records: u32,
    pub(super) zombie: Option<Zombie>,
}

/// What its claim, which is forgotten, would know of an open turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zombie {
    pub(super) claim: Claim,
    pub(super) head: Offset,
    pub(super) attempt: u32,
    /// When the turn began.
    pub(super) started: Nanos,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: NIL, open: 0, zombies: HashMap::new() }
    }

    /// A turn for at least one record of a chain.
    #[inline]
    pub(super) fn open(&mut self, chain: u32, records: u32) -> TurnId {
        self.open += 1;
        let index = self.free;
        let Some(place) = self.places.get_mut(index as usize) else {
            self.places.push(Place { generation: 0, link: chain, records, zombie: false });
            return TurnId { index: self.places.len() as u32 - 1, generation: 0 };
        };
        self.free = place.link;
        (place.link, place.records) = (chain, records);
        TurnId { index, generation: place.generation }
    }

    /// Closes the turn; `None` if it is not open.
    #[inline]
    pub(super) fn close(&mut self, id: TurnId) -> Option<Ended> {
        let place = self.places.get_mut(id.index as usize)?;
        if place.generation != id.generation || place.records == 0 {
            return None;
        }
        let zombie = if place.zombie { self.zombies.remove(&id.index) } else { None };
        let ended = Ended { chain: place.link, records: place.records, zombie };
        let generation = place.generation.wrapping_add(1);
        *place = Place { generation, link: self.free, records: 0, zombie: false };
        self.free = id.index;
        self.open -= 1;
        Some(ended)
    }

    /// How many records the open turn in a place runs.
    pub(super) fn records(&self, index: u32) -> u32 {
        self.places[index as usize].records
    }

    /// The claim of the open turn in a place was fenced.
    pub(super) fn outlive(&mut self, index: u32, zombie: Zombie) {
        self.places[index as usize].zombie = true;
        self.zombies.insert(index, zombie);
    }

    pub(super) fn zombie(&self, index: u32) -> Option<&Zombie> {
        self.zombies.get(&index)
    }

    pub(super) const fn len(&self) -> usize {
        self.open
    }
}
