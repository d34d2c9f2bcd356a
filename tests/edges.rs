//! The edges of what can be asked for, and what handlers must not be able to break.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::{
    ConsumerBuilder, Epoch, Error, ErrorKind, Failure, Key, LocalMembership, Log, OffsetStore,
    Partition, Producer, Record, Retry, Summary, Turn,
};
use procession_memory::{MemoryLog, MemoryStore};
use procession_tokio::Tokio;
use support::{fill, poll_once, round_robin, yield_once};

/// A hang is a failure, not a test that never ends.
fn in_time<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || drop(done.send(catch_unwind(AssertUnwindSafe(test)))));
    match wait.recv_timeout(Duration::from_secs(60)) {
        Ok(Ok(value)) => value,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => panic!("hangs (the test's thread is over: {})", thread.is_finished()),
    }
}

fn filled(groups: usize, count: usize) -> (MemoryLog, ConsumerBuilder) {
    let log = MemoryLog::new(1);
    block_on(fill(log.clone(), round_robin(groups, count)));
    let builder = ConsumerBuilder::new("test", log.clone(), MemoryStore::new());
    (log, builder)
}

fn tokio() -> tokio::runtime::Runtime {
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    threads.unwrap()
}

fn is_group(turn: &Turn, group: &str) -> bool {
    turn.group().unwrap().as_ref() == group.as_bytes()
}

async fn fine(_: Turn) -> Result<(), Error> {
    Ok(())
}

#[test]
fn the_highest_settings_mean_no_bound() {
    in_time(|| {
        let (_, builder) = filled(3, 10);
        let longest = Duration::MAX;
        let builder = builder.concurrency(usize::MAX).commit_every(longest).drain_within(longest);
        assert_eq!(block_on(builder.until_end().run(fine)).unwrap().turns_done, 10);
    });
}

/// Ten groups of one record; that of `g0` fails until the others are done, then the run is ended.
fn one_group_fails(
    threads: Option<&tokio::runtime::Runtime>,
    retry: Retry,
    failure: impl Fn() -> Failure + Send + Sync + 'static,
) -> Summary {
    let (_, mut builder) = filled(10, 10);
    if let Some(threads) = threads {
        builder = builder.runtime(Tokio::from(threads.handle().clone()));
    }
    let consumer = builder.retry(retry).build().unwrap();
    let (handle, done) = (consumer.handle(), AtomicUsize::new(0));
    let run = consumer.run(move |turn| {
        let failed = is_group(&turn, "g0");
        if !failed && done.fetch_add(1, Ordering::SeqCst) == 8 {
            handle.request_shutdown();
        }
        let result = if failed { Err(failure()) } else { Ok(()) };
        async { result }
    });
    block_on(run).unwrap()
}

#[test]
fn a_delay_that_never_ends_delays_only_its_group() {
    in_time(|| {
        let threads = tokio();
        for threads in [None, Some(&threads)] {
            let after = || Failure::transient("later").retry_after(Duration::MAX);
            assert_eq!(one_group_fails(threads, Retry::default(), after).turns_done, 9);
            let longest = Retry::default().initial(Duration::MAX).max(Duration::MAX);
            let plain = || Failure::transient("later");
            assert_eq!(one_group_fails(threads, longest, plain).turns_done, 9);
        }
    });
}

#[test]
fn a_group_that_is_retried_without_a_pause_and_without_end_starves_no_other() {
    in_time(|| {
        let threads = tokio();
        for threads in [None, Some(&threads)] {
            let at_once = Retry::default().initial(Duration::ZERO).attempts(u32::MAX);
            let plain = || Failure::transient("again");
            assert_eq!(one_group_fails(threads, at_once, plain).turns_done, 9);
        }
    });
}

#[test]
fn a_panic_in_classify_counts_as_a_panic_of_the_handler() {
    in_time(|| {
        let threads = tokio();
        let (_, builder) = filled(2, 10);
        let retry = Retry::exponential().initial(Duration::ZERO).attempts(2);
        let run = builder
            .runtime(Tokio::from(threads.handle().clone()))
            .retry(retry)
            .classify(|_| panic!("who knows"))
            .until_end()
            .run(|turn| async move {
                if is_group(&turn, "g0") { Err(std::io::Error::other("odd")) } else { Ok(()) }
            });
        let error = block_on(run).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        assert!(error.to_string().contains("2 attempts"), "{error}");
    });
}

#[test]
fn a_runtime_that_is_gone_is_an_error_and_no_hang() {
    in_time(|| {
        let threads = tokio();
        let runtime = Tokio::from(threads.handle().clone());
        drop(threads);
        let (_, builder) = filled(2, 10);
        let error = block_on(builder.runtime(runtime).run(fine)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn a_turn_that_wakes_itself_all_the_time_starves_no_other() {
    in_time(|| {
        let (log, builder) = filled(1, 1);
        let (spinning, other) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let begun = Arc::clone(&spinning);
        let sender = thread::spawn(move || {
            while !begun.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            block_on(Producer::new(log).send(Record::new("other", "0"))).unwrap();
        });
        let consumer = builder.build().unwrap();
        let handle = consumer.handle();
        let run = consumer.run(move |turn| {
            let (spinning, other, handle) =
                (Arc::clone(&spinning), Arc::clone(&other), handle.clone());
            async move {
                if is_group(&turn, "other") {
                    other.store(true, Ordering::SeqCst);
                    return Ok::<_, Error>(());
                }
                spinning.store(true, Ordering::SeqCst);
                while !other.load(Ordering::SeqCst) {
                    yield_once().await;
                }
                handle.request_shutdown();
                Ok(())
            }
        });
        assert_eq!(block_on(run).unwrap().turns_done, 2);
        sender.join().unwrap();
    });
}

#[test]
fn no_turn_starts_once_a_shutdown_was_asked_for() {
    in_time(|| {
        let (_, builder) = filled(1000, 1000);
        let consumer = builder.concurrency(1).build().unwrap();
        let handle = consumer.handle();
        let run = consumer.run(move |_| {
            handle.request_shutdown();
            async { Ok::<_, Error>(()) }
        });
        assert_eq!(block_on(run).unwrap().turns_done, 1);
    });
}

/// Counts the turns of a group that run at one time.
#[derive(Clone, Default)]
struct Gauge(Arc<Mutex<(usize, usize)>>);

impl Gauge {
    fn enter(&self) -> Self {
        let mut now_and_most = self.0.lock().unwrap();
        now_and_most.0 += 1;
        now_and_most.1 = now_and_most.1.max(now_and_most.0);
        self.clone()
    }

    fn most(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

struct Inside(Gauge);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().0 -= 1;
    }
}

#[test]
fn a_turn_that_outlives_its_dropped_run_never_overlaps_the_next_run() {
    in_time(|| {
        let threads = tokio();
        let (log, store, membership) =
            (MemoryLog::new(1), MemoryStore::new(), LocalMembership::new());
        block_on(fill(log.clone(), round_robin(1, 3)));
        let builder = || {
            ConsumerBuilder::new("test", log.clone(), store.clone())
                .membership(membership.clone())
                .runtime(Tokio::from(threads.handle().clone()))
                .until_end()
        };
        let gauge = Gauge::default();
        let (begun, begins) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let inside = gauge.clone();
        let blocked = builder().run(move |_| {
            let _inside = Inside(inside.enter());
            begun.send(()).unwrap();
            // Blocks its thread: nobody can drop it.
            released.lock().unwrap().recv().unwrap();
            async { Ok::<_, Error>(()) }
        });
        {
            let mut blocked = pin!(blocked);
            block_on(poll_fn(|cx| {
                assert!(blocked.as_mut().poll(cx).is_pending());
                cx.waker().wake_by_ref();
                if begins.try_recv().is_ok() { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        let inside = gauge.clone();
        let mut next = pin!(builder().run(move |_| {
            let _inside = Inside(inside.enter());
            async { Ok::<_, Error>(()) }
        }));
        for _ in 0..10 {
            assert!(poll_once(next.as_mut()).is_pending());
        }
        // It has not even claimed: this is the second claim, and not the third.
        let partition = Partition::new(0);
        let key = Key { subscription: "test".into(), log: log.info().uuid, partition };
        let (epoch, _) = block_on(store.claim(&key, Epoch::FIRST, None)).unwrap().unwrap();
        assert_eq!(epoch.get(), 2);
        release.send(()).unwrap();
        assert_eq!(block_on(next).unwrap().turns_done, 3);
        assert_eq!(gauge.most(), 1);
    });
}

#[test]
fn futures_that_panic_when_they_are_dropped_abort_nothing() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    in_time(|| {
        let (_, builder) = filled(4, 4);
        let mut run = Box::pin(builder.run(|_| async {
            let _bomb = Bomb;
            pending::<()>().await;
            Ok::<_, Error>(())
        }));
        for _ in 0..3 {
            assert!(poll_once(run.as_mut()).is_pending());
        }
        drop(run);
    });
}
