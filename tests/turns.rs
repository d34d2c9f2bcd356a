//! Turns of several records, declared orders, rates, other ways to run, warnings, trimmed records.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use procession::{
    Appending, Batch, Budget, Chunk, ConsumerBuilder, Epoch, Error, ErrorKind, Failure, Key, Log,
    LogInfo, Offset, OffsetStore, Order, OutOfRange, Partition, Position, Progress, Record, Retry,
    Turn, Version, Want, Warning,
};
use procession_memory::{MemoryLog, MemoryStore};
use support::{Ledger, Virtual, fill, round_robin};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn builder(world: &Virtual, log: &MemoryLog, store: &MemoryStore) -> ConsumerBuilder {
    ConsumerBuilder::new("test", log.clone(), store.clone()).runtime(world.clone()).workers(1)
}

fn filled(world: &Virtual, partitions: u32, groups: usize, count: usize) -> MemoryLog {
    let log = MemoryLog::new(partitions);
    world.block_on(fill(log.clone(), round_robin(groups, count)));
    log
}

async fn progress(log: &MemoryLog, store: &MemoryStore) -> Progress {
    let key =
        Key { subscription: "test".into(), log: log.info().uuid, partition: Partition::new(0) };
    store.claim(&key, Epoch::FIRST, None).await.unwrap().unwrap().1
}

// ---- Several records a turn --------------------------------------------------------------------

#[test]
fn a_batch_has_consecutive_records_of_one_group_and_its_size_is_bounded() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 1, 5, 500), MemoryStore::new());
    let (ledger, sizes) = (Ledger::default(), Arc::new(Mutex::new(Vec::new())));
    world.block_on(async {
        let (ledger, sizes) = (ledger.clone(), Arc::clone(&sizes));
        builder(&world, &log, &store)
            .batch(16, ms(0))
            .until_end()
            .run(move |turn: Turn| {
                let same = |s: &procession::Stored| s.record.key() == turn.group();
                assert!(turn.records().iter().all(same));
                sizes.lock().unwrap().push(turn.records().len());
                ledger.begin(&turn).done(&turn);
                async { Ok::<_, Error>(()) }
            })
            .await
            .unwrap();
    });
    assert_eq!((ledger.done(), ledger.repeats()), (500, 0));
    let sizes = sizes.lock().unwrap();
    assert!(sizes.iter().all(|size| *size <= 16) && sizes.len() < 100, "{sizes:?}");
    assert_eq!(world.block_on(progress(&log, &store)).next, Offset::new(500));
}

#[test]
fn a_batch_waits_for_more_as_long_as_it_may_linger_and_no_longer() {
    let world = Virtual::new();
    let (log, store) = (MemoryLog::new(1), MemoryStore::new());
    let begun = Arc::new(Mutex::new(Vec::new()));
    world.block_on(async {
        let consumer = builder(&world, &log, &store).batch(10, ms(100)).build().unwrap();
        let handle = consumer.handle();
        let (clock, seen) = (world.clone(), Arc::clone(&begun));
        let run = consumer.run(move |turn: Turn| {
            seen.lock().unwrap().push((clock.elapsed(), turn.records().len()));
            async { Ok::<_, Error>(()) }
        });
        let feed = async {
            fill(log.clone(), (0..3).map(|n| ("a".to_owned(), n.to_string()))).await;
            world.sleep(ms(50)).await;
            fill(log.clone(), (3..5).map(|n| ("a".to_owned(), n.to_string()))).await;
            world.sleep(ms(450)).await;
            // A full one does not wait at all.
            fill(log.clone(), (5..15).map(|n| ("a".to_owned(), n.to_string()))).await;
            world.sleep(ms(500)).await;
            handle.shutdown().await;
        };
        futures::join!(run, feed).0.unwrap();
    });
    assert_eq!(*begun.lock().unwrap(), [(ms(100), 5), (ms(500), 10)]);
}

#[test]
fn a_batch_that_fails_in_the_middle_keeps_what_is_done_and_runs_the_rest_again_in_order() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 1, 1, 8), MemoryStore::new());
    let (ledger, turns) = (Ledger::default(), Arc::new(Mutex::new(Vec::new())));
    world.block_on(async {
        let (ledger, turns) = (ledger.clone(), Arc::clone(&turns));
        builder(&world, &log, &store)
            .retry(Retry::exponential().without_jitter())
            .batch(5, ms(0))
            .until_end()
            .run(move |turn: Turn| {
                let first = turn.offset().get();
                turns.lock().unwrap().push((first, turn.records().len(), turn.attempt()));
                let running = ledger.begin(&turn);
                async move {
                    for (done, stored) in turn.records().iter().enumerate() {
                        // The third record fails twice.
                        let tried = if done == 0 { turn.attempt() } else { 1 };
                        if stored.offset == Offset::new(2) && tried < 3 {
                            return Err(Failure::transient("busy").after_first(done as u32));
                        }
                        running.effect(stored);
                    }
                    Ok(())
                }
            })
            .await
            .unwrap();
    });
    assert_eq!(*turns.lock().unwrap(), [(0, 5, 1), (2, 5, 2), (2, 5, 3), (7, 1, 1)]);
    assert_eq!((ledger.done(), ledger.repeats()), (8, 0), "what was done never ran again");
    assert_eq!(world.elapsed(), ms(300));
}

#[test]
fn a_batch_that_fails_for_good_names_the_record_and_commits_what_is_done() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 1, 1, 8), MemoryStore::new());
    let error = world.block_on(async {
        let builder = builder(&world, &log, &store).batch(5, ms(0));
        let run = builder.run(|turn: Turn| async move {
            let failure = Failure::permanent("garbage").after_first(3);
            if turn.offset() == Offset::ZERO { Err(failure) } else { Ok(()) }
        });
        run.await.unwrap_err()
    });
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Exhausted, Some(Offset::new(3))));
    assert_eq!(world.block_on(progress(&log, &store)).next, Offset::new(3));
}

#[test]
fn a_record_in_the_middle_of_a_batch_has_all_its_attempts_whatever_the_head_has_used() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 1, 1, 4), MemoryStore::new());
    let turns = Arc::new(Mutex::new(Vec::new()));
    world.block_on(async {
        let seen = Arc::clone(&turns);
        let retry = Retry::exponential().attempts(2);
        let builder = builder(&world, &log, &store).retry(retry).batch(4, ms(0)).until_end();
        let run = builder.run(move |turn: Turn| {
            let number = {
                let mut seen = seen.lock().unwrap();
                seen.push((turn.offset().get(), turn.attempt()));
                seen.len()
            };
            async move {
                match number {
                    1 => Err(Failure::transient("busy")),
                    2 => Err(Failure::transient("busy").after_first(2)),
                    _ => Ok(()),
                }
            }
        });
        run.await.unwrap();
    });
    assert_eq!(*turns.lock().unwrap(), [(0, 1), (0, 2), (2, 2)]);
}

#[test]
fn a_delivery_of_several_records_may_be_acknowledged_in_part() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 1, 1, 6), MemoryStore::new());
    world.block_on(async {
        let builder = builder(&world, &log, &store).batch(4, ms(0)).until_end();
        let mut deliveries = builder.stream().unwrap();
        let first = deliveries.next().await.unwrap().unwrap();
        assert_eq!(first.records().len(), 4);
        first.ack_first(3, Failure::transient("busy")).unwrap();
        let second = deliveries.next().await.unwrap().unwrap();
        assert_eq!((second.offset(), second.attempt()), (Offset::new(3), 2));
        // All of them, by a count that is one too high: the one that failed is not done.
        second.ack_first(3, Failure::transient("not at all")).unwrap();
        let third = deliveries.next().await.unwrap().unwrap();
        assert_eq!(
            (third.offset(), third.records().len(), third.attempt()),
            (Offset::new(5), 1, 2)
        );
        third.finish(Err::<(), _>(Failure::transient("busy").after_first(1))).unwrap();
        let fourth = deliveries.next().await.unwrap().unwrap();
        assert_eq!((fourth.offset(), fourth.attempt()), (Offset::new(5), 3));
        fourth.ack().unwrap();
        assert!(deliveries.next().await.is_none());
    });
    assert_eq!(world.block_on(progress(&log, &store)).next, Offset::new(6));
}

// ---- Declared orders ---------------------------------------------------------------------------

/// Goal: one code path for every order, and each keeps exactly what it declares. Method: what runs
/// at the same time, over the same records.
#[test]
fn every_declared_order_keeps_its_order_and_is_as_parallel_as_that_allows() {
    // Four partitions of ten groups in all, or one.
    for (order, partitions, widest) in [
        (Some(Order::PerGroup), 4, 10),
        (Some(Order::PerPartition), 4, 4),
        (Some(Order::PerPartition), 1, 1),
        (None, 1, 1),
        (Some(Order::Unordered), 4, 64),
    ] {
        let world = Virtual::new();
        let (log, store) = (filled(&world, partitions, 10, 200), MemoryStore::new());
        let (running, peak) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        world.block_on(async {
            let builder = builder(&world, &log, &store).concurrency(64).until_end();
            let builder = match order {
                Some(order) => builder.order(order),
                None => builder.global_order(),
            };
            let (clock, running, peak) = (world.clone(), Arc::clone(&running), Arc::clone(&peak));
            let run = builder.run(move |turn: Turn| {
                let (clock, running) = (clock.clone(), Arc::clone(&running));
                let lane = match order {
                    Some(Order::PerGroup) => Some(format!("{:?}", turn.group())),
                    Some(Order::Unordered) => None,
                    _ => Some(format!("{:?}", turn.partition())),
                };
                let offset = turn.offset();
                {
                    let mut running = running.lock().unwrap();
                    if lane.is_some() {
                        assert!(running.iter().all(|(of, _)| *of != lane), "they overlap");
                    }
                    running.push((lane.clone(), offset));
                    peak.fetch_max(running.len(), Ordering::SeqCst);
                }
                async move {
                    clock.sleep(ms(10)).await;
                    running.lock().unwrap().retain(|it| *it != (lane.clone(), offset));
                    Ok::<_, Error>(())
                }
            });
            assert_eq!(run.await.unwrap().turns_done, 200);
        });
        let peak = peak.load(Ordering::SeqCst);
        assert_eq!(peak, widest, "{order:?} over {partitions} partitions");
    }
}

#[test]
fn a_global_order_over_several_partitions_is_refused() {
    let (log, store) = (MemoryLog::new(2), MemoryStore::new());
    let error = ConsumerBuilder::new("test", log, store).global_order().build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("one partition"), "{error}");
}

#[test]
fn of_two_orders_the_later_call_counts_and_another_executor_takes_none_of_them() {
    let (log, store) = (MemoryLog::new(2), MemoryStore::new());
    let make = || ConsumerBuilder::new("test", log.clone(), store.clone());
    assert!(make().global_order().order(Order::PerGroup).build().is_ok());
    assert!(make().order(Order::PerGroup).global_order().build().is_err());
    assert!(make().executor(procession::Chains::default()).build().is_ok());
    let shaped =
        [make().batch(2, ms(0)), make().order(Order::Unordered), make().group_interval(ms(1))];
    for builder in shaped {
        let error = builder.executor(procession::Chains::default()).build().unwrap_err();
        assert!(error.to_string().contains("default executor"), "{error}");
    }
}

#[test]
fn the_same_log_twice_and_a_batch_of_nothing_are_refused() {
    let (log, store) = (MemoryLog::new(2), MemoryStore::new());
    let make = || ConsumerBuilder::new("test", log.clone(), store.clone());
    let twice = make().log(log.clone()).build().unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
    assert_eq!(make().batch(0, ms(0)).build().unwrap_err().kind(), ErrorKind::Config);
}

// ---- Rates -------------------------------------------------------------------------------------

#[test]
fn no_more_turns_start_in_a_second_than_the_rate_allows() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 4, 100, 500), MemoryStore::new());
    let starts = Arc::new(Mutex::new(Vec::new()));
    world.block_on(async {
        let (clock, starts) = (world.clone(), Arc::clone(&starts));
        builder(&world, &log, &store)
            .turns_per_second(100)
            .until_end()
            .run(move |_| {
                starts.lock().unwrap().push(clock.elapsed());
                async { Ok::<_, Error>(()) }
            })
            .await
            .unwrap();
    });
    let starts = starts.lock().unwrap();
    for (n, at) in starts.iter().enumerate().skip(110) {
        assert!(*at - starts[n - 110] >= ms(990), "110 within {:?}", *at - starts[n - 110]);
    }
    let all = *starts.last().unwrap();
    assert!((ms(4800)..=ms(5100)).contains(&all), "500 turns took {all:?}");
}

#[test]
fn turns_of_one_group_keep_their_interval_and_other_groups_do_not_wait_for_it() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 1, 10, 50), MemoryStore::new());
    let ends = world.block_on(async {
        let (clock, ends) = (world.clone(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&ends);
        builder(&world, &log, &store)
            .group_interval(ms(200))
            .until_end()
            .run(move |turn: Turn| {
                seen.lock().unwrap().push((turn.payload().to_vec(), clock.elapsed()));
                async { Ok::<_, Error>(()) }
            })
            .await
            .unwrap();
        ends
    });
    for (payload, at) in ends.lock().unwrap().iter() {
        let number: u64 = std::str::from_utf8(payload).unwrap().parse().unwrap();
        assert_eq!(*at, ms(200 * number));
    }
}

// ---- Other ways to run -------------------------------------------------------------------------

#[test]
fn a_local_handler_may_borrow_and_hold_what_is_not_send() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 4, 9, 90), MemoryStore::new());
    let seen = RefCell::new(Vec::new());
    let ledger = Ledger::default();
    let summary = world.block_on(async {
        let consumer = builder(&world, &log, &store).until_end().build().unwrap();
        let run = consumer.run_local(|turn| {
            let (seen, ledger, world) = (&seen, &ledger, &world);
            async move {
                let not_send = std::rc::Rc::new(turn.offset());
                let running = ledger.begin(&turn);
                world.sleep(ms(5)).await;
                running.done(&turn);
                seen.borrow_mut().push(*not_send);
                Ok::<_, Error>(())
            }
        });
        run.await.unwrap()
    });
    assert_eq!((summary.turns_done, seen.borrow().len(), ledger.repeats()), (90, 90, 0));
}

#[test]
fn a_plain_function_runs_on_its_threads_in_order_and_panics_and_failures_are_tried_again() {
    let (log, store) = (MemoryLog::new(4), MemoryStore::new());
    let ledger = Ledger::default();
    let widest = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let summary = futures::executor::block_on(async {
        fill(log.clone(), round_robin(20, 1000)).await;
        let (ledger, wide) = (ledger.clone(), Arc::clone(&widest));
        ConsumerBuilder::new("test", log.clone(), store.clone())
            .retry(Retry::exponential().initial(ms(1)))
            .until_end()
            .run_blocking(4, move |turn| {
                let running = ledger.begin(&turn);
                let now = wide.0.fetch_add(1, Ordering::SeqCst) + 1;
                wide.1.fetch_max(now, Ordering::SeqCst);
                let bad = turn.payload() == b"7" && turn.attempt() == 1;
                std::thread::yield_now();
                wide.0.fetch_sub(1, Ordering::SeqCst);
                if bad && turn.group().unwrap().as_ref() == b"g3" {
                    panic!("on a thread");
                }
                if bad {
                    return Err("busy");
                }
                running.done(&turn);
                Ok(())
            })
            .await
            .unwrap()
    });
    assert_eq!((ledger.done(), ledger.repeats()), (1000, 0));
    assert_eq!((summary.turns_done, summary.turns_failed, summary.turns_panicked), (1000, 20, 1));
    assert!(widest.1.load(Ordering::SeqCst) <= 4);
}

#[test]
fn a_shutdown_of_blocking_threads_counts_what_still_runs_and_the_next_member_waits_for_it() {
    let (log, store) = (MemoryLog::new(1), MemoryStore::new());
    let membership = procession::LocalMembership::new();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let (entered, inside) = futures::channel::oneshot::channel::<()>();
    let entered = Mutex::new(Some(entered));
    futures::executor::block_on(async {
        fill(log.clone(), round_robin(1, 2)).await;
        let make = || {
            ConsumerBuilder::new("test", log.clone(), store.clone())
                .membership(membership.clone())
                .drain_within(ms(1))
        };
        let consumer = make().build().unwrap();
        let handle = consumer.handle();
        let ended = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&ended);
        let run = consumer.run_blocking(2, move |_| {
            entered.lock().unwrap().take().unwrap().send(()).unwrap();
            blocked.lock().unwrap().recv().unwrap();
            seen.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>(())
        });
        let stop = async {
            inside.await.unwrap();
            handle.shutdown().await
        };
        let (summary, open) = futures::join!(run, stop);
        assert_eq!((summary.unwrap().turns_open, open), (1, 1));
        let next = make().until_end().run_local(|_| {
            let ended = ended.load(Ordering::SeqCst);
            async move { if ended == 1 { Ok(()) } else { Err("beside the old turn") } }
        });
        let mut next = std::pin::pin!(next);
        for _ in 0..50 {
            assert!(support::poll_once(next.as_mut()).is_pending());
        }
        release.send(()).unwrap();
        assert_eq!(next.await.unwrap().turns_failed, 0);
    });
}

/// A service that must be asked before it is called, as tower's are.
#[derive(Clone)]
struct Counted {
    asked: usize,
    calls: Arc<AtomicUsize>,
}

impl tower_service::Service<Turn> for Counted {
    type Response = usize;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<usize, Failure>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.asked += 1;
        if self.asked == 3 {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, turn: Turn) -> Self::Future {
        assert_eq!(self.asked, 3, "called before it was ready");
        let calls = self.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if turn.offset() == Offset::new(3) && turn.attempt() == 1 {
                return Err(Failure::transient("busy"));
            }
            Ok(calls)
        })
    }
}

#[test]
fn a_tower_service_is_asked_before_it_is_called_and_its_failures_are_tried_again() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 2, 5, 50), MemoryStore::new());
    let service = Counted { asked: 0, calls: Arc::default() };
    let summary = world.block_on(async {
        let builder = builder(&world, &log, &store).until_end();
        builder.run_service(service.clone()).await.unwrap()
    });
    let failed = summary.turns_failed as usize;
    assert_eq!(summary.turns_done, 50);
    assert!((1..=2).contains(&failed), "offset 3 of each partition that has one");
    assert_eq!(service.calls.load(Ordering::SeqCst), 50 + failed);
}

#[test]
fn headers_come_through_to_the_turn_as_they_were_sent() {
    let world = Virtual::new();
    let (log, store) = (MemoryLog::new(1), MemoryStore::new());
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    world.block_on(async {
        let record = Record::new("case-1", "opened").with_header("traceparent", parent);
        procession::Producer::new(log.clone()).send(record).await.unwrap();
        let run = builder(&world, &log, &store).until_end().run(move |turn: Turn| async move {
            let found = turn.headers().get("traceparent").map(<[u8]>::to_vec);
            if found.as_deref() == Some(parent.as_bytes()) { Ok(()) } else { Err("lost") }
        });
        assert_eq!(run.await.unwrap().turns_failed, 0);
    });
}

// ---- Warnings ----------------------------------------------------------------------------------

#[test]
fn keys_that_are_nearly_unique_and_a_group_that_dominates_are_warned_of() {
    let world = Virtual::new();
    let key = |n: u64, unique: bool| if unique || n.is_multiple_of(8) { n } else { 1 };
    for unique in [true, false] {
        let (log, store) = (MemoryLog::new(1), MemoryStore::new());
        let warnings = Arc::new(Mutex::new(Vec::new()));
        world.block_on(async {
            let records = (0..20_000).map(|n| (format!("k{}", key(n, unique)), "0".to_owned()));
            fill(log.clone(), records).await;
            let heard = Arc::clone(&warnings);
            builder(&world, &log, &store)
                .on_warning(move |warning| heard.lock().unwrap().push(warning.to_string()))
                .until_end()
                .run(|_| async { Ok::<_, Error>(()) })
                .await
                .unwrap();
        });
        let warnings = warnings.lock().unwrap();
        let expected = if unique { "different keys" } else { "group \"k1\" has at least" };
        assert!(warnings.len() == 1 && warnings[0].contains(expected), "{warnings:?}");
    }
}

// ---- Records that are gone ---------------------------------------------------------------------

/// A log whose oldest records go away, as retention makes them.
#[derive(Clone)]
struct Trimming {
    inner: MemoryLog,
    earliest: Arc<Mutex<Offset>>,
}

#[async_trait::async_trait]
impl Log for Trimming {
    fn info(&self) -> Arc<LogInfo> {
        self.inner.info()
    }

    fn append(&self, batch: Batch) -> Appending {
        self.inner.append(batch)
    }

    async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        let earliest = *self.earliest.lock().unwrap();
        if wants.iter().any(|want| want.from < earliest) {
            return Err(Error::new(ErrorKind::Trimmed, "read"));
        }
        self.inner.read(wants, max).await
    }

    async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> {
        if at == Position::Earliest {
            return Ok(vec![*self.earliest.lock().unwrap()]);
        }
        self.inner.ends(at).await
    }

    async fn changed(&self, seen: Version) -> Result<Version, Error> {
        self.inner.changed(seen).await
    }
}

#[test]
fn records_that_retention_removed_stop_the_run_unless_it_may_go_on_without_them() {
    for choice in [OutOfRange::Fail, OutOfRange::Earliest, OutOfRange::Latest] {
        let world = Virtual::new();
        let (log, store) = (filled(&world, 1, 5, 100), MemoryStore::new());
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let earliest = Arc::new(Mutex::new(Offset::ZERO));
        let log = Trimming { inner: log, earliest: Arc::clone(&earliest) };
        let result = world.block_on(async {
            let heard = Arc::clone(&warnings);
            let make = || {
                ConsumerBuilder::new("test", log.clone(), store.clone())
                    .runtime(world.clone())
                    .out_of_range(choice)
            };
            // It has its progress, and is away for a while.
            let mut before = make().concurrency(1).stream().unwrap();
            before.next().await.unwrap().unwrap().ack().unwrap();
            before.handle().request_shutdown();
            assert!(before.next().await.is_none());
            *earliest.lock().unwrap() = Offset::new(40);
            make()
                .on_warning(move |warning| heard.lock().unwrap().push(warning.clone()))
                .until_end()
                .run(|_| async { Ok::<_, Error>(()) })
                .await
        });
        let warned = warnings.lock().unwrap().clone();
        if choice == OutOfRange::Fail {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Trimmed);
            assert!(error.to_string().contains("out_of_range"), "{error}");
            continue;
        }
        let (to, done) = if choice == OutOfRange::Earliest { (40, 60) } else { (100, 0) };
        assert_eq!(result.unwrap().turns_done, done);
        let [Warning::Skipped { from, to: on, .. }] = warned[..] else { panic!("{warned:?}") };
        assert_eq!((from, on), (Offset::new(1), Offset::new(to)));
        assert_eq!(world.block_on(progress(&log.inner, &store)).next, Offset::new(100));
    }
}

/// Goal: a record whose body was dropped to save memory, and that is gone when its turn comes, is
/// passed over, and its group goes on. Method: a budget so small that bodies are dropped.
#[test]
fn a_waiting_record_that_is_gone_when_its_turn_comes_is_passed_over() {
    let world = Virtual::new();
    let (log, store) = (MemoryLog::new(1), MemoryStore::new());
    let earliest = Arc::new(Mutex::new(Offset::ZERO));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let skipped = Arc::new(AtomicUsize::new(0));
    world.block_on(async {
        let big = "x".repeat(1000);
        fill(log.clone(), (0..200).map(|_| ("one".to_owned(), big.clone()))).await;
        let log = Trimming { inner: log.clone(), earliest: Arc::clone(&earliest) };
        let (seen, count) = (Arc::clone(&seen), Arc::clone(&skipped));
        ConsumerBuilder::new("test", log, store.clone())
            .runtime(world.clone())
            .budget(Budget::new(1000, 100_000))
            .out_of_range(OutOfRange::Earliest)
            .on_warning(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            })
            .until_end()
            .run(move |turn: Turn| {
                seen.lock().unwrap().push(turn.offset().get());
                if turn.offset() == Offset::new(10) {
                    *earliest.lock().unwrap() = Offset::new(120);
                }
                async { Ok::<_, Error>(()) }
            })
            .await
            .unwrap();
    });
    let seen = seen.lock().unwrap();
    assert!(seen.is_sorted() && seen.last() == Some(&199), "{seen:?}");
    assert!((120..200).all(|offset| seen.contains(&offset)));
    assert!(seen.len() < 200 && skipped.load(Ordering::SeqCst) > 0, "no evidence: nothing gone");
    assert_eq!(world.block_on(progress(&log, &store)).next, Offset::new(200));
}

#[test]
fn a_stream_of_everything_may_be_collected_where_each_has_its_verdict() {
    let world = Virtual::new();
    let (log, store) = (filled(&world, 2, 5, 50), MemoryStore::new());
    let offsets: Vec<_> = world.block_on(async {
        let deliveries = builder(&world, &log, &store).until_end().stream().unwrap();
        let acked = deliveries.and_then(|delivery| async move {
            let offset = delivery.offset();
            delivery.ack().map(|()| offset)
        });
        acked.try_collect().await.unwrap()
    });
    assert_eq!(offsets.len(), 50);
}
