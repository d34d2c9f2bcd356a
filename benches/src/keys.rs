//! Which group comes next: deterministic, uniform or Zipf.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// Bytes of every [`name`] below a million groups.
pub(crate) const NAME_BYTES: usize = 12;

/// The key of a group, as a record carries it.
pub(crate) fn name(group: u32) -> String {
    format!("group-{group:06}")
}

/// An endless sequence of groups. The same arguments give the same sequence, on every run.
#[derive(Debug)]
pub(crate) struct Keys {
    random: SmallRng,
    shape: Shape,
    lane: u32,
    lanes: u32,
}

#[derive(Debug)]
enum Shape {
    Uniform { groups: u32 },
    Zipf(Zipf<f64>),
}

impl Keys {
    /// Groups `0..groups`; group 0 is the most frequent one when `zipf` (the exponent) is above 0.
    pub(crate) fn new(seed: u64, groups: u32, zipf: f64) -> Self {
        Self::of_lane(seed, groups, zipf, 0, 1)
    }

    /// The share of one producer among `lanes`: its groups belong to no other, because records of
    /// one group have an order only if one producer sends them. Has at least one group.
    pub(crate) fn of_lane(seed: u64, groups: u32, zipf: f64, lane: u32, lanes: u32) -> Self {
        let own = groups.saturating_sub(lane).div_ceil(lanes).max(1);
        let shape = if zipf > 0.0 {
            let zipf = Zipf::new(f64::from(own), zipf);
            Shape::Zipf(zipf.expect("at least one group and an exponent above 0"))
        } else {
            Shape::Uniform { groups: own }
        };
        let random = SmallRng::seed_from_u64(seed ^ (u64::from(lane) << 32));
        Self { random, shape, lane, lanes }
    }

    /// The next group.
    pub(crate) fn draw(&mut self) -> u32 {
        let rank = match &self.shape {
            Shape::Uniform { groups } => self.random.random_range(0..*groups),
            Shape::Zipf(zipf) => zipf.sample(&mut self.random) as u32 - 1,
        };
        rank * self.lanes + self.lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_groups() {
        let draw = |seed, zipf| {
            let mut keys = Keys::new(seed, 1_000, zipf);
            (0..100).map(move |_| keys.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 0.0), draw(7, 0.0));
        assert_ne!(draw(7, 0.0), draw(8, 0.0));
        assert_eq!(draw(7, 0.99), draw(7, 0.99));
    }

    #[test]
    fn lanes_share_no_group_and_leave_none_out() {
        for zipf in [0.0, 0.99] {
            let mut owner = vec![None; 10];
            for lane in 0..3 {
                let mut keys = Keys::of_lane(1, 10, zipf, lane, 3);
                for _ in 0..1_000 {
                    let owner = &mut owner[keys.draw() as usize];
                    assert_eq!(*owner.get_or_insert(lane), lane);
                }
            }
            assert!(owner.iter().all(Option::is_some), "{owner:?}");
        }
    }

    #[test]
    fn zipf_prefers_the_first_groups() {
        let mut keys = Keys::new(1, 1_000, 0.99);
        let first_ten = (0..10_000).filter(|_| keys.draw() < 10).count();
        assert!(first_ten > 3_000, "{first_ten} of 10,000 draws");
    }

    #[test]
    fn names_have_the_width_that_others_count_on() {
        assert_eq!(name(7), "group-000007");
        assert_eq!(name(999_999).len(), NAME_BYTES);
    }
}
