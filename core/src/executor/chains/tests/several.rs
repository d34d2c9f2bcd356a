//! Turns of several records, and lingering for them.

use super::*;

const LINGER: Duration = Duration::from_millis(10);

fn bench(records_max: u32, linger: Duration) -> Bench {
    let mut bench = Bench::new(ChainsOptions::new().batch(records_max, linger));
    bench.assign(claim(0, 1), 0);
    bench
}

#[test]
fn a_turn_takes_the_head_and_those_behind_it_whose_bodies_are_here() {
    let options = ChainsOptions::new().rereadable(true).bodies_max(3).batch(2, Duration::ZERO);
    let mut bench = Bench::new(options);
    bench.assign(claim(0, 1), 0);
    let records: Vec<_> = (0..5).map(|offset| (offset, "a")).collect();
    bench.admit(claim(0, 1), &records);
    let mut turns = Vec::new();
    loop {
        match bench.chains.next(bench.now) {
            Next::Run(turn) => {
                turns.push(offsets(&turn));
                bench.end(&turn, 9, Rest::Nothing);
            }
            Next::Load { claim, offset } => bench.admit(claim, &[(offset.get(), "a")]),
            _ => break,
        }
    }
    // Two by the bound, one because the next has no body, and what was loaded alone.
    assert_eq!(turns, [vec![0, 1], vec![2], vec![3], vec![4]]);
    assert_eq!(bench.progress(claim(0, 1)), Some((5, vec![])));
}

#[test]
fn a_partial_verdict_counts_an_attempt_for_the_first_of_the_rest_alone() {
    let mut bench = bench(3, Duration::ZERO);
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a"), (2, "a")]);
    let again = |counted| Rest::Again { at: bench.now, counted };
    let steps = [(vec![0, 1, 2], 1, again(true)), (vec![1, 2], 2, again(true))];
    let last = [(vec![2], 2, again(false)), (vec![2], 2, Rest::Nothing)];
    for ((expected, attempt, rest), terminal) in steps.into_iter().chain(last).zip([1, 1, 0, 0]) {
        let turn = bench.run().unwrap();
        assert_eq!((offsets(&turn), turn.attempt()), (expected, attempt));
        assert_eq!(bench.end(&turn, terminal, rest).progressed, terminal > 0);
    }
    // What was not the head of a turn that failed has no attempt.
    bench.admit(claim(0, 1), &[(3, "a")]);
    let turn = bench.run().unwrap();
    assert_eq!((offsets(&turn), turn.attempt()), (vec![2, 3], 2));
    bench.end(&turn, 1, again_now(&bench, false));
    assert_eq!(bench.run().unwrap().attempt(), 1);
}

fn again_now(bench: &Bench, counted: bool) -> Rest {
    Rest::Again { at: bench.now, counted }
}

#[test]
fn the_rest_stays_the_head_and_later_records_join_behind_it() {
    let mut bench = bench(3, Duration::ZERO);
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a")]);
    let turn = bench.run().unwrap();
    bench.admit(claim(0, 1), &[(2, "b"), (3, "a"), (4, "a")]);
    bench.end(&turn, 1, Rest::Hold);
    assert_eq!(bench.progress(claim(0, 1)), Some((1, vec![])));
    assert_eq!(offsets(&bench.run().unwrap()), [2], "the verdict holds one group");
    assert!(bench.run().is_none());
    bench.chains.hold(&scope(0, "a"), None);
    assert_eq!(offsets(&bench.run().unwrap()), [1, 3, 4]);
}

#[test]
fn a_drain_keeps_every_record_of_an_open_turn() {
    let mut bench = bench(2, Duration::ZERO);
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a"), (2, "a"), (3, "a")]);
    let turn = bench.run().unwrap();
    assert_eq!(bench.chains.revoke(claim(0, 1), Revoke::Drain), 1);
    assert_eq!(bench.chains.load().held.records, 2);
    let completed = bench.end(&turn, 2, Rest::Nothing);
    assert_eq!(completed.drained, Some(claim(0, 1)));
    assert_eq!(bench.progress(claim(0, 1)), Some((2, vec![])));
    assert_eq!(bench.chains.load(), Load::default());
}

#[test]
fn a_zombie_of_several_records_keeps_its_group_shut() {
    let mut bench = bench(3, Duration::ZERO);
    let records = [(0, "a"), (1, "a"), (2, "a"), (3, "a")];
    bench.admit(claim(0, 1), &records);
    let zombie = bench.run().unwrap();
    bench.chains.revoke(claim(0, 1), Revoke::Fence);
    let explain = bench.chains.explain(&scope(0, "a")).unwrap();
    assert_eq!((explain.state, explain.records), (GroupState::Shut, 3));
    bench.assign(claim(0, 2), 0);
    bench.admit(claim(0, 2), &records);
    assert!(bench.run().is_none());
    let completed = bench.end(&zombie, 3, Rest::Nothing);
    assert_eq!(completed, Completed { runnable: true, ..Completed::default() });
    assert_eq!(offsets(&bench.run().unwrap()), [0, 1, 2]);
}

#[test]
fn a_group_that_is_moved_away_moves_one_record_a_turn_and_never_lingers() {
    let mut bench = bench(3, LINGER);
    bench.admit(claim(0, 1), &[(0, "a")]);
    assert!(bench.run().is_none(), "it lingers");
    bench.chains.hold(&scope(0, "a"), Some(Hold::Cascading));
    for offset in 0..3 {
        let next = bench.chains.next(bench.now);
        let Next::Divert(turn) = next else { panic!("not moved: {next:?}") };
        assert_eq!(offsets(&turn), [offset]);
        if offset == 0 {
            bench.admit(claim(0, 1), &[(1, "a"), (2, "a")]);
        }
        bench.end(&turn, 1, Rest::Nothing);
    }
}

#[test]
fn a_group_lingers_until_its_turn_is_full_or_its_time_is_over() {
    let mut bench = bench(3, LINGER);
    bench.admit(claim(0, 1), &[(0, "a"), (1, "b")]);
    let until = bench.now + LINGER;
    let state = |bench: &Bench| bench.chains.explain(&scope(0, "a")).map(|e| e.state);
    assert_eq!(bench.idle(), Some(until));
    assert_eq!(state(&bench), Some(GroupState::Lingering { until }));
    bench.now += LINGER / 2;
    bench.admit(claim(0, 1), &[(2, "b"), (3, "b")]);
    assert_eq!(offsets(&bench.run().unwrap()), [1, 2, 3], "three of b are a full turn");
    bench.admit(claim(0, 1), &[(4, "a")]);
    assert_eq!(bench.idle(), Some(until), "since the oldest came, not the latest");
    bench.now = until;
    let turn = bench.run().unwrap();
    assert_eq!(offsets(&turn), [0, 4]);
    // The next head lingers from when it is the head, with nothing open.
    bench.admit(claim(0, 1), &[(5, "a")]);
    bench.now += LINGER * 9;
    assert!(!bench.end(&turn, 2, Rest::Nothing).runnable);
    assert_eq!(bench.idle(), Some(bench.now + LINGER));
}

#[test]
fn a_retry_does_not_linger_and_takes_along_what_has_come() {
    let mut bench = bench(3, LINGER);
    bench.admit(claim(0, 1), &[(0, "a")]);
    bench.now += LINGER;
    let turn = bench.run().unwrap();
    bench.admit(claim(0, 1), &[(1, "a")]);
    assert!(bench.again_in(turn.id(), 0, true).runnable);
    assert_eq!(offsets(&bench.run().unwrap()), [0, 1]);
}

/// Every group waits for a second record, and there is no room for one.
#[test]
fn groups_that_linger_at_a_full_window_run_when_their_time_is_over() {
    let options = ChainsOptions::new().budget(Budget::new(16, 1 << 20)).batch(2, LINGER);
    let mut bench = Bench::new(options);
    bench.assign(claim(0, 1), 0);
    assert_eq!(bench.window().map(|window| window.records), Some(16));
    let records = (0..16).map(|n| stored(n, Some(&format!("group-{n}")), 1)).collect();
    bench.admit_stored(claim(0, 1), records);
    assert_eq!(bench.window(), None);
    assert_eq!(bench.idle(), Some(bench.now + LINGER));
    bench.now += LINGER;
    let (offsets, ids) = bench.run_all();
    assert_eq!(offsets, Vec::from_iter(0..16));
    bench.done(ids[0]);
    assert_eq!(bench.window().map(|window| window.records), Some(17));
    // Nothing is ready, so the claim is told of every bit while the next one lingers.
    bench.admit(claim(0, 1), &[(16, "another")]);
    bench.done(ids[1]);
    assert_eq!(bench.window().map(|window| window.records), Some(18));
}

#[test]
fn a_blocked_group_lingers_on_and_wakes_nobody() {
    let mut bench = bench(3, LINGER);
    bench.admit(claim(0, 1), &[(0, "a")]);
    bench.chains.hold(&scope(0, "a"), Some(Hold::Blocked));
    assert_eq!(bench.idle(), None);
    bench.now += LINGER;
    assert!(bench.run().is_none());
    bench.chains.hold(&scope(0, "a"), None);
    assert_eq!(offsets(&bench.run().unwrap()), [0], "it has waited long enough");
}

#[test]
fn a_linger_that_is_cut_short_leaves_no_alarm_behind() {
    let mut bench = bench(2, LINGER);
    bench.admit(claim(0, 1), &[(0, "b"), (1, "b")]);
    // An earlier alarm, so that the others do not surface.
    let id = bench.run().unwrap().id();
    bench.again_in(id, 1, false);
    for round in 1..10_000 {
        bench.admit(claim(0, 1), &[(2 * round, "a")]);
        bench.admit(claim(0, 1), &[(2 * round + 1, "a")]);
        let turn = bench.run().unwrap();
        bench.end(&turn, 2, Rest::Nothing);
    }
    assert!(bench.chains.clock.len() < 200, "{}", bench.chains.clock.len());
}
