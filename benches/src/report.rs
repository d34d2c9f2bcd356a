//! Lines of `key=value`, medians and ratios.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

/// The middle value; of an even count, the mean of the two in the middle. NaN of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The last line: the rate of one contender over that of every other, as the median of the
/// quotients inside each run, because what disturbs a run disturbs all of it.
///
/// The one is `ours` where it ran, else `limit`; `None` if neither did, or nothing beside it.
pub(crate) fn ratios(runs: &[(&str, Vec<f64>)], ours: &str, limit: &str) -> Option<String> {
    let rates = |wanted: &str| runs.iter().find(|(name, _)| *name == wanted);
    let mut line = String::from("ratio");
    match (rates(ours), rates(limit)) {
        (Some(ours), _) => {
            for other in runs.iter().filter(|(name, _)| *name != ours.0) {
                line += &ratio(ours, other);
            }
        }
        (None, Some(limit)) => {
            for other in runs.iter().filter(|(name, _)| *name != limit.0) {
                line += &ratio(other, limit);
            }
        }
        (None, None) => {}
    }
    (line != "ratio").then_some(line)
}

fn ratio((over, top): &(&str, Vec<f64>), (under, bottom): &(&str, Vec<f64>)) -> String {
    let quotient = median(top.iter().zip(bottom).map(|(top, bottom)| top / bottom));
    format!(" {over}/{under}={quotient:.2}")
}

/// A figure that the platform does not count, or that nothing gave (a mean over no syncs).
pub(crate) struct OrNone(pub(crate) Option<f64>, pub(crate) usize);

impl fmt::Display for OrNone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value:.*}", self.1),
            None => f.write_str("none"),
        }
    }
}

/// How far the whole command is, on stderr, and only if that is a terminal.
#[derive(Clone, Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// A bar of `total` equal steps.
    pub(crate) fn new(total: u64) -> Self {
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3}% {msg}, {eta} to go");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Says who runs now.
    pub(crate) fn name(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    /// Moves on.
    pub(crate) fn step(&self, steps: u64) {
        self.0.inc(steps);
    }

    /// Takes the bar away, so that it does not stand among the lines.
    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// The contenders that were asked for, in the order in which they run; all when none was named.
pub(crate) fn choose<T: Copy>(
    all: &[(&'static str, T)],
    wanted: Option<&[String]>,
) -> Result<Vec<(&'static str, T)>> {
    let Some(wanted) = wanted else { return Ok(all.to_vec()) };
    let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
    for name in wanted {
        ensure!(names.contains(&&**name), "no contender {name}; there are {}", names.join(","));
    }
    let asked = |name: &str| wanted.iter().any(|wanted| wanted == name);
    Ok(all.iter().filter(|(name, _)| asked(name)).copied().collect())
}

/// The tokio of every contender that runs on one: two worker threads, timers, no I/O.
pub(crate) fn tokio_runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .context("start a tokio runtime")
}

/// Things per second.
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 100.0]), 3.0);
        assert_eq!(median([4.0, 1.0, 2.0, 100.0]), 3.0);
        assert!(median([]).is_nan());
    }

    #[test]
    fn ratios_are_of_ours_where_it_ran() {
        let runs =
            [("ours", vec![20.0, 30.0]), ("peer", vec![10.0, 10.0]), ("raw", vec![40.0, 60.0])];
        assert_eq!(
            ratios(&runs, "ours", "raw").as_deref(),
            Some("ratio ours/peer=2.50 ours/raw=0.50")
        );
    }

    #[test]
    fn without_ours_they_are_of_the_limit() {
        let runs = [("peer", vec![10.0]), ("raw", vec![40.0])];
        assert_eq!(ratios(&runs, "ours", "raw").as_deref(), Some("ratio peer/raw=0.25"));
        assert_eq!(ratios(&runs[..1], "ours", "raw"), None);
        assert_eq!(ratios(&runs[1..], "ours", "raw"), None);
    }
}
