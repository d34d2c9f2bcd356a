//! The least interval between two turns of a group.

use super::*;
use crate::executor::Order;

const INTERVAL: Duration = Duration::from_millis(100);

fn bench() -> Bench {
    let mut bench = Bench::new(ChainsOptions::new().group_interval(INTERVAL));
    bench.assign(claim(0, 1), 0);
    bench
}

#[test]
fn two_turns_of_a_group_start_an_interval_apart_and_others_do_not_wait() {
    let mut bench = bench();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a"), (2, "b")]);
    let until = bench.now + INTERVAL;
    let first = bench.run().unwrap();
    bench.now += INTERVAL / 4;
    assert!(!bench.done(first.id()).runnable);
    let explain = bench.chains.explain(&scope(0, "a")).unwrap();
    assert_eq!((explain.state, explain.head.get()), (GroupState::Paced { until }, 1));
    assert_eq!(offsets(&bench.run().unwrap()), [2], "another group has its own interval");
    assert_eq!(bench.idle(), Some(until), "from start to start");
    bench.now = until;
    let second = bench.run().unwrap();
    assert_eq!(offsets(&second), [1]);
    // A turn that took longer than the interval is followed at once.
    bench.admit(claim(0, 1), &[(3, "a")]);
    bench.now += INTERVAL;
    assert!(bench.done(second.id()).runnable);
}

#[test]
fn a_retry_keeps_the_interval_unless_its_back_off_is_longer() {
    let mut bench = bench();
    bench.admit(claim(0, 1), &[(0, "a")]);
    for (back_off, state) in [
        (0, GroupState::Paced { until: bench.now + INTERVAL }),
        (250, GroupState::BackingOff { until: bench.now + INTERVAL + INTERVAL / 2 * 5 }),
    ] {
        let id = bench.run().unwrap().id();
        assert!(!bench.again_in(id, back_off, true).runnable);
        assert_eq!(bench.chains.explain(&scope(0, "a")).unwrap().state, state);
        bench.now = bench.idle().unwrap();
    }
    assert_eq!(bench.run().unwrap().attempt(), 3);
}

#[test]
fn an_empty_group_remembers_its_interval_and_is_forgotten_after_it() {
    let mut bench = bench();
    let until = bench.now + INTERVAL;
    bench.admit(claim(0, 1), &[(0, "a"), (1, "b")]);
    for id in bench.run_all().1 {
        bench.done(id);
    }
    assert_eq!(bench.chains.load(), Load::default());
    assert_eq!(bench.chains.explain(&scope(0, "a")), None);
    assert_eq!(bench.idle(), None, "nobody wakes up in order to forget");
    bench.admit(claim(0, 1), &[(2, "a")]);
    assert_eq!(bench.chains.load().groups, 1);
    assert_eq!(bench.idle(), Some(until));
    bench.now = until;
    assert_eq!(offsets(&bench.run().unwrap()), [2]);
    assert_eq!(bench.chains.groups.len(), 1, "b is forgotten");
    // A hold outlives the interval.
    bench.chains.hold(&scope(0, "b"), Some(Hold::Blocked));
    bench.now += INTERVAL;
    bench.admit(claim(0, 1), &[(3, "b")]);
    assert!(bench.run().is_none());
}

#[test]
fn what_is_remembered_is_bounded_by_the_turns_of_one_interval() {
    let mut bench = bench();
    for offset in 0..10_000 {
        bench.admit(claim(0, 1), &[(offset, &format!("group-{offset}"))]);
        let id = bench.run().unwrap().id();
        bench.done(id);
        bench.now += INTERVAL / 50;
        let remembered = bench.chains.groups.len();
        assert!(remembered <= 51 && bench.chains.fading.len() <= 51, "{remembered}");
    }
    bench.now += INTERVAL;
    assert_eq!(bench.idle(), None);
    assert_eq!((bench.chains.groups.len(), bench.chains.bare), (0, 0));
}

/// One group per way in which a partition can go away in the middle of an interval.
#[test]
fn a_returning_partition_keeps_the_interval_of_every_group() {
    for how in [Revoke::Fence, Revoke::Drain] {
        let mut bench = bench();
        let keys = ["running", "paced", "failed", "empty"];
        let records: Vec<_> = (0..7).map(|n| (n, keys[n as usize % 4])).collect();
        bench.admit(claim(0, 1), &records);
        let started = bench.now;
        let turns: Vec<_> = std::iter::from_fn(|| bench.run()).collect();
        let mut running = None;
        for turn in turns {
            match turn.group().unwrap().as_ref() {
                b"running" => running = Some(turn.id()),
                b"failed" => drop(bench.again_in(turn.id(), 1_000, true)),
                _ => drop(bench.done(turn.id())),
            }
        }
        bench.chains.revoke(claim(0, 1), how);
        bench.done(running.unwrap());
        bench.assign(claim(0, 2), 0);
        let again: Vec<_> = keys.iter().zip(0..).map(|(key, n)| (n, *key)).collect();
        bench.admit(claim(0, 2), &again);
        assert_eq!(bench.idle(), Some(started + INTERVAL), "{how:?}");
        bench.now = started + INTERVAL;
        assert_eq!(bench.run_all().0, [0, 1, 2, 3], "{how:?}: a back-off is forgotten");
    }
}

#[test]
fn unordered_records_keep_no_interval_but_that_of_their_own_retries() {
    let options = ChainsOptions::new().group_interval(INTERVAL).order(Order::Unordered);
    let mut bench = Bench::new(options);
    bench.assign(claim(0, 1), 0);
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a")]);
    let (offsets, ids) = bench.run_all();
    assert_eq!(offsets, [0, 1]);
    bench.done(ids[0]);
    bench.again_in(ids[1], 0, false);
    assert_eq!(bench.chains.groups.len(), 1, "nothing is kept of what is done");
    bench.admit(claim(0, 1), &[(2, "a")]);
    assert_eq!(bench.run_all().0, [2]);
    assert_eq!(bench.idle(), Some(bench.now + INTERVAL));
}

#[test]
fn a_paced_group_lingers_from_when_its_interval_has_passed() {
    let linger = Duration::from_millis(10);
    let options = ChainsOptions::new().group_interval(INTERVAL).batch(3, linger);
    let mut bench = Bench::new(options);
    bench.assign(claim(0, 1), 0);
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a"), (2, "a"), (3, "a")]);
    let turn = bench.run().unwrap();
    bench.end(&turn, 3, Rest::Nothing);
    bench.now += INTERVAL;
    assert_eq!(bench.idle(), Some(bench.now + linger));
    bench.admit(claim(0, 1), &[(4, "a"), (5, "a")]);
    assert_eq!(offsets(&bench.run().unwrap()), [3, 4, 5]);
}
