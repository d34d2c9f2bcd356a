//! What the stream of deliveries promises.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};
use futures::stream::FusedStream;
use futures::{StreamExt, TryStreamExt};
use procession::{
    Class, ConsumerBuilder, Delivery, Epoch, Error, ErrorKind, Failure, Key, Log, Offset,
    OffsetStore, Partition, Retry, Runtime,
};
use procession_memory::{MemoryLog, MemoryStore};
use support::{Ledger, Virtual, fill, poll_once, round_robin};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn builder(world: &Virtual, log: &MemoryLog, store: &MemoryStore) -> ConsumerBuilder {
    ConsumerBuilder::new("test", log.clone(), store.clone()).runtime(world.clone())
}

async fn next_offset(log: &MemoryLog, store: &MemoryStore) -> Offset {
    let key =
        Key { subscription: "test".into(), log: log.info().uuid, partition: Partition::new(0) };
    store.claim(&key, Epoch::FIRST, None).await.unwrap().unwrap().1.next
}

fn filled(world: &Virtual, groups: usize, count: usize) -> (MemoryLog, MemoryStore) {
    let (log, store) = (MemoryLog::new(1), MemoryStore::new());
    world.block_on(fill(log.clone(), round_robin(groups, count)));
    (log, store)
}

async fn handle(world: &Virtual, ledger: &Ledger, delivery: Delivery) {
    let running = ledger.begin(&delivery);
    world.sleep(ms(1 + delivery.offset().get() % 5)).await;
    running.done(&delivery);
    delivery.ack().unwrap();
}

#[test]
fn a_plain_loop_handles_every_record_in_order_with_a_runtime_and_without() {
    for with_runtime in [true, false] {
        let world = Virtual::new();
        let (log, store) = filled(&world, 7, 210);
        let ledger = Ledger::default();
        world.block_on(async {
            let plain = ConsumerBuilder::new("test", log.clone(), store.clone());
            let builder = if with_runtime { builder(&world, &log, &store) } else { plain };
            let mut deliveries = builder.until_end().stream().unwrap();
            while let Some(delivery) = deliveries.next().await {
                handle(&world, &ledger, delivery.unwrap()).await;
            }
            assert!(deliveries.is_terminated());
            assert!(deliveries.next().await.is_none(), "fused");
            assert_eq!(deliveries.handle().counts().records_done, 210);
        });
        assert_eq!((ledger.done(), ledger.repeats()), (210, 0));
        assert_eq!(world.block_on(next_offset(&log, &store)), Offset::new(210));
    }
}

#[test]
fn for_each_concurrent_runs_groups_side_by_side_and_each_in_order() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 16, 160);
    let ledger = Ledger::default();
    world.block_on(async {
        let deliveries = builder(&world, &log, &store).until_end().stream().unwrap();
        deliveries
            .try_for_each_concurrent(16, |delivery| async {
                let running = ledger.begin(&delivery);
                world.sleep(ms(10)).await;
                running.done(&delivery);
                delivery.ack()
            })
            .await
            .unwrap();
    });
    assert_eq!((ledger.done(), ledger.repeats()), (160, 0));
    assert_eq!(world.elapsed(), ms(100), "ten turns a group, sixteen wide");
}

#[test]
fn deliveries_on_other_threads_may_be_acknowledged_there() {
    let log = MemoryLog::new(4);
    let ledger = Ledger::default();
    futures::executor::block_on(async {
        fill(log.clone(), round_robin(20, 2000)).await;
        let (give, take) = std::sync::mpsc::channel::<Delivery>();
        let take = Arc::new(std::sync::Mutex::new(take));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (take, ledger) = (Arc::clone(&take), ledger.clone());
                std::thread::spawn(move || {
                    loop {
                        let Ok(delivery) = take.lock().unwrap().recv() else { return };
                        ledger.begin(&delivery).done(&delivery);
                        delivery.ack().unwrap();
                    }
                })
            })
            .collect();
        let builder = ConsumerBuilder::new("test", log.clone(), MemoryStore::new());
        let mut deliveries = builder.concurrency(8).until_end().stream().unwrap();
        while let Some(delivery) = deliveries.next().await {
            give.send(delivery.unwrap()).unwrap();
        }
        drop(give);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    assert_eq!((ledger.done(), ledger.repeats()), (2000, 0));
}

#[test]
fn no_second_delivery_of_a_group_comes_before_the_first_has_its_verdict() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 3, 9);
    world.block_on(async {
        let mut deliveries = builder(&world, &log, &store).stream().unwrap();
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(deliveries.next().await.unwrap().unwrap());
        }
        let mut later = pin!(world.sleep(Duration::from_secs(3600)));
        let none = select(deliveries.next(), later.as_mut()).await;
        assert!(matches!(none, Either::Right(_)), "a second record of a group that is out");
        held.pop().unwrap().ack().unwrap();
        let next = deliveries.next().await.unwrap().unwrap();
        assert_eq!((next.offset(), next.payload()), (Offset::new(5), &b"1"[..]));
    });
}

#[test]
fn no_more_deliveries_are_out_than_the_concurrency() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 10, 10);
    world.block_on(async {
        let mut deliveries = builder(&world, &log, &store).concurrency(4).stream().unwrap();
        let mut held: Vec<_> = deliveries.by_ref().take(4).try_collect().await.unwrap();
        world.sleep(ms(10)).await;
        assert!(poll_once(pin!(deliveries.next())).is_pending());
        let verdict = held.pop().unwrap();
        let verdict = async {
            world.sleep(ms(10)).await;
            verdict.ack().unwrap();
        };
        let (next, ()) = futures::join!(deliveries.next(), verdict);
        held.push(next.unwrap().unwrap());
        assert_eq!(held[3].offset(), Offset::new(4), "the verdict made room");
        // Once more, from another task and within the interval of the commits, which wake it too.
        let before = world.elapsed();
        let (clock, delivery) = (world.clone(), held.pop().unwrap());
        let verdict = async move {
            clock.sleep(ms(10)).await;
            delivery.ack().unwrap();
        };
        Runtime::spawn(&world, Box::pin(verdict));
        assert_eq!(deliveries.next().await.unwrap().unwrap().offset(), Offset::new(5));
        assert_eq!(world.elapsed() - before, ms(10), "the verdict alone woke the stream");
    });
}

#[test]
fn a_dropped_delivery_comes_again_first_in_its_group_and_is_no_attempt() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 1, 2);
    world.block_on(async {
        let mut deliveries = builder(&world, &log, &store).stream().unwrap();
        for times in 0..5 {
            let delivery = deliveries.next().await.unwrap().unwrap();
            assert_eq!((delivery.offset(), delivery.attempt()), (Offset::ZERO, 1));
            assert_eq!(world.elapsed(), ms(100 * ((1 << times) - 1)), "it backs off, doubling");
            drop(delivery);
        }
        let handle = deliveries.handle();
        assert_eq!((handle.counts().deliveries_abandoned, handle.counts().records_done), (5, 0));
        world.sleep(ms(1000)).await;
        assert_eq!(next_offset(&log, &store).await, Offset::ZERO);
    });
}

#[test]
fn a_loop_that_drops_everything_ends_with_an_error_that_names_the_record() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 1, 2);
    world.block_on(async {
        let mut deliveries = builder(&world, &log, &store).stream().unwrap();
        let mut dropped = 0;
        let error = loop {
            match deliveries.next().await.unwrap() {
                Ok(delivery) => drop(delivery),
                Err(error) => break error,
            }
            dropped += 1;
            assert!(dropped < 100, "it never ends");
        };
        assert_eq!(dropped, 16);
        assert_eq!((error.kind(), error.offset()), (ErrorKind::Abandoned, Some(Offset::ZERO)));
        assert!(deliveries.next().await.is_none());
        assert_eq!(next_offset(&log, &store).await, Offset::ZERO, "nothing was finished");
    });
}

#[test]
fn a_verdict_in_between_starts_the_count_of_dropped_deliveries_anew() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 1, 1);
    world.block_on(async {
        let retry = Retry::exponential().attempts(100);
        let mut deliveries = builder(&world, &log, &store).retry(retry).stream().unwrap();
        for round in 0..40 {
            let delivery = deliveries.next().await.unwrap().unwrap();
            if round % 10 == 9 {
                delivery.retry("not yet").unwrap();
            }
        }
    });
}

#[test]
fn retry_reject_and_finish_do_what_a_handlers_result_would() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 1, 3);
    world.block_on(async {
        let retry = Retry::exponential().without_jitter();
        let classify = |error: &(dyn std::error::Error + 'static)| {
            let number = error.downcast_ref::<std::num::ParseIntError>();
            if number.is_some() { Class::Permanent } else { Class::Transient }
        };
        let builder = builder(&world, &log, &store).retry(retry).classify(classify);
        let mut deliveries = builder.stream().unwrap();
        let first = deliveries.next().await.unwrap().unwrap();
        first.retry("busy").unwrap();
        let again = deliveries.next().await.unwrap().unwrap();
        assert_eq!((again.attempt(), world.elapsed()), (2, ms(100)));
        again.retry(Failure::transient("busy").retry_after(ms(7))).unwrap();
        let third = deliveries.next().await.unwrap().unwrap();
        assert_eq!((third.attempt(), world.elapsed()), (3, ms(107)));
        third.finish(Ok::<_, Error>(())).unwrap();
        let second_record = deliveries.next().await.unwrap().unwrap();
        assert_eq!((second_record.offset(), second_record.attempt()), (Offset::new(1), 1));
        second_record.finish("x".parse::<u8>().map(drop)).unwrap();
        let error = deliveries.next().await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.offset()), (ErrorKind::Exhausted, Some(Offset::new(1))));
        assert!(error.to_string().contains("permanent failure after 1 attempt"), "{error}");
    });
    assert_eq!(world.block_on(next_offset(&log, &store)), Offset::new(1));
}

#[test]
fn a_rejected_delivery_ends_the_stream_and_what_was_finished_is_committed() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 2, 4);
    world.block_on(async {
        let mut deliveries = builder(&world, &log, &store).stream().unwrap();
        let one = deliveries.next().await.unwrap().unwrap();
        let two = deliveries.next().await.unwrap().unwrap();
        two.reject("garbage").unwrap();
        one.ack().unwrap();
        let error = deliveries.next().await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.offset()), (ErrorKind::Exhausted, Some(Offset::new(1))));
        assert_eq!(next_offset(&log, &store).await, Offset::new(1));
    });
}

/// With a runtime nobody needs to poll: commits, a shutdown.
#[test]
fn a_loop_that_works_for_a_minute_between_two_polls_still_commits() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 1, 3);
    world.block_on(async {
        let mut deliveries = builder(&world, &log, &store).stream().unwrap();
        deliveries.next().await.unwrap().unwrap().ack().unwrap();
        world.sleep(Duration::from_secs(60)).await;
        assert_eq!(deliveries.handle().counts().commits, 1);
        let out = deliveries.next().await.unwrap().unwrap();
        let shutdown = deliveries.handle().shutdown();
        let acks = async {
            world.sleep(ms(500)).await;
            out.ack().unwrap();
        };
        assert_eq!(futures::join!(shutdown, acks).0, 0, "over, though nobody polls the stream");
        assert_eq!(next_offset(&log, &store).await, Offset::new(2));
        assert!(deliveries.next().await.is_none());
    });
}

#[test]
fn a_shutdown_waits_for_the_deliveries_that_are_out_and_commits_them() {
    for with_runtime in [true, false] {
        let world = Virtual::new();
        let (log, store) = filled(&world, 4, 8);
        world.block_on(async {
            let plain = ConsumerBuilder::new("test", log.clone(), store.clone());
            let builder = if with_runtime { builder(&world, &log, &store) } else { plain };
            let mut deliveries = builder.stream().unwrap();
            let out: Vec<_> = deliveries.by_ref().take(4).try_collect().await.unwrap();
            deliveries.handle().request_shutdown();
            let acks = async {
                world.sleep(ms(50)).await;
                out.into_iter().for_each(|delivery| delivery.ack().unwrap());
            };
            let (end, ()) = futures::join!(deliveries.next(), acks);
            assert!(end.is_none(), "nothing new once a shutdown was asked for");
            assert_eq!(next_offset(&log, &store).await, Offset::new(4));
        });
    }
}

#[test]
fn a_delivery_that_is_held_for_ever_is_counted_as_open_when_a_shutdown_gives_up() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 2, 2);
    world.block_on(async {
        let builder = builder(&world, &log, &store).drain_within(ms(200));
        let mut deliveries = builder.stream().unwrap();
        let held = deliveries.next().await.unwrap().unwrap();
        deliveries.next().await.unwrap().unwrap().ack().unwrap();
        assert_eq!(deliveries.handle().shutdown().await, 1);
        assert!(deliveries.next().await.is_none());
        let late = held.ack().unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Closed);
        assert_eq!(next_offset(&log, &store).await, Offset::ZERO, "it runs again");
    });
}

#[test]
fn dropping_the_stream_answers_what_is_out_with_closed_and_loses_nothing() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 3, 30);
    let ledger = Ledger::default();
    world.block_on(async {
        for take in [1, 5, 7, 9] {
            let mut deliveries = builder(&world, &log, &store).until_end().stream().unwrap();
            let mut out = None;
            for _ in 0..take {
                let Some(delivery) = deliveries.next().await else { break };
                let delivery = delivery.unwrap();
                handle_now(&ledger, &delivery);
                if let Some(before) = out.replace(delivery) {
                    Delivery::ack(before).unwrap();
                }
                // One is held; of three groups, another one can always come.
            }
            drop(deliveries);
            if let Some(out) = out {
                assert_eq!(out.ack().unwrap_err().kind(), ErrorKind::Closed);
            }
        }
        let rest = builder(&world, &log, &store).until_end().stream().unwrap();
        rest.try_for_each(|delivery| {
            handle_now(&ledger, &delivery);
            futures::future::ready(delivery.ack())
        })
        .await
        .unwrap();
    });
    assert_eq!(ledger.done(), 30);
}

fn handle_now(ledger: &Ledger, delivery: &Delivery) {
    ledger.begin(delivery).done(delivery);
}

/// Every cut of the loop by another branch of a `select!`: nothing is lost and nothing comes twice.
#[test]
fn a_next_that_is_cancelled_at_any_poll_loses_nothing() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 5, 100);
    let ledger = Ledger::default();
    world.block_on(async {
        let mut deliveries = builder(&world, &log, &store).until_end().stream().unwrap();
        let mut cancelled = 0;
        loop {
            // Polled once and dropped, if nothing comes.
            if cancelled % 3 != 0
                && let Poll::Ready(ready) = poll_once(pin!(deliveries.next()))
            {
                match ready {
                    Some(delivery) => handle(&world, &ledger, delivery.unwrap()).await,
                    None => break,
                }
                continue;
            }
            cancelled += 1;
            match select(deliveries.next(), pin!(world.sleep(ms(1)))).await {
                Either::Left((Some(delivery), _)) => {
                    handle(&world, &ledger, delivery.unwrap()).await;
                }
                Either::Left((None, _)) => break,
                Either::Right(_) => {}
            }
        }
    });
    assert_eq!((ledger.done(), ledger.repeats()), (100, 0));
}

#[test]
fn a_runtime_that_is_gone_is_an_error_of_the_stream_and_no_hang() {
    let log = MemoryLog::new(1);
    futures::executor::block_on(fill(log.clone(), round_robin(1, 3)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let tokio = procession_tokio::Tokio::from(runtime.handle().clone());
    let builder = ConsumerBuilder::new("test", log, MemoryStore::new()).runtime(tokio);
    let mut deliveries = builder.stream().unwrap();
    let first = futures::executor::block_on(deliveries.next()).unwrap().unwrap();
    runtime.shutdown_background();
    let error = futures::executor::block_on(async {
        loop {
            match deliveries.next().await {
                Some(Ok(delivery)) => drop(delivery.ack()),
                Some(Err(error)) => break error,
                None => panic!("ended as if all were well"),
            }
        }
    });
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(first.ack().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_stream_that_is_never_polled_joins_nothing_and_holds_nobody_up() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 3, 30);
    let ledger = Ledger::default();
    let membership = procession::LocalMembership::new();
    let counted = Arc::new(AtomicUsize::new(0));
    world.block_on(async {
        let make = || builder(&world, &log, &store).membership(membership.clone());
        let never = make().stream().unwrap();
        let works = make().until_end().stream().unwrap();
        works
            .try_for_each(|delivery| {
                counted.fetch_add(1, Ordering::SeqCst);
                handle_now(&ledger, &delivery);
                futures::future::ready(delivery.ack())
            })
            .await
            .unwrap();
        drop(never);
    });
    assert_eq!(counted.load(Ordering::SeqCst), 30);
}

#[test]
fn a_stream_that_is_dropped_leaves_no_member_and_no_task_behind() {
    for polls in [0, 1, 5] {
        let world = Virtual::new();
        let (log, store) = filled(&world, 3, 30);
        let membership = procession::LocalMembership::new();
        world.block_on(async {
            let builder = builder(&world, &log, &store).membership(membership.clone());
            let mut deliveries = builder.stream().unwrap();
            for _ in 0..polls {
                deliveries.next().await.unwrap().unwrap().ack().unwrap();
            }
            assert_eq!(membership.members("test"), usize::from(polls > 0));
            drop(deliveries);
            world.sleep(ms(10)).await;
            assert_eq!(membership.members("test"), 0);
        });
    }
}

/// A store whose commits take half a second.
#[derive(Clone)]
struct Slow(Virtual, MemoryStore);

#[async_trait::async_trait]
impl OffsetStore for Slow {
    async fn claim(
        &self,
        key: &Key,
        floor: Epoch,
        start: Option<Offset>,
    ) -> Result<Option<(Epoch, procession::Progress)>, Error> {
        self.1.claim(key, floor, start).await
    }

    async fn commit(
        &self,
        batch: &[procession::Commit<'_>],
    ) -> Result<Vec<procession::Committed>, Error> {
        self.0.sleep(ms(500)).await;
        self.1.commit(batch).await
    }

    async fn list(&self) -> Result<Vec<Key>, Error> {
        self.1.list().await
    }

    async fn forget(&self, key: &Key) -> Result<(), Error> {
        self.1.forget(key).await
    }
}

#[test]
fn a_verdict_during_the_last_commit_is_told_that_it_came_too_late() {
    let world = Virtual::new();
    let (log, store) = filled(&world, 2, 2);
    world.block_on(async {
        let slow = Slow(world.clone(), store.clone());
        let builder = ConsumerBuilder::new("test", log.clone(), slow).runtime(world.clone());
        let mut deliveries = builder.drain_within(ms(100)).stream().unwrap();
        let held = deliveries.next().await.unwrap().unwrap();
        let other = deliveries.next().await.unwrap().unwrap();
        let handle = deliveries.handle();
        let shutdown = handle.shutdown();
        let verdicts = async {
            // Just before the drain gives up, so that there is something to commit at the end.
            world.sleep(ms(1090)).await;
            other.ack().unwrap();
            world.sleep(ms(200)).await;
            assert_eq!(held.ack().unwrap_err().kind(), ErrorKind::Closed);
        };
        assert_eq!(futures::join!(shutdown, verdicts).0, 0);
        assert_eq!(next_offset(&log, &store).await, Offset::ZERO, "it runs again");
    });
}
