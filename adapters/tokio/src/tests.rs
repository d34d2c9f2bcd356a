use std::future::poll_fn;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::executor::block_on;
use futures::task::{ArcWake, noop_waker_ref, waker};
use procession_core::{Runtime, Timer};

use super::*;

/// One runtime for all tests; none of them runs inside it.
fn runtime() -> Tokio {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let make = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_time().build().expect("a runtime")
    };
    Tokio::from(RUNTIME.get_or_init(make).handle().clone())
}

/// Long enough for any timer here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn after(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

/// A waker that says which one was woken.
struct Named(&'static str, Sender<&'static str>);

impl ArcWake for Named {
    fn wake_by_ref(arc_self: &Arc<Self>) {
        let _ = arc_self.1.send(arc_self.0);
    }
}

fn poll(timer: &mut dyn Timer, at: Instant, name: &'static str, to: &Sender<&'static str>) -> bool {
    let waker = waker(Arc::new(Named(name, to.clone())));
    timer.poll_at(at, &mut Context::from_waker(&waker)).is_ready()
}

fn woken(by: &Receiver<&'static str>) -> &'static str {
    by.recv_timeout(PATIENCE).expect("the timer wakes somebody")
}

#[test]
fn is_never_early() {
    let runtime = runtime();
    for ms in [0, 1, 3, 10, 25] {
        let (mut timer, at) = (runtime.timer(), after(ms));
        block_on(poll_fn(|cx| timer.poll_at(at, cx)));
        assert!(Instant::now() >= at);
    }
}

#[test]
fn serves_one_wait_after_the_other() {
    let mut timer = runtime().timer();
    for _ in 0..5 {
        let at = after(3);
        block_on(poll_fn(|cx| timer.poll_at(at, cx)));
        assert!(Instant::now() >= at);
    }
}

#[test]
fn can_be_re_armed_to_an_earlier_time() {
    let (mut timer, (sender, receiver)) = (runtime().timer(), channel());
    assert!(!poll(&mut *timer, after(3_600_000), "far", &sender));
    let near = after(10);
    assert!(!poll(&mut *timer, near, "near", &sender));
    assert_eq!(woken(&receiver), "near");
    assert!(Instant::now() >= near && poll(&mut *timer, near, "again", &sender));
}

#[test]
fn can_be_re_armed_to_a_later_time() {
    let (mut timer, (sender, receiver)) = (runtime().timer(), channel());
    assert!(!poll(&mut *timer, after(50), "soon", &sender));
    let late = after(120);
    if poll(&mut *timer, late, "late", &sender) {
        assert!(Instant::now() >= late);
        return;
    }
    // A wake-up of the earlier time may have been under way; the timer is ready at the later only.
    let mut woken_at = Instant::now();
    while woken_at < late {
        woken(&receiver);
        woken_at = Instant::now();
        let ready = poll(&mut *timer, late, "late", &sender);
        assert!(!ready || Instant::now() >= late, "ready at the time it was armed for before");
        if ready {
            return;
        }
    }
    assert!(poll(&mut *timer, late, "late", &sender));
}

#[test]
fn wakes_the_waker_it_was_polled_with_last() {
    let (mut timer, (sender, receiver)) = (runtime().timer(), channel());
    let at = after(60);
    let first_pending = !poll(&mut *timer, at, "first", &sender);
    let second_pending = !poll(&mut *timer, at, "second", &sender);
    if first_pending && second_pending {
        assert_eq!(woken(&receiver), "second");
    }
}

#[test]
fn dropping_it_disarms_it() {
    let (mut timer, (sender, receiver)) = (runtime().timer(), channel());
    let pending = !poll(&mut *timer, after(100), "dropped", &sender);
    drop((timer, sender));
    // The waker went with the timer, and with it the last sender.
    let woken = receiver.recv_timeout(PATIENCE);
    assert!(!pending || woken == Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn a_spawned_future_runs_and_its_timers_too() {
    let runtime = runtime();
    let (sender, receiver) = channel();
    let (mut timer, at) = (runtime.timer(), after(5));
    runtime.spawn(Box::pin(async move {
        poll_fn(|cx| timer.poll_at(at, cx)).await;
        let _ = sender.send(Instant::now());
    }));
    assert!(receiver.recv_timeout(PATIENCE).expect("the future runs") >= at);
}

#[test]
fn a_past_moment_is_ready_at_once() {
    let mut timer = runtime().timer();
    let mut cx = Context::from_waker(noop_waker_ref());
    assert!(timer.poll_at(Instant::now(), &mut cx).is_ready());
}

#[test]
fn the_current_runtime_is_found_inside_and_missed_outside() {
    assert_eq!(Tokio::try_current().unwrap_err().kind(), ErrorKind::Unavailable);
    let handle = runtime().handle;
    let _entered = handle.enter();
    assert_eq!(Tokio::try_current().unwrap().handle.id(), handle.id());
    assert_eq!(Tokio::current().handle.id(), handle.id());
}

/// What waits may outlive the runtime whose timer it has: a member that takes a partition over.
#[test]
fn a_timer_that_outlives_its_runtime_still_rings_in_time() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let mut timer = Tokio::from(runtime.handle().clone()).timer();
    let (to, woken) = channel();
    assert!(!poll(&mut *timer, after(60_000), "before", &to));
    runtime.shutdown_background();
    let at = after(30);
    block_on(poll_fn(|cx| timer.poll_at(at, cx)));
    assert!(Instant::now() >= at);
    drop(woken);
}
