//! Judges the output against the data.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::data::{Data, Row, line};

/// What is wrong with the output; all zero is right, but for `duplicated`, which at-least-once
/// allows after a crash.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Events of the data that are not in the output.
    pub(crate) lost: usize,
    /// Lines that were there before.
    pub(crate) duplicated: usize,
    /// First lines of an event that stand below a later one of their case, or that are not what
    /// the data has at that place.
    pub(crate) reordered: usize,
}

impl Verdict {
    pub(crate) const fn holds(&self) -> bool {
        self.lost == 0 && self.reordered == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, duplicated, reordered } = self;
        write!(f, "{lost} lost, {reordered} out of order, {duplicated} repeated after a crash")
    }
}

pub(crate) fn check(lines: Vec<String>, data: &Data) -> Verdict {
    let mut verdict = Verdict::default();
    // Rows by the line that their effect writes, so that a line is judged as a whole.
    let expected: HashMap<String, (&str, usize)> = data
        .cases
        .iter()
        .flat_map(|(case, rows)| {
            rows.iter().enumerate().map(move |(index, row)| {
                let Row { activity, timestamp, .. } = &data.rows[*row];
                let fields = [case, &*index.to_string(), activity, timestamp];
                (line(fields), (case.as_str(), index))
            })
        })
        .collect();
    let mut seen = HashSet::new();
    let mut reached: HashMap<&str, usize> = HashMap::new();
    for line in lines {
        let Some((case, index)) = expected.get(&line) else {
            verdict.reordered += 1;
            continue;
        };
        if !seen.insert((*case, *index)) {
            verdict.duplicated += 1;
            continue;
        }
        let reached = reached.entry(case).or_default();
        if *index < *reached {
            verdict.reordered += 1;
        }
        *reached = (*reached).max(index + 1);
    }
    verdict.lost = expected.len() - seen.len();
    verdict
}
