//! Finished offsets above the watermark, as half-open ranges.

use std::fmt;

use super::Offset;

/// Ascending half-open ranges of offsets with a gap between each two, none empty.
///
/// ```
/// use procession_core::{Offset, Ranges};
/// let mut ranges = Ranges::default();
/// ranges.push(Offset::new(3), Offset::new(5));
/// ranges.push(Offset::new(5), Offset::new(6)); // touches: grows the last one
/// ranges.push(Offset::new(9), Offset::new(10));
/// assert_eq!(ranges.len(), 2);
/// assert!(ranges.contains(Offset::new(5)) && !ranges.contains(Offset::new(6)));
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Ranges(Vec<(Offset, Offset)>);

impl Ranges {
    /// Adds `from..to` at the upper end; a range that touches or overlaps the last one grows it.
    ///
    /// # Panics
    /// If the range is empty, or starts below the start of the last one.
    pub fn push(&mut self, from: Offset, to: Offset) {
        assert!(from < to, "an empty range {from}..{to}");
        match self.0.last_mut() {
            Some(last) if from <= last.1 => {
                assert!(from >= last.0, "range {from}..{to} is below the last one");
                last.1 = last.1.max(to);
            }
            _ => self.0.push((from, to)),
        }
    }

    /// Whether `offset` lies in one of the ranges.
    #[must_use]
    pub fn contains(&self, offset: Offset) -> bool {
        let at = self.0.partition_point(|(_, to)| *to <= offset);
        self.0.get(at).is_some_and(|(from, _)| *from <= offset)
    }

    /// How many ranges there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Offset, Offset)> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(from, to)| from.get()..to.get())).finish()
    }
}
