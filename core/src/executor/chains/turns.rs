//! Turns that are open.

use crate::executor::TurnId;
use crate::types::{Claim, Offset};

use super::entries::NIL;

/// Open turns by their id. A place is used again with the next generation, so the id of a turn
/// that has ended finds nothing.
#[derive(Debug)]
pub(super) struct Turns {
    places: Vec<Place>,
    free: u32,
    open: usize,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    next_free: u32,
    turn: Option<Open>,
}

/// An open turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) chain: u32,
    /// How many records of the chain it runs.
    pub(super) records: u32,
    pub(super) attempt: u32,
    /// Its claim was fenced: it only keeps the chain shut.
    pub(super) zombie: bool,
    pub(super) claim: Claim,
    pub(super) head: Offset,
}

impl Turns {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: NIL, open: 0 }
    }

    pub(super) fn open(&mut self, turn: Open) -> TurnId {
        self.open += 1;
        if self.free == NIL {
            self.places.push(Place { generation: 0, next_free: NIL, turn: Some(turn) });
            return TurnId { index: self.places.len() as u32 - 1, generation: 0 };
        }
        let index = self.free;
        let place = &mut self.places[index as usize];
        self.free = place.next_free;
        place.turn = Some(turn);
        TurnId { index, generation: place.generation }
    }

    /// Closes the turn; `None` if it is not open.
    pub(super) fn close(&mut self, id: TurnId) -> Option<Open> {
        let place = self.places.get_mut(id.index as usize)?;
        if place.generation != id.generation {
            return None;
        }
        let turn = place.turn.take()?;
        place.generation = place.generation.wrapping_add(1);
        place.next_free = self.free;
        self.free = id.index;
        self.open -= 1;
        Some(turn)
    }

    pub(super) fn at(&self, index: u32) -> Option<&Open> {
        self.places.get(index as usize)?.turn.as_ref()
    }

    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut Open> {
        self.places.get_mut(index as usize)?.turn.as_mut()
    }

    pub(super) const fn len(&self) -> usize {
        self.open
    }
}
