//! A bound on how many turns start in a second.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Evenly spaced starts: a turn may start when the last one's share of the second has passed. What
/// was not used is gone after a tenth of a second, so a burst is at most that much.
#[derive(Debug)]
pub(crate) struct Pace {
    share: Duration,
    /// When the second turn after the last one would be due, had all come evenly.
    due: Option<Instant>,
}

const BURST: Duration = Duration::from_millis(100);

impl Pace {
    pub(crate) fn new(turns_per_second: NonZeroU32) -> Self {
        Self { share: Duration::from_secs(1) / turns_per_second.get(), due: None }
    }

    /// When the next turn may start, if not now.
    pub(crate) fn not_before(&self, now: Instant) -> Option<Instant> {
        let due = self.due?;
        // A burst of one at least: a share may be longer than the burst.
        let early = BURST.saturating_sub(self.share);
        let at = due.checked_sub(early).unwrap_or(due);
        (at > now).then_some(at)
    }

    /// A turn starts.
    pub(crate) fn begin(&mut self, now: Instant) {
        let from = self.due.map_or(now, |due| due.max(now));
        self.due = from.checked_add(self.share).or(Some(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(pace: &mut Pace, from: Instant, within: Duration) -> u32 {
        let (mut now, mut count) = (from, 0);
        while now < from + within {
            match pace.not_before(now) {
                Some(at) => now = at,
                None => {
                    pace.begin(now);
                    count += 1;
                }
            }
        }
        count
    }

    #[test]
    fn no_second_has_more_starts_than_the_rate_and_one_burst() {
        for rate in [1, 3, 10, 1000] {
            let mut pace = Pace::new(NonZeroU32::new(rate).expect("not zero"));
            let start = Instant::now();
            let got = starts(&mut pace, start, Duration::from_secs(10));
            let burst = rate.div_ceil(10);
            assert!((rate * 10..=rate * 10 + burst).contains(&got), "{rate}: {got}");
            // A pause earns no more than one burst.
            let later = start + Duration::from_secs(60);
            let got = starts(&mut pace, later, Duration::from_secs(1));
            assert!((rate..=rate + burst).contains(&got), "{rate} after a pause: {got}");
        }
    }
}
