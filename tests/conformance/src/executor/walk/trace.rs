//! What has happened, for the one who reads a failure.

use std::collections::VecDeque;
use std::fmt;

/// The last steps; printed when a check fails.
pub(super) struct Trace {
    pub(super) seed: u64,
    steps: VecDeque<String>,
}

impl Trace {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed, steps: VecDeque::new() }
    }

    pub(super) fn add(&mut self, step: fmt::Arguments<'_>) {
        if self.steps.len() == 60 {
            self.steps.pop_front();
        }
        self.steps.push_back(step.to_string());
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last steps of PROCESSION_SEED={}:", self.seed);
            self.steps.iter().for_each(|step| eprintln!("    {step}"));
        }
    }
}

/// How often what happened: a walk that met nothing shows nothing.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) run: u64,
    pub(super) diverted: u64,
    pub(super) loaded: u64,
    pub(super) gone: u64,
    pub(super) retried: u64,
    pub(super) zombies: u64,
    pub(super) committed: u64,
    pub(super) drained: u64,
}
