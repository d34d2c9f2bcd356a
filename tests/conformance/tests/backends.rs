//! The log and store suites pass on backends that are right, and each check fails on one that is
//! wrong in the way the check is there for.

mod broken;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use broken::{BrokenLogs, BrokenStores, GapLogs, LogBug, StoreBug};
use futures::executor::block_on;

mod nothing_is_wrong {
    use super::*;
    procession_conformance::log_suite!(BrokenLogs::new(LogBug::None));
    procession_conformance::store_suite!(BrokenStores::new(StoreBug::None));
}

mod gaps_are_not_wrong {
    use super::*;
    procession_conformance::log_suite!(GapLogs);
}

#[track_caller]
fn fails(check: impl FnOnce(), bug: impl std::fmt::Debug) {
    assert!(catch_unwind(AssertUnwindSafe(check)).is_err(), "the check lets {bug:?} pass");
}

macro_rules! proofs {
    ($suite:ident, $factory:ident, $bugs:ident; $($check:ident: $($bug:ident),+;)*) => {
        mod $suite {
            use super::*;

            $(
                #[test]
                fn $check() {
                    // Long enough for what is right, short enough for what never comes.
                    procession_conformance::set_patience(Duration::from_secs(2));
                    $(
                        let factory = $factory::new($bugs::$bug);
                        let check = || block_on(procession_conformance::$suite::$check(&factory));
                        fails(check, $bugs::$bug);
                    )+
                }
            )*
        }
    };
}

proofs! { log, BrokenLogs, LogBug;
    appends_in_call_order_however_futures_are_polled: AppendsWhenPolled;
    a_batch_keeps_its_order_and_its_partitions: ReordersBatches;
    receipts_name_the_place_and_the_level: AnswersWithLess;
    reads_back_every_part_of_a_record: TakesAbsentForEmpty;
    reads_only_what_was_asked_for: ReadsFromTheStart;
    read_respects_its_budget_but_always_gives_one_record: IgnoresBudgets, NextSkipsRecords;
    next_leads_to_the_end_across_gaps: NextSkipsRecords;
    reading_at_the_end_is_empty_and_beyond_it_is_not_yet_written: EmptyBeyondTheEnd;
    ends_answer_earliest_end_and_time: EndIsTheLastRecord;
    changed_never_loses_a_wake_up: ForgetsWhatWasSeen, NeverWakes;
    an_unknown_partition_is_refused: WrapsPartitions;
    an_oversize_record_comes_back: TakesOversizeRecords;
    sequences_count_each_group_without_gaps: SequencesAreOffsets;
    dropping_an_append_cancels_nothing: AppendsWhenPolled;
    log_time_never_falls: LogTimeFalls;
    survives_a_reopen: ForgetsOnReopen;
    a_permit_comes_home_whatever_became_of_its_batch: KeepsPermits;
    reading_below_the_earliest_is_trimmed: EmptyBelowTheEarliest;
}

proofs! { store, BrokenStores, StoreBug;
    a_new_key_needs_a_start: StartsAtZero;
    the_start_of_a_new_key_is_kept: TakesTheNewestStart;
    every_claim_raises_the_epoch: KeepsTheEpoch, IgnoresTheFloor;
    a_claim_returns_what_was_committed: ForgetsDoneRanges;
    an_older_epoch_is_fenced: FencesNobody, StoresWhatItFences;
    a_commit_without_a_claim_is_refused: CommitsWithoutAClaim;
    commits_of_a_batch_are_answered_one_by_one: AnswersAllLikeTheFirst;
    keys_are_independent: IgnoresThePartition;
    lists_every_key_once: IgnoresThePartition;
    a_forgotten_key_is_new_again_but_never_reuses_an_epoch: ForgetsTheEpoch, ListsForgottenKeys;
    concurrent_claims_get_different_epochs: KeepsTheEpoch;
    survives_a_reopen: ForgetsOnReopen;
    no_epoch_is_above_the_last_one: WrapsEpochs;
}
