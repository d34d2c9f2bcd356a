//! Attacks on what members, streams and hooks promise: each of these was false once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::{Either, join, select};
use procession::{
    Bare, Commit, Committed, ConsumerBuilder, Deliveries, Delivery, Epoch, Error, ErrorKind, Event,
    Inlet, Key, LocalMembership, LogId, Membership, Offset, OffsetStore, Partition, PartitionId,
    Progress, Seat, Subscription, Turn,
};
use procession_memory::{MemoryLog, MemoryStore};
use support::{Virtual, fill, round_robin, yield_once};

const HOUR: Duration = Duration::from_secs(3600);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn filled(partitions: u32, groups: usize, count: usize) -> MemoryLog {
    let log = MemoryLog::new(partitions);
    futures::executor::block_on(fill(log.clone(), round_robin(groups, count)));
    log
}

async fn nothing(_: Turn) -> Result<(), Error> {
    Ok(())
}

/// An executor that polls the stream the moment it is woken, whoever wakes it.
struct Prompt {
    stream: Mutex<Deliveries>,
    out: Mutex<Vec<Delivery>>,
    woken: AtomicBool,
}

impl Wake for Prompt {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        while self.woken.swap(false, Ordering::SeqCst) {
            let Ok(mut stream) = self.stream.try_lock() else {
                // Woken by its own poll: whoever polls looks again.
                return self.woken.store(true, Ordering::SeqCst);
            };
            let waker = Waker::from(Arc::clone(&self));
            let mut cx = Context::from_waker(&waker);
            while let Poll::Ready(Some(delivery)) = stream.poll_next_unpin(&mut cx) {
                self.out.lock().unwrap().push(delivery.unwrap());
            }
        }
    }
}

/// Goal: a verdict given on another thread wakes the stream when there is room, not before. Method:
/// a stream that is polled inside its wake-up, at the bound; no commit comes to its help.
#[test]
fn a_verdict_wakes_the_stream_once_its_delivery_has_made_room() {
    for verdict in [|d: Delivery| d.ack().unwrap(), drop] {
        let builder = ConsumerBuilder::new("test", filled(1, 2, 4), MemoryStore::new());
        let stream = builder.concurrency(1).commit_every(HOUR).stream().unwrap();
        let (stream, out) = (Mutex::new(stream), Mutex::default());
        let prompt = Arc::new(Prompt { stream, out, woken: AtomicBool::new(false) });
        Arc::clone(&prompt).wake();
        let first = prompt.out.lock().unwrap().pop().unwrap();
        assert!(prompt.out.lock().unwrap().is_empty(), "more than the concurrency");
        verdict(first);
        let second = prompt.out.lock().unwrap().pop();
        second
            .expect("the other group is ready, there is room, and the stream sleeps")
            .ack()
            .unwrap();
    }
}

#[test]
fn a_hook_that_panics_ends_its_own_run_with_an_error_and_hangs_nobody() {
    for with_runtime in [false, true] {
        let world = Virtual::new();
        let mut builder = ConsumerBuilder::new("test", filled(1, 1, 3), MemoryStore::new())
            .on_assigned(|_| panic!("no cache"));
        if with_runtime {
            builder = builder.runtime(world.clone());
        }
        let mut stream = builder.stream().unwrap();
        let error = world.block_on(stream.next()).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert!(error.to_string().contains("no cache"), "{error}");
    }
}

#[test]
fn a_hook_that_panics_while_another_member_takes_over_does_not_end_that_one() {
    let world = Virtual::new();
    let (log, store, membership) = (filled(2, 8, 80), MemoryStore::new(), LocalMembership::new());
    let make = || {
        ConsumerBuilder::new("test", log.clone(), store.clone())
            .membership(membership.clone())
            .runtime(world.clone())
            .workers(1)
    };
    world.block_on(async {
        let first = make().on_revoked(|_| panic!("who knows")).build().unwrap();
        let second = async {
            world.sleep(ms(100)).await;
            make().until_end().run(nothing).await
        };
        let (first, second) = join(first.run(nothing), second).await;
        second.unwrap();
        let error = first.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    });
}

/// A store that panics, never knows a key, or does what the memory store does.
#[derive(Clone, Default)]
struct Odd {
    inner: MemoryStore,
    panics: bool,
    forgetful: bool,
    /// Commits wait for this, then are answered with "fenced".
    gate: Option<Arc<AtomicBool>>,
    commits: Arc<AtomicUsize>,
}

#[async_trait]
impl OffsetStore for Odd {
    async fn claim(
        &self,
        key: &Key,
        floor: Epoch,
        start: Option<Offset>,
    ) -> Result<Option<(Epoch, Progress)>, Error> {
        assert!(!self.panics, "the store is broken");
        let start = if self.forgetful { None } else { start };
        self.inner.claim(key, floor, start).await
    }

    async fn commit(&self, batch: &[Commit<'_>]) -> Result<Vec<Committed>, Error> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        let Some(gate) = &self.gate else { return self.inner.commit(batch).await };
        while !gate.load(Ordering::SeqCst) {
            yield_once().await;
        }
        let mut answers = self.inner.commit(batch).await?;
        for (answer, commit) in answers.iter_mut().zip(batch) {
            if commit.key.partition == Partition::new(0) {
                *answer = Committed::Fenced(Epoch::LAST);
            }
        }
        Ok(answers)
    }

    async fn list(&self) -> Result<Vec<Key>, Error> {
        self.inner.list().await
    }

    async fn forget(&self, key: &Key) -> Result<(), Error> {
        self.inner.forget(key).await
    }
}

#[test]
fn a_store_that_panics_is_no_hang_of_a_stream_without_a_runtime() {
    let store = Odd { panics: true, ..Odd::default() };
    let mut stream = ConsumerBuilder::new("test", filled(1, 1, 3), store).stream().unwrap();
    let world = Virtual::new();
    let caught = catch_unwind(AssertUnwindSafe(|| world.block_on(stream.next()).is_some()));
    let message = *caught.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(message, "the store is broken");
    assert!(world.block_on(stream.next()).is_none(), "over");
}

#[test]
fn a_store_that_never_takes_a_start_is_an_error_and_no_endless_loop() {
    let store = Odd { forgetful: true, ..Odd::default() };
    let builder = ConsumerBuilder::new("test", filled(1, 1, 3), store);
    let error = futures::executor::block_on(builder.until_end().run(nothing)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// A waker that does nothing; its count tells who keeps it.
struct Quiet;

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_stream_that_many_tasks_poll_in_turn_keeps_the_waker_of_the_last_alone() {
    let builder = ConsumerBuilder::new("test", MemoryLog::new(1), MemoryStore::new());
    let mut stream = builder.runtime(Virtual::new()).stream().unwrap();
    let mut tasks = Vec::new();
    for _ in 0..1000 {
        let task = Arc::new(Quiet);
        let waker = Waker::from(Arc::clone(&task));
        assert!(stream.poll_next_unpin(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        tasks.push(task);
    }
    let kept = tasks.iter().filter(|task| Arc::strong_count(task) > 1).count();
    assert!(kept <= 2, "{kept} of 1000 tasks are kept");
}

/// Goal: a partition is given up when *its* turns have ended. Method: a delivery of one partition is
/// held; the others of its member have nothing open.
#[test]
fn a_delivery_that_is_held_keeps_its_own_partition_from_the_next_member_and_no_other() {
    for member_is_gone in [false, true] {
        let world = Virtual::new();
        let (log, membership) = (filled(4, 40, 400), LocalMembership::new());
        let make = || {
            ConsumerBuilder::new("test", log.clone(), MemoryStore::new())
                .membership(membership.clone())
                .runtime(world.clone())
        };
        world.block_on(async {
            let mut stream = make().stream().unwrap();
            let mut held = None;
            while held.is_none() {
                let delivery = stream.next().await.unwrap().unwrap();
                // The last ones are the first to move.
                if delivery.partition().partition == Partition::new(3) {
                    held = Some(delivery);
                } else {
                    delivery.ack().unwrap();
                }
            }
            let stream = (!member_is_gone).then_some(stream);
            let second = make().build().unwrap();
            let two = second.handle();
            let watch = async {
                world.sleep(ms(5000)).await;
                let owned: Vec<_> = two.partitions().iter().map(|p| p.partition.get()).collect();
                if member_is_gone {
                    assert_eq!(owned, [0, 1, 2], "nobody runs them");
                } else {
                    assert_eq!(owned, [2], "nobody runs it");
                }
                drop(held);
                world.sleep(ms(5000)).await;
                assert_eq!(two.partitions().len(), if member_is_gone { 4 } else { 2 });
                two.shutdown().await;
            };
            join(second.run(nothing), watch).await.0.unwrap();
            drop(stream);
        });
    }
}

#[test]
fn a_blocking_handler_may_wait_for_futures_on_its_own_thread() {
    let builder = ConsumerBuilder::new("test", filled(1, 3, 30), MemoryStore::new());
    let run =
        builder.until_end().run_blocking(2, |turn| futures::executor::block_on(nothing(turn)));
    let summary = futures::executor::block_on(run).unwrap();
    assert_eq!((summary.records_done, summary.turns_panicked), (30, 0));
}

/// The members of one process, and a way to tell the last one that joined something else.
#[derive(Default)]
struct Tapped(LocalMembership, Mutex<Option<Arc<dyn Inlet>>>);

#[async_trait]
impl Membership for Tapped {
    async fn join(
        &self,
        subscription: &Subscription,
        inlet: Arc<dyn Inlet>,
    ) -> Result<Box<dyn Seat>, Error> {
        *self.1.lock().unwrap() = Some(Arc::clone(&inlet));
        self.0.join(subscription, inlet).await
    }
}

/// Goal: who was told that a partition is lost goes on with the others. Method: it is lost while a
/// commit is on its way, which the store then refuses for that partition.
#[test]
fn a_commit_refused_for_a_partition_that_was_lost_meanwhile_ends_nothing() {
    let world = Virtual::new();
    let gate = Arc::new(AtomicBool::new(false));
    let store = Odd { gate: Some(Arc::clone(&gate)), ..Odd::default() };
    let commits = Arc::clone(&store.commits);
    let tapped = Arc::new(Tapped::default());
    let consumer = ConsumerBuilder::new("test", filled(2, 8, 80), store)
        .membership(Arc::clone(&tapped))
        .runtime(world.clone())
        .build()
        .unwrap();
    let handle = consumer.handle();
    world.block_on(async {
        let other = async {
            while commits.load(Ordering::SeqCst) == 0 {
                yield_once().await;
            }
            let inlet = tapped.1.lock().unwrap().take().unwrap();
            let lost = PartitionId::new(LogId::new(0), Partition::new(0));
            inlet.event(Event::Lost(vec![lost]));
            gate.store(true, Ordering::SeqCst);
            world.sleep(ms(1000)).await;
            assert_eq!(handle.partitions().len(), 1);
            handle.shutdown().await;
        };
        join(consumer.run(nothing), other).await.0.unwrap();
    });
}

/// Goal: a taker does not depend on the runtime of who gives up. Method: that one is shut down, and
/// a delivery from it is still held.
#[test]
fn a_member_whose_runtime_is_gone_is_taken_over_from_without_a_panic() {
    let (log, store, membership) = (filled(2, 8, 80), MemoryStore::new(), LocalMembership::new());
    let make =
        || ConsumerBuilder::new("test", log.clone(), store.clone()).membership(membership.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let tokio = procession_tokio::Tokio::from(runtime.handle().clone());
    let mut stream = make().runtime(tokio).stream().unwrap();
    let mut held = Vec::new();
    while held.len() < 8 {
        held.push(futures::executor::block_on(stream.next()).unwrap().unwrap());
    }
    drop(runtime);
    let second = make().runtime(Bare).until_end().build().unwrap();
    let two = second.handle();
    futures::executor::block_on(async {
        let run = std::pin::pin!(second.run(nothing));
        // It is the taker's poll that would panic.
        match select(
            run,
            std::pin::pin!(async {
                for _ in 0..1000 {
                    yield_once().await;
                }
            }),
        )
        .await
        {
            Either::Left((ended, _)) => panic!("ended before the verdicts: {ended:?}"),
            Either::Right(((), run)) => {
                assert!(two.partitions().is_empty());
                drop(held);
                assert_eq!(run.await.unwrap().records_done, 80);
            }
        }
    });
}
