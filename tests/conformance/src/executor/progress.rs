//! Progress: what is finished, and nothing else.

use procession_core::{Offset, Progress, Ranges};

use super::driver::*;
use super::{ExecutorSetup, Factory};
use crate::random::Random;

/// Forty records with gaps between their offsets finish in random order: progress covers exactly
/// the finished ones at each step, and in the end leads over the last gap.
///
/// # Panics
/// If the executor breaks the contract.
pub fn progress_never_passes_an_unfinished_record(factory: Factory<'_>) {
    let check = "progress_never_passes_an_unfinished_record";
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let mut driver = Driver::new(check, factory, ExecutorSetup::default());
        let claim = driver.assign_from(partition(0, 0), 1, &Progress::at(Offset::new(5)));
        let mut offset = 5 + random.below(3);
        let keys: Vec<_> = (0..40).map(|n| format!("group-{}", n % 25)).collect();
        let mut records = Vec::new();
        for key in &keys {
            records.push(record(offset, key, 10));
            offset += 1 + random.below(4);
        }
        let all: Vec<_> = records.iter().map(|record| record.offset).collect();
        let (first, last, end) = (all[0], all[39], Offset::new(offset + 3));
        driver.admit_chunk(claim, records, end);

        let (mut open, mut finished) = (Vec::new(), Vec::new());
        while finished.len() < 40 {
            open.extend(driver.run_all());
            assert!(!open.is_empty(), "{} records are left, and nothing runs", 40 - finished.len());
            let turn = open.swap_remove(random.below(open.len() as u64) as usize);
            driver.done(&turn);
            finished.extend(offsets(&turn));
            let progress = driver.executor().progress(claim);
            let progress = progress.expect("something new is finished, and nothing was committed");
            for &offset in &all {
                let is_finished = finished.contains(&offset.get());
                assert_eq!(
                    progress.covers(offset),
                    is_finished,
                    "record {offset} is {}finished, but {progress:?} says otherwise (seed {seed}): \
                     progress never passes a record that is not terminal, and drops none that is",
                    if is_finished { "" } else { "not " }
                );
            }
            assert!(
                finished.contains(&first.get()) || progress.next <= first,
                "the lowest unfinished record is {first}, yet reading would go on at {}",
                progress.next
            );
            assert!(progress.end() <= end, "{progress:?} names offsets that were never read");
        }
        let progress = driver.executor().progress(claim).expect("nothing was committed");
        assert_eq!(
            progress,
            Progress::at(end),
            "all is finished: reading goes on where the chunk ended, above the gap after {last}"
        );
        driver.executor().committed(claim, &progress);
        let further = Offset::new(end.get() + 7);
        driver.admit_chunk(claim, Vec::new(), further);
        assert_eq!(
            driver.executor().progress(claim),
            Some(Progress::at(further)),
            "a chunk without records leads over a gap: an idle partition's position is progress"
        );
    }
}

/// Progress is `None` until a record is finished, and again once that was committed; an older
/// snapshot that is committed late does not hide newer progress.
///
/// # Panics
/// If the executor breaks the contract.
pub fn progress_is_none_until_something_new_is_finished(factory: Factory<'_>) {
    let check = "progress_is_none_until_something_new_is_finished";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let claim = driver.assign(partition(0, 0), 1);
    assert_eq!(driver.executor().progress(claim), None, "just assigned");
    driver.admit(claim, (0..4).map(|n| (n, "a")));
    assert_eq!(driver.executor().progress(claim), None, "admitted, not finished");
    let turn = driver.run("the group has records");
    assert_eq!(driver.executor().progress(claim), None, "running, not finished");
    driver.done(&turn);
    let first = driver.executor().progress(claim).expect("the first turn is finished");
    let again = driver.executor().progress(claim);
    assert_eq!(again.as_ref(), Some(&first), "asking changes nothing: it was not committed");
    let turn = driver.run("the group has more records");
    driver.done(&turn);
    driver.executor().committed(claim, &first);
    let second = driver.executor().progress(claim);
    let second = second.expect("more is finished than the snapshot that was committed");
    assert!(second.next > first.next, "the second turn is in the second snapshot");
    driver.executor().committed(claim, &second);
    assert_eq!(driver.executor().progress(claim), None, "all that is finished is committed");
}

/// What `assign` was told is finished does not run, and counts as progress.
///
/// # Panics
/// If the executor breaks the contract.
pub fn finished_records_are_not_run_again(factory: Factory<'_>) {
    let check = "finished_records_are_not_run_again";
    let mut driver = Driver::new(check, factory, ExecutorSetup::default());
    let mut done = Ranges::default();
    done.push(Offset::new(7), Offset::new(9));
    done.push(Offset::new(11), Offset::new(12));
    let before = Progress::with_done(Offset::new(5), done);
    let claim = driver.assign_from(partition(0, 0), 1, &before);
    driver.admit(claim, (3..14).map(|n| (n, "a")));
    assert_eq!(driver.executor().progress(claim), None, "nothing new is finished");
    let mut ran = Vec::new();
    while ran.len() < 6 {
        let turn = driver.run("unfinished records are left");
        ran.extend(offsets(&turn));
        driver.done(&turn);
        let progress = driver.executor().progress(claim).expect("something new is finished");
        for offset in (0..14).map(Offset::new) {
            assert_eq!(
                progress.covers(offset),
                before.covers(offset) || ran.contains(&offset.get()),
                "offset {offset} in {progress:?}: what was finished stays so, across claims"
            );
        }
    }
    assert_eq!(ran, [5, 6, 9, 10, 12, 13], "finished records are dropped, the others run");
    driver.idle("every record is finished");
}
