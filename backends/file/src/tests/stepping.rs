//! The workers, step by step on one thread, as a simulation drives them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use procession_core::*;

use super::support::*;
use crate::disk::{Fault, FaultOp, MemoryDisk};
use crate::options::Parts;
use crate::worker::{Pace, Worker};

fn parts(disk: &MemoryDisk, clock: &Arc<TestClock>) -> Parts {
    options(disk).clock(Arc::clone(clock) as _).open_parts().unwrap()
}

fn append(parts: &Parts, payload: usize) -> Appending {
    let record = Record::new("a", vec![7; payload]);
    parts.shared.append(Batch::one(Partition::new(0), record))
}

#[test]
fn one_step_writes_one_round_for_all_who_came_in() {
    let disk = MemoryDisk::new();
    let mut parts = parts(&disk, &Arc::default());
    let mut waiting: Vec<_> = (0..50).map(|_| append(&parts, 10)).collect();
    let before = disk.changes();
    assert!(waiting.iter_mut().all(|w| w.now_or_never().is_none()));
    assert_eq!(parts.writer.step(), Pace::More);
    assert_eq!(disk.changes() - before, 2, "one write and one sync");
    for appending in &mut waiting {
        assert!(matches!(appending.now_or_never().unwrap().as_slice(), [Outcome::Stored(_)]));
    }
}

#[test]
fn beyond_two_full_rounds_a_batch_waits_with_its_caller_and_dropping_it_means_not_sent() {
    let disk = MemoryDisk::new();
    let mut parts = parts(&disk, &Arc::default());
    // A round takes four of these; one round is open and one is ready.
    let home = Arc::new(Home::default());
    let mut waiting: Vec<_> = (0..8).map(|_| append(&parts, 3800)).collect();
    let held: Vec<_> = (0..4)
        .map(|_| {
            let mut batch = Batch::one(Partition::new(0), Record::new("a", vec![7; 3800]));
            batch.permit = Some(home.permit(1));
            parts.shared.append(batch)
        })
        .collect();
    let mut held: Vec<Option<Appending>> = held.into_iter().map(Some).collect();
    held[1] = None;
    assert_eq!(*home.0.lock().unwrap(), 1, "what was dropped gives its permit back");
    while parts.writer.step() == Pace::More {}
    for appending in waiting.iter_mut().chain(held.iter_mut().flatten()) {
        assert!(matches!(appending.now_or_never().unwrap().as_slice(), [Outcome::Stored(_)]));
    }
    assert_eq!(parts.shared.tail().ends[0], 11);
    assert_eq!(*home.0.lock().unwrap(), 4);
}

#[test]
fn an_idle_log_proves_its_last_round_once_and_then_sleeps() {
    let disk = MemoryDisk::new();
    let clock = Arc::new(TestClock::default());
    let mut parts = parts(&disk, &clock);
    let appending = append(&parts, 10);
    assert_eq!(parts.writer.step(), Pace::More);
    drop(appending);
    assert_eq!(parts.writer.step(), Pace::Idle(Some(Duration::from_millis(200))));
    clock.now.store(200, Ordering::SeqCst);
    assert_eq!(parts.writer.step(), Pace::More);
    let changes = disk.changes();
    assert_eq!(parts.writer.step(), Pace::Idle(None));
    assert_eq!(disk.changes(), changes);
    // Everything is proven: nothing is left to rewrite.
    drop(parts);
    disk.crash(1);
    let log = open(&disk);
    assert_eq!(log.recovery().rewritten_records, 0);
    assert_eq!(contents_len(&log), 1);
}

#[test]
fn a_lower_level_is_synced_within_the_stated_time() {
    let disk = MemoryDisk::new();
    let clock = Arc::new(TestClock::default());
    let options = options(&disk).durability(Durability::Flushed).clock(Arc::clone(&clock) as _);
    let mut parts = options.open_parts().unwrap();
    let mut appending = append(&parts, 10);
    assert_eq!(parts.writer.step(), Pace::More);
    assert!(appending.now_or_never_mut());
    assert_eq!(parts.shared.tail().ends[0], 0);
    assert_eq!(parts.writer.step(), Pace::Idle(Some(Duration::from_millis(50))));
    clock.now.store(50, Ordering::SeqCst);
    assert_eq!(parts.writer.step(), Pace::More);
    assert_eq!(parts.shared.tail().ends[0], 1);
}

/// Goal: a segment is found after a power cut before anything in it is answered. Method: nobody but
/// the writer syncs the folder; cut the power behind a roll, after a sync of the folder that failed
/// too.
#[test]
fn a_new_segment_is_in_its_folder_before_its_records_are_answered() {
    for seed in 0..20_u64 {
        for fails in [false, true] {
            let disk = MemoryDisk::new();
            let mut parts = parts(&disk, &Arc::default());
            if fails {
                // The first one is for the spare, the second for the segment.
                let (op, kind) = (FaultOp::SyncDir, std::io::ErrorKind::Other);
                disk.fail(Fault { op, path: String::new(), after: 1, kind, stays: false });
            }
            let mut answered = 0;
            for _ in 0..25 {
                let mut appending = append(&parts, 3800);
                while parts.writer.step() == Pace::More {}
                match appending.now_or_never_mut_outcome() {
                    Some(true) => answered += 1,
                    other => assert!(fails && other == Some(false), "seed {seed}: {other:?}"),
                }
            }
            assert!(answered == 25 || fails && answered > 10, "seed {seed}: {answered}");
            disk.crash(seed);
            drop(parts);
            let found = contents_len(&open(&disk));
            assert!(found >= answered, "seed {seed}: {found} are there, {answered} were answered");
        }
    }
}

trait Known {
    fn now_or_never_mut(&mut self) -> bool;
    /// Whether it was stored, if that is known.
    fn now_or_never_mut_outcome(&mut self) -> Option<bool>;
}

impl Known for Appending {
    fn now_or_never_mut(&mut self) -> bool {
        self.now_or_never().is_some()
    }

    fn now_or_never_mut_outcome(&mut self) -> Option<bool> {
        let outcomes = self.now_or_never()?;
        Some(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored(_))))
    }
}

fn contents_len(log: &crate::FileLog) -> usize {
    read_from(log, 0, 0).unwrap().len()
}
