//! One record on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use super::stock::Stock;
use crate::log::{Appending, Batch, Outcome, Receipt};
use crate::types::Record;
use crate::{Error, ErrorKind};

/// The future of a sent record's receipt; see [`Producer::send`](super::Producer::send).
#[must_use = "a send that is not awaited may be lost without anybody knowing"]
pub struct Sending(State);

enum State {
    Appending(Appending),
    Waiting(Arc<Waiting>),
    Refused(Option<Box<SendError>>),
}

impl Sending {
    pub(super) const fn appending(appending: Appending) -> Self {
        Self(State::Appending(appending))
    }

    pub(super) const fn waiting(waiting: Arc<Waiting>) -> Self {
        Self(State::Waiting(waiting))
    }

    pub(super) fn refused(error: SendError) -> Self {
        Self(State::Refused(Some(Box::new(error))))
    }
}

impl Future for Sending {
    type Output = Result<Receipt, SendError>;

    /// # Panics
    /// If polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.0 {
                State::Appending(appending) => {
                    let number = appending.base();
                    let outcomes = ready!(Pin::new(appending).poll(cx));
                    self.0 = State::Refused(None);
                    return Poll::Ready(result(outcomes.into_iter().next(), number));
                }
                State::Waiting(waiting) => {
                    let appending = ready!(waiting.poll(cx));
                    self.0 = State::Appending(appending);
                }
                State::Refused(error) => {
                    return Poll::Ready(Err(*error.take().expect("polled after it was ready")));
                }
            }
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let State::Waiting(waiting) = &self.0 {
            waiting.give_up();
        }
    }
}

fn result(outcome: Option<Outcome>, number: Option<u64>) -> Result<Receipt, SendError> {
    match outcome {
        Some(Outcome::Stored(receipt)) => Ok(receipt),
        Some(Outcome::Refused(record, error)) => Err(SendError::refused(record, error)),
        Some(Outcome::Unknown(error)) => Err(SendError { record: None, number, error }),
        None => {
            let error = Error::new(ErrorKind::Unknown, "send a record")
                .with_hint("the log gave no outcome for it");
            Err(SendError { record: None, number, error })
        }
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            State::Appending(_) => "Sending(on its way)",
            State::Waiting(_) => "Sending(waiting for room)",
            State::Refused(_) => "Sending(refused)",
        })
    }
}

/// A send that waits for room, shared by its future and the queue.
pub(super) struct Waiting {
    bytes: u64,
    stock: Arc<Stock>,
    place: Mutex<Place>,
}

enum Place {
    /// Not yet in the log; whoever makes room puts it there.
    Queued(Batch, Option<Waker>),
    /// Being put there.
    Moving(Option<Waker>),
    Sent(Appending),
    /// The future was dropped first: never sent.
    GivenUp,
}

impl Waiting {
    pub(super) fn new(batch: Batch, bytes: u64, stock: Arc<Stock>) -> Arc<Self> {
        Arc::new(Self { bytes, stock, place: Mutex::new(Place::Queued(batch, None)) })
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_given_up(&self) -> bool {
        matches!(*self.lock(), Place::GivenUp)
    }

    /// Takes the batch out to put it into the log; `None` if the send was given up.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut place = self.lock();
        match std::mem::replace(&mut *place, Place::GivenUp) {
            Place::Queued(batch, waker) => {
                *place = Place::Moving(waker);
                Some(batch)
            }
            other => {
                *place = other;
                None
            }
        }
    }

    pub(super) fn sent(&self, appending: Appending) {
        let waker = {
            let mut place = self.lock();
            match std::mem::replace(&mut *place, Place::Sent(appending)) {
                Place::Moving(waker) => waker,
                Place::GivenUp => {
                    // The future was dropped while the record moved: sent, outcome unknown to it.
                    *place = Place::GivenUp;
                    None
                }
                Place::Queued(..) | Place::Sent(_) => None,
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Appending> {
        let mut place = self.lock();
        match &mut *place {
            Place::Queued(_, waker) | Place::Moving(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Place::Sent(_) | Place::GivenUp => {
                match std::mem::replace(&mut *place, Place::GivenUp) {
                    Place::Sent(appending) => Poll::Ready(appending),
                    _ => Poll::Pending,
                }
            }
        }
    }

    fn give_up(self: &Arc<Self>) {
        let before = std::mem::replace(&mut *self.lock(), Place::GivenUp);
        if let Place::Queued(batch, _) = before {
            drop(batch);
            self.stock.gave_up();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record that has no receipt.
pub struct SendError {
    record: Option<Box<Record>>,
    number: Option<u64>,
    error: Error,
}

impl SendError {
    pub(super) fn refused(record: Record, error: Error) -> Self {
        Self { record: Some(Box::new(record)), number: None, error }
    }

    /// The record, if it was refused: it was certainly not stored by this call. `None` means that
    /// nobody knows; sending it again may store it twice, unless it has a [`number`](Self::number).
    #[must_use]
    pub fn into_record(self) -> Option<Record> {
        self.record.map(|record| *record)
    }

    /// Both at once, for a loop that judges the error and sends the record again. The record is there
    /// as in [`into_record`](Self::into_record).
    #[must_use]
    pub fn into_parts(self) -> (Option<Record>, Error) {
        (self.record.map(|record| *record), self.error)
    }

    /// The record, if it was refused.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.record.as_deref()
    }

    /// The number of the record, if its outcome is unknown and its producer has an identity: sending
    /// it again [with this number](super::Producer::send_as), from a new producer of the same
    /// identity if need be, stores it once.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// Why.
    #[must_use]
    pub const fn error(&self) -> &Error {
        &self.error
    }

    /// Why, for programs.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Debug for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        f.write_str(if self.record.is_some() { " (record handed back)" } else { "" })
    }
}

impl std::error::Error for SendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

impl From<SendError> for Error {
    fn from(error: SendError) -> Self {
        error.error
    }
}
