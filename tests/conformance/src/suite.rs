//! The macros: one named `#[test]` per check.

/// Every check of [`log`](crate::log) as a `#[test]`, in a module `log_suite`.
///
/// Takes an expression of a [`LogFactory`](crate::LogFactory), which is evaluated anew for each
/// check. To run the suite over several factories, put each call into a module of its own.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use procession_conformance::{LogFactory, LogSetup};
/// # use procession_core::{BoxFuture, Error, Log};
/// # fn my_log(_: u32, _: usize) -> Result<Arc<dyn Log>, Error> { unimplemented!() }
/// struct MyLogs;
///
/// impl LogFactory for MyLogs {
///     fn create(&self, setup: LogSetup) -> BoxFuture<'_, Result<Arc<dyn Log>, Error>> {
///         Box::pin(async move { my_log(setup.partitions, setup.record_bytes_max) })
///     }
///     fn reopen(&self, _: Arc<dyn Log>) -> Option<BoxFuture<'_, Result<Arc<dyn Log>, Error>>> {
///         None // declared: it cannot be reopened
///     }
///     fn trim(
///         &self, _: &Arc<dyn Log>, _: procession_core::Partition, _: procession_core::Offset,
///     ) -> Option<BoxFuture<'_, Result<(), Error>>> {
///         None // declared: it cannot be trimmed on demand
///     }
/// }
///
/// procession_conformance::log_suite!(MyLogs);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! log_suite {
    ($factory:expr $(,)?) => {
        $crate::__async_suite! { log_suite, log, $factory;
            appends_in_call_order_however_futures_are_polled
            a_batch_keeps_its_order_and_its_partitions
            receipts_name_the_place_and_the_level
            reads_back_every_part_of_a_record
            reads_only_what_was_asked_for
            read_respects_its_budget_but_always_gives_one_record
            next_leads_to_the_end_across_gaps
            reading_at_the_end_is_empty_and_beyond_it_is_not_yet_written
            ends_answer_earliest_end_and_time
            changed_never_loses_a_wake_up
            an_unknown_partition_is_refused
            an_oversize_record_comes_back
            sequences_count_each_group_without_gaps
            dropping_an_append_cancels_nothing
            log_time_never_falls
            survives_a_reopen
            a_permit_comes_home_whatever_became_of_its_batch
            a_stamped_batch_is_absorbed_or_refused
            reading_below_the_earliest_is_trimmed
        }
    };
}

/// Every check of [`store`](crate::store) as a `#[test]`, in a module `store_suite`.
///
/// Takes an expression of a [`StoreFactory`](crate::StoreFactory), which is evaluated anew for each
/// check: `procession_conformance::store_suite!(MyStores);`
#[macro_export]
macro_rules! store_suite {
    ($factory:expr $(,)?) => {
        $crate::__async_suite! { store_suite, store, $factory;
            a_new_key_needs_a_start
            the_start_of_a_new_key_is_kept
            every_claim_raises_the_epoch
            a_claim_returns_what_was_committed
            an_older_epoch_is_fenced
            a_commit_without_a_claim_is_refused
            commits_of_a_batch_are_answered_one_by_one
            keys_are_independent
            lists_every_key_once
            a_forgotten_key_is_new_again_but_never_reuses_an_epoch
            concurrent_claims_get_different_epochs
            survives_a_reopen
            no_epoch_is_above_the_last_one
        }
    };
}

/// Every check of [`executor`](crate::executor) as a `#[test]`, in a module `executor_suite`.
///
/// Takes a closure from an [`ExecutorSetup`](crate::ExecutorSetup) to an executor, or to a
/// [`Subject`](crate::Subject) where a knob is lacking. It is evaluated anew for each check, and
/// called as often as the check needs executors.
///
/// ```no_run
/// # use procession_core::GroupExecutor;
/// # fn my_executor(_: procession_core::Budget, _: usize, _: u64) -> Box<dyn GroupExecutor> { unimplemented!() }
/// procession_conformance::executor_suite!(|setup| {
///     my_executor(setup.budget, setup.bodies_per_group_max, setup.seed)
/// });
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! executor_suite {
    ($factory:expr $(,)?) => {
        $crate::__executor_suite! { $factory;
            runs_one_group_in_order_and_never_two_turns_at_once
            runs_groups_side_by_side
            equal_keys_in_two_partitions_are_two_scopes
            a_retry_waits_its_time_and_nothing_overtakes_it
            a_back_off_delays_only_its_group
            an_uncounted_retry_is_not_an_attempt
            a_held_group_starts_no_turn_until_it_is_let_go
            progress_never_passes_an_unfinished_record
            progress_is_none_until_something_new_is_finished
            finished_records_are_not_run_again
            stale_claims_are_ignored
            a_drain_starts_nothing_and_reports_when_it_is_done
            a_fence_forgets_the_claim_and_its_late_verdicts_change_nothing
            a_returning_partition_waits_for_the_old_turn_of_each_group
            a_stale_turn_id_is_ignored
            the_window_bounds_what_is_held
            a_group_over_its_share_is_loaded_again_in_order
            a_record_that_is_gone_is_passed_over
            a_turn_of_several_records_is_consecutive_and_of_one_scope
            a_partial_verdict_keeps_the_rest_in_order
            agrees_with_the_model
            explain_names_the_head_and_its_state
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __executor_suite {
    ($factory:expr; $($name:ident)*) => {
        mod executor_suite {
            #[allow(unused_imports, reason = "the factory may be named by a full path")]
            use super::*;

            $(
                #[test]
                fn $name() {
                    $crate::executor::run($crate::executor::$name, $factory);
                }
            )*
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __async_suite {
    ($module:ident, $checks:ident, $factory:expr; $($name:ident)*) => {
        mod $module {
            #[allow(unused_imports, reason = "the factory may be named by a full path")]
            use super::*;

            $(
                #[test]
                fn $name() {
                    $crate::__private::block_on($crate::$checks::$name(&$factory));
                }
            )*
        }
    };
}
