//! Numbered producers: a record that is sent again is stored once.

use std::io;
use std::sync::Arc;

use futures::FutureExt;
use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::FileLog;
use crate::disk::{Fault, FaultOp, MemoryDisk};
use crate::worker::Worker;

fn enlist(log: &FileLog, name: &str) -> Enlisted {
    block_on(log.enlist(name)).unwrap()
}

fn numbered(enlisted: Enlisted, base: u64, payloads: &[String]) -> Batch {
    let records = payloads.iter().map(|p| (Partition::new(0), record("case", p)));
    let mut batch = Batch::many(records);
    let Enlisted { producer, epoch, .. } = enlisted;
    batch.stamp = Some(Stamp { producer, epoch, base: Some(base) });
    batch
}

fn one(log: &FileLog, enlisted: Enlisted, number: u64) -> Outcome {
    let batch = numbered(enlisted, number, &[number.to_string()]);
    block_on(log.append(batch)).into_iter().next().unwrap()
}

#[track_caller]
fn receipt(outcome: Outcome) -> Receipt {
    match outcome {
        Outcome::Stored(receipt) => receipt,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refusal(outcome: Outcome) -> ErrorKind {
    match outcome {
        Outcome::Refused(_, error) => error.kind(),
        other => panic!("{other:?}"),
    }
}

/// Goal: the last segment alone says what is stored. Method: number records over many rolls, remove
/// every older segment, crash or close, and send the last ones again.
#[test]
fn a_repeat_gets_its_first_receipt_after_rolls_crashes_and_reopens() {
    for clean in [true, false] {
        let disk = MemoryDisk::new();
        let log = open(&disk);
        let enlisted = enlist(&log, "orders");
        let first: Vec<Receipt> = (0..300)
            .map(|n| {
                // In between come records of others.
                stored(&log, 1, "filler", &"x".repeat(900));
                receipt(one(&log, enlisted, n))
            })
            .collect();
        let segments = log.shared().segments.all().len();
        assert!(segments > 4);
        if clean {
            block_on(log.close()).unwrap();
        } else {
            crash(log, &disk, 5);
        }
        let last_only = disk_of(&image(&disk));
        let log = options(&last_only).retain_bytes(0).open_blocking().unwrap();
        // Some may have gone by themselves since the open.
        trim(&log);
        assert_eq!(log.shared().segments.all().len(), 1);
        if clean {
            block_on(log.close()).unwrap();
        } else {
            crash(log, &last_only, 7);
        }
        for disk in [disk, last_only] {
            if !clean {
                // Recovery itself begins a segment: what it knows must be in there.
                crash(open(&disk), &disk, 6);
            }
            let log = open(&disk);
            let again = enlist(&log, "orders");
            assert_eq!((again.producer, again.next), (enlisted.producer, 300));
            assert!(again.epoch > enlisted.epoch);
            for n in 270..300 {
                let repeat = receipt(one(&log, again, n));
                assert_eq!(repeat, first[n as usize], "number {n}");
            }
            assert_eq!(refusal(one(&log, again, 302)), ErrorKind::NotYetWritten);
            assert_eq!(refusal(one(&log, enlisted, 300)), ErrorKind::Fenced);
            assert!(receipt(one(&log, again, 300)).offset > first[299].offset);
        }
    }
}

#[test]
fn a_repeat_too_old_to_remember_is_refused_as_stored() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let enlisted = enlist(&log, "orders");
    for n in 0..100 {
        receipt(one(&log, enlisted, n));
    }
    assert_eq!(refusal(one(&log, enlisted, 35)), ErrorKind::Repeated);
    assert_eq!(receipt(one(&log, enlisted, 36)).offset, Offset::new(36));
    assert_eq!(contents(&log, 0).len(), 100);
}

#[test]
fn another_record_under_a_number_that_is_taken_is_refused() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let enlisted = enlist(&log, "orders");
    receipt(one(&log, enlisted, 0));
    crash(log, &disk, 3);
    let log = open(&disk);
    let enlisted = enlist(&log, "orders");
    let other = numbered(enlisted, 0, &["another".to_owned()]);
    let outcome = block_on(log.append(other)).into_iter().next().unwrap();
    assert_eq!(refusal(outcome), ErrorKind::Mismatch);
    assert_eq!(receipt(one(&log, enlisted, 0)).offset, Offset::ZERO);
}

/// Goal: absorbing never promises more than the first append can keep. Method: repeat a record
/// whose round is not written yet, then let the round be stored, or find no room.
#[test]
fn a_repeat_of_what_is_under_way_shares_its_fate() {
    for full in [false, true] {
        let disk = MemoryDisk::new();
        let mut parts = options(&disk).open_parts().unwrap();
        let shared = Arc::clone(&parts.shared);
        let mut enlisting = Box::pin(async { shared.enlist("orders").await });
        assert!((&mut enlisting).now_or_never().is_none(), "not before it is durable");
        parts.writer.step();
        let enlisted = (&mut enlisting).now_or_never().unwrap().unwrap();
        let batch = || numbered(enlisted, 0, &["0".to_owned()]);
        let mut first = parts.shared.append(batch());
        let mut again = parts.shared.append(batch());
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut again).now_or_never().is_none(), "not before the first is durable");
        assert_eq!((first.base(), again.base()), (Some(0), Some(0)));
        if full {
            let (op, path) = (FaultOp::Write, ".seg".to_owned());
            let kind = io::ErrorKind::StorageFull;
            disk.fail(Fault { op, path, after: 0, kind, stays: false });
        }
        parts.writer.step();
        for appending in [first, again] {
            let outcome = appending.now_or_never().unwrap().into_iter().next().unwrap();
            match full {
                false => assert_eq!(receipt(outcome).offset, Offset::ZERO),
                true => assert_eq!(refusal(outcome), ErrorKind::Full),
            }
        }
        // What found no room took no number.
        let mut later = parts.shared.append(batch());
        let stored_already = (&mut later).now_or_never();
        assert_eq!(stored_already.is_some(), !full);
        if full {
            parts.writer.step();
            let outcome = later.now_or_never().unwrap().into_iter().next().unwrap();
            assert_eq!(receipt(outcome).offset, Offset::ZERO);
        }
        assert_eq!(parts.shared.tail().ends[0], 1);
    }
}

/// Goal: nothing of a round that was handed back is ever found, though it holds several batches.
/// Method: tear a round of three batches for want of room, so that the second is on the disk whole;
/// write another round that ends where that one begins; crash.
#[test]
fn no_batch_of_a_round_that_was_handed_back_is_found_behind_the_next_round() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let enlisted = enlist(&log, "orders");
    block_on(log.close()).unwrap();
    let mut parts = options(&disk).open_parts().unwrap();
    let plain =
        |payload: &str| parts.shared.append(Batch::one(Partition::new(0), record("case", payload)));
    let numbered = numbered(enlisted, 0, &["numbered".to_owned()]);
    let sent = [plain("small"), parts.shared.append(numbered), plain(&"large".repeat(600))];
    let (op, path, kind) = (FaultOp::TornWrite, ".seg".to_owned(), io::ErrorKind::StorageFull);
    disk.fail(Fault { op, path, after: 0, kind, stays: false });
    parts.writer.step();
    for appending in sent {
        let outcome = appending.now_or_never().unwrap().into_iter().next().unwrap();
        assert_eq!(refusal(outcome), ErrorKind::Full);
    }
    let again = plain("small");
    parts.writer.step();
    receipt(again.now_or_never().unwrap().into_iter().next().unwrap());
    drop(parts);
    let log = open(&disk);
    assert_eq!(contents(&log, 0), [(0, "case".to_owned(), "small".to_owned())]);
    assert_eq!(enlist(&log, "orders").next, 0);
}

#[test]
fn an_epoch_that_found_no_room_is_not_claimed_and_fences_nobody() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let enlisted = enlist(&log, "orders");
    let (op, path, kind) = (FaultOp::Write, ".seg".to_owned(), io::ErrorKind::StorageFull);
    disk.fail(Fault { op, path, after: 0, kind, stays: false });
    assert_eq!(block_on(log.enlist("orders")).unwrap_err().kind(), ErrorKind::Full);
    receipt(one(&log, enlisted, 0));
    assert_eq!(enlist(&log, "orders").epoch.get(), enlisted.epoch.get() + 1);
    assert_eq!(refusal(one(&log, enlisted, 1)), ErrorKind::Fenced);
}

#[test]
fn a_log_knows_a_bounded_number_of_producers_and_makes_room_when_one_is_forgotten() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let mut known = 0;
    let error = loop {
        match block_on(log.enlist(&format!("p{known}"))) {
            Ok(_) => known += 1,
            Err(error) => break error,
        }
        assert!(known < 2000);
    };
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("forget_producer"), "{error}");
    assert_eq!(log.producer_names().len(), known);
    let old = enlist(&log, "p0");
    receipt(one(&log, old, 0));
    assert!(block_on(log.forget_producer("p0")).unwrap());
    assert!(!block_on(log.forget_producer("p0")).unwrap());
    assert_eq!(refusal(one(&log, old, 1)), ErrorKind::NotFound);
    let other = enlist(&log, "in its place");
    assert_ne!(other.producer, old.producer);
    crash(log, &disk, 1);
    let log = open(&disk);
    assert_eq!(log.producer_names().len(), known);
    assert!(!log.producer_names().contains(&"p0".to_owned()));
    block_on(log.forget_producer("p1")).unwrap();
    let new = enlist(&log, "p0");
    assert_eq!(new.next, 0, "it is new");
    assert!(new.producer > other.producer, "no number is given twice");
    assert_eq!(block_on(log.enlist("")).unwrap_err().kind(), ErrorKind::Config);
}

/// Goal: an application that keeps its rows until it knows that they are stored, and sends them
/// again with their numbers after each power cut, has each of them in the log once and in order,
/// whatever the cut interrupts. Method: cut the power after every number of changes, many times
/// on one disk, with several rows in flight; beside it somebody who has no numbers.
#[test]
fn an_outbox_that_sends_its_rows_again_after_power_cuts_stores_each_once() {
    for seed in 0..40_u64 {
        let disk = MemoryDisk::new();
        let (mut outbox_from, mut rows) = (0, 0);
        for life in 0..6_u64 {
            disk.heal();
            let log = open_packed(&disk, (seed + life) % 2 == 0);
            disk.power_off_after(4 + (seed * 11 + life * 17) % 70);
            let Ok(enlisted) = block_on(log.enlist("outbox")) else {
                crash(log, &disk, seed * 7 + life);
                continue;
            };
            assert!(enlisted.next >= outbox_from, "seed {seed}: what was answered is stored");
            'life: for _ in 0..40 {
                // Some of these were sent before: the application does not look at `next`.
                let count = 1 + (seed + rows) % 4;
                let numbers: Vec<u64> = (outbox_from..outbox_from + count).collect();
                rows = rows.max(outbox_from + count);
                let payloads = numbers.iter().map(|n| format!("{n:0>600}")).collect::<Vec<_>>();
                let appending = log.append(numbered(enlisted, outbox_from, &payloads));
                drop(log.append(Batch::one(Partition::new(1), record("other", "x"))));
                for outcome in block_on(appending) {
                    match outcome {
                        Outcome::Stored(_) => outbox_from += 1,
                        // It does not remember so many in so small a segment.
                        Outcome::Refused(_, e) if e.kind() == ErrorKind::Repeated => {
                            outbox_from += 1;
                        }
                        _ => break 'life,
                    }
                }
            }
            crash(log, &disk, seed * 31 + life);
        }
        disk.heal();
        let log = open(&disk);
        let found: Vec<u64> =
            contents(&log, 0).iter().map(|(_, _, payload)| payload.parse().unwrap()).collect();
        assert!(found.len() as u64 >= outbox_from, "seed {seed}");
        assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(enlist(&log, "outbox").next, found.len() as u64, "seed {seed}");
    }
}

/// What an outcome that nobody knows looks like to a user, and what to do about it.
#[test]
fn a_send_of_unknown_outcome_is_sent_again_by_its_number_and_stored_once() {
    for stored_after_all in [false, true] {
        let disk = MemoryDisk::new();
        let log = open(&disk);
        let build = |log: &FileLog| block_on(Producer::builder(log.clone()).id("orders").build());
        let producer = build(&log).unwrap();
        block_on(producer.send(record("case", "0"))).unwrap();
        let op = if stored_after_all { FaultOp::Sync } else { FaultOp::Write };
        let (path, kind) = (".seg".to_owned(), io::ErrorKind::Other);
        disk.fail(Fault { op, path, after: 0, kind, stays: false });
        let error = block_on(producer.send(record("case", "1"))).unwrap_err();
        assert!(error.record().is_none(), "nobody knows");
        assert_eq!(error.number(), Some(1));
        drop((producer, log));
        let log = open(&disk);
        let producer = build(&log).unwrap();
        assert_eq!(producer.enlisted().unwrap().next, if stored_after_all { 2 } else { 1 });
        block_on(producer.send_as(1, record("case", "1"))).unwrap();
        block_on(producer.send(record("case", "2"))).unwrap();
        let found: Vec<_> = contents(&log, 0)
            .into_iter()
            .chain(contents(&log, 1))
            .chain(contents(&log, 2))
            .map(|(_, _, payload)| payload)
            .collect();
        assert_eq!(found, ["0", "1", "2"]);
        let plain = Producer::new(log.clone());
        let error = block_on(plain.send_as(3, record("case", "3"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.into_record().is_some());
    }
}

#[test]
fn numbers_of_a_producer_follow_each_other_from_many_threads() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let producer = block_on(Producer::builder(log.clone()).id("orders").build()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let producer = producer.clone();
            scope.spawn(move || {
                for n in 0..100 {
                    let record = record(&format!("case-{thread}"), &n.to_string());
                    block_on(producer.send(record)).unwrap();
                }
            });
        }
    });
    assert_eq!(enlist(&log, "orders").next, 400);
    let groups = |partition| contents(&log, partition).len();
    assert_eq!(groups(0) + groups(1) + groups(2), 400);
}
