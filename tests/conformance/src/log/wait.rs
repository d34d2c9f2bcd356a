//! Waiting for a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::join;
use futures::task::{ArcWake, noop_waker, waker};
use procession_core::{Batch, Log, Version};

use super::LogFactory;
use super::tools::*;
use crate::patience::soon;

/// A change is announced to every waiter and to the waker polled last; a change between the look
/// and the wait is not lost; appends from another thread race with the wait two hundred times.
///
/// # Panics
/// If the log breaks the contract.
pub async fn changed_never_loses_a_wake_up(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let never = changed(&*log, Version::NEVER, "`changed(NEVER)` returns at once").await;
    assert!(never > Version::NEVER, "`NEVER` is older than any version a log gives");

    a_change_before_the_wait_is_seen(&*log).await;
    all_waiters_are_woken(&*log).await;
    the_last_waker_counts(&*log).await;
    appends_race_with_waits(&log).await;
}

async fn changed(log: &dyn Log, seen: Version, lost: &str) -> Version {
    expect(soon(log.changed(seen), lost).await, "wait for a change")
}

/// The version now, once everything that was appended before can be read.
fn settled(log: &dyn Log) -> Version {
    let (mut seen, waker) = (Version::NEVER, noop_waker());
    while let Poll::Ready(newer) = log.changed(seen).poll_unpin(&mut Context::from_waker(&waker)) {
        seen = expect(newer, "look for a change");
    }
    seen
}

async fn appended_and_read(log: &dyn Log, n: usize) {
    let receipts = append(log, [(P0, numbered("a", n))]).await;
    read_from(log, P0, receipts[0].offset, 1).await;
}

async fn a_change_before_the_wait_is_seen(log: &dyn Log) {
    let seen = settled(log);
    appended_and_read(log, 0).await;
    let lost = "something became readable after `seen` and before the call, yet `changed(seen)` \
                waits: it \"resolves at once if anything became readable since `seen`\"";
    changed(log, seen, lost).await;
    changed(log, seen, lost).await;
}

async fn all_waiters_are_woken(log: &dyn Log) {
    let seen = settled(log);
    let (mut one, mut two) = (log.changed(seen), log.changed(seen));
    let waker = noop_waker();
    let _: Poll<_> = one.poll_unpin(&mut Context::from_waker(&waker));
    let _: Poll<_> = two.poll_unpin(&mut Context::from_waker(&waker));
    let both = join(one, two);
    let append = append(log, [(P0, numbered("a", 1))]);
    let (_, (one, two)) =
        join(append, soon(both, "two waiters wait for one change, and not both are woken")).await;
    expect(one, "wait for a change");
    expect(two, "wait for a change");
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl ArcWake for Woken {
    fn wake_by_ref(arc_self: &Arc<Self>) {
        arc_self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future moves to another task: the waker it was polled with last is the one to wake. Afterwards
/// the future is polled only if that waker was called.
async fn the_last_waker_counts(log: &dyn Log) {
    let seen = settled(log);
    let mut wait = log.changed(seen);
    let woken = Arc::<Woken>::default();
    for waker in [noop_waker(), waker(Arc::clone(&woken))] {
        if wait.poll_unpin(&mut Context::from_waker(&waker)).is_ready() {
            return;
        }
    }
    appended_and_read(log, 2).await;
    let awaited = std::future::poll_fn(|cx| match woken.0.load(Ordering::SeqCst) {
        0 => {
            // The announcement may lag behind the append on another thread: look again.
            cx.waker().wake_by_ref();
            std::thread::yield_now();
            Poll::Pending
        }
        _ => Poll::Ready(()),
    });
    soon(awaited, "the waker that `changed` was polled with last is never woken").await;
}

async fn appends_race_with_waits(log: &Arc<dyn Log>) {
    const ROUNDS: usize = 200;
    let (go, rounds) = std::sync::mpsc::sync_channel::<usize>(0);
    let writer = {
        let log = Arc::clone(log);
        std::thread::spawn(move || {
            for n in rounds {
                drop(log.append(Batch::one(P1, numbered("a", n))));
            }
        })
    };
    let mut next = ends(&**log, procession_core::Position::End).await[1];
    for n in 0..ROUNDS {
        go.send(n).expect("the writing thread runs");
        // The append happens now, at any point of what follows.
        let mut seen = settled(&**log);
        loop {
            let chunks =
                expect(read_one(&**log, P1, next, procession_core::Budget::MAX).await, "read");
            if let Some(chunk) = chunks.into_iter().find(|chunk| !chunk.records.is_empty()) {
                next = chunk.next;
                break;
            }
            let lost = "an append on another thread is never announced to a waiter that had looked \
                        just before: looking and registering must be one step";
            seen = changed(&**log, seen, lost).await;
        }
    }
    drop(go);
    writer.join().expect("`append` does not panic");
}
