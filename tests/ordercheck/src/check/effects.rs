//! Effects: inversion (A2), zombies (A7) and dedup leaks (A12).

use super::log::{Key, Pos};
use super::records::Claim;
use super::{At, Checker};
use crate::event::{Applied, Owner, Place};

impl Checker {
    pub(super) fn effect(
        &mut self,
        place: &Place,
        seq: Option<i64>,
        owner: &Owner,
        result: Applied,
    ) {
        let line = self.line;
        let (sub, group, key, pos) = self.locate(place);
        self.member(&owner.member);
        self.claim(place.partition, place.offset, Claim { group, seq, line });
        if result != Applied::Applied {
            return;
        }
        let at = || At::Sub(sub, pos.partition, Some(pos.offset));
        let part = self.subs[sub].part(pos.partition);
        let first = part.applied.get(&pos.offset).copied();
        part.applied.entry(pos.offset).or_insert(line);
        if let Some((top, since)) = part.top.filter(|(top, _)| owner.epoch < *top) {
            let why = format!("applied with epoch {} after epoch {top}", owner.epoch);
            self.report(7, Some(group), at(), vec![since, line], why);
        }
        match first {
            None => self.judge_inversion(sub, key, pos),
            Some(first) if self.options.dedup => {
                self.report(12, Some(group), at(), vec![first, line], "applied twice".to_owned());
            }
            Some(_) => {}
        }
    }

    fn judge_inversion(&mut self, sub: usize, key: Key, pos: Pos) {
        let line = self.line;
        let part = self.subs[sub].part(pos.partition);
        let parted = part.parted.get(&pos.offset).copied();
        let passed = part.resets.iter().find(|(_, offset)| pos.offset < *offset);
        let excused = [parted, passed.map(|(line, _)| *line)].into_iter().flatten().min();

        let peaks = &mut self.subs[sub].group(key).peaks;
        let later = peaks.iter().filter_map(|((rank, partition), peaks)| {
            let at = peaks.partition_point(|(offset, _)| {
                let other = Pos { rank: *rank, partition: *partition, offset: *offset };
                !pos.before(&other)
            });
            peaks.get(at).copied()
        });
        let later = later.min_by_key(|(_, since)| *since);
        let own = peaks.entry((pos.rank, pos.partition)).or_default();
        if own.last().is_none_or(|(offset, _)| *offset < pos.offset) {
            own.push((pos.offset, line));
        }
        let Some((offset, since)) = later else { return };
        if excused.is_none_or(|excused| since < excused) {
            let why = format!("applied after offset {offset}, which is later in the group");
            let at = At::Sub(sub, pos.partition, Some(pos.offset));
            self.report(2, Some(key.1), at, vec![since, line], why);
        }
    }
}
