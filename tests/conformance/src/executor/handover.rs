//! Claims that end: stale ones, drains, fences, returns.

use procession_core::{Completed, GroupState, Offset, Progress, Revoke, Verdict};

use super::driver::*;
use super::{ExecutorSetup, Factory, Knob};

/// What carries the claim of before changes nothing.
///
/// # Panics
/// If the executor breaks the contract.
pub fn stale_claims_are_ignored(factory: Factory<'_>) {
    let mut driver = Driver::new("stale_claims_are_ignored", factory, ExecutorSetup::default());
    let old = driver.assign(partition(0, 0), 3);
    let new = driver.assign(partition(0, 0), 4);
    let never = claim(partition(0, 9), 1);
    for stale in [old, never] {
        driver.admit(stale, [(0, "stale"), (1, "stale")]);
        driver.idle("records of a stale claim are dropped");
    }
    driver.admit(new, [(0, "a"), (1, "a"), (2, "b")]);
    let turn = driver.run("the new claim runs");
    assert_eq!(turn.claim(), new, "whose turn it is");
    driver.done(&turn);
    let high = Progress::at(Offset::new(1_000));
    for stale in [old, never] {
        driver.executor().committed(stale, &high);
        assert_eq!(driver.executor().progress(stale), None, "a stale claim has no progress");
        for how in [Revoke::Drain, Revoke::Fence] {
            assert_eq!(
                driver.executor().revoke(stale, how),
                0,
                "{how:?}: a stale claim has no turns"
            );
        }
    }
    let progress = driver.executor().progress(new);
    assert!(progress.is_some(), "a stale `committed` hides nothing of the new claim");
    driver.admit(old, [(3, "stale")]);
    driver.admit(new, [(3, "c")]);
    let (before, mut ran) = (turn.records().len(), driver.finish_all());
    ran.sort_unstable();
    assert_eq!(before + ran.len(), 4, "the new claim runs on, and only its records: {ran:?}");
    let progress = driver.finished(new, "all is finished");
    assert_eq!(progress, Progress::at(Offset::new(4)), "the progress of the new claim");
}

/// A draining claim starts nothing, counts the verdicts of its open turns, says which was the last
/// and answers its progress until it is fenced. Other partitions run on.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_drain_starts_nothing_and_reports_when_it_is_done(factory: Factory<'_>) {
    let check = "a_drain_starts_nothing_and_reports_when_it_is_done";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let claim = driver.assign(partition(0, 0), 1);
    let keys: Vec<_> = (0..12).map(|n| format!("group-{n}")).collect();
    driver.admit(claim, (0..36).map(|n| (n, keys[n as usize % 12].as_str())));
    let open = driver.run_all();
    assert!(open.len() > 1, "groups run side by side");
    assert_eq!(driver.executor().revoke(claim, Revoke::Drain), open.len(), "turns still open");
    driver.idle("a draining claim starts nothing");
    driver.admit(claim, [(36, "late"), (37, "group-0")]);
    driver.idle("a draining claim starts nothing of what still comes");
    let mut finished = Vec::new();
    for (n, turn) in open.iter().enumerate() {
        // The first ends with a retry that is due at once: it must not start again.
        let verdict = if n == 0 {
            Verdict::again(driver.now, true)
        } else {
            finished.extend(offsets(turn));
            Verdict::done(turn.records().len() as u32)
        };
        let completed = driver.complete(turn, verdict);
        let last = n + 1 == open.len();
        assert_eq!(
            completed.drained,
            last.then_some(claim),
            "turn {n} of {}: the last one drains",
            open.len()
        );
        assert_eq!(completed.progressed, n > 0, "verdicts of a drain count");
        driver.idle("a draining claim starts nothing, though its turns end");
    }
    let progress = driver.finished(claim, "a drained claim answers until it is fenced");
    for offset in (0..38).map(Offset::new) {
        assert_eq!(
            progress.covers(offset),
            finished.contains(&offset.get()),
            "offset {offset} in {progress:?}: what ended during the drain is finished, what never \
             started, or came too late, is not"
        );
    }
    driver.executor().committed(claim, &progress);
    assert_eq!(driver.executor().progress(claim), None, "all that is finished is committed");
    assert_eq!(driver.executor().revoke(claim, Revoke::Fence), 0, "no turn is open");
    assert_eq!(driver.executor().progress(claim), None, "a fenced claim is forgotten");

    // Without open turns a drain is over at once; another partition is not concerned.
    let (idle, busy) = (driver.assign(partition(0, 1), 1), driver.assign(partition(0, 2), 1));
    driver.admit(idle, [(0, "a")]);
    assert_eq!(driver.executor().revoke(idle, Revoke::Drain), 0, "no turn is open");
    driver.admit(busy, [(0, "a")]);
    assert_eq!(driver.finish_all(), [0], "another partition runs on");

    // What comes during a drain is not finished, also where nothing unfinished lies below it.
    driver.executor().revoke(busy, Revoke::Drain);
    driver.admit(busy, [(1, "a")]);
    let progress = driver.finished(busy, "the first record is finished");
    assert_eq!(
        progress.next.get(),
        1,
        "a record that came during the drain, and never ran, is passed by progress: it is lost"
    );
}

/// A fenced claim has no progress; a verdict of its turns that comes late changes nothing, and the
/// records run again under the next claim.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_fence_forgets_the_claim_and_its_late_verdicts_change_nothing(factory: Factory<'_>) {
    let check = "a_fence_forgets_the_claim_and_its_late_verdicts_change_nothing";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let old = driver.assign(partition(0, 0), 1);
    driver.admit(old, [(0, "a"), (1, "b"), (2, "a"), (3, "b")]);
    let first = driver.run("the groups have records");
    driver.done(&first);
    let zombies = driver.run_all();
    assert!(!zombies.is_empty(), "records are left to run");
    assert_eq!(driver.executor().revoke(old, Revoke::Fence), zombies.len(), "turns still open");
    assert_eq!(driver.executor().progress(old), None, "fence at once, commit nothing");
    assert_eq!(driver.executor().revoke(old, Revoke::Fence), 0, "a forgotten claim has no turns");
    assert_eq!(driver.executor().load().open, zombies.len(), "zombies are counted, never hidden");
    let new = driver.assign(partition(0, 0), 2);
    driver.admit(new, [(0, "a"), (1, "b"), (2, "a"), (3, "b")]);
    for zombie in &zombies {
        let completed = driver.done(zombie);
        assert!(!completed.progressed, "the verdict of a fenced turn is no progress");
        assert_eq!(completed.drained, None, "nobody drains");
        for claim in [old, new] {
            assert_eq!(
                driver.executor().progress(claim),
                None,
                "a late verdict changes no progress"
            );
        }
    }
    assert_eq!(driver.executor().load().open, 0, "every zombie has ended");
    let mut ran = Vec::new();
    loop {
        let turns = driver.run_all();
        if turns.is_empty() {
            break;
        }
        for turn in turns {
            assert_eq!((turn.claim(), turn.attempt()), (new, 1), "the new claim's first attempt");
            ran.extend(offsets(&turn));
            driver.done(&turn);
        }
    }
    ran.sort_unstable();
    assert_eq!(ran, [0, 1, 2, 3], "everything runs again under the new claim");
}

/// A partition comes straight back, twice: each group whose old turn is still open waits for it,
/// the others do not.
///
/// # Panics
/// If the executor breaks the contract.
pub fn a_returning_partition_waits_for_the_old_turn_of_each_group(factory: Factory<'_>) {
    let check = "a_returning_partition_waits_for_the_old_turn_of_each_group";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let place = partition(0, 0);
    let records = [(0, "a"), (1, "b"), (2, "a"), (3, "c")];
    let old = driver.assign(place, 1);
    driver.admit(old, records.into_iter().take(2));
    let zombies = driver.run_all();
    assert!(!zombies.is_empty(), "the groups have records");
    // Once by a fence, once by a claim that simply replaces the one before.
    driver.executor().revoke(old, Revoke::Fence);
    driver.assign(place, 2);
    let new = driver.assign(place, 3);
    driver.admit(new, records);

    let shut: Vec<_> = zombies.iter().map(key).collect();
    let started = driver.run_all();
    for turn in &started {
        assert!(
            !shut.contains(&key(turn)),
            "group \"{}\" starts while its old turn is still open: turns of one group never \
             overlap inside a member",
            key(turn)
        );
    }
    if driver.has(Knob::LaneOfItsOwn) {
        assert_eq!(started.iter().map(key).collect::<Vec<_>>(), ["c"], "\"c\" waits for nobody");
    }
    for key in &shut {
        let explain = driver.executor().explain(&scope(place, key)).expect("it has records");
        assert_eq!(explain.state, GroupState::Shut, "why group \"{key}\" waits");
    }
    let open = driver.executor().load().open;
    assert_eq!(open, zombies.len() + started.len(), "open turns, zombies included");
    for turn in started {
        driver.done(&turn);
    }
    let mut waiting = shut.len();
    for zombie in zombies {
        let completed = driver.done(&zombie);
        assert_eq!(
            completed,
            Completed { runnable: true, progressed: false, drained: None },
            "the old turn of group \"{}\" has ended: the group can start",
            key(&zombie)
        );
        let turns = driver.run_all();
        assert!(!turns.is_empty(), "group \"{}\" waits for nobody any more", key(&zombie));
        for turn in turns {
            assert_eq!((turn.claim(), turn.attempt()), (new, 1), "a new claim begins anew");
            driver.done(&turn);
        }
        waiting -= 1;
        assert_eq!(driver.executor().load().open, waiting, "only zombies are open");
    }
    driver.finish_all();
    let progress = driver.finished(new, "all is finished");
    assert_eq!(progress, Progress::at(Offset::new(4)), "every record ran under the new claim");
}
