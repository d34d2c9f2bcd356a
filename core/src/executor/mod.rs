//! The contract of an executor: the ordering semantics as a state machine.

mod chains;
mod order;
mod turn;
mod window;

pub use chains::{Chains, ChainsOptions};
pub use order::Order;
pub use turn::{Scope, Turn, TurnId};
pub use window::OffsetWindow;

use std::fmt;
use std::time::Instant;

use crate::log::Chunk;
use crate::types::{Budget, Claim, Offset, Progress};

/// Decides which record may run now.
///
/// A sans-IO state machine: records and completions go in, turns and progress come out. It has no
/// I/O, no futures, no clock and no lock of its own, so it can be driven by a model, a simulation
/// or a callback of a C library; the consumer wraps it in one short lock. How turns are *run*
/// (inside the caller's future, or spread over threads) is not its matter.
///
/// ```text
///  assign ─> admit ─> next ──> Run(turn) ──> complete(id, verdict) ──> progress ─> committed
///              ^        └────> Load ─┬─ (or gone) ──────┤
///              ├─────────────────────┘                  │
///              └──────────── credit <───────────────────┘
/// ```
///
/// # Ordering
/// A turn is handed out only when every earlier record of its [`Scope`] is terminal, and never
/// while another turn of the scope is open: across retries, revocations and returns.
///
/// # For implementors
/// Each bullet is the name of a check in `procession-conformance`, `executor_suite!`:
/// - `runs_one_group_in_order_and_never_two_turns_at_once`
/// - `runs_groups_side_by_side`
/// - `equal_keys_in_two_partitions_are_two_scopes`
/// - `a_retry_waits_its_time_and_nothing_overtakes_it`
/// - `a_back_off_delays_only_its_group`
/// - `an_uncounted_retry_is_not_an_attempt`
/// - `a_held_group_starts_no_turn_until_it_is_let_go`
/// - `progress_never_passes_an_unfinished_record`, gaps included
/// - `progress_is_none_until_something_new_is_finished`
/// - `finished_records_are_not_run_again`: what `assign` was told is done
/// - `stale_claims_are_ignored`: in `admit`, `committed`, `progress`, `revoke`
/// - `a_drain_starts_nothing_and_reports_when_it_is_done`
/// - `a_fence_forgets_the_claim_and_its_late_verdicts_change_nothing`
/// - `a_returning_partition_waits_for_the_old_turn_of_each_group`
/// - `a_stale_turn_id_is_ignored`: generational ids
/// - `the_window_bounds_what_is_held`: records and bytes
/// - `a_group_over_its_share_is_loaded_again_in_order`: where bodies may be dropped
/// - `a_record_that_is_gone_is_passed_over`: it is terminal, its group goes on
/// - `a_turn_of_several_records_is_consecutive_and_of_one_scope`: where turns have several
/// - `a_partial_verdict_keeps_the_rest_in_order`
/// - `explain_names_the_head_and_its_state`, its attempts and the number of records
/// - `agrees_with_the_model`: random steps beside a naive model, the seed printed
pub trait GroupExecutor: Send {
    /// A partition is ours from `progress` on. Replaces any older claim of the partition, as
    /// [`revoke`](Self::revoke) with [`Revoke::Fence`] would.
    fn assign(&mut self, claim: Claim, progress: &Progress, now: Instant);

    /// Records have come, ascending and from where the claim's reading stands, or one body that
    /// [`Next::Load`] asked for (an offset that is waited for is never taken as new). Records of
    /// a stale claim and finished ones are dropped.
    ///
    /// Everything below the chunk's `next` has been delivered or does not exist. So a chunk without
    /// records that moves `next` is new [`progress`](Self::progress) once nothing below it is
    /// unfinished: a position that only passes a gap is to be committed too.
    fn admit(&mut self, claim: Claim, chunk: Chunk, now: Instant);

    /// What to do now. Call it until it says [`Next::Idle`], or until there is no place to run.
    fn next(&mut self, now: Instant) -> Next;

    /// An open turn has ended. Unknown ids are ignored.
    ///
    /// A verdict that leaves records over (`terminal` is less than the turn has) never loses them:
    /// they stay the head of their group, whatever `rest` says. With [`Rest::Nothing`], which ought
    /// not to be, they run again at once, uncounted.
    fn complete(&mut self, id: TurnId, verdict: Verdict, now: Instant) -> Completed;

    /// The record at `offset` that [`Next::Load`] asked for is not in the log any more (trimmed
    /// since): it becomes terminal without a turn, and its group goes on at the next record.
    /// Stale claims, and offsets that are not being loaded, are ignored; a body that comes all the
    /// same is dropped like any old record.
    ///
    /// Nobody ran the record: whoever calls this counts it, and says so.
    fn gone(&mut self, claim: Claim, offset: Offset, now: Instant) -> Completed;

    /// Keeps a group from running, or lets it go (`None`). A running turn ends as it will.
    ///
    /// A hold is the group's and not its records': it works on a group of which nothing is here
    /// yet, and lasts until it is let go, also while the group is empty, and across fences and new
    /// claims of the partition. A [`Blocked`](Hold::Blocked) group starts nothing; the head of a
    /// [`Parked`](Hold::Parked) or [`Cascading`](Hold::Cascading) one comes as [`Next::Divert`],
    /// record by record and in order. Once let go, the group goes on at its head.
    fn hold(&mut self, scope: &Scope, how: Option<Hold>);

    /// Gives a partition up. Returns how many turns of the claim are still open.
    fn revoke(&mut self, claim: Claim, how: Revoke) -> usize;

    /// A snapshot of what is finished, or `None` if that is no more than what was `committed`.
    /// A drained claim answers until it is fenced.
    fn progress(&mut self, claim: Claim) -> Option<Progress>;

    /// This snapshot is durable.
    fn committed(&mut self, claim: Claim, progress: &Progress);

    /// A claim whose window has moved: how much it may have delivered *in total* since it was
    /// assigned (finished records it skipped count as delivered). Totals only grow, so an old
    /// answer that is applied late does no harm. `None` when nothing has moved.
    fn credit(&mut self) -> Option<(Claim, Budget)>;

    /// Why the group is where it is; `None` if nothing of it is here.
    fn explain(&self, scope: &Scope) -> Option<Explain>;

    /// Counts for gauges and for tests at rest. Cheap.
    fn load(&self) -> Load;
}

#[deny(clippy::missing_trait_methods)]
impl<E: GroupExecutor + ?Sized> GroupExecutor for Box<E> {
    fn assign(&mut self, claim: Claim, progress: &Progress, now: Instant) {
        (**self).assign(claim, progress, now);
    }
    fn admit(&mut self, claim: Claim, chunk: Chunk, now: Instant) {
        (**self).admit(claim, chunk, now);
    }
    fn next(&mut self, now: Instant) -> Next {
        (**self).next(now)
    }
    fn complete(&mut self, id: TurnId, verdict: Verdict, now: Instant) -> Completed {
        (**self).complete(id, verdict, now)
    }
    fn gone(&mut self, claim: Claim, offset: Offset, now: Instant) -> Completed {
        (**self).gone(claim, offset, now)
    }
    fn hold(&mut self, scope: &Scope, how: Option<Hold>) {
        (**self).hold(scope, how);
    }
    fn revoke(&mut self, claim: Claim, how: Revoke) -> usize {
        (**self).revoke(claim, how)
    }
    fn progress(&mut self, claim: Claim) -> Option<Progress> {
        (**self).progress(claim)
    }
    fn committed(&mut self, claim: Claim, progress: &Progress) {
        (**self).committed(claim, progress);
    }
    fn credit(&mut self) -> Option<(Claim, Budget)> {
        (**self).credit()
    }
    fn explain(&self, scope: &Scope) -> Option<Explain> {
        (**self).explain(scope)
    }
    fn load(&self) -> Load {
        (**self).load()
    }
}

/// What an executor wants done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Next {
    /// Run this turn and `complete` it.
    Run(Turn),
    /// This turn is the head of a parked or cascading group: move it, do not run it.
    Divert(Turn),
    /// Read this one record again and `admit` it: its body was dropped to save memory. If it is
    /// not there any more, say [`gone`](GroupExecutor::gone).
    Load {
        /// Under this claim.
        claim: Claim,
        /// The record's offset.
        offset: Offset,
    },
    /// Commit this claim's progress now and say `committed`: the executor waits for it.
    Commit(Claim),
    /// Nothing to run before `until`, or before something else happens.
    Idle {
        /// When the first group that waits for a moment (a back-off, lingering,
        /// an interval) may run.
        until: Option<Instant>,
    },
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How many leading records of the turn became terminal.
    pub terminal: u32,
    /// What happens to the rest.
    pub rest: Rest,
}

impl Verdict {
    /// Every record of a turn of `records` is terminal.
    #[must_use]
    pub const fn done(records: u32) -> Self {
        Self { terminal: records, rest: Rest::Nothing }
    }

    /// None is; try again then. `counted` is false for what was no attempt of the handler's
    /// (cancelled, released).
    #[must_use]
    pub const fn again(at: Instant, counted: bool) -> Self {
        Self { terminal: 0, rest: Rest::Again { at, counted } }
    }
}

/// What happens to the records of a turn that are not terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rest {
    /// There are none. If there are after all, they run again at once, and that was no attempt.
    Nothing,
    /// They run again, in order, not before `at`.
    Again {
        /// The earliest moment.
        at: Instant,
        /// Whether this was an attempt.
        counted: bool,
    },
    /// They stay at the head of their group, which is blocked until it is let go. That was an
    /// attempt: the head's next turn has the next number.
    Hold,
}

/// Why a group is kept from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hold {
    /// Waits for a person.
    Blocked,
    /// Its records move to a park log.
    Parked,
    /// Its records follow a dead one to the dead-letter log.
    Cascading,
}

/// How a partition is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revoke {
    /// Start nothing more, let running turns end; their verdicts count.
    Drain,
    /// At once: forget the claim. A turn that still runs keeps its group shut until it ends, but
    /// its verdict changes no progress.
    Fence,
}

/// What a completion changed, or a record that is [`gone`](GroupExecutor::gone).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Completed {
    /// A turn can start that could not before: [`next`](GroupExecutor::next) would not be idle. An
    /// executor may say so whenever `next` would not be idle, but never keeps it to itself: after
    /// an idle `next`, a completion that is not `runnable` leaves it idle.
    pub runnable: bool,
    /// Progress moved.
    pub progressed: bool,
    /// That was the last open turn of a draining claim.
    pub drained: Option<Claim>,
}

/// Counts of what an executor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Load {
    /// Scopes with a waiting or running record.
    pub groups: usize,
    /// Open turns, zombies included.
    pub open: usize,
    /// Records admitted and not terminal, and the bytes of the bodies among them held in memory.
    pub held: Budget,
}

/// Why a group is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explain {
    /// The claim under which its head was read.
    pub claim: Claim,
    /// The head: the record that everything else of the group waits for.
    pub head: Offset,
    /// What the head is doing.
    pub state: GroupState,
    /// Since when.
    pub since: Instant,
    /// Attempts of the head so far, the running one included.
    pub attempts: u32,
    /// Records of the group here, the head included.
    pub records: usize,
}

impl Explain {
    /// For executors.
    #[must_use]
    pub const fn new(
        claim: Claim,
        head: Offset,
        state: GroupState,
        since: Instant,
        attempts: u32,
        records: usize,
    ) -> Self {
        Self { claim, head, state, since, attempts, records }
    }
}

/// One line for a person: "backing off for 63 ms more, 1200 ms so far, attempt 2, at offset 14 of
/// partition 0 (epoch 3), 5 records here".
impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = Instant::now();
        match self.state {
            GroupState::Ready => f.write_str("waiting for a free place")?,
            GroupState::Running => f.write_str("running")?,
            GroupState::Shut => f.write_str("waiting for a turn of an earlier claim to end")?,
            GroupState::BackingOff { until } => {
                let left = until.saturating_duration_since(now).as_millis();
                write!(f, "backing off for {left} ms more")?;
            }
            GroupState::Lingering { until } => {
                let left = until.saturating_duration_since(now).as_millis();
                write!(f, "lingering for more records, {left} ms more")?;
            }
            GroupState::Paced { until } => {
                let left = until.saturating_duration_since(now).as_millis();
                write!(f, "keeping its interval for {left} ms more")?;
            }
            GroupState::Loading => f.write_str("being read again")?,
            GroupState::Held(Hold::Blocked) => f.write_str("blocked")?,
            GroupState::Held(Hold::Parked) => f.write_str("parked")?,
            GroupState::Held(Hold::Cascading) => f.write_str("cascading")?,
        }
        let since = now.saturating_duration_since(self.since).as_millis();
        write!(
            f,
            ", {since} ms so far, attempt {}, at offset {} of {}, {} records here",
            self.attempts, self.head, self.claim, self.records
        )
    }
}

/// What the head of a group is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupState {
    /// Waiting for a free place.
    Ready,
    /// Its turn is open.
    Running,
    /// A turn of an earlier claim is still open: the group waits for it.
    Shut,
    /// Waiting for its back-off to end.
    BackingOff {
        /// When it ends.
        until: Instant,
    },
    /// Waiting for more records of the group, or for this moment.
    Lingering {
        /// When it starts with what there is.
        until: Instant,
    },
    /// Waiting for the interval between two turns of the group to pass.
    Paced {
        /// When it has passed.
        until: Instant,
    },
    /// Waiting for its body to be read again.
    Loading,
    /// Kept from running.
    Held(Hold),
}
