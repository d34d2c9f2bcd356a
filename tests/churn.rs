//! Members on real threads over a real log: what a virtual clock cannot show.
//!
//! `PROCESSION_SECONDS=60 cargo test --test churn` is the long form.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use futures::executor::block_on;
use procession::{Bare, Error, FileLog, Record, Turn};
use procession_tokio::Tokio;
use support::{Ledger, scale};

/// Goal: members that come and go all the time, under load, on real threads, neither overlap nor
/// lose nor repeat anything. Method: six members that stay 200 ms each, one after the other, on tokio, on
/// threads of its own and without a runtime, with handlers, streams and turns of several records.
#[test]
fn members_on_real_threads_that_come_and_go_neither_overlap_nor_lose_nor_repeat() {
    let seconds = scale("PROCESSION_SECONDS", 2);
    let folder = tempfile::tempdir().unwrap();
    let log = FileLog::open(folder.path().join("log")).partitions(8).open_blocking().unwrap();
    let mut tokio = tokio::runtime::Builder::new_multi_thread();
    let tokio = tokio.worker_threads(2).enable_time().build().unwrap();
    let (ledger, over) = (Ledger::default(), AtomicBool::new(false));
    let members = AtomicUsize::new(0);
    let sent = std::thread::scope(|scope| {
        let producing = scope.spawn(|| {
            let producer = log.producer();
            let (end, mut sent) = (Instant::now() + Duration::from_secs(seconds), 0_usize);
            while Instant::now() < end {
                let sends: Vec<_> = (sent..sent + 64)
                    .map(|n| {
                        let (group, number) = (n % 100, n / 100);
                        producer.send(Record::new(format!("g{group}"), number.to_string()))
                    })
                    .collect();
                for sending in sends {
                    block_on(sending).unwrap();
                }
                sent += 64;
            }
            over.store(true, Ordering::SeqCst);
            sent
        });
        let alive = || !over.load(Ordering::SeqCst);
        for kind in 0..3 {
            let (log, ledger, members, tokio) = (&log, &ledger, &members, &tokio);
            // Two of each kind at any time, each for 200 ms: one joins every 35 ms or so.
            for _ in 0..2 {
                scope.spawn(move || {
                    while alive() {
                        members.fetch_add(1, Ordering::SeqCst);
                        live(log, ledger, tokio, kind);
                    }
                });
            }
        }
        producing.join().unwrap()
    });
    // What is left.
    let rest = log.subscribe("test").until_end().stream().unwrap();
    block_on(rest.try_for_each(|delivery: procession::Delivery| {
        ledger.begin(&delivery).done(&delivery);
        futures::future::ready(delivery.ack())
    }))
    .unwrap();
    assert_eq!((ledger.done(), ledger.repeats()), (sent, 0));
    let members = members.load(Ordering::SeqCst);
    assert!(members as u64 > seconds * 10, "no evidence: {members} members");
    println!("{members} members, {sent} records");
}

/// One member's life of 200 ms.
fn live(log: &FileLog, ledger: &Ledger, tokio: &tokio::runtime::Runtime, kind: usize) {
    let builder = log.subscribe("test").concurrency(16);
    let builder = match kind {
        0 => builder.runtime(Tokio::from(tokio.handle().clone())),
        1 => builder.runtime(Bare).workers(1).batch(4, Duration::ZERO),
        _ => builder,
    };
    let consumer = builder.build().unwrap();
    let handle = consumer.handle();
    let (stop, stopped) = channel::<()>();
    let timer = std::thread::spawn(move || {
        // The sender goes when the run has ended by itself, which it must not.
        let _ = stopped.recv_timeout(Duration::from_millis(200));
        drop(handle.shutdown());
    });
    if kind == 2 {
        block_on(consumer.stream().try_for_each_concurrent(
            8,
            |delivery: procession::Delivery| async move {
                ledger.begin(&delivery).done(&delivery);
                delivery.ack()
            },
        ))
        .unwrap();
    } else {
        let ledger = ledger.clone();
        let run = consumer.run(move |turn: Turn| {
            let ledger = ledger.clone();
            async move {
                let running = ledger.begin(&turn);
                support::yield_once().await;
                running.done(&turn);
                Ok::<_, Error>(())
            }
        });
        let summary = block_on(run).unwrap();
        assert_eq!((summary.turns_failed, summary.turns_open), (0, 0), "{summary:?}");
    }
    drop(stop);
    timer.join().unwrap();
}

/// Goal: a turn that blocks its thread cannot be dropped at the deadline of a handoff, so whoever
/// takes over waits for it, however long. Method: it blocks until the test has seen that nothing of
/// its partition runs elsewhere.
#[test]
fn a_turn_that_blocks_its_thread_behind_the_deadline_keeps_its_partition_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let log = FileLog::open(folder.path().join("log")).partitions(1).open_blocking().unwrap();
    block_on(async {
        for number in 0..3 {
            log.producer().send(Record::new("case", number.to_string())).await.unwrap();
        }
    });
    let ledger = Ledger::default();
    let (release, blocked) = channel::<()>();
    let (entered, inside) = futures::channel::oneshot::channel::<()>();
    let (entered, blocked) = (Mutex::new(Some(entered)), Mutex::new(blocked));
    let first = log.subscribe("test").runtime(Bare).workers(1);
    let first = first.drain_within(Duration::from_millis(1)).build().unwrap();
    let one = first.handle();
    let second = log.subscribe("test").until_end().build().unwrap();
    let two = second.handle();
    let gate = Arc::new((entered, blocked));
    let in_first = ledger.clone();
    let run = first.run(move |turn: Turn| {
        let (gate, ledger) = (Arc::clone(&gate), in_first.clone());
        async move {
            let running = ledger.begin(&turn);
            gate.0.lock().unwrap().take().unwrap().send(()).unwrap();
            gate.1.lock().unwrap().recv().unwrap();
            running.done(&turn);
            Ok::<_, Error>(())
        }
    });
    let takes = async {
        inside.await.unwrap();
        assert_eq!(one.shutdown().await, 1, "it gave up, and the turn still runs");
        let in_second = ledger.clone();
        let work = second.run(move |turn: Turn| {
            in_second.begin(&turn).done(&turn);
            async { Ok::<_, Error>(()) }
        });
        let mut work = Box::pin(work);
        for _ in 0..200 {
            assert!(support::poll_once(work.as_mut()).is_pending());
            assert_eq!((two.partitions().len(), ledger.done()), (0, 0), "beside a live turn");
        }
        release.send(()).unwrap();
        work.await.unwrap()
    };
    let (first, second) = block_on(async { futures::join!(run, takes) });
    // The first gave up before the turn had ended, so its record runs again: it was not committed.
    assert_eq!(first.unwrap().turns_open, 1);
    assert_eq!((second.turns_done, ledger.done(), ledger.repeats()), (3, 3, 1));
}
