//! Progress: commits ahead (A5), commits that regress (A6), zombie commits (A7); resets, trims.

use super::{At, Checker};
use crate::event::Committed;

/// What one commit covers, and its line.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) next: i64,
    pub(super) done: Vec<(i64, i64)>,
    pub(super) line: u64,
}

impl Progress {
    pub(super) fn covers(&self, offset: i64) -> bool {
        offset < self.next || self.done.iter().any(|(from, to)| (*from..*to).contains(&offset))
    }

    fn end(&self) -> i64 {
        self.done.last().map_or(self.next, |(_, to)| *to)
    }

    /// The offset it no longer covers although the one before it did.
    fn regress(&self, before: &Self) -> Option<i64> {
        if self.next < before.next {
            return Some(self.next);
        }
        before.done.iter().find_map(|(from, to)| {
            let from = (*from).max(self.next);
            let held = self.done.iter().find(|(start, end)| *start <= from && from < *end);
            let reach = held.map_or(from, |(_, end)| *end);
            (from < *to && reach < *to).then_some(reach)
        })
    }
}

impl Checker {
    pub(super) fn commit(
        &mut self,
        sub: &str,
        partition: i64,
        progress: Progress,
        epoch: i64,
        result: Committed,
    ) {
        let sub = self.sub(sub);
        if result == Committed::Refused {
            return;
        }
        let part = self.subs[sub].part(partition);
        part.covered_to = part.covered_to.max(Some(progress.end()));
        self.judge_ahead(sub, partition, &progress);
        if result != Committed::Ok {
            return;
        }
        let line = self.line;
        let part = self.subs[sub].part(partition);
        let top = part.top.filter(|(top, _)| epoch < *top);
        let before = part.last_ok.replace(progress.clone());
        let before = before.filter(|_| !part.reset_since_ok);
        part.reset_since_ok = false;
        if let Some((top, since)) = top {
            let why = format!("committed with epoch {epoch} after epoch {top}");
            self.report(7, None, At::Sub(sub, partition, None), vec![since, line], why);
        }
        let lost = before.and_then(|before| Some((progress.regress(&before)?, before.line)));
        if let Some((offset, since)) = lost {
            let why = "the commit before covered it and this one does not".to_owned();
            self.report(6, None, At::Sub(sub, partition, Some(offset)), vec![since, line], why);
        }
    }

    /// A record is named once, at the first commit that covers it too early.
    fn judge_ahead(&mut self, sub: usize, partition: i64, progress: &Progress) {
        let part = self.subs[sub].part(partition);
        let mut ahead: Vec<i64> = part.pending.range(..progress.next).copied().collect();
        for (from, to) in &progress.done {
            ahead.extend(part.pending.range(*from..*to));
        }
        for offset in ahead {
            let part = self.subs[sub].part(partition);
            part.pending.remove(&offset);
            part.ahead.insert(offset);
            let Some(record) = self.log.record(partition, offset).copied() else { continue };
            let why = "covered by a commit before it was terminal".to_owned();
            let lines = vec![record.line, self.line];
            self.report(5, Some(record.group), At::Sub(sub, partition, Some(offset)), lines, why);
        }
    }

    pub(super) fn reset(&mut self, sub: &str, partition: i64, offset: i64) {
        let line = self.line;
        let sub = self.sub(sub);
        let part = self.subs[sub].part(partition);
        part.resets.push((line, offset));
        part.standing.reset = offset;
        part.reset_since_ok = true;
        part.ended_ok.cut(offset);
        self.subs[sub].settle_below(partition, offset, &self.log);
    }

    pub(super) fn trim(&mut self, partition: i64, offset: i64) {
        let part = self.log.partitions.entry(partition).or_default();
        part.trim = part.trim.max(offset);
        for sub in &mut self.subs {
            sub.settle_below(partition, offset, &self.log);
        }
    }
}
