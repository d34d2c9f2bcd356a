//! Marks and progress as one: pure.

use procession::{Offset, Progress, Ranges};

/// The progress with these offsets, ascending, finished as well.
///
/// Ranges that come to touch are one, and what touches `next` moves it: [`Progress::to_bytes`]
/// knows no range that begins there. Offsets in a gap of the log are not guessed at; a range more
/// says no more than a wider one.
pub(crate) fn fold(progress: &Progress, marks: &[Offset]) -> Progress {
    let mut next = progress.next;
    let mut done = Ranges::default();
    let mut ranges = progress.done.iter().peekable();
    let mut marks = marks.iter().map(|offset| (*offset, offset.after())).peekable();
    loop {
        // The lower of the two heads: `push` wants them ascending.
        let mark_first = match (ranges.peek(), marks.peek()) {
            (Some(range), Some(mark)) => mark < range,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let head = if mark_first { marks.next() } else { ranges.next() };
        let Some((from, to)) = head else { break };
        if from <= next {
            next = next.max(to);
        } else {
            done.push(from, to);
        }
    }
    let mut folded = Progress::with_done(next, done);
    folded.marks = progress.marks.clone();
    folded
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn progress(next: u64, done: &[(u64, u64)]) -> Progress {
        let mut ranges = Ranges::default();
        for (from, to) in done {
            ranges.push(Offset::new(*from), Offset::new(*to));
        }
        Progress::with_done(Offset::new(next), ranges)
    }

    fn folded(start: &Progress, marks: &[u64]) -> Progress {
        fold(start, &marks.iter().copied().map(Offset::new).collect::<Vec<_>>())
    }

    #[test]
    fn marks_close_the_gaps_that_they_fill() {
        let start = progress(10, &[(12, 14), (20, 22)]);
        assert_eq!(folded(&start, &[3, 11, 14, 30]), progress(10, &[(11, 15), (20, 22), (30, 31)]));
        assert_eq!(folded(&start, &[10]), progress(11, &[(12, 14), (20, 22)]));
        assert_eq!(folded(&start, &[10, 11]), progress(14, &[(20, 22)]));
        assert_eq!(folded(&start, &[]), start);
    }

    /// Goal: folding is the union of two sets of offsets, written as a store can read it. Method:
    /// random progress and marks beside plain sets.
    #[test]
    fn folding_covers_what_either_covers_and_nothing_else() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..2_000 {
            let next = random.u64(0..8);
            let (mut done, mut end) = (Vec::new(), next);
            for _ in 0..random.usize(0..5) {
                let from = end + random.u64(1..4);
                end = from + random.u64(1..5);
                done.push((from, end));
            }
            let start = progress(next, &done);
            let marks: BTreeSet<u64> =
                (0..random.usize(0..10)).map(|_| random.u64(0..48)).collect();
            let folded = folded(&start, &marks.iter().copied().collect::<Vec<_>>());
            for offset in 0..60 {
                let either = start.covers(Offset::new(offset)) || marks.contains(&offset);
                let covers = folded.covers(Offset::new(offset));
                assert_eq!(covers, either, "round {round}: offset {offset} of {folded:?}");
            }
            let read = Progress::from_bytes(&folded.to_bytes());
            assert_eq!(read.ok(), Some(folded), "round {round}: a store can read it");
        }
    }
}
