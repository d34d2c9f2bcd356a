//! One turn in the hands of the user.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::engine::{EndKind, Ended, Engine};
use super::failure::{BoxError, Class, Failure};
use super::judge::Running;
use crate::Error;
use crate::executor::Turn;

/// A [`Turn`] from a [`Deliveries`](super::Deliveries) stream, until its verdict.
///
/// No other turn of its group starts while it lives. End it with [`ack`](Self::ack),
/// [`retry`](Self::retry), [`reject`](Self::reject) or [`finish`](Self::finish), from any thread or
/// task; each takes effect at the call, whether or not anybody polls the stream: the next record of
/// the group is ready, and a handoff that waits for this turn goes on.
///
/// **Dropping** a delivery *releases* it: its records stay first in their group and come again after
/// a back-off (100 ms, doubling). That is no attempt, and is counted as
/// [`deliveries_abandoned`](super::Summary::deliveries_abandoned); sixteen times in a row for one
/// record ends the stream with an [`Abandoned`](crate::ErrorKind::Abandoned) error.
///
/// # Errors
/// The verdict comes too late when the partition was lost meanwhile
/// ([`Fenced`](crate::ErrorKind::Fenced)) or the stream dropped
/// ([`Closed`](crate::ErrorKind::Closed)): the records run again, here or elsewhere.
#[must_use = "a delivery that is dropped without a verdict is delivered again"]
pub struct Delivery {
    turn: Turn,
    running: Running,
    engine: Arc<Engine>,
    judged: bool,
}

impl Delivery {
    /// The engine counts it already.
    pub(crate) fn new(turn: Turn, engine: Arc<Engine>) -> Self {
        Self { running: Running::of(&turn), turn, engine, judged: false }
    }

    /// The turn: records, group, attempt, epoch. Also by `Deref`.
    #[must_use]
    pub const fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Every record is done.
    ///
    /// # Errors
    /// If the verdict came [too late](Self#errors).
    pub fn ack(self) -> Result<(), Error> {
        let ended = self.running.done();
        self.end(ended)
    }

    /// The first `records` are done, the next one failed; the rest stays first in its group.
    /// A count that covers all of them is cut to all but the last.
    ///
    /// # Errors
    /// If the verdict came [too late](Self#errors).
    pub fn ack_first(self, records: u32, why: Failure) -> Result<(), Error> {
        self.fail(why.after_first(records))
    }

    /// It failed and may pass: runs again after a back-off, as a failed turn of a handler would. An
    /// attempt: when they are used up, the policy decides. A [`Failure`] may ask for a
    /// [delay](Failure::retry_after).
    ///
    /// # Errors
    /// If the verdict came [too late](Self#errors).
    pub fn retry(self, why: impl Into<BoxError>) -> Result<(), Error> {
        self.fail(Failure::as_class(Class::Transient, why.into()))
    }

    /// It will fail again whatever happens: the policy decides at once.
    ///
    /// # Errors
    /// If the verdict came [too late](Self#errors).
    pub fn reject(self, why: impl Into<BoxError>) -> Result<(), Error> {
        self.fail(Failure::as_class(Class::Permanent, why.into()))
    }

    /// What a handler's result would do: `Ok` acknowledges; an error is judged by its [`Failure`]
    /// or by [`classify`](super::ConsumerBuilder::classify), and is transient otherwise.
    ///
    /// # Errors
    /// If the verdict came [too late](Self#errors).
    pub fn finish<E: Into<BoxError>>(self, result: Result<(), E>) -> Result<(), Error> {
        let ended = self.running.judge(&self.engine, Ok(result), &mut fastrand::Rng::new());
        self.end(ended)
    }

    fn fail(self, why: Failure) -> Result<(), Error> {
        let mut random = fastrand::Rng::new();
        let ended = self.running.failed(&self.engine, why, EndKind::Failed, &mut random);
        self.end(ended)
    }

    fn end(mut self, ended: Ended) -> Result<(), Error> {
        self.judged = true;
        let claim = self.running.claim;
        self.engine.not_abandoned(claim.partition, self.running.offset);
        self.engine.complete(claim, ended)
    }
}

impl Deref for Delivery {
    type Target = Turn;

    fn deref(&self) -> &Turn {
        &self.turn
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.judged {
            self.engine.abandon(self.running.id, self.running.claim, self.running.offset);
        }
        self.engine.holder_ends();
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delivery").field(&self.turn).finish()
    }
}
