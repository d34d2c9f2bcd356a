//! Turns out to workers and deliveries, verdicts back in.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{After, Engine, State, Stop};
use crate::executor::{Completed, Next, Rest, Turn, TurnId, Verdict};
use crate::runtime::later;
use crate::types::{Claim, Offset, PartitionId};
use crate::{Error, ErrorKind};

/// A turn that ended, judged.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) id: TurnId,
    pub(crate) verdict: Verdict,
    pub(crate) failure: Option<Error>,
    pub(crate) kind: EndKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndKind {
    Done,
    Failed,
    Panicked,
    Cancelled,
}

/// How often one record may be delivered and dropped without a verdict, in a row. At the bound the
/// run ends with an error: a loop that drops what it is given would otherwise go round for ever.
const ABANDONED_MAX: u32 = 16;
/// The wait after the first dropped delivery of a record; doubles with each.
const ABANDONED_AGAIN_AFTER: Duration = Duration::from_millis(100);

impl Engine {
    /// A worker hands over ended turns and takes up to `room` new ones.
    pub(crate) fn exchange(
        &self,
        worker: usize,
        ended: &mut Vec<Ended>,
        started: &mut Vec<Turn>,
        room: usize,
    ) {
        let now = self.runtime.now();
        let bell = &self.bells()[worker];
        let others = self.bells().len() > 1;
        self.with(|state, after| {
            for end in ended.drain(..) {
                state.end_turn(end, now, after);
            }
            let idle = state.take(room, now, started, after);
            bell.idle.store(idle, Ordering::SeqCst);
            // Full, and perhaps more to run: somebody else may have a place.
            after.ring |= !idle && others && room > 0;
        });
    }

    /// The next turn for a stream, if one can start; it counts as held from here on. If none can,
    /// the stream is woken when that changes.
    pub(crate) fn deliver(&self, next: &mut Vec<Turn>) -> Option<Turn> {
        let now = self.runtime.now();
        self.with(|state, after| {
            // At the bound nothing is taken: the verdict that makes room rings.
            if state.holders < self.options.concurrency {
                state.take(1, now, next, after);
            }
            let turn = next.pop();
            state.holders += usize::from(turn.is_some());
            self.bells()[0].idle.store(turn.is_none(), Ordering::SeqCst);
            turn
        })
    }

    /// A delivery was judged. Says so if its partition was lost meanwhile: it will run elsewhere.
    pub(crate) fn complete(&self, claim: Claim, mut ended: Ended) -> Result<(), Error> {
        let now = self.runtime.now();
        let state = self.with(|state, after| {
            let owned = state.claims.get(&claim.partition).is_some_and(|o| o.claim == claim);
            // Behind the drain, what is finished is being committed already. Whoever is told that it
            // runs again may undo the effect, so it must run again.
            let late = state.drained || state.outcome.is_some();
            if late {
                (ended.verdict, ended.kind) = (Verdict::again(now, false), EndKind::Cancelled);
            }
            state.end_turn(ended, now, after);
            after.ring = true;
            (owned, late)
        });
        let kind = match state {
            (true, false) => return Ok(()),
            (_, true) => ErrorKind::Closed,
            (false, false) => ErrorKind::Fenced,
        };
        let error = self.error(kind).in_partition(claim.partition);
        Err(error.with_hint("the verdict came too late: the record runs again, here or elsewhere"))
    }

    /// A delivery was dropped without a verdict.
    pub(crate) fn abandon(&self, id: TurnId, claim: Claim, offset: Offset) {
        let now = self.runtime.now();
        let times = {
            let mut state = self.lock();
            if state.claims.get(&claim.partition).is_none_or(|owned| owned.claim != claim) {
                // What an old claim held is nobody's to count.
                1
            } else {
                let times = state.abandoned.entry((claim.partition, offset)).or_default();
                *times += 1;
                *times
            }
        };
        let failure = (times >= ABANDONED_MAX).then(|| {
            self.error(ErrorKind::Abandoned)
                .in_partition(claim.partition)
                .at_offset(offset)
                .with_hint(format!("{times} deliveries in a row were dropped; end each with `ack`, `retry` or `reject`"))
        });
        let back_off = ABANDONED_AGAIN_AFTER.saturating_mul(1 << (times - 1).min(8));
        let verdict = Verdict::again(later(now, back_off), false);
        self.with(|state, after| {
            state.summary.deliveries_abandoned += 1;
            state.end_turn(Ended { id, verdict, failure, kind: EndKind::Cancelled }, now, after);
            after.ring = true;
        });
    }

    /// A delivery of this record got a verdict.
    pub(crate) fn not_abandoned(&self, partition: PartitionId, offset: Offset) {
        let mut state = self.lock();
        if !state.abandoned.is_empty() {
            state.abandoned.remove(&(partition, offset));
        }
    }

    /// A record that was to be read again is not in the log any more.
    pub(crate) fn gone(&self, claim: Claim, offset: Offset) {
        let now = self.runtime.now();
        self.with(|state, after| {
            let completed = state.executor.gone(claim, offset, now);
            state.follow(completed, after);
            after.ring = true;
        });
    }
}

impl State {
    /// Takes up to `room` turns; says whether there are no more to be had for now.
    fn take(
        &mut self,
        room: usize,
        now: Instant,
        started: &mut Vec<Turn>,
        after: &mut After,
    ) -> bool {
        let live = self.stop.is_none()
            && self.outcome.is_none()
            && self.seat.as_ref().is_some_and(|seat| seat.live());
        if !live {
            // Not yet, or no longer: whoever changes that rings.
            return room > 0;
        }
        while started.len() < room {
            if let Some(at) = self.pace.as_ref().and_then(|pace| pace.not_before(now)) {
                self.arm(at, after);
                return true;
            }
            match self.executor.next(now) {
                Next::Run(turn) => {
                    if let Some(pace) = &mut self.pace {
                        pace.begin(now);
                    }
                    started.push(turn);
                }
                Next::Load { claim, offset } => {
                    self.loads.push((claim, offset));
                    after.control = true;
                }
                Next::Commit(_) => {
                    self.commit_now = true;
                    after.control = true;
                }
                Next::Divert(turn) => {
                    // No policy of this version parks or cascades, so nothing is diverted; an
                    // executor that does it anyway gets its record back, held.
                    let verdict = Verdict { terminal: 0, rest: Rest::Hold };
                    self.executor.complete(turn.id(), verdict, now);
                }
                Next::Idle { until } => {
                    if let Some(at) = until {
                        self.arm(at, after);
                    }
                    return true;
                }
            }
        }
        false
    }

    fn arm(&mut self, at: Instant, after: &mut After) {
        if self.retry_at.is_none_or(|armed| at < armed) {
            self.retry_at = Some(at);
            after.control = true;
        }
    }

    fn end_turn(&mut self, end: Ended, now: Instant, after: &mut After) {
        let counts = &mut self.summary;
        match end.kind {
            EndKind::Done => counts.turns_done += 1,
            EndKind::Failed => counts.turns_failed += 1,
            EndKind::Panicked => {
                counts.turns_failed += 1;
                counts.turns_panicked += 1;
            }
            EndKind::Cancelled => counts.turns_cancelled += 1,
        }
        counts.records_done += u64::from(end.verdict.terminal);
        if let Some(error) = end.failure {
            self.failure.get_or_insert(error);
            self.stop = Some(Stop::Failed);
            after.control = true;
        }
        let completed = self.executor.complete(end.id, end.verdict, now);
        self.follow(completed, after);
    }

    fn follow(&mut self, completed: Completed, after: &mut After) {
        let Completed { runnable: _, progressed, drained } = completed;
        if progressed && !self.dirty {
            self.dirty = true;
            after.control = true;
        }
        if let Some(claim) = drained {
            let drained = self.drained(claim.partition, 0);
            self.report(drained, after);
        }
    }
}
