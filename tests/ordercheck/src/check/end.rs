//! What only the end shows: lost records (A4), send inversions (A9), phantoms (A10) and silent
//! drops (A14).

use std::collections::HashMap;

use super::log::Pos;
use super::{At, Checker};

impl Checker {
    pub(super) fn judge_end(&mut self) {
        self.judge_claims();
        self.judge_sends();
        if self.finished.is_some() {
            self.judge_drained();
        }
    }

    /// A turn or an effect of an offset that no line stored.
    fn judge_claims(&mut self) {
        for ((partition, offset), claims) in std::mem::take(&mut self.claims) {
            for claim in claims {
                if self.contradicted.insert((partition, offset, claim.group)) {
                    let at = At::Log(Some(partition), Some(offset));
                    let why = "no line stored the offset".to_owned();
                    self.report(10, Some(claim.group), at, vec![claim.line], why);
                }
            }
        }
    }

    fn judge_sends(&mut self) {
        let mut stored: HashMap<u32, Vec<(Pos, Option<i64>, u64)>> = HashMap::new();
        for (partition, part) in &self.log.partitions {
            for (offset, record) in &part.records {
                let group = &self.log.groups[record.group as usize];
                if !group.sent.is_empty() || !group.failed.is_empty() {
                    let pos = Pos { rank: record.rank, partition: *partition, offset: *offset };
                    stored.entry(record.group).or_default().push((pos, record.seq, record.line));
                }
            }
        }
        for group in 0..self.log.groups.len() as u32 {
            let mut stored = stored.remove(&group).unwrap_or_default();
            stored.sort_unstable_by_key(|(pos, _, _)| *pos);
            self.judge_unanswered(group, &stored);
            self.judge_failed(group, &stored);
            if !self.options.partition_scope {
                self.judge_send_order(group, &stored);
            }
        }
    }

    /// A send `ok` that no `stored` answers. A `stored` without a seq answers one of its group.
    fn judge_unanswered(&mut self, group: u32, stored: &[(Pos, Option<i64>, u64)]) {
        if self.finished.is_none() {
            return;
        }
        let mut open = self.log.groups[group as usize].sent.clone();
        for (_, seq, _) in stored {
            if let Some(seq) = seq {
                open.remove(seq);
            }
        }
        let nameless = stored.iter().filter(|(_, seq, _)| seq.is_none()).count();
        for (seq, line) in open.into_iter().skip(nameless) {
            let why = format!("the send of seq {seq} went well and nothing is stored");
            self.report(4, Some(group), At::Log(None, None), vec![line], why);
        }
    }

    fn judge_failed(&mut self, group: u32, stored: &[(Pos, Option<i64>, u64)]) {
        for (pos, seq, line) in stored {
            let state = &self.log.groups[group as usize];
            let Some(seq) = seq else { continue };
            let Some(failed) = state.failed.get(seq).copied() else { continue };
            if state.sent.contains_key(seq) || state.unknown.contains(seq) {
                continue;
            }
            let at = At::Log(Some(pos.partition), Some(pos.offset));
            let why = format!("stored although the send of seq {seq} failed");
            self.report(10, Some(group), at, vec![failed, *line], why);
        }
    }

    /// Each seq counts where it is stored first; a second copy of it inverts nothing.
    fn judge_send_order(&mut self, group: u32, stored: &[(Pos, Option<i64>, u64)]) {
        let sent = self.log.groups[group as usize].sent.clone();
        let mut seen = std::collections::HashSet::new();
        let mut before: Vec<(Pos, i64, u64)> = Vec::new();
        for (pos, seq, line) in stored {
            let Some((seq, sent_line)) = seq.and_then(|seq| Some((seq, *sent.get(&seq)?))) else {
                continue;
            };
            if !seen.insert(seq) {
                continue;
            }
            let inverted =
                before.iter().find(|(other, above, _)| other.before(pos) && seq < *above);
            match inverted.copied() {
                Some((_, above, above_line)) => {
                    let lines = vec![sent_line, *line, sent[&above], above_line];
                    let at = At::Log(Some(pos.partition), Some(pos.offset));
                    let why = format!("seq {seq} is stored behind seq {above}");
                    self.report(9, Some(group), at, lines, why);
                }
                // The highest of a partition stands for all before it there.
                None => match before.iter_mut().find(|(other, _, _)| {
                    other.partition == pos.partition && other.rank == pos.rank
                }) {
                    Some(peak) => *peak = (*pos, seq, *line),
                    None => before.push((*pos, seq, *line)),
                },
            }
        }
    }

    /// Every stored record, as every subscription left it.
    fn judge_drained(&mut self) {
        let finished = self.finished.take().unwrap_or_default();
        let mut left: Vec<(usize, usize, i64, i64)> = Vec::new();
        for (sub, state) in self.subs.iter().enumerate() {
            for (partition, part) in &self.log.partitions {
                let seen = state.parts.get(partition);
                let standing = finished.standings.get(sub).and_then(|parts| parts.get(partition));
                let trim = finished.trims.get(partition).copied().unwrap_or(i64::MIN);
                for offset in part.records.keys().copied() {
                    let lost = seen.is_some_and(|seen| {
                        seen.last_ok.as_ref().is_some_and(|commit| commit.covers(offset))
                            && !seen.closed_once.contains(offset)
                            && offset >= part.trim.max(seen.highest_reset())
                    });
                    let terminal = match standing {
                        Some(standing) => standing.is_terminal(offset, trim),
                        None => offset < trim,
                    };
                    let backlog = self.options.allow_backlog
                        && seen.is_none_or(|seen| {
                            seen.covered_to.is_none_or(|end| end <= offset)
                                && !seen.begun.contains(offset)
                        });
                    if lost {
                        left.push((4, sub, *partition, offset));
                    } else if !terminal && !backlog {
                        left.push((14, sub, *partition, offset));
                    }
                }
            }
        }
        for (code, sub, partition, offset) in left {
            self.report_left(code, sub, partition, offset);
        }
    }

    fn report_left(&mut self, code: usize, sub: usize, partition: i64, offset: i64) {
        let Some(record) = self.log.record(partition, offset).copied() else { return };
        let mut lines = vec![record.line];
        let why = if code == 4 {
            let commit = self.subs[sub].part(partition).last_ok.as_ref();
            lines.extend(commit.map(|commit| commit.line));
            "committed and never done"
        } else {
            "never done, and nothing says so"
        };
        let at = At::Sub(sub, partition, Some(offset));
        self.report(code, Some(record.group), at, lines, why.to_owned());
    }
}
