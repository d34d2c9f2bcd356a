//! Turns and who may take them: overlap (A1), overtake (A3), zombie claims (A7), split routes
//! (A8), replays (A11), dead-letter order (A13) and cascade (A15).

use super::log::{Key, Pos};
use super::records::Claim;
use super::subscription::{Open, Sub, SubPart, Touch};
use super::{At, Checker};
use crate::event::{Owner, Parting, Place, Verdict};
use crate::parse::Malformed;

impl Checker {
    pub(super) fn own(&mut self, sub: &str, partition: i64, owner: &Owner) {
        let line = self.line;
        let sub = self.sub(sub);
        self.member(&owner.member);
        let part = self.subs[sub].part(partition);
        let before = part.top;
        if before.is_some() {
            part.last_handoff = Some(line);
            self.counts.handoffs += 1;
        }
        if let Some((top, since)) = before.filter(|(top, _)| owner.epoch <= *top) {
            let why = format!("claimed with epoch {} after epoch {top}", owner.epoch);
            self.report(7, None, At::Sub(sub, partition, None), vec![since, line], why);
            return;
        }
        part.top = Some((owner.epoch, line));
        let Sub { parts, open, .. } = &mut self.subs[sub];
        let Some(SubPart { drained, .. }) = parts.get(&partition) else { return };
        let mut zombies = 0;
        for turn in open.values_mut().flatten().filter(|turn| turn.partition == partition) {
            let outlived =
                turn.epoch < owner.epoch && !drained.contains(&(turn.member, turn.epoch));
            if outlived && !turn.counted_zombie {
                turn.counted_zombie = true;
                zombies += 1;
            }
        }
        self.counts.zombies += zombies;
    }

    pub(super) fn drop_ownership(
        &mut self,
        sub: &str,
        partition: i64,
        owner: &Owner,
        drained: bool,
    ) {
        let sub = self.sub(sub);
        let member = self.member(&owner.member);
        let part = self.subs[sub].part(partition);
        if drained && part.top.is_none_or(|(top, _)| top <= owner.epoch) {
            part.drained.insert((member, owner.epoch));
        }
    }

    pub(super) fn begin(&mut self, place: &Place, attempt: i64, owner: &Owner) {
        let line = self.line;
        let (sub, group, key, pos) = self.locate(place);
        let member = self.member(&owner.member);
        self.counts.turns += 1;
        self.counts.retries += u64::from(attempt > 1);
        self.claim(place.partition, place.offset, Claim { group, seq: None, line });
        let zombie = self.subs[sub].part(place.partition).is_zombie(member, owner.epoch);
        self.counts.zombies += u64::from(zombie);
        let turn = Open {
            partition: place.partition,
            offset: place.offset,
            attempt,
            member,
            epoch: owner.epoch,
            line,
            counted_zombie: zombie,
        };
        self.judge_overlap(sub, key, &turn, zombie);
        if !zombie {
            self.judge_overtake(sub, key, pos);
            self.judge_dead_letters(sub, key, pos);
        }
        self.judge_barrier(sub, group, pos);
        self.judge_replay(sub, group, pos);
        self.subs[sub].part(place.partition).begun.insert(place.offset);
        self.subs[sub].touch(key, pos, Touch::Running(line));
        self.subs[sub].open.entry(key).or_default().push(turn);
    }

    fn judge_overlap(&mut self, sub: usize, key: Key, turn: &Open, zombie: bool) {
        let state = &self.subs[sub];
        let Some(open) = state.open.get(&key) else { return };
        let overlapped = open.iter().find(|other| {
            let part = state.parts.get(&other.partition);
            let other_zombie = part.is_some_and(|part| part.is_zombie(other.member, other.epoch));
            turn.member == other.member || !(zombie || other_zombie)
        });
        if let Some(other) = overlapped {
            let why = format!("began while the turn of offset {} was open", other.offset);
            let lines = vec![other.line, turn.line];
            self.report(
                1,
                Some(key.1),
                At::Sub(sub, turn.partition, Some(turn.offset)),
                lines,
                why,
            );
        }
    }

    fn judge_overtake(&mut self, sub: usize, key: Key, pos: Pos) {
        let undone = &self.subs[sub].group(key).undone;
        let Some((earlier, touch)) = undone.range(..pos).find(|(other, _)| other.before(&pos))
        else {
            return;
        };
        let (since, what) = match *touch {
            Touch::Stored(since) => (since, "had not begun"),
            Touch::Running(since) => (since, "had not ended"),
            Touch::Ended(since) => (since, "was waiting to retry"),
        };
        let why = format!("began while offset {} {what}", earlier.offset);
        let lines = vec![since, self.line];
        self.report(3, Some(key.1), At::Sub(sub, pos.partition, Some(pos.offset)), lines, why);
    }

    fn judge_dead_letters(&mut self, sub: usize, key: Key, pos: Pos) {
        let state = &mut self.subs[sub];
        let itself = state.part(pos.partition).redriven_once.contains(&pos.offset);
        let group = state.group(key);
        let earlier = |(other, _): &(&Pos, &u64)| other.before(&pos);
        let redriven = group.redriven.range(..pos).find(earlier);
        let parked = group.parked.range(..pos).find(earlier).filter(|_| !itself);
        let (other, since, what) = match (redriven, parked) {
            (Some((other, since)), _) => (other.offset, *since, "was redriven and not done again"),
            (None, Some((other, since))) => (other.offset, *since, "was parked with its group"),
            (None, None) => return,
        };
        let why = format!("began while offset {other} {what}");
        let lines = vec![since, self.line];
        self.report(13, Some(key.1), At::Sub(sub, pos.partition, Some(pos.offset)), lines, why);
    }

    fn judge_barrier(&mut self, sub: usize, group: u32, pos: Pos) {
        if self.options.partition_scope {
            return;
        }
        let Some(stored) = self.log.record(pos.partition, pos.offset) else { return };
        let state = &self.log.groups[group as usize];
        let mut routes = state.routes.iter().rev();
        let route = routes.find(|route| (route.rank, route.partition) == (pos.rank, pos.partition));
        let Some((route, elsewhere)) = route.and_then(|route| Some((route, route.elsewhere?)))
        else {
            return;
        };
        if stored.group != group || state.barrier.is_some_and(|barrier| barrier >= route.rank) {
            return;
        }
        let lines = vec![elsewhere, route.line, stored.line, self.line];
        let why = format!("began before the barrier of routing epoch {}", route.rank);
        self.report(8, Some(group), At::Sub(sub, pos.partition, Some(pos.offset)), lines, why);
    }

    fn judge_replay(&mut self, sub: usize, group: u32, pos: Pos) {
        let part = self.subs[sub].part(pos.partition);
        if !part.ended_ok.contains(pos.offset) {
            return;
        }
        self.counts.replays += 1;
        let Some(most) = self.options.max_replay else { return };
        let (lines, why) = match part.last_handoff.max(self.last_crash) {
            None => {
                (vec![self.line], "began again after it had ended ok, with no cause".to_owned())
            }
            Some(cause) => {
                let charged = self.charges.entry(cause).or_default();
                *charged += 1;
                if *charged != most.saturating_add(1) {
                    return;
                }
                (vec![cause, self.line], format!("the replay {charged} of at most {most}"))
            }
        };
        self.report(11, Some(group), At::Sub(sub, pos.partition, Some(pos.offset)), lines, why);
    }

    pub(super) fn end(
        &mut self,
        place: &Place,
        attempt: i64,
        owner: &Owner,
        verdict: Verdict,
    ) -> Result<(), Malformed> {
        let (sub, _, key, pos) = self.locate(place);
        let member = self.member(&owner.member);
        let open = self.subs[sub].open.get_mut(&key);
        let begun = open.and_then(|open| {
            let found = open.iter().position(|turn| {
                (turn.partition, turn.offset, turn.attempt, turn.member, turn.epoch)
                    == (place.partition, place.offset, attempt, member, owner.epoch)
            })?;
            open.remove(found);
            Some(open.is_empty())
        });
        match begun {
            None => {
                let why = "an end without its open begin".to_owned();
                return Err(Malformed { line: self.line, column: None, why });
            }
            Some(true) => drop(self.subs[sub].open.remove(&key)),
            Some(false) => {}
        }
        match verdict {
            Verdict::NotOk(_) => self.subs[sub].touch(key, pos, Touch::Ended(self.line)),
            Verdict::Ok => {
                self.close(sub, pos);
                self.subs[sub].part(pos.partition).ended_ok.insert(pos.offset);
                self.judge_cascade(sub, key, pos);
            }
        }
        Ok(())
    }

    fn judge_cascade(&mut self, sub: usize, key: Key, pos: Pos) {
        if !self.options.cascade {
            return;
        }
        let dead = &self.subs[sub].group(key).dead;
        let Some((other, since)) = dead.range(..pos).find(|(other, _)| other.before(&pos)) else {
            return;
        };
        let why = format!("ended ok after offset {} was dead", other.offset);
        let lines = vec![*since, self.line];
        self.report(15, Some(key.1), At::Sub(sub, pos.partition, Some(pos.offset)), lines, why);
    }

    pub(super) fn part(&mut self, place: &Place, parting: Parting) {
        let line = self.line;
        let (sub, _, key, pos) = self.locate(place);
        self.close(sub, pos);
        self.subs[sub].part(pos.partition).parted.entry(pos.offset).or_insert(line);
        match parting {
            Parting::Dead => drop(self.subs[sub].group(key).dead.insert(pos, line)),
            Parting::ParkGroup => {
                self.subs[sub].part(pos.partition).parked.insert(pos.offset, (key, pos));
                self.subs[sub].group(key).parked.insert(pos, line);
            }
            Parting::Skip | Parting::ParkRecord => {}
        }
    }

    /// The record is terminal, one way or another. Whatever it was before, it is neither
    /// redriven nor parked any more.
    fn close(&mut self, sub: usize, pos: Pos) {
        let state = &mut self.subs[sub];
        state.release(pos.partition, pos.offset);
        let part = state.part(pos.partition);
        part.closed_once.insert(pos.offset);
        part.standing.closed.insert(pos.offset);
        state.settle(pos.partition, pos.offset, &self.log);
    }

    pub(super) fn redrive(&mut self, place: &Place) {
        let line = self.line;
        let (sub, _, key, pos) = self.locate(place);
        let state = &mut self.subs[sub];
        state.release(pos.partition, pos.offset);
        let part = state.part(pos.partition);
        part.standing.closed.remove(pos.offset);
        part.standing.redriven.insert(pos.offset, (key, pos));
        part.redriven_once.insert(pos.offset);
        part.ended_ok.remove(pos.offset);
        let group = state.group(key);
        group.redriven.insert(pos, line);
        group.dead.remove(&pos);
        state.settle(pos.partition, pos.offset, &self.log);
    }

    pub(super) fn crash(&mut self, member: &str) {
        let member = self.member(member);
        self.counts.crashes += 1;
        self.last_crash = Some(self.line);
        for sub in &mut self.subs {
            for open in sub.open.values_mut() {
                open.retain(|turn| turn.member != member);
            }
            sub.open.retain(|_, open| !open.is_empty());
        }
    }
}
