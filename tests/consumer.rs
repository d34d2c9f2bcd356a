//! What a consumer promises, over the memory backend and under a virtual clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use procession::{
    AbsentKey, Budget, Class, Commit, Committed, ConsumerBuilder, Epoch, Error, ErrorKind, Failure,
    GroupState, Key, Log, Offset, OffsetStore, Partition, Producer, Progress, Record, Retry, Start,
    Turn,
};
use procession_memory::{MemoryLog, MemoryStore};
use support::{Effects, Virtual, fill, poll_once, round_robin};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn builder(world: &Virtual, log: &MemoryLog, store: &MemoryStore) -> ConsumerBuilder {
    ConsumerBuilder::new("test", log.clone(), store.clone()).runtime(world.clone()).workers(1)
}

async fn progress_of(log: &MemoryLog, store: &MemoryStore, partition: u32) -> Progress {
    let key = Key {
        subscription: "test".into(),
        log: log.info().uuid,
        partition: Partition::new(partition),
    };
    store.claim(&key, Epoch::FIRST, None).await.unwrap().expect("there is progress").1
}

#[test]
fn handles_every_record_once_and_every_group_in_order() {
    for workers in [1, 3] {
        let (world, log, store) = (Virtual::new(), MemoryLog::new(4), MemoryStore::new());
        let effects = Effects::default();
        let summary = world.block_on(async {
            fill(log.clone(), round_robin(37, 1000)).await;
            let (seen, clock) = (effects.clone(), world.clone());
            builder(&world, &log, &store)
                .workers(workers)
                .until_end()
                .run(move |turn: Turn| {
                    let (seen, clock) = (seen.clone(), clock.clone());
                    async move {
                        clock.sleep(ms(1 + turn.record().offset.get() % 7)).await;
                        seen.add(&turn);
                        Ok::<_, Error>(())
                    }
                })
                .await
                .unwrap()
        });
        assert_eq!(effects.assert_ordered_and_complete(1000), 0);
        assert_eq!((summary.turns_done, summary.turns_open), (1000, 0));
    }
}

#[test]
fn groups_run_side_by_side_and_turns_of_one_group_never_overlap() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(4), MemoryStore::new());
    let running = Arc::new(Mutex::new(Vec::<String>::new()));
    let widest = Arc::new(AtomicUsize::new(0));
    world.block_on(async {
        fill(log.clone(), round_robin(50, 500)).await;
        let (running, widest, clock) = (Arc::clone(&running), Arc::clone(&widest), world.clone());
        builder(&world, &log, &store)
            .concurrency(50)
            .until_end()
            .run(move |turn: Turn| {
                let (running, widest, clock) =
                    (Arc::clone(&running), Arc::clone(&widest), clock.clone());
                async move {
                    let group = turn.group().unwrap().to_string();
                    {
                        let mut running = running.lock().unwrap();
                        assert!(!running.contains(&group), "two turns of {group} overlap");
                        running.push(group.clone());
                        widest.fetch_max(running.len(), Ordering::SeqCst);
                    }
                    clock.sleep(ms(10)).await;
                    running.lock().unwrap().retain(|g| *g != group);
                    Ok::<_, Error>(())
                }
            })
            .await
            .unwrap();
    });
    assert_eq!(widest.load(Ordering::SeqCst), 50, "every group ran at the same time");
    assert_eq!(world.elapsed(), ms(100), "ten turns of ten milliseconds each, fifty wide");
}

#[test]
fn a_transient_failure_is_tried_again_in_place_and_delays_only_its_group() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    let effects = Effects::default();
    let done_at = Arc::new(Mutex::new(Vec::new()));
    world.block_on(async {
        fill(log.clone(), round_robin(10, 100)).await;
        let (seen, clock, done) = (effects.clone(), world.clone(), Arc::clone(&done_at));
        builder(&world, &log, &store)
            .retry(Retry::exponential().without_jitter())
            .until_end()
            .run(move |turn: Turn| {
                let (seen, clock, done) = (seen.clone(), clock.clone(), Arc::clone(&done));
                async move {
                    let group = turn.group().unwrap().to_string();
                    if group == "g3" && turn.record().offset.get() == 3 && turn.attempt() < 5 {
                        return Err("not yet");
                    }
                    seen.add(&turn);
                    done.lock().unwrap().push((group, clock.elapsed()));
                    Ok(())
                }
            })
            .await
            .unwrap();
    });
    effects.assert_ordered_and_complete(100);
    for (group, at) in done_at.lock().unwrap().iter() {
        // 100 + 200 + 400 + 800 ms of back-off, for one group alone.
        assert_eq!(*at, if group == "g3" { ms(1500) } else { ms(0) }, "{group}");
    }
}

#[test]
fn exhausted_attempts_stop_the_run_with_an_error_that_names_everything() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    let attempts = Arc::new(AtomicUsize::new(0));
    let error = world.block_on(async {
        fill(log.clone(), round_robin(10, 30)).await;
        let attempts = Arc::clone(&attempts);
        builder(&world, &log, &store)
            .run(move |turn: Turn| {
                let bad = turn.record().offset == Offset::new(14);
                attempts.fetch_add(usize::from(bad), Ordering::SeqCst);
                async move { if bad { Err("the printer is on fire") } else { Ok(()) } }
            })
            .await
            .unwrap_err()
    });
    assert_eq!(attempts.load(Ordering::SeqCst), 8);
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert_eq!(error.group().unwrap().as_ref(), b"g4");
    assert_eq!(error.offset(), Some(Offset::new(14)));
    let text = error.to_string();
    assert!(
        text.contains("nothing was skipped")
            && text.ends_with("transient failure after 8 attempts")
            && text.contains("\"test\"")
            && text.contains("g4"),
        "{text}"
    );
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert_eq!(cause, "the printer is on fire");
    // Finished work is committed, nothing is skipped.
    let progress = world.block_on(progress_of(&log, &store, 0));
    assert_eq!(progress.next, Offset::new(14));
    assert!(!progress.covers(Offset::new(24)), "its successor must wait");
    assert!(progress.covers(Offset::new(29)), "others are finished");
}

#[test]
fn permanent_and_corrupt_failures_stop_at_once() {
    type Make = fn() -> Failure;
    let cases: [(Make, Option<Class>); 3] = [
        (|| Failure::permanent("never"), None),
        (|| Failure::corrupt("garbage"), None),
        (|| Failure::transient("whatever"), Some(Class::Transient)),
    ];
    for (make, class) in cases {
        let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let error = world.block_on(async {
            fill(log.clone(), round_robin(1, 1)).await;
            builder(&world, &log, &store)
                .run(move |_| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    async move { Err::<(), _>(make()) }
                })
                .await
                .unwrap_err()
        });
        let expected = if class == Some(Class::Transient) { 8 } else { 1 };
        assert_eq!(attempts.load(Ordering::SeqCst), expected);
        assert_eq!(error.kind(), ErrorKind::Exhausted);
    }
}

#[test]
fn classify_judges_the_users_own_errors_and_a_failure_may_ask_for_a_delay() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    let error = world.block_on(async {
        fill(log.clone(), round_robin(1, 2)).await;
        builder(&world, &log, &store)
            .classify(|error| match error.downcast_ref::<std::num::ParseIntError>() {
                Some(_) => Class::Permanent,
                None => Class::Transient,
            })
            .run(move |turn: Turn| async move {
                if turn.record().offset == Offset::ZERO {
                    return match turn.attempt() {
                        1 => Err(Failure::transient("busy")
                            .retry_after(Duration::from_secs(90))
                            .into()),
                        _ => Ok(()),
                    };
                }
                "x".parse::<u8>().map(drop).map_err(procession::BoxError::from)
            })
            .await
            .unwrap_err()
    });
    assert!(error.to_string().contains("permanent failure after 1 attempt"), "{error}");
    assert_eq!(world.elapsed(), Duration::from_secs(90));
}

#[test]
fn a_panic_is_contained_and_tried_again() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    let effects = Effects::default();
    let summary = world.block_on(async {
        fill(log.clone(), round_robin(5, 50)).await;
        let seen = effects.clone();
        builder(&world, &log, &store)
            .until_end()
            .run(move |turn: Turn| {
                assert!(turn.record().offset.get() != 7 || turn.attempt() > 1, "in the call");
                let seen = seen.clone();
                async move {
                    assert!(turn.record().offset.get() != 8 || turn.attempt() > 2, "in the future");
                    seen.add(&turn);
                    Ok::<_, Error>(())
                }
            })
            .await
            .unwrap()
    });
    effects.assert_ordered_and_complete(50);
    assert_eq!(summary.turns_panicked, 3);
}

#[test]
fn redelivers_what_was_not_committed_and_nothing_else() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(2), MemoryStore::new());
    let effects = Effects::default();
    world.block_on(fill(log.clone(), round_robin(20, 400)));
    // The run is dropped after a number of turns: a crash as far as the library can tell.
    for stop_after in [57, 101, 333, 10_000] {
        let handled = Arc::new(AtomicUsize::new(0));
        world.block_on(async {
            let (seen, clock, count) = (effects.clone(), world.clone(), Arc::clone(&handled));
            let run = builder(&world, &log, &store)
                .concurrency(4)
                .commit_every(ms(10))
                .until_end()
                .run(move |turn: Turn| {
                    let (seen, clock, count) = (seen.clone(), clock.clone(), Arc::clone(&count));
                    async move {
                        clock.sleep(ms(1)).await;
                        seen.add(&turn);
                        count.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, Error>(())
                    }
                });
            let mut run = Box::pin(run);
            poll_fn(|cx| {
                if handled.load(Ordering::SeqCst) >= stop_after {
                    return Poll::Ready(());
                }
                run.as_mut().poll_unpin(cx).map(|result| assert_eq!(result.unwrap().turns_open, 0))
            })
            .await;
        });
    }
    let repeats = effects.assert_ordered_and_complete(400);
    // Three crashes, each repeats at most one interval's turns (4 wide, 10 of 1 ms) and what ran.
    assert!(repeats <= 3 * (4 * 11 + 4), "{repeats} repeats");
}

#[test]
fn dropping_a_run_at_any_poll_loses_nothing() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(3), MemoryStore::new());
    let effects = Effects::default();
    world.block_on(fill(log.clone(), round_robin(5, 60)));
    let run = |polls: Option<usize>| {
        let (seen, clock) = (effects.clone(), world.clone());
        let run =
            builder(&world, &log, &store).commit_every(ms(2)).until_end().run(move |turn: Turn| {
                let (seen, clock) = (seen.clone(), clock.clone());
                async move {
                    clock.sleep(ms(1)).await;
                    seen.add(&turn);
                    Ok::<_, Error>(())
                }
            });
        let mut run = Box::pin(run);
        let mut left = polls.unwrap_or(usize::MAX);
        world.block_on(poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            run.as_mut().poll_unpin(cx).map(|result| assert_eq!(result.unwrap().turns_open, 0))
        }));
    };
    for polls in 0..12 {
        run(Some(polls));
    }
    run(None);
    effects.assert_ordered_and_complete(60);
}

#[test]
fn shutdown_lets_running_turns_end_and_commits_them() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    let effects = Effects::default();
    world.block_on(async {
        fill(log.clone(), round_robin(8, 80)).await;
        let (seen, clock) = (effects.clone(), world.clone());
        let consumer = builder(&world, &log, &store)
            .concurrency(8)
            .commit_every(Duration::from_secs(3600))
            .build()
            .unwrap();
        let handle = consumer.handle();
        let run = consumer.run(move |turn: Turn| {
            let (seen, clock) = (seen.clone(), clock.clone());
            async move {
                clock.sleep(ms(50)).await;
                seen.add(&turn);
                Ok::<_, Error>(())
            }
        });
        let stop = async {
            world.sleep(ms(125)).await;
            assert_eq!(handle.counts().turns_done, 16);
            let open = handle.shutdown().await;
            assert_eq!(open, 0);
        };
        let (summary, ()) = futures::join!(run, stop);
        assert_eq!(summary.unwrap().turns_done, 24);
        assert_eq!(handle.shutdown().await, 0, "a second shutdown is answered at once");
    });
    assert_eq!(effects.len(), 24);
    assert_eq!(world.block_on(progress_of(&log, &store, 0)).next, Offset::new(24));
}

#[test]
fn a_turn_that_never_ends_is_dropped_at_the_drain_deadline_and_runs_again() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    world.block_on(async {
        fill(log.clone(), round_robin(3, 3)).await;
        let consumer = builder(&world, &log, &store).drain_within(ms(500)).build().unwrap();
        let handle = consumer.handle();
        let run = consumer.run(|turn: Turn| async move {
            if turn.record().offset == Offset::ZERO {
                pending::<()>().await;
            }
            Ok::<_, Error>(())
        });
        let stop = async {
            world.sleep(ms(10)).await;
            let state = handle.explain("g0").expect("it runs").state;
            assert_eq!(state, GroupState::Running);
            handle.shutdown().await
        };
        let (summary, open) = futures::join!(run, stop);
        let summary = summary.unwrap();
        assert_eq!((open, summary.turns_cancelled, summary.turns_done), (0, 1, 2));
        assert_eq!(world.elapsed(), ms(510));
        // A cancelled turn is no attempt, and not finished.
        let again = builder(&world, &log, &store)
            .until_end()
            .run(|turn: Turn| async move {
                assert_eq!((turn.record().offset, turn.attempt()), (Offset::ZERO, 1));
                Ok::<_, Error>(())
            })
            .await
            .unwrap();
        assert_eq!(again.turns_done, 1);
    });
}

#[test]
fn a_turn_blocked_inside_a_poll_is_counted_as_open() {
    let (log, store) = (MemoryLog::new(1), MemoryStore::new());
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (entered, inside) = futures::channel::oneshot::channel::<()>();
    let entered = Arc::new(Mutex::new(Some(entered)));
    futures::executor::block_on(async {
        fill(log.clone(), round_robin(1, 1)).await;
        let consumer = ConsumerBuilder::new("test", log.clone(), store.clone())
            .runtime(procession::Bare)
            .workers(1)
            .drain_within(ms(1))
            .build()
            .unwrap();
        let handle = consumer.handle();
        let run = consumer.run(move |_| {
            let (blocked, entered) = (Arc::clone(&blocked), Arc::clone(&entered));
            async move {
                if let Some(entered) = entered.lock().unwrap().take() {
                    entered.send(()).unwrap();
                }
                // The sender's drop ends it, when the test is over.
                let _ = blocked.lock().unwrap().recv();
                Ok::<_, Error>(())
            }
        });
        let stop = async {
            inside.await.unwrap();
            handle.shutdown().await
        };
        let (summary, open) = futures::join!(run, stop);
        assert_eq!((summary.unwrap().turns_open, open), (1, 1));
    });
    drop(release);
}

/// Goal: a turn that outlives its run keeps the next run out, so that two turns of one group never
/// overlap. Method: the run is dropped while its handler blocks a worker's thread.
#[test]
fn a_turn_that_outlives_a_dropped_run_keeps_the_next_member_out_until_it_ends() {
    let (log, store) = (MemoryLog::new(1), MemoryStore::new());
    let membership = procession::LocalMembership::new();
    let make = || {
        ConsumerBuilder::new("test", log.clone(), store.clone())
            .membership(membership.clone())
            .runtime(procession::Bare)
            .workers(2)
            .until_end()
            .build()
            .unwrap()
    };
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (entered, inside) = futures::channel::oneshot::channel::<()>();
    let entered = Arc::new(Mutex::new(Some(entered)));
    let running = Arc::new(AtomicUsize::new(0));
    futures::executor::block_on(async {
        fill(log.clone(), round_robin(1, 1)).await;
        let first = Arc::clone(&running);
        let run = make().run(move |_| {
            let (blocked, entered) = (Arc::clone(&blocked), Arc::clone(&entered));
            let running = Arc::clone(&first);
            async move {
                running.fetch_add(1, Ordering::SeqCst);
                entered.lock().unwrap().take().unwrap().send(()).unwrap();
                blocked.lock().unwrap().recv().unwrap();
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Error>(())
            }
        });
        futures::future::select(Box::pin(run), inside).await;
        // The run is dropped here, its turn is not.
        let second = || {
            let running = Arc::clone(&running);
            make().run(move |_| {
                assert_eq!(running.load(Ordering::SeqCst), 0, "two turns of one group overlap");
                async { Ok::<_, Error>(()) }
            })
        };
        let mut second = Box::pin(second());
        for _ in 0..100 {
            assert!(poll_once(second.as_mut()).is_pending(), "let in beside a running turn");
        }
        release.send(()).unwrap();
        second.await.unwrap();
    });
}

/// Goal: commits and a shutdown come through between the turns of a handler that blocks. Method: the
/// handler moves the clock itself, and looks at what was committed meanwhile.
#[test]
fn a_handler_that_blocks_its_thread_lets_commits_and_a_shutdown_through() {
    for in_place in [true, false] {
        let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
        let begun = Arc::new(AtomicUsize::new(0));
        let summary = world.block_on(async {
            fill(log.clone(), round_robin(100, 1000)).await;
            let consumer = match in_place {
                false => builder(&world, &log, &store),
                // Real time decides what blocking is: a busy loop below.
                true => ConsumerBuilder::new("test", log.clone(), store.clone()),
            };
            let consumer = consumer.commit_every(ms(20)).build().unwrap();
            let handle = consumer.handle();
            let (clock, begun) = (world.clone(), Arc::clone(&begun));
            consumer
                .run(move |_| {
                    let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                    if in_place {
                        let end = std::time::Instant::now() + ms(5);
                        while std::time::Instant::now() < end {
                            std::hint::spin_loop();
                        }
                    } else {
                        clock.block(ms(50));
                    }
                    if number == 60 {
                        assert!(handle.counts().commits >= 3, "{:?}", handle.counts());
                        handle.request_shutdown();
                    }
                    async { Ok::<_, Error>(()) }
                })
                .await
                .unwrap()
        });
        assert_eq!(begun.load(Ordering::SeqCst), 60, "turns begun after the shutdown");
        assert_eq!((summary.turns_done, summary.turns_open), (60, 0));
        assert_eq!(world.block_on(progress_of(&log, &store, 0)).next, Offset::new(60));
    }
}

#[test]
fn the_start_of_a_new_subscription_is_resolved_once_and_kept() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    let run = |start: Start| {
        let effects = Effects::default();
        let seen = effects.clone();
        world.block_on(async {
            builder(&world, &log, &store)
                .start(start)
                .until_end()
                .run(move |turn: Turn| {
                    seen.add(&turn);
                    async { Ok::<_, Error>(()) }
                })
                .await
                .unwrap();
        });
        effects.len()
    };
    world.block_on(fill(log.clone(), round_robin(1, 5)));
    assert_eq!(run(Start::Latest), 0);
    world.block_on(fill(log.clone(), round_robin(1, 3)));
    assert_eq!(run(Start::Earliest), 3, "goes on where the subscription stands");
}

#[test]
fn an_empty_log_ends_at_once_with_until_end() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(8), MemoryStore::new());
    let summary = world
        .block_on(builder(&world, &log, &store).until_end().run(|_| async { Ok::<_, Error>(()) }))
        .unwrap();
    assert_eq!(summary.turns_done, 0);
}

#[test]
fn records_appended_while_idle_are_handled() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(4), MemoryStore::new());
    let effects = Effects::default();
    world.block_on(async {
        let consumer = builder(&world, &log, &store).build().unwrap();
        let handle = consumer.handle();
        let seen = effects.clone();
        let run = consumer.run(move |turn: Turn| {
            seen.add(&turn);
            async { Ok::<_, Error>(()) }
        });
        let feed = async {
            let producer = Producer::new(log.clone());
            for number in 0..50 {
                world.sleep(Duration::from_secs(3600)).await;
                producer.send(Record::new("g", number.to_string())).await.unwrap();
            }
            world.sleep(Duration::from_secs(1)).await;
            handle.shutdown().await
        };
        futures::join!(run, feed).0.unwrap();
    });
    effects.assert_ordered_and_complete(50);
}

#[test]
fn a_member_whose_epoch_was_superseded_stops_and_changes_nothing() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    let effects = Effects::default();
    world.block_on(async {
        fill(log.clone(), round_robin(4, 40)).await;
        let run = |effects: Effects| {
            let clock = world.clone();
            builder(&world, &log, &store).concurrency(2).until_end().run(move |turn: Turn| {
                let (seen, clock) = (effects.clone(), clock.clone());
                async move {
                    clock.sleep(ms(30)).await;
                    seen.add(&turn);
                    Ok::<_, Error>(())
                }
            })
        };
        let first = run(effects.clone());
        let second = async {
            world.sleep(ms(45)).await;
            run(Effects::default()).await
        };
        let (first, second) = futures::join!(first, second);
        assert_eq!(first.unwrap_err().kind(), ErrorKind::Fenced);
        second.unwrap();
    });
    assert_eq!(world.block_on(progress_of(&log, &store, 0)).next, Offset::new(40));
}

#[test]
fn absent_keys_follow_the_declared_policy() {
    let run = |policy: AbsentKey| {
        let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
        let widest = Arc::new(AtomicUsize::new(0));
        let running = Arc::new(AtomicUsize::new(0));
        let result = world.block_on(async {
            let producer = Producer::builder(log.clone()).absent_key(AbsentKey::Serial).build();
            for _ in 0..10 {
                let record = Record::from_parts(None, None, Default::default(), None);
                producer.send(record).await.unwrap();
            }
            let (widest, clock) = (Arc::clone(&widest), world.clone());
            builder(&world, &log, &store)
                .absent_key(policy)
                .until_end()
                .run(move |turn: Turn| {
                    assert!(turn.group().is_none());
                    let (widest, clock) = (Arc::clone(&widest), clock.clone());
                    let running = Arc::clone(&running);
                    async move {
                        widest.fetch_max(
                            running.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        clock.sleep(ms(5)).await;
                        running.fetch_sub(1, Ordering::SeqCst);
                        Ok::<_, Error>(())
                    }
                })
                .await
        });
        (result.map(|summary| summary.turns_done), widest.load(Ordering::SeqCst))
    };
    assert!(matches!(run(AbsentKey::Serial), (Ok(10), 1)));
    assert!(matches!(run(AbsentKey::Spread), (Ok(10), 10)));
    let (refused, _) = run(AbsentKey::Reject);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_stuck_group_holds_back_no_more_than_the_budget_and_other_partitions_go_on() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(2), MemoryStore::new());
    world.block_on(async {
        let by_partition = |p: u32| {
            let info = log.info();
            (0..)
                .map(|n| format!("k{n}"))
                .find(move |key| info.router.route(key.as_bytes(), info.partitions) == p)
                .unwrap()
        };
        let (stuck, fine) = (by_partition(0), by_partition(1));
        let records = (0..500)
            .flat_map(|n: u32| [(stuck.clone(), n.to_string()), (fine.clone(), n.to_string())]);
        fill(log.clone(), records).await;
        let consumer =
            builder(&world, &log, &store).budget(Budget::new(40, 1 << 20)).build().unwrap();
        let handle = consumer.handle();
        let bad = stuck.clone();
        let run = consumer.run(move |turn: Turn| {
            let stuck = turn.group().unwrap().as_ref() == bad.as_bytes();
            async move {
                if stuck {
                    pending::<()>().await;
                }
                Ok::<_, Error>(())
            }
        });
        let watch = async {
            world.sleep(Duration::from_secs(5)).await;
            let load = handle.load();
            assert!(load.held.records <= 40, "{load:?}");
            assert_eq!(handle.counts().turns_done, 500, "the other partition is finished");
            handle.shutdown().await
        };
        futures::join!(run, watch).0.unwrap();
    });
}

/// A membership that takes its time.
struct Slow(Virtual, procession::LocalMembership);

#[async_trait::async_trait]
impl procession::Membership for Slow {
    async fn join(
        &self,
        subscription: &procession::Subscription,
        inlet: Arc<dyn procession::Inlet>,
    ) -> Result<Box<dyn procession::Seat>, Error> {
        self.0.sleep(Duration::from_secs(1)).await;
        self.1.join(subscription, inlet).await
    }
}

#[test]
fn a_worker_that_starts_before_the_member_has_joined_is_woken() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    world.block_on(async {
        fill(log.clone(), round_robin(3, 9)).await;
        let membership = Slow(world.clone(), procession::LocalMembership::new());
        let consumer = builder(&world, &log, &store).membership(membership).workers(2);
        let summary =
            consumer.until_end().run(|_: Turn| async { Ok::<_, Error>(()) }).await.unwrap();
        assert_eq!(summary.turns_done, 9);
    });
}

/// A store that refuses for a while, as a full disk does.
#[derive(Clone)]
struct Moody {
    inner: MemoryStore,
    refusals: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl OffsetStore for Moody {
    async fn claim(
        &self,
        key: &Key,
        floor: Epoch,
        start: Option<Offset>,
    ) -> Result<Option<(Epoch, Progress)>, Error> {
        self.inner.claim(key, floor, start).await
    }

    async fn commit(&self, batch: &[Commit<'_>]) -> Result<Vec<Committed>, Error> {
        if self.refusals.load(Ordering::SeqCst) > 0 {
            self.refusals.fetch_sub(1, Ordering::SeqCst);
            return Err(Error::new(ErrorKind::Full, "commit"));
        }
        self.inner.commit(batch).await
    }

    async fn list(&self) -> Result<Vec<Key>, Error> {
        self.inner.list().await
    }

    async fn forget(&self, key: &Key) -> Result<(), Error> {
        self.inner.forget(key).await
    }
}

#[test]
fn a_commit_that_finds_no_room_is_tried_again_and_the_work_goes_on() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    let moody = Moody { inner: store.clone(), refusals: Arc::new(AtomicUsize::new(3)) };
    world.block_on(async {
        fill(log.clone(), round_robin(10, 100)).await;
        let clock = world.clone();
        ConsumerBuilder::new("test", log.clone(), moody.clone())
            .runtime(world.clone())
            .workers(1)
            .concurrency(1)
            .until_end()
            .run(move |_| {
                let clock = clock.clone();
                async move {
                    clock.sleep(ms(20)).await;
                    Ok::<_, Error>(())
                }
            })
            .await
            .map(|summary| assert_eq!(summary.commits_failed, 3))
            .unwrap();
    });
    assert_eq!(moody.refusals.load(Ordering::SeqCst), 0);
    assert_eq!(world.block_on(progress_of(&log, &store, 0)).next, Offset::new(100));
}

#[test]
fn settings_that_make_no_sense_are_refused_before_anything_starts() {
    let (world, log, store) = (Virtual::new(), MemoryLog::new(1), MemoryStore::new());
    let make = || builder(&world, &log, &store);
    let refused = [
        make().concurrency(0).build(),
        make().workers(0).build(),
        make().turns_per_second(0).build(),
        make().retry(Retry::exponential().attempts(0)).build(),
        make().budget(Budget::ZERO).build(),
        ConsumerBuilder::new("", log.clone(), store.clone()).build(),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Config);
    }
    let no_threads = make().build().unwrap().run_blocking(0, |_| Ok::<_, Error>(()));
    assert_eq!(world.block_on(no_threads).unwrap_err().kind(), ErrorKind::Config);
}
