//! When a failed turn runs again, and what happens when it may not.

use std::time::Duration;

/// How often and how soon a transient failure is tried again, in place: the group waits, nothing
/// of it overtakes, other groups go on.
///
/// The n-th retry waits `initial x 2^(n-1)`, at most `max`, times a random factor between one half
/// and one (so that groups that failed together do not come back together).
///
/// ```
/// use procession_core::Retry;
/// use std::time::Duration;
/// let patient = Retry::exponential().attempts(20).max(Duration::from_secs(300));
/// # let _ = patient;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    attempts: u32,
    initial: Duration,
    max: Duration,
    jitter: bool,
}

impl Default for Retry {
    /// 8 attempts in all, 100 ms to 30 s.
    fn default() -> Self {
        Self {
            attempts: 8,
            initial: Duration::from_millis(100),
            max: Duration::from_secs(30),
            jitter: true,
        }
    }
}

impl Retry {
    /// Exponential back-off: 8 attempts in all, 100 ms to 30 s.
    #[must_use]
    pub fn exponential() -> Self {
        Self::default()
    }

    /// One attempt: every failure goes to the policy.
    #[must_use]
    pub fn never() -> Self {
        Self::default().attempts(1)
    }

    /// Attempts in all, the first one included. There is no "for ever": the highest is `u32::MAX`.
    /// 0 is refused when the consumer is built.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// The delay before the second attempt.
    #[must_use]
    pub const fn initial(mut self, delay: Duration) -> Self {
        self.initial = delay;
        self
    }

    /// The longest delay.
    #[must_use]
    pub const fn max(mut self, delay: Duration) -> Self {
        self.max = delay;
        self
    }

    /// Exact delays, without the random factor. For tests.
    #[must_use]
    pub const fn without_jitter(mut self) -> Self {
        self.jitter = false;
        self
    }

    pub(crate) const fn attempts_max(&self) -> u32 {
        self.attempts
    }

    /// The delay after `failed` failed attempts (from 1); `None` when they are used up.
    pub(crate) fn delay(&self, failed: u32, random: &mut fastrand::Rng) -> Option<Duration> {
        if failed >= self.attempts {
            return None;
        }
        let doublings = (failed - 1).min(63);
        let full = self.initial.saturating_mul(2_u32.saturating_pow(doublings)).min(self.max);
        Some(if self.jitter { full.mul_f64(0.5 + random.f64() / 2.0) } else { full })
    }
}

/// What happens to a record that failed for good: its attempts are used up, or its failure is
/// permanent or corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The run ends with an error that names the group, partition, offset, attempts and cause.
    /// What is finished is committed; nothing is skipped: the record is the first of its group
    /// when the subscription runs again.
    ///
    /// To get past it, mend what made it fail, or let the handler write the record somewhere else
    /// and return `Ok(())` for that partition and offset.
    #[default]
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_its_bound_and_then_ends() {
        let mut random = fastrand::Rng::with_seed(1);
        let exact =
            Retry::exponential().max(Duration::from_millis(500)).attempts(5).without_jitter();
        let delays: Vec<_> =
            (1..=5).map(|n| exact.delay(n, &mut random).map(|d| d.as_millis())).collect();
        assert_eq!(delays, [Some(100), Some(200), Some(400), Some(500), None]);
        let most = Retry::exponential().attempts(u32::MAX);
        assert!(most.delay(u32::MAX - 1, &mut random).unwrap() <= Duration::from_secs(30));
    }

    #[test]
    fn jitter_stays_between_half_and_whole() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..1000 {
            let delay = Retry::exponential().delay(1, &mut random).unwrap();
            assert!((Duration::from_millis(50)..=Duration::from_millis(100)).contains(&delay));
        }
    }
}
