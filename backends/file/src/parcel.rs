//! A batch that does not simply join the open round: some of its records were refused, or it
//! spans several rounds, or there is no room for it yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use procession_core::{Durability, Error, OneOrMany, Outcome, Permit, Receipts, Stamp, Timestamp};

use crate::format::batch::{BATCH_HEADER, BatchStamp};
use crate::format::frame;
use crate::front::{Front, Ready};
use crate::producers::Judged;
use crate::round::{Entry, Round};

/// Held by the caller's future; the log has only a weak reference while records wait here. So
/// dropping the future before its records are queued means that they are not sent.
#[derive(Debug)]
pub(crate) struct Parcel(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    /// By the record's number in the batch.
    outcomes: Vec<Option<Outcome>>,
    /// Not queued yet.
    waiting: VecDeque<(usize, Ready)>,
    queued: Vec<Part>,
    level: Durability,
    stamp: Option<Stamp>,
    permit: Option<Permit>,
    waker: Option<Waker>,
}

/// Records of the batch in one round: `count` from `first` on, which are these of the batch.
#[derive(Debug)]
struct Part {
    round: Arc<Round>,
    first: u32,
    records: Vec<usize>,
}

impl Parcel {
    /// `outcomes` has one place per record, filled for those that were refused already.
    pub(crate) fn new(
        outcomes: Vec<Option<Outcome>>,
        waiting: VecDeque<(usize, Ready)>,
        level: Durability,
        stamp: Option<Stamp>,
        permit: Option<Permit>,
    ) -> Self {
        let (queued, waker) = (Vec::new(), None);
        Self(Mutex::new(Inside { outcomes, waiting, queued, level, stamp, permit, waker }))
    }

    /// Queues what there is room for; true if all is queued. Called under the front's lock.
    pub(crate) fn admit(
        &self,
        front: &mut Front,
        now: impl Fn() -> Timestamp,
        failed: impl Fn(std::io::Error) -> Error,
        objection: impl Fn(&Judged, &Ready) -> Error,
    ) -> Admitted {
        let mut inside = self.inside();
        let header = if inside.stamp.is_some() { BATCH_HEADER } else { 0 };
        let whole: usize = inside.waiting.iter().map(|(_, r)| frame::length(&r.record)).sum();
        let whole = whole + header;
        let mut whole_fits = front.room(whole.min(front.round_room()));
        let splits = whole > front.round_room();
        let mut pushed = false;
        while let Some((_, ready)) = inside.waiting.front() {
            if splits {
                whole_fits = front.room(frame::length(&ready.record) + header);
            }
            if !whole_fits {
                break;
            }
            let Some((number, ready)) = inside.waiting.pop_front() else { break };
            let stamp = match inside.judge(front, number, &ready) {
                None => None,
                Some(Judged::Next(stamp)) => Some(stamp),
                Some(Judged::Repeat(place)) => {
                    let receipt = Entry::of(place).receipt(Durability::Synced);
                    inside.outcomes[number] = Some(Outcome::Stored(receipt));
                    continue;
                }
                Some(Judged::Under(round, at)) => {
                    inside.queued.push(Part { round, first: at, records: vec![number] });
                    continue;
                }
                Some(other) => {
                    let error = objection(&other, &ready);
                    inside.outcomes[number] = Some(Outcome::Refused(ready.record, error));
                    continue;
                }
            };
            let (round, at) = front.current();
            let round = Arc::clone(round);
            if let Err(e) = front.push(&ready, stamp, &now) {
                inside.outcomes[number] = Some(Outcome::Refused(ready.record, failed(e)));
                continue;
            }
            pushed = true;
            let buffered = inside.level == Durability::Buffered;
            if buffered {
                let receipt = front.receipt(at, Durability::Buffered);
                inside.outcomes[number] = Some(Outcome::Stored(receipt));
            } else {
                match inside.queued.last_mut() {
                    Some(part) if Arc::ptr_eq(&part.round, &round) => part.records.push(number),
                    _ => inside.queued.push(Part { round, first: at, records: vec![number] }),
                }
            }
            let permit = if inside.waiting.is_empty() { inside.permit.take() } else { None };
            front.wants(inside.level, permit);
        }
        let all = inside.waiting.is_empty();
        // Left only if every record was refused.
        let permit = if all { inside.permit.take() } else { None };
        Admitted { all, pushed, waker: if all { inside.waker.take() } else { None }, permit }
    }

    /// Nothing of what still waits will be sent.
    pub(crate) fn refuse(&self, error: &Error) {
        let (waker, permit) = {
            let mut inside = self.inside();
            while let Some((number, ready)) = inside.waiting.pop_front() {
                inside.outcomes[number] = Some(Outcome::Refused(ready.record, error.clone()));
            }
            (inside.waker.take(), inside.permit.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        drop(permit);
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// What becomes of a record of a batch with a stamp. The first one settles the base.
    fn judge(&mut self, front: &Front, number: usize, ready: &Ready) -> Option<Judged> {
        let stamp = self.stamp.as_mut()?;
        let (producer, epoch) = (stamp.producer.get(), stamp.epoch.get());
        let asked = stamp.base.map(|base| base.saturating_add(number as u64));
        let judged = front.producers.judge(producer, epoch, asked, ready.content);
        if let Judged::Next(BatchStamp { base, .. }) = judged
            && stamp.base.is_none()
        {
            stamp.base = base.checked_sub(number as u64);
        }
        Some(judged)
    }
}

/// What [`Parcel::admit`] did. The waker is to be woken, and the permit to be dropped, outside the
/// front's lock.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) all: bool,
    pub(crate) pushed: bool,
    pub(crate) waker: Option<Waker>,
    #[expect(dead_code, reason = "kept until it may be dropped")]
    pub(crate) permit: Option<Permit>,
}

impl Receipts for Parcel {
    fn poll(&self, _: u32, _: u32, cx: &mut Context<'_>) -> Poll<OneOrMany<Outcome>> {
        let mut inside = self.inside();
        if !inside.waiting.is_empty() {
            inside.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let Inside { outcomes, queued, .. } = &mut *inside;
        let mut pending = false;
        queued.retain(|part| match part.round.poll(part.first, part.records.len() as u32, cx) {
            Poll::Pending => {
                pending = true;
                true
            }
            Poll::Ready(known) => {
                for (number, outcome) in part.records.iter().zip(known) {
                    outcomes[*number] = Some(outcome);
                }
                false
            }
        });
        if pending {
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(outcomes).into_iter().flatten().collect())
    }

    fn base(&self) -> Option<u64> {
        self.inside().stamp.and_then(|stamp| stamp.base)
    }
}
