//! Which segments were removed on purpose: what tells a trimmed log from a damaged one.
//!
//! Kept in the progress store, written and synced before the first file goes. A segment that is
//! missing and not named here was lost.
//!
//! ```text
//!  24 bytes a run:
//!  0          8          16             24
//!  +----------+----------+--------------+
//!  | first id | last id  | previous end |     little-endian, ascending, never touching
//!  +----------+----------+--------------+
//! ```

use crate::format::u64_at;

/// Runs of removed segments, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trims(Vec<Run>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    last: u64,
    /// Bytes that count in the segment before `first`: its own successor, whose header said so, is
    /// gone. 0 if nothing was before.
    previous_end: u64,
}

const RUN: usize = 24;
/// So many runs, 24 KiB in the progress file. Beyond it no segment is removed that would begin
/// another one; it goes when one beside it does.
const RUNS_MAX: usize = if cfg!(test) { 8 } else { 1024 };

impl Trims {
    /// Whether segment `id` was removed.
    pub(crate) fn contains(&self, id: u64) -> bool {
        let at = self.0.partition_point(|run| run.last < id);
        self.0.get(at).is_some_and(|run| run.first <= id)
    }

    /// Removes segment `id`, which is there; `previous_end` is what its header says of the one
    /// before. False, and nothing has changed, if there is no room for another run.
    #[must_use]
    pub(crate) fn add(&mut self, id: u64, previous_end: u64) -> bool {
        let at = self.0.partition_point(|run| run.last < id);
        let below = at > 0 && self.0[at - 1].last + 1 == id;
        let above = self.0.get(at).is_some_and(|run| run.first == id + 1);
        match (below, above) {
            (true, true) => {
                self.0[at - 1].last = self.0[at].last;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].last = id,
            (false, true) => {
                self.0[at].first = id;
                self.0[at].previous_end = previous_end;
            }
            (false, false) if self.0.len() >= RUNS_MAX => return false,
            (false, false) => {
                self.0.insert(at, Run { first: id, last: id, previous_end });
            }
        }
        true
    }

    /// How many bytes count in segment `id`, if its successor is gone.
    pub(crate) fn end_of(&self, id: u64) -> Option<u64> {
        let at = self.0.partition_point(|run| run.first <= id);
        let run = self.0.get(at).filter(|run| run.first == id + 1)?;
        Some(run.previous_end)
    }

    /// The removed segments between two that are there, exclusive.
    pub(crate) fn between(&self, below: u64, above: u64) -> impl Iterator<Item = u64> + '_ {
        (below + 1..above).filter(|id| self.contains(*id))
    }

    /// The newest removed one.
    pub(crate) fn last(&self) -> Option<u64> {
        self.0.last().map(|run| run.last)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let numbers = self.0.iter().flat_map(|run| [run.first, run.last, run.previous_end]);
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    /// `None` if the bytes are not what [`encode`](Self::encode) gives.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let runs = bytes.chunks_exact(RUN);
        let whole = runs.remainder().is_empty();
        let runs: Vec<Run> = runs
            .map(|run| Run {
                first: u64_at(run, 0),
                last: u64_at(run, 8),
                previous_end: u64_at(run, 16),
            })
            .collect();
        let sound = runs.iter().all(|run| run.first <= run.last)
            && runs.windows(2).all(|pair| pair[0].last.checked_add(1) < Some(pair[1].first));
        (whole && sound).then_some(Self(runs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_touch_become_one_and_remember_what_was_before_them() {
        let mut trims = Trims::default();
        for (id, end) in [(5, 50), (9, 90), (7, 70), (8, 80), (6, 60), (4, 40)] {
            assert!(trims.add(id, end));
        }
        assert_eq!(trims.0, [Run { first: 4, last: 9, previous_end: 40 }]);
        assert_eq!((trims.end_of(3), trims.end_of(4), trims.end_of(9)), (Some(40), None, None));
        assert!(!trims.contains(3) && trims.contains(4) && trims.contains(9));
        assert_eq!(Trims::decode(&trims.encode()), Some(trims));
    }

    #[test]
    fn runs_are_bounded_and_a_full_list_still_grows_at_its_ends() {
        let mut trims = Trims::default();
        assert!((0..RUNS_MAX as u64).all(|i| trims.add(10 * i + 5, i)));
        let full = trims.clone();
        assert!(!trims.add(2, 9));
        assert_eq!(trims, full);
        assert!(trims.add(4, 9) && trims.add(6, 9));
    }

    #[test]
    fn bytes_that_no_list_of_runs_gives_are_not_believed() {
        let mut trims = Trims::default();
        assert!(trims.add(3, 30) && trims.add(9, 90));
        let bytes = trims.encode();
        assert!(Trims::decode(&bytes[..RUN - 1]).is_none());
        let swapped = [&bytes[RUN..], &bytes[..RUN]].concat();
        assert!(Trims::decode(&swapped).is_none());
    }
}
