//! Sends and stored records: split routes (A8) and contradictions about one offset (A10).

use super::log::Route;
use super::subscription::Touch;
use super::{At, Checker};
use crate::event::{Group, Sent};

/// What a turn or an effect said of an offset that no line had stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) group: u32,
    pub(super) seq: Option<i64>,
    pub(super) line: u64,
}

impl Checker {
    pub(super) fn send(&mut self, group: &Group, seq: i64, result: Sent) {
        let group = self.log.group(group);
        let state = &mut self.log.groups[group as usize];
        match result {
            Sent::Ok => {
                state.sent.entry(seq).or_insert(self.line);
            }
            Sent::Fail => {
                state.failed.entry(seq).or_insert(self.line);
            }
            Sent::Unknown => {
                state.unknown.insert(seq);
            }
        }
    }

    pub(super) fn stored(&mut self, partition: i64, offset: i64, group: &Group, seq: Option<i64>) {
        let line = self.line;
        let group = self.log.group(group);
        if let Some(held) = self.log.record(partition, offset).copied() {
            let other_seq = held.seq.zip(seq).is_some_and(|(held, seq)| held != seq);
            if held.group != group || other_seq {
                let why = "the offset was stored before, as another record".to_owned();
                self.report(
                    10,
                    Some(group),
                    At::Log(Some(partition), Some(offset)),
                    vec![held.line, line],
                    why,
                );
            }
            return;
        }
        let routes = &mut self.log.groups[group as usize].routes;
        match routes.last().copied() {
            None => routes.push(Route { partition, rank: i64::MIN, line, elsewhere: None }),
            Some(last) if last.partition != partition && !self.options.partition_scope => {
                let why =
                    format!("stored while the group was routed to partition {}", last.partition);
                self.report(
                    8,
                    Some(group),
                    At::Log(Some(partition), Some(offset)),
                    vec![last.line, line],
                    why,
                );
            }
            Some(_) => {}
        }
        let pos = self.log.insert(partition, offset, group, seq, line);
        let key = self.log.key(partition, group);
        let trim = self.log.trim(partition);
        for sub in &mut self.subs {
            sub.add(key, pos, trim, Touch::Stored(line));
        }
        for claim in self.claims.remove(&(partition, offset)).unwrap_or_default() {
            self.claim(partition, offset, claim);
        }
    }

    /// Holds what a turn or an effect says of a record against what was stored.
    pub(super) fn claim(&mut self, partition: i64, offset: i64, claim: Claim) {
        let Some(held) = self.log.record(partition, offset).copied() else {
            let claims = self.claims.entry((partition, offset)).or_default();
            if !claims.iter().any(|other| (other.group, other.seq) == (claim.group, claim.seq)) {
                claims.push(claim);
            }
            return;
        };
        let other_seq = held.seq.zip(claim.seq).is_some_and(|(held, seq)| held != seq);
        if held.group == claim.group && !other_seq {
            return;
        }
        if self.contradicted.insert((partition, offset, claim.group)) {
            let what = if other_seq { "seq" } else { "group" };
            let why = format!("the offset was stored under another {what}");
            let at = At::Log(Some(partition), Some(offset));
            self.report(10, Some(claim.group), at, vec![held.line, claim.line], why);
        }
    }
}
