//! The shared fate of all records of one write: many appends wait for one answer.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use procession_core::{
    Durability, Error, Offset, OneOrMany, Outcome, Partition, Receipt, Receipts, Sequence,
};

use crate::format::frame::Frame;
use crate::format::producers::NumberedPlace;

/// Where one record of a round lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) offset: u64,
    /// `NO_SEQUENCE` for a record without a key.
    pub(crate) sequence: u64,
    pub(crate) partition: u32,
    /// Where its frame begins, from the start of the round.
    pub(crate) at: u32,
}

pub(crate) const NO_SEQUENCE: u64 = u64::MAX;

impl Entry {
    /// Of a record that was stored before; where its frame lies does not matter.
    pub(crate) const fn of(place: NumberedPlace) -> Self {
        let NumberedPlace { partition, offset, sequence, .. } = place;
        Self { offset, sequence, partition, at: 0 }
    }

    pub(crate) fn receipt(&self, durability: Durability) -> Receipt {
        let sequence = (self.sequence != NO_SEQUENCE).then(|| Sequence::new(self.sequence));
        Receipt::new(Partition::new(self.partition), Offset::new(self.offset), sequence, durability)
    }
}

/// One write, as its waiters see it.
#[derive(Debug, Default)]
pub(crate) struct Round {
    fate: OnceLock<Fate>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
pub(crate) enum Fate {
    Stored(Vec<Entry>, Durability),
    /// Not stored, and the records are still here.
    Refused(Vec<Entry>, Bytes, Error),
    Unknown(Error),
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<(u32, Waker)>,
    /// Distinct waiters at the last clean-up.
    distinct: usize,
}

impl Round {
    /// Tells everybody. Wakes outside of any lock.
    pub(crate) fn resolve(&self, fate: Fate) {
        if self.fate.set(fate).is_ok() {
            let wakers = std::mem::take(&mut self.waiting().wakers);
            for (_, waker) in wakers {
                waker.wake();
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcomes(fate: &Fate, first: u32, count: u32) -> OneOrMany<Outcome> {
        let range = first as usize..(first + count) as usize;
        let each = |at: usize| match fate {
            Fate::Stored(entries, level) => Outcome::Stored(entries[at].receipt(*level)),
            Fate::Unknown(error) => Outcome::Unknown(error.clone()),
            Fate::Refused(entries, bytes, error) => {
                let at = entries[at].at as usize;
                match Frame::peek(&bytes[at..], bytes.len() - at).and_then(|f| f.record(bytes, at))
                {
                    Some(record) => Outcome::Refused(record, error.clone()),
                    None => Outcome::Unknown(error.clone()),
                }
            }
        };
        match count {
            1 => OneOrMany::One(each(first as usize)),
            _ => OneOrMany::Many(range.map(each).collect()),
        }
    }
}

impl Round {
    /// Whether it is stored, once that is known. `at` tells waiters apart that hold no record.
    pub(crate) fn settled(&self, at: u32, cx: &Context<'_>) -> Poll<Result<(), Error>> {
        if self.fate.get().is_none() {
            let mut waiting = self.waiting();
            if self.fate.get().is_none() {
                waiting.add(u32::MAX - at, cx.waker());
                return Poll::Pending;
            }
        }
        match self.fate.get() {
            Some(Fate::Stored(..)) => Poll::Ready(Ok(())),
            Some(Fate::Refused(.., error) | Fate::Unknown(error)) => {
                Poll::Ready(Err(error.clone()))
            }
            None => Poll::Pending,
        }
    }
}

impl Receipts for Round {
    fn poll(&self, first: u32, count: u32, cx: &mut Context<'_>) -> Poll<OneOrMany<Outcome>> {
        if self.fate.get().is_none() {
            let mut waiting = self.waiting();
            // Looked at again under the lock: `resolve` sets the fate before it takes the wakers.
            if self.fate.get().is_none() {
                waiting.add(first, cx.waker());
                return Poll::Pending;
            }
        }
        match self.fate.get() {
            Some(fate) => Poll::Ready(Self::outcomes(fate, first, count)),
            None => Poll::Pending,
        }
    }
}

impl Waiting {
    /// Keeps one waker per append, give or take a factor of two, however often it is polled.
    fn add(&mut self, first: u32, waker: &Waker) {
        match self.wakers.last_mut() {
            Some((last, kept)) if *last == first => kept.clone_from(waker),
            _ => {
                if self.wakers.len() >= (2 * self.distinct).max(64) {
                    self.wakers.reverse();
                    self.wakers.sort_by_key(|(first, _)| *first);
                    self.wakers.dedup_by_key(|(first, _)| *first);
                    self.distinct = self.wakers.len();
                }
                self.wakers.push((first, waker.clone()));
            }
        }
    }
}
