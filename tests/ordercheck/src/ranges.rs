//! A set of offsets that costs what its gaps cost: finished offsets grow together.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<i64, i64>);

impl Ranges {
    pub(crate) fn contains(&self, offset: i64) -> bool {
        self.0.range(..=offset).next_back().is_some_and(|(_, to)| offset < *to)
    }

    pub(crate) fn insert(&mut self, offset: i64) {
        if self.contains(offset) {
            return;
        }
        let end = offset.saturating_add(1);
        let to = self.0.remove(&end).unwrap_or(end);
        match self.0.range_mut(..offset).next_back() {
            Some((_, before)) if *before == offset => *before = to,
            _ => {
                self.0.insert(offset, to);
            }
        }
    }

    pub(crate) fn remove(&mut self, offset: i64) {
        let Some((&from, &to)) = self.0.range(..=offset).next_back() else { return };
        if offset >= to {
            return;
        }
        self.0.remove(&from);
        if from < offset {
            self.0.insert(from, offset);
        }
        if offset + 1 < to {
            self.0.insert(offset + 1, to);
        }
    }

    /// Takes out every offset that is not below `from`.
    pub(crate) fn cut(&mut self, from: i64) {
        self.0.split_off(&from);
        if let Some((_, to)) = self.0.range_mut(..from).next_back() {
            *to = (*to).min(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_a_plain_set_holds() {
        let mut ranges = Ranges::default();
        let mut plain = std::collections::BTreeSet::new();
        let mut state = 7_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (state >> 40) as i64 % 24;
            match (state >> 33) % 16 {
                0..=8 => {
                    ranges.insert(offset);
                    plain.insert(offset);
                }
                9..=14 => {
                    ranges.remove(offset);
                    plain.remove(&offset);
                }
                _ => {
                    ranges.cut(offset);
                    plain.retain(|held| *held < offset);
                }
            }
            for probe in -1..25 {
                assert_eq!(ranges.contains(probe), plain.contains(&probe));
            }
        }
    }
}
