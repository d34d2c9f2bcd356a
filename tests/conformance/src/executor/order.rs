//! Order inside a group, independence of groups.

use procession_core::{Completed, TurnId, Verdict};

use super::driver::*;
use super::{ExecutorSetup, Factory, Knob};

/// One group, fifty records in several chunks: one turn at a time, each going on where the one
/// before ended.
///
/// # Panics
/// If the executor breaks the contract.
pub fn runs_one_group_in_order_and_never_two_turns_at_once(factory: Factory<'_>) {
    let check = "runs_one_group_in_order_and_never_two_turns_at_once";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let claim = driver.assign(partition(0, 0), 1);
    driver.idle("nothing was admitted");
    driver.admit(claim, (0..5).map(|n| (n, "a")));
    let (mut admitted, mut next) = (5, 0);
    while next < 50 {
        let turn = driver.run("the group has records and no open turn");
        let expected: Vec<_> = (next..).take(turn.records().len()).collect();
        assert_eq!(offsets(&turn), expected, "a turn is the head of its group, or its next few");
        assert_eq!(
            (turn.claim(), turn.attempt()),
            (claim, 1),
            "whose turn it is, and which attempt"
        );
        next += expected.len() as u64;
        driver.idle("a turn of the only group is open: two turns of one group never overlap");
        if admitted < 50 {
            driver.admit(claim, (admitted..admitted + 5).map(|n| (n, "a")));
            admitted += 5;
        }
        driver.idle("a turn of the only group is open, and more of the group has come");
        let completed = driver.done(&turn);
        assert!(completed.progressed, "records became terminal: progress moved");
        assert_eq!(completed.runnable, next < admitted, "whether a turn can start now");
    }
    driver.idle("every record has run");
}

/// Thirty-two groups have a turn open at the same time.
///
/// # Panics
/// If the executor breaks the contract.
pub fn runs_groups_side_by_side(factory: Factory<'_>) {
    let mut driver = Driver::new("runs_groups_side_by_side", factory, ExecutorSetup::default());
    let claim = driver.assign(partition(0, 0), 1);
    let keys: Vec<_> = (0..32).map(|n| format!("group-{n}")).collect();
    driver.admit(claim, (0..96).map(|n| (n, keys[n as usize % 32].as_str())));
    let mut open = driver.run_all();
    let mut groups: Vec<_> = open.iter().map(key).collect();
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), open.len(), "two turns of one group are open at once");
    if driver.has(Knob::LaneOfItsOwn) {
        assert_eq!(groups.len(), 32, "the speed-up is the number of distinct active groups");
    } else {
        assert!(groups.len() > 1, "groups run side by side");
    }
    let mut ran: Vec<u64> = Vec::new();
    while let Some(turn) = open.pop() {
        ran.extend(offsets(&turn));
        driver.done(&turn);
        open.extend(driver.run_all());
    }
    for group in 0..32 {
        let of_group: Vec<_> = ran.iter().filter(|n| *n % 32 == group).collect();
        assert_eq!(of_group, [&group, &(group + 32), &(group + 64)], "group {group} in order");
    }
}

/// One key in two partitions, and in two logs: three scopes, each with its own turn and progress.
///
/// # Panics
/// If the executor breaks the contract.
pub fn equal_keys_in_two_partitions_are_two_scopes(factory: Factory<'_>) {
    let check = "equal_keys_in_two_partitions_are_two_scopes";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let places = [partition(0, 0), partition(0, 1), partition(1, 0)];
    let claims = places.map(|place| driver.assign(place, 1));
    for claim in claims {
        driver.admit(claim, [(0, "a"), (1, "a")]);
    }
    let open = driver.run_all();
    if driver.has(Knob::LaneOfItsOwn) {
        let mut of: Vec<_> = open.iter().map(|turn| turn.claim()).collect();
        of.sort();
        assert_eq!(of, claims, "one turn per scope: a group's identity is (log, partition, key)");
    }
    for turn in &open {
        driver.done(turn);
    }
    driver.finish_all();
    for claim in claims {
        let progress = driver.finished(claim, "both records are finished");
        assert_eq!(progress.end().get(), 2, "{claim} has progress of its own");
    }
}

/// The id of a turn that has ended, or never was, changes nothing, not even once its place is used
/// by another turn.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_stale_turn_id_is_ignored(factory: Factory<'_>) {
    let mut driver = Driver::new("a_stale_turn_id_is_ignored", factory, ExecutorSetup::default());
    let claim = driver.assign(partition(0, 0), 1);
    driver.admit(claim, (0..20).map(|n| (n, "a")));
    let mut old = vec![TurnId { index: 77_777, generation: 0 }];
    let mut finished = 0;
    while finished < 20 {
        let turn = driver.run("the group has records and no open turn");
        assert!(!old.contains(&turn.id()), "the id {:?} was used before", turn.id());
        let now = driver.now;
        for &id in &old {
            let completed = driver.executor().complete(id, Verdict::done(1), now);
            assert_eq!(
                completed,
                Completed::default(),
                "{id:?} names no open turn: unknown ids are ignored"
            );
        }
        driver.idle("the turn is still open: only a stale id was completed");
        assert_eq!(driver.executor().load().open, 1, "the turn is still open");
        finished += turn.records().len();
        old.push(turn.id());
        driver.done(&turn);
    }
    let progress = driver.finished(claim, "all is finished");
    assert_eq!(progress.next.get(), 20, "every record counted once");
}
