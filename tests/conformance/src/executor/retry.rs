//! Retries: back-off, attempts, partial verdicts.

use std::time::Duration;

use procession_core::{Rest, Verdict};

use super::driver::*;
use super::{ExecutorSetup, Factory, Knob};

const BACK_OFF: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(1);

/// A record that failed runs again when its time has come, not a moment before, and before every
/// later record of its group.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_retry_waits_its_time_and_nothing_overtakes_it(factory: Factory<'_>) {
    let check = "a_retry_waits_its_time_and_nothing_overtakes_it";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let claim = driver.assign(partition(0, 0), 1);
    driver.admit(claim, [(0, "a"), (1, "a"), (2, "a")]);
    for attempt in 1..4 {
        let turn = driver.run("the head may run");
        assert_eq!(offsets(&turn)[0], 0, "the head failed: nothing may overtake it");
        assert_eq!(turn.attempt(), attempt, "a counted retry is one more attempt");
        let at = driver.now + BACK_OFF;
        let completed = driver.complete(&turn, Verdict::again(at, true));
        assert!(
            !completed.progressed && !completed.runnable,
            "nothing is finished, nothing can run"
        );
        assert_eq!(driver.executor().progress(claim), None, "a failed record is not terminal");
        let until = driver.idle("the head backs off: nothing may overtake it");
        assert_eq!(until, Some(at), "`Idle` says when the first back-off ends");
        driver.pass(BACK_OFF.checked_sub(MOMENT).expect("a moment is short"));
        driver.idle("one millisecond is left of the back-off");
        driver.pass(MOMENT);
    }
    assert_eq!(driver.finish_all(), [0, 1, 2], "the head first, then the others");

    // Some leading records terminal, the rest again: the rest is the head now.
    driver.admit(claim, [(3, "a"), (4, "a")]);
    let turn = driver.run("the group has records");
    let again = Rest::Again { at: driver.now + BACK_OFF, counted: true };
    let few = turn.records().len() as u32;
    if few > 1 {
        driver.complete(&turn, Verdict { terminal: 1, rest: again });
        driver.idle("the rest backs off");
        driver.pass(BACK_OFF);
        assert_eq!(driver.finish_all(), [4], "what became terminal does not run again");
    } else {
        driver.done(&turn);
        assert_eq!(driver.finish_all(), [4], "the next record");
    }
}

/// While one group backs off for a long time, all others run to their end.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_back_off_delays_only_its_group(factory: Factory<'_>) {
    let mut driver =
        Driver::new("a_back_off_delays_only_its_group", factory, ExecutorSetup::default());
    let claim = driver.assign(partition(0, 0), 1);
    let keys: Vec<_> = (0..16).map(|n| format!("group-{n}")).collect();
    driver.admit(claim, (0..80).map(|n| (n, keys[n as usize % 16].as_str())));
    let at = driver.now + BACK_OFF;
    for turn in driver.run_all() {
        if key(&turn) == keys[0] {
            driver.complete(&turn, Verdict::again(at, true));
        } else {
            driver.complete(&turn, Verdict::again(driver.now, false));
        }
    }
    let ran = driver.finish_all();
    assert!(ran.iter().all(|n| n % 16 != 0), "the failed group ran before its time: {ran:?}");
    if driver.has(Knob::LaneOfItsOwn) {
        assert_eq!(
            ran.len(),
            75,
            "fifteen groups of five records are independent of the failing one"
        );
    } else {
        assert!(!ran.is_empty(), "one failing group stops everybody");
    }
    driver.pass(BACK_OFF);
    let late = driver.finish_all();
    let of_first: Vec<_> = late.iter().filter(|n| *n % 16 == 0).copied().collect();
    assert_eq!(of_first, [0, 16, 32, 48, 64], "the failed group runs when its back-off is over");
    assert_eq!(ran.len() + late.len(), 80, "every record ran");
}

/// A turn that was cancelled or released comes again under the same attempt.
///
/// # Panics
/// If the executor breaks the contract.
pub fn an_uncounted_retry_is_not_an_attempt(factory: Factory<'_>) {
    let check = "an_uncounted_retry_is_not_an_attempt";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let claim = driver.assign(partition(0, 0), 1);
    driver.admit(claim, [(0, "a"), (1, "a")]);
    let mut expected = 1;
    for counted in [false, true, false, false, true, false] {
        let turn = driver.run("the head may run at once");
        assert_eq!(
            turn.attempt(),
            expected,
            "which attempt this is, from 1: a turn that was cancelled or released does not count"
        );
        driver.complete(&turn, Verdict::again(driver.now, counted));
        expected += u32::from(counted);
    }
    let turn = driver.run("the head may run at once");
    assert_eq!(turn.attempt(), expected, "the last retry was not counted");
    driver.complete(&turn, Verdict { terminal: 1, rest: rest_of(&turn, driver.now) });
    let turn = driver.run("the second record may run");
    assert_eq!(offsets(&turn), [1], "the second record");
    if expected > 1 {
        assert!(
            turn.attempt() <= expected,
            "the attempts of the head are not those of the next record"
        );
    }
}

fn rest_of(turn: &procession_core::Turn, now: std::time::Instant) -> Rest {
    if turn.records().len() > 1 { Rest::Again { at: now, counted: false } } else { Rest::Nothing }
}
