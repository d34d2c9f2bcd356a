//! What a turn's end means: done, again later, or for good.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::engine::{EndKind, Ended, Engine};
use super::failure::{BoxError, Class, Failure};
use super::places::Panic;
use crate::executor::{Rest, Turn, TurnId, Verdict};
use crate::runtime::later;
use crate::types::{Claim, GroupKey, Offset};
use crate::{Error, ErrorKind};

/// What is remembered of a turn while it runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: TurnId,
    pub(crate) claim: Claim,
    pub(crate) offset: Offset,
    attempt: u32,
    records: u32,
    group: Option<GroupKey>,
    /// The offsets behind the head; without them a turn of one record allocates nothing.
    behind: Vec<Offset>,
}

impl Running {
    pub(crate) fn of(turn: &Turn) -> Self {
        Self {
            id: turn.id(),
            claim: turn.claim(),
            offset: turn.offset(),
            attempt: turn.attempt(),
            records: turn.records().len() as u32,
            group: turn.group().cloned(),
            behind: turn.records().iter().skip(1).map(|stored| stored.offset).collect(),
        }
    }

    /// A turn that was not begun, or dropped at its await point: no attempt.
    pub(crate) fn cancelled(id: TurnId, engine: &Engine) -> Ended {
        let verdict = Verdict::again(engine.runtime.now(), false);
        Ended { id, verdict, failure: None, kind: EndKind::Cancelled }
    }

    /// Every record is done.
    pub(crate) const fn done(&self) -> Ended {
        let verdict = Verdict::done(self.records);
        Ended { id: self.id, verdict, failure: None, kind: EndKind::Done }
    }

    /// The handler has returned, or panicked.
    pub(crate) fn judge<E: Into<BoxError>>(
        &self,
        engine: &Engine,
        output: Result<Result<(), E>, Panic>,
        random: &mut fastrand::Rng,
    ) -> Ended {
        let (failure, kind) = match output {
            Ok(Ok(())) => return self.done(),
            Ok(Err(error)) => {
                // User code as well: the conversion, and what says of which class it is.
                let of = || Failure::of(error.into(), engine.options.classify.as_deref());
                match catch_unwind(AssertUnwindSafe(of)) {
                    Ok(failure) => (failure, EndKind::Failed),
                    Err(panic) => (Failure::panic(&*panic), EndKind::Panicked),
                }
            }
            Err(panic) => (Failure::panic(&*panic), EndKind::Panicked),
        };
        self.failed(engine, failure, kind, random)
    }

    /// The leading records that the failure says are done are; the next one failed.
    pub(crate) fn failed(
        &self,
        engine: &Engine,
        failure: Failure,
        kind: EndKind,
        random: &mut fastrand::Rng,
    ) -> Ended {
        let terminal = failure.records_done().min(self.records);
        if terminal == self.records {
            return self.done();
        }
        // Only the head of a group was ever tried before.
        let attempt = if terminal == 0 { self.attempt } else { 1 };
        let back_off = (failure.class() == Class::Transient)
            .then(|| engine.options.retry.delay(attempt, random))
            .flatten();
        match back_off {
            Some(back_off) => {
                let at = later(engine.runtime.now(), failure.delay().unwrap_or(back_off));
                let verdict = Verdict { terminal, rest: Rest::Again { at, counted: true } };
                Ended { id: self.id, verdict, failure: None, kind }
            }
            None => {
                let super::Policy::Stop = engine.options.policy;
                let verdict = Verdict { terminal, rest: Rest::Hold };
                let failure = Some(self.exhausted(engine, terminal, attempt, failure));
                Ended { id: self.id, verdict, failure, kind }
            }
        }
    }

    fn exhausted(&self, engine: &Engine, at: u32, attempt: u32, failure: Failure) -> Error {
        let times = if attempt == 1 { "attempt" } else { "attempts" };
        let behind = (at as usize).checked_sub(1).and_then(|index| self.behind.get(index));
        let error = engine
            .error(ErrorKind::Exhausted)
            .in_partition(self.claim.partition)
            .at_offset(behind.copied().unwrap_or(self.offset))
            // The failure last: its cause follows in a chain of errors.
            .with_hint(format!(
                "nothing was skipped, it comes first in the next run; {failure} after {attempt} {times}"
            ))
            .caused_by(failure.into_inner());
        match &self.group {
            Some(group) => error.in_group(group.clone()),
            None => error,
        }
    }
}
