//! The executor suite passes on an executor that is right, and each check fails on one that is
//! wrong in the way the check is there for.

mod naive;

use std::panic::{AssertUnwindSafe, catch_unwind};

use naive::{Bug, Naive};
use procession_conformance::executor::{self, Factory, run};
use procession_conformance::{Knob, Subject};

mod one_record_a_turn {
    use super::*;
    procession_conformance::executor_suite!(|setup| Naive::new(setup, 1, Bug::None));
}

mod three_records_a_turn {
    use super::*;
    procession_conformance::executor_suite!(|setup| Naive::new(setup, 3, Bug::None));
}

/// Several groups share a lane: less parallel, and nothing else.
mod five_lanes {
    use super::*;
    procession_conformance::executor_suite!(|setup| {
        let lanes = Naive::new(setup, 1, Bug::None).in_lanes(5);
        Subject::new(lanes).lacks(Knob::LaneOfItsOwn)
    });
}

#[track_caller]
fn fails(check: fn(Factory<'_>), bug: Bug) {
    let attempt = || run(check, |setup| Naive::new(setup, 1, bug));
    assert!(catch_unwind(AssertUnwindSafe(attempt)).is_err(), "the check lets {bug:?} pass");
}

macro_rules! proofs {
    ($($check:ident: $($bug:ident),+;)*) => {$(
        #[test]
        fn $check() {
            $(fails(executor::$check, Bug::$bug);)+
        }
    )*};
}

proofs! {
    runs_groups_side_by_side: RunsOneTurnAtATime;
    equal_keys_in_two_partitions_are_two_scopes: ScopesAreKeys;
    a_retry_waits_its_time_and_nothing_overtakes_it:
        RetriesAreOvertaken, StartsRetriesEarly, CompletesWhatFailed;
    a_back_off_delays_only_its_group: BackOffStopsEverybody;
    an_uncounted_retry_is_not_an_attempt: CountsReleases;
    a_held_group_starts_no_turn_until_it_is_let_go: IgnoresHolds;
    progress_never_passes_an_unfinished_record: CommitsTheHighestFinished, CountsOffsetsByOne;
    progress_is_none_until_something_new_is_finished: ForgetsWhatWasCommitted;
    finished_records_are_not_run_again: RunsFinishedRecordsAgain;
    stale_claims_are_ignored: AcceptsStaleClaims;
    a_drain_starts_nothing_and_reports_when_it_is_done: DrainsStartTurns, DrainsSkipLateRecords;
    a_fence_forgets_the_claim_and_its_late_verdicts_change_nothing: CountsLateVerdicts;
    a_returning_partition_waits_for_the_old_turn_of_each_group: FencesLetReturningGroupsOverlap;
    a_stale_turn_id_is_ignored: ReusesTurnIds;
    the_window_bounds_what_is_held: BoundsNothing;
    a_group_over_its_share_is_loaded_again_in_order: SkipsMissingBodies;
    a_record_that_is_gone_is_passed_over: IgnoresWhatIsGone, PassesOverWhatIsNotLoaded;
    a_turn_of_several_records_is_consecutive_and_of_one_scope: TurnsMixGroups;
    a_partial_verdict_keeps_the_rest_in_order:
        PartialVerdictsLoseTheRest, PartialVerdictsRepeatAll;
}

/// The model finds all of them by itself.
#[test]
fn agrees_with_the_model() {
    for bug in [
        Bug::RetriesAreOvertaken,
        Bug::CommitsTheHighestFinished,
        Bug::CountsOffsetsByOne,
        Bug::AcceptsStaleClaims,
        Bug::DrainsStartTurns,
        Bug::DrainsSkipLateRecords,
        Bug::FencesLetReturningGroupsOverlap,
        Bug::ReusesTurnIds,
        Bug::CountsReleases,
        Bug::IgnoresHolds,
        Bug::RunsOneTurnAtATime,
        Bug::BackOffStopsEverybody,
        Bug::ScopesAreKeys,
        Bug::ForgetsWhatWasCommitted,
        Bug::RunsFinishedRecordsAgain,
        Bug::CountsLateVerdicts,
        Bug::BoundsNothing,
        Bug::SkipsMissingBodies,
        Bug::StartsRetriesEarly,
        Bug::CompletesWhatFailed,
        Bug::TurnsMixGroups,
        Bug::PartialVerdictsLoseTheRest,
        Bug::PartialVerdictsRepeatAll,
        Bug::IgnoresWhatIsGone,
    ] {
        fails(executor::agrees_with_the_model, bug);
    }
}
