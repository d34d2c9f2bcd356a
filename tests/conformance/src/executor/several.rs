//! Turns of several records.

use std::collections::BTreeMap;
use std::time::Duration;

use procession_core::{GroupState, Hold, Rest, Verdict};

use super::driver::*;
use super::{ExecutorSetup, Factory, Knob};

const SEVERAL: u32 = 4;

fn setup() -> ExecutorSetup {
    ExecutorSetup { turn_records_max: SEVERAL, ..ExecutorSetup::default() }
}

/// A turn has the head of one scope and those right behind it, never more than it may, and no
/// other turn of the scope starts while it is open.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_turn_of_several_records_is_consecutive_and_of_one_scope(factory: Factory<'_>) {
    let check = "a_turn_of_several_records_is_consecutive_and_of_one_scope";
    let mut driver = Driver::new(check, factory, setup());
    let keys = ["a", "b", "a", "c", "b", "a", "a"];
    let mut waiting = BTreeMap::<_, Vec<u64>>::new();
    for place in [partition(0, 0), partition(0, 1)] {
        let claim = driver.assign(place, 1);
        // With gaps: consecutive in the group is not consecutive in the log.
        let records: Vec<_> = (0..35).map(|n| (3 * n, keys[n as usize % 7])).collect();
        for (offset, key) in &records {
            waiting.entry((place, (*key).to_owned())).or_default().push(*offset);
        }
        driver.admit(claim, records);
    }
    let mut several = false;
    loop {
        let turns = driver.run_all();
        if turns.is_empty() {
            break;
        }
        for turn in &turns {
            let scope = (turn.partition(), key(turn));
            let keys = turn.records().iter().map(|record| record.record.key());
            assert!(
                keys.into_iter().all(|key| key == turn.group()),
                "records of several groups in one turn: {turn:?}"
            );
            let records = turn.records().len();
            assert!(records <= SEVERAL as usize, "{records} records in one turn");
            several |= records > 1;
            let of_scope = waiting.get_mut(&scope).expect("a group that was admitted");
            let head: Vec<_> = of_scope.drain(..records.min(of_scope.len())).collect();
            assert_eq!(offsets(turn), head, "the first unfinished records of {scope:?}");
            assert_eq!(turn.attempt(), 1, "no attempt came before");
            let others = turns.iter().filter(|other| other.partition() == turn.partition());
            let same = others.filter(|other| other.group() == turn.group()).count();
            assert_eq!(same, 1, "two turns of {scope:?} at once");
        }
        for turn in turns {
            driver.done(&turn);
        }
    }
    assert!(waiting.values().all(Vec::is_empty), "these never ran: {waiting:?}");
    assert!(
        several || !driver.has(Knob::RecordsPerTurn),
        "ten records of one group waited, yet no turn had two of them"
    );
}

/// What of a turn did not become terminal is the head of its group again, in order, with what has
/// come since behind it; what became terminal is progress and does not run again.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_partial_verdict_keeps_the_rest_in_order(factory: Factory<'_>) {
    let check = "a_partial_verdict_keeps_the_rest_in_order";
    let mut driver = Driver::new(check, factory, setup());
    if !driver.has(Knob::RecordsPerTurn) {
        return;
    }
    let place = partition(0, 0);
    let (claim, a) = (driver.assign(place, 1), scope(place, "a"));
    let wait = Duration::from_secs(10);
    let later = Rest::Again { at: driver.now + wait, counted: true };
    let rests = [later, Rest::Nothing, Rest::Hold];
    for (first, rest) in (0..).step_by(10).zip(rests) {
        driver.admit(claim, (first..first + 6).map(|n| (n, "a")));
        let turn = driver.run("six records wait");
        let ran = offsets(&turn);
        assert!(ran.len() > 1, "six records wait, yet the turn has {ran:?}");
        let completed = driver.complete(&turn, Verdict { terminal: 1, rest });
        assert!(completed.progressed, "one record became terminal");
        let progress = driver.finished(claim, "one record is finished");
        assert_eq!(progress.next.get(), first + 1, "{rest:?}: the first record is terminal alone");
        let explain = driver.executor().explain(&a).expect("the rest is here");
        let (head, records) = (explain.head.get(), explain.records);
        assert_eq!((head, records), (first + 1, 5), "{rest:?}: the rest is the head");
        driver.admit(claim, [(first + 6, "a")]);
        if rest == later {
            driver.idle("the rest backs off, and nothing overtakes it");
            driver.pass(wait);
        }
        if rest == Rest::Hold {
            assert_eq!(explain.state, GroupState::Held(Hold::Blocked), "the verdict was `Hold`");
            driver.idle("the verdict was `Hold`: the group is blocked at its rest");
            driver.executor().hold(&a, None);
        }
        let turn = driver.run("the rest may run");
        let again = offsets(&turn);
        assert!(
            again.iter().copied().eq(first + 1..first + 1 + again.len() as u64),
            "{rest:?}: the rest runs again, in order: {again:?}"
        );
        // None of it became terminal: all of it runs again.
        let completed = driver.complete(&turn, Verdict::again(driver.now, false));
        assert!(!completed.progressed, "nothing became terminal");
        let expected: Vec<_> = (first + 1..first + 7).collect();
        assert_eq!(driver.finish_all(), expected, "{rest:?}: each once, in order");
    }
    let progress = driver.finished(claim, "all is finished");
    assert_eq!(progress.next.get(), 27, "every record became terminal");
}
