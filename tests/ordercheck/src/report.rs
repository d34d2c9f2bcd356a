//! What a checked history showed: its anomalies and its counts.

use std::fmt;

/// The codes and names of the anomalies, in order.
const NAMES: [&str; 15] = [
    "overlap",
    "effect inversion",
    "overtake",
    "lost",
    "commit ahead",
    "commit regress",
    "zombie effect",
    "split route",
    "send inversion",
    "phantom",
    "duplicate execution",
    "dedup leak",
    "dead-letter order",
    "silent drop",
    "cascade",
];

/// One place where the history breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The number of the rule: 3 is A3.
    pub code: usize,
    /// The group, where the rule is about one.
    pub group: Option<Vec<u8>>,
    /// The partition, where there is one.
    pub partition: Option<i64>,
    /// The offset, where there is one.
    pub offset: Option<i64>,
    /// The lines that show it, ascending.
    pub lines: Vec<u64>,
    /// What happened.
    pub why: String,
}

impl Anomaly {
    /// The name of the rule.
    pub fn name(&self) -> &'static str {
        NAMES[self.code - 1]
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "A{} {}", self.code, self.name())?;
        if let Some(group) = &self.group {
            write!(f, " group={}", shown(group))?;
        }
        if let Some(partition) = self.partition {
            write!(f, " partition={partition}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " offset={offset}")?;
        }
        let lines: Vec<String> = self.lines.iter().map(u64::to_string).collect();
        write!(f, " lines={}: {}", lines.join(","), self.why)
    }
}

/// A group as one word: itself where it is plain, quoted where it is text, hex where it is not.
pub(crate) fn shown(group: &[u8]) -> String {
    match str::from_utf8(group) {
        Ok(text)
            if !text.is_empty()
                && text.chars().all(|c| c.is_alphanumeric() || "-_./:@#".contains(c)) =>
        {
            text.to_owned()
        }
        Ok(text) => format!("{text:?}"),
        Err(_) => {
            let digits: String = group.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("hex:{digits}")
        }
    }
}

/// How much happened. A run without retries or handoffs proves little about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines.
    pub events: u64,
    /// Distinct groups in any line.
    pub groups: u64,
    /// Turns begun.
    pub turns: u64,
    /// Turns begun as an attempt above the first.
    pub retries: u64,
    /// Members gone.
    pub crashes: u64,
    /// Claims of a partition after its first.
    pub handoffs: u64,
    /// Turns of records that had already ended well.
    pub replays: u64,
    /// Turns that outlived the epoch of their member.
    pub zombies: u64,
}

/// The verdict over a whole history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By the last line of each.
    pub anomalies: Vec<Anomaly>,
    /// How much happened.
    pub counts: Counts,
}

impl Report {
    /// How many anomalies there are of one code.
    pub fn count(&self, code: usize) -> usize {
        self.anomalies.iter().filter(|anomaly| anomaly.code == code).count()
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.anomalies.is_empty()
    }
}

/// A line an anomaly, then the line of counts.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for anomaly in &self.anomalies {
            writeln!(f, "{anomaly}")?;
        }
        let c = &self.counts;
        write!(
            f,
            "events={} groups={} turns={} retries={} crashes={} handoffs={} replays={} zombies={}",
            c.events, c.groups, c.turns, c.retries, c.crashes, c.handoffs, c.replays, c.zombies
        )?;
        for code in 1..=NAMES.len() {
            write!(f, " A{code}={}", self.count(code))?;
        }
        writeln!(f, " anomalies={}", self.anomalies.len())
    }
}
