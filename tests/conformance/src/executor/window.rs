//! Bounds: what is held, and bodies that are loaded again.

use std::collections::BTreeSet;

use procession_core::{Budget, Claim, Completed, Load, Next, Offset, Revoke, Turn};

use super::driver::*;
use super::{ExecutorSetup, Factory, Knob};

/// Reads for the executor as a seat would: only within the window, but always a first record.
struct Reader {
    claim: Claim,
    next: u64,
    window: Budget,
    delivered: Budget,
}

impl Reader {
    fn read(&mut self, driver: &mut Driver, end: u64, payload_bytes: usize) {
        while self.next < end && !self.window.minus(self.delivered).is_spent() {
            let record =
                record(self.next, ["a", "b", "c", "d"][self.next as usize % 4], payload_bytes);
            self.delivered = self.delivered.plus(size(&record));
            self.next += 1;
            driver.admit_chunk(self.claim, vec![record], Offset::new(self.next));
        }
    }
}

fn take_credit(driver: &mut Driver, readers: &mut [Reader]) {
    for _ in 0..10_000 {
        let Some((claim, window)) = driver.executor().credit() else { return };
        let reader = readers.iter_mut().find(|reader| reader.claim == claim);
        let reader = reader.expect("credit is for a live claim");
        assert!(
            window.records >= reader.window.records && window.bytes >= reader.window.bytes,
            "the window of {claim} fell from {:?} to {window:?}: totals only grow",
            reader.window
        );
        reader.window = window;
    }
    panic!("`credit` answers for ever: it is `None` when nothing has moved")
}

/// Two partitions of two hundred records pass through a window of eight records, or of a thousand
/// bytes, and never is more held (but for one record per partition).
///
/// # Panics
/// If the executor breaks the contract.
pub fn the_window_bounds_what_is_held(factory: Factory<'_>) {
    for (budget, payload_bytes) in
        [(Budget::new(8, 1 << 30), 10), (Budget::new(1 << 30, 1_000), 99)]
    {
        let setup = ExecutorSetup { budget, ..ExecutorSetup::default() };
        let mut driver = Driver::new("the_window_bounds_what_is_held", factory, setup);
        if !driver.has(Knob::Budget) {
            return;
        }
        let mut readers = [0, 1].map(|n| {
            let claim = driver.assign(partition(0, n), 1);
            Reader { claim, next: 0, window: Budget::ZERO, delivered: Budget::ZERO }
        });
        let (mut open, mut ran) = (Vec::<Turn>::new(), 0);
        while ran < 400 {
            let mut moved = true;
            while moved {
                take_credit(&mut driver, &mut readers);
                let before: u64 = readers.iter().map(|reader| reader.next).sum();
                readers.iter_mut().for_each(|reader| reader.read(&mut driver, 200, payload_bytes));
                let turns = driver.run_all();
                moved = !turns.is_empty() || before < readers.iter().map(|r| r.next).sum();
                open.extend(turns);
                let (held, record) = (driver.executor().load().held, 1 + payload_bytes as u64);
                assert!(
                    held.records <= budget.records.saturating_add(2)
                        && held.bytes <= budget.bytes.saturating_add(2 * record),
                    "{held:?} is held, the budget is {budget:?} and one record per partition"
                );
            }
            // As much as fits is held and nothing else can start: now the oldest turn ends.
            assert!(
                !open.is_empty(),
                "after {ran} of 400 records nothing runs, and no credit is given"
            );
            let turn = open.remove(0);
            ran += turn.records().len();
            driver.done(&turn);
            readers.iter().for_each(|reader| driver.commit(reader.claim));
        }
    }
}

/// One group far longer than the bodies it may keep: the others are loaded again when their turn
/// comes, in order, each once at a time; another group runs meanwhile.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_group_over_its_share_is_loaded_again_in_order(factory: Factory<'_>) {
    let check = "a_group_over_its_share_is_loaded_again_in_order";
    let setup = ExecutorSetup { bodies_per_group_max: 4, ..ExecutorSetup::default() };
    let mut driver = Driver::new(check, factory, setup);
    if !driver.has(Knob::BodiesPerGroup) {
        return;
    }
    let claim = driver.assign(partition(0, 0), 1);
    driver.admit(claim, (0..40).map(|n| (n, "a")));
    let body = size(&record(0, "a", 10)).bytes;
    let held = driver.executor().load().held;
    assert_eq!(held.records, 40, "records admitted and not terminal");
    assert!(
        held.bytes <= 5 * body,
        "{} bytes held of a group that may keep 4 bodies of {body}",
        held.bytes
    );

    let (mut asked, mut ran, mut late) = (BTreeSet::new(), Vec::new(), vec![(40, "a"), (41, "b")]);
    while ran.len() < 42 {
        let now = driver.now;
        match driver.executor().next(now) {
            Next::Run(turn) => {
                ran.extend(offsets(&turn));
                driver.done(&turn);
            }
            Next::Load { claim: of, offset } => {
                assert_eq!(of, claim, "under which claim to load");
                assert!(asked.insert(offset), "{offset} is asked for again before it came");
            }
            Next::Commit(claim) => driver.commit(claim),
            Next::Idle { .. } => {
                assert!(!asked.is_empty(), "after {ran:?} nothing runs and no load is asked for");
                // Something new comes before what was asked for: the group waits, others do not.
                for (offset, key) in std::mem::take(&mut late) {
                    driver.admit(claim, [(offset, key)]);
                    if key != "a" {
                        let turn = driver.run("another group waits for no body of \"a\"");
                        ran.extend(offsets(&turn));
                        driver.done(&turn);
                    }
                }
                for offset in std::mem::take(&mut asked) {
                    driver.load(claim, offset);
                }
            }
            other => panic!("nothing is held, yet {other:?}"),
        }
    }
    ran.retain(|offset| *offset != 41);
    let expected: Vec<_> = (0..41).collect();
    assert_eq!(ran, expected, "loaded or not, a group runs in order, and each record once");
    assert!(driver.loads > 0, "of 40 records 4 bodies may be kept, yet none was loaded");
    driver.finish_all();
    let progress = driver.finished(claim, "all is finished");
    assert_eq!(progress.next.get(), 42, "loaded records are progress like all others");

    // A body that comes for a claim that has ended is dropped.
    driver.admit(claim, (42..80).map(|n| (n, "a")));
    let mut late = None;
    while late.is_none() {
        let now = driver.now;
        match driver.executor().next(now) {
            Next::Run(turn) => drop(driver.done(&turn)),
            Next::Load { offset, .. } => late = Some(offset),
            Next::Commit(claim) => driver.commit(claim),
            other => panic!("bodies are missing, yet {other:?}"),
        }
    }
    let new = driver.assign(partition(0, 0), 2);
    driver.load(claim, late.expect("a load was asked for"));
    driver.idle("the body of a stale claim is dropped");
    driver.admit(new, [(42, "a")]);
    assert_eq!(driver.finish_all(), [42], "the new claim runs what it was given");
}

/// A record that was to be loaded and is not in the log any more becomes terminal without a turn,
/// and its group goes on; what is not being loaded is never passed over.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_record_that_is_gone_is_passed_over(factory: Factory<'_>) {
    let check = "a_record_that_is_gone_is_passed_over";
    let setup = ExecutorSetup { bodies_per_group_max: 1, ..ExecutorSetup::default() };
    let mut driver = Driver::new(check, factory, setup);
    if !driver.has(Knob::BodiesPerGroup) {
        return;
    }
    let old = driver.assign(partition(0, 0), 1);
    let claim = driver.assign(partition(0, 0), 2);
    driver.admit(claim, (0..6).map(|n| (n, "a")));
    for never in (0..7).map(Offset::new) {
        let nothing = driver.gone(claim, never);
        assert_eq!(nothing, Completed::default(), "{never} was not asked for, yet it is gone");
    }
    let (mut ran, mut gone) = (Vec::new(), Vec::new());
    loop {
        let now = driver.now;
        match driver.executor().next(now) {
            Next::Run(turn) => {
                ran.extend(offsets(&turn));
                driver.done(&turn);
            }
            Next::Load { offset, .. } if offset.get() % 2 == 1 => {
                assert_eq!(driver.gone(old, offset), Completed::default(), "a stale claim");
                let other = Offset::new(offset.get() + 1);
                assert_eq!(driver.gone(claim, other), Completed::default(), "not asked for");
                driver.idle("the group waits for its body, or for the word that it is gone");
                let completed = driver.gone(claim, offset);
                assert!(completed.progressed, "{offset} is gone: that is progress");
                let last = offset.get() == 5;
                assert_eq!(completed.runnable, !last, "after {offset} the group goes on");
                assert_eq!(driver.gone(claim, offset), Completed::default(), "said twice");
                // The read was under way all the same: the body comes too late.
                driver.load(claim, offset);
                gone.push(offset.get());
            }
            Next::Load { claim, offset } => driver.load(claim, offset),
            Next::Commit(claim) => driver.commit(claim),
            Next::Idle { .. } => break,
            other => panic!("nothing is held, yet {other:?}"),
        }
    }
    assert!(gone.contains(&5), "the last record has no body here, yet it was not asked for");
    let expected: Vec<_> = (0..6).filter(|offset| !gone.contains(offset)).collect();
    assert_eq!(ran, expected, "what is not gone runs, in order, and once");
    let progress = driver.finished(claim, "all is finished");
    assert_eq!(progress.next.get(), 6, "a record that is gone is terminal");
    assert_eq!(driver.executor().load(), Load::default(), "nothing of the group is left");

    // One that a drain let go of is not terminal: whoever reads on must meet it.
    driver.admit(claim, (6..8).map(|n| (n, "a")));
    let turn = driver.run("the head may run");
    driver.done(&turn);
    let now = driver.now;
    let Next::Load { offset, .. } = driver.executor().next(now) else {
        panic!("one body is kept, so the second record is asked for")
    };
    driver.executor().revoke(claim, Revoke::Drain);
    assert_eq!(driver.gone(claim, offset), Completed::default(), "the claim is drained");
    let progress = driver.finished(claim, "one more is finished");
    assert_eq!(progress.next, offset, "what a drain let go of is passed by nobody");
}
