//! Why and how a run ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{After, Engine, State};
use crate::Error;
use crate::consumer::summary::Summary;
use crate::membership::Seat;
use crate::signal::Seen;

/// Why a run ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Shutdown,
    End,
    Failed,
}

impl Engine {
    /// Asks the run to end; the first reason stays.
    pub(crate) fn stop(&self, why: Stop) {
        self.with(|state, after| {
            state.stop.get_or_insert(why);
            after.control = true;
        });
    }

    /// Ends the run with an error; the first one stays.
    pub(crate) fn fail(&self, error: Error) {
        self.with(|state, after| {
            state.failure.get_or_insert(error);
            state.stop = Some(Stop::Failed);
            after.control = true;
        });
    }

    pub(crate) fn stopping(&self) -> Option<Stop> {
        self.lock().stop
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn set_drained(&self) {
        self.with(|state, after| {
            state.drained = true;
            after.control = true;
        });
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.lock().drained
    }

    /// The run is over, one way or the other: workers drop what they hold, nothing is taken in.
    /// What went wrong in the run itself counts more than what went wrong in leaving.
    pub(crate) fn close(&self, left: Result<(), Error>) -> Result<Summary, Error> {
        self.closed.store(true, Ordering::SeqCst);
        self.stopping.store(true, Ordering::SeqCst);
        let (outcome, seat, flights) = {
            let mut state = self.lock();
            state.summary.turns_open = state.executor.load().open;
            let outcome = match state.failure.clone() {
                Some(error) => Err(error),
                None => left.map(|()| state.summary.clone()),
            };
            let outcome = state.outcome.get_or_insert(outcome).clone();
            // These know the engine, so they must not stay.
            let flights = (state.committing.take(), std::mem::take(&mut state.pending));
            (outcome, state.free_seat(), flights)
        };
        drop((seat, flights));
        self.ring_all();
        self.control.notify();
        self.finished.notify();
        outcome
    }

    /// Resolves when the run is over.
    pub(crate) async fn until_closed(&self) {
        let mut seen = Seen::default();
        while !self.is_closed() {
            self.finished.changed(&mut seen).await;
        }
    }

    /// What the run came to, once it is over.
    pub(crate) fn outcome(&self) -> Option<Result<Summary, Error>> {
        self.lock().outcome.clone()
    }

    /// How many turns were open when the run was over.
    pub(crate) fn left_open(&self) -> Option<usize> {
        let state = self.lock();
        state.outcome.as_ref().map(|_| state.summary.turns_open)
    }

    /// Somebody holds turns now that only they can end: a worker, a delivery.
    pub(crate) fn holder_begins(&self) {
        self.lock().holders += 1;
    }

    /// They hold nothing any more, which makes room for a delivery.
    pub(crate) fn holder_ends(&self) {
        let seat = self.with(|state, after| {
            state.holders -= 1;
            after.ring = true;
            state.free_seat()
        });
        drop(seat);
    }
}

impl State {
    pub(super) fn free_seat(&mut self) -> Option<Arc<dyn Seat>> {
        if self.outcome.is_some() && self.holders == 0 { self.seat.take() } else { None }
    }

    /// Ends a run that should end where the logs ended when it started.
    pub(super) fn check_end(&mut self, until_end: bool, after: &mut After) {
        if !until_end || self.stop.is_some() || self.claims.is_empty() || !self.pending.is_empty() {
            return;
        }
        let idle = self.executor.load().held.records == 0;
        // What drains goes to somebody else, who ends it.
        let reached = |owned: &super::Owned| {
            !owned.draining
                && (owned.end_reached
                    || (idle && owned.end.is_some_and(|end| owned.admitted >= end)))
        };
        if self.claims.values().all(reached) {
            self.stop = Some(Stop::End);
            after.control = true;
        }
    }
}
