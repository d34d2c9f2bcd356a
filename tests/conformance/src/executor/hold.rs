//! Held groups, and why a group is where it is.

use std::time::Duration;

use procession_core::{GroupState, Hold, Rest, Verdict};

use super::driver::*;
use super::{ExecutorSetup, Factory, Knob};

/// A blocked group starts nothing, whether it was held before its records came, while it waited,
/// while it ran, or by a verdict; a parked or cascading one is diverted record by record. Others
/// run. Once let go, it goes on at its head.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_held_group_starts_no_turn_until_it_is_let_go(factory: Factory<'_>) {
    let check = "a_held_group_starts_no_turn_until_it_is_let_go";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let place = partition(0, 0);
    let claim = driver.assign(place, 1);
    let a = scope(place, "a");

    // Before its first record comes, and while it waits.
    driver.executor().hold(&a, Some(Hold::Blocked));
    driver.admit(claim, [(0, "a"), (1, "a")]);
    driver.idle("the group was blocked before its first record came");
    driver.executor().hold(&a, None);
    driver.executor().hold(&a, Some(Hold::Blocked));
    driver.idle("the group is blocked while it waits");
    driver.executor().hold(&a, None);
    let turn = driver.run("the group was let go");
    assert_eq!(offsets(&turn)[0], 0, "it goes on at its head");

    // While it runs: the turn ends as it will.
    driver.executor().hold(&a, Some(Hold::Blocked));
    driver.complete(&turn, Verdict::again(driver.now, true));
    driver.idle("the group was blocked while its turn ran");
    driver.executor().hold(&a, None);
    let turn = driver.run("the group was let go");
    assert_eq!(offsets(&turn)[0], 0, "the turn ended with a retry: its head is still the head");

    // By a verdict.
    let completed = driver.complete(&turn, Verdict { terminal: 0, rest: Rest::Hold });
    assert!(!completed.progressed, "a held record is not terminal");
    driver.idle("the verdict was `Hold`: the group is blocked until it is let go");
    assert_eq!(driver.executor().progress(claim), None, "a held record is not terminal");
    let explain = driver.executor().explain(&a).expect("the group is here");
    assert_eq!(explain.state, GroupState::Held(Hold::Blocked), "why the group waits");
    driver.pass(Duration::from_secs(3_600));
    driver.idle("time does not let a blocked group go");
    driver.executor().hold(&a, None);
    assert_eq!(driver.finish_all(), [0, 1], "the group was let go");

    // Parked and cascading: moved, not run, in order.
    for (hold, first) in [(Hold::Parked, 10), (Hold::Cascading, 20)] {
        driver.executor().hold(&a, Some(hold));
        driver.admit(claim, (first..first + 3).map(|n| (n, "a")));
        let mut moved = Vec::new();
        while moved.len() < 3 {
            match driver.step() {
                Step::Divert(turn) => {
                    moved.extend(offsets(&turn));
                    driver.idle("a turn of the group is open");
                    driver.done(&turn);
                }
                other => panic!("the group is {hold:?}: its head is to be moved, got {other:?}"),
            }
        }
        assert_eq!(moved, [first, first + 1, first + 2], "a {hold:?} group is moved in order");
        driver.admit(claim, [(first + 3, "a")]);
        let step = driver.step();
        let Step::Divert(turn) = step else {
            panic!("the group is {hold:?} until it is let go, also while it is empty; got {step:?}")
        };
        driver.done(&turn);
        driver.executor().hold(&a, None);
        driver.admit(claim, [(first + 4, "a")]);
        assert_eq!(driver.finish_all(), [first + 4], "the group was let go");
    }
    let progress = driver.finished(claim, "all is finished");
    assert_eq!(progress.next.get(), 25, "what was moved is terminal too");

    // Other groups are not concerned.
    driver.executor().hold(&a, Some(Hold::Blocked));
    let others = ["b", "c", "d", "e", "f", "g", "h", "i"];
    driver.admit(claim, (30..).zip(others));
    let ran = driver.finish_all().len();
    assert!(ran > 0, "one blocked group stops everybody");
    if driver.has(Knob::LaneOfItsOwn) {
        assert_eq!(ran, others.len(), "other groups run");
    }
}

/// `explain` names the head, its state, the attempts and the number of records.
///
/// # Panics
/// If the executor breaks the contract.
pub fn explain_names_the_head_and_its_state(factory: Factory<'_>) {
    let check = "explain_names_the_head_and_its_state";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let place = partition(0, 0);
    let (a, start) = (scope(place, "a"), driver.now);
    assert_eq!(driver.executor().explain(&a), None, "nothing of the group is here");
    let claim = driver.assign(place, 1);
    driver.admit(claim, [(5, "a"), (6, "a"), (9, "a")]);
    let state = |driver: &mut Driver, state: GroupState, attempts: Option<u32>| {
        let explain = driver.executor().explain(&a).expect("the group is here");
        assert_eq!((explain.claim, explain.head.get()), (claim, 5), "the head and its claim");
        assert_eq!(explain.state, state, "what the head is doing");
        assert_eq!(explain.records, 3, "records of the group here, the head included");
        assert!(explain.since >= start && explain.since <= driver.now, "since when: {explain:?}");
        if let Some(attempts) = attempts {
            assert_eq!(explain.attempts, attempts, "attempts so far, the running one included");
        }
    };
    state(&mut driver, GroupState::Ready, Some(0));
    let turn = driver.run("the head may run");
    state(&mut driver, GroupState::Running, Some(1));
    let until = driver.now + Duration::from_secs(5);
    driver.complete(&turn, Verdict::again(until, true));
    driver.idle("the head backs off");
    state(&mut driver, GroupState::BackingOff { until }, Some(1));
    driver.pass(Duration::from_secs(5));
    let turn = driver.run("the back-off is over");
    state(&mut driver, GroupState::Running, Some(2));
    driver.complete(&turn, Verdict { terminal: 0, rest: Rest::Hold });
    state(&mut driver, GroupState::Held(Hold::Blocked), None);
    driver.executor().hold(&a, None);
    driver.finish_all();
    assert_eq!(driver.executor().explain(&a), None, "nothing of the group is left");
}
