//! Whether what an executor answers is right.

use std::collections::BTreeMap;
use std::time::Instant;

use procession_core::{Budget, Claim, Explain, GroupState, Hold, Load, Offset, Progress, Scope};

use super::{Model, Verified, ensure, scope_of};
use crate::executor::driver::size;

impl Model {
    /// Scopes that have a record, of claims that may start turns.
    fn heads(&self) -> BTreeMap<Scope, (Claim, Offset)> {
        let mut heads = BTreeMap::new();
        for live in self.partitions.values().filter_map(|lane| lane.live.as_ref()) {
            if !live.draining {
                for stored in live.waiting.values() {
                    let scope = scope_of(live.claim, stored);
                    heads.entry(scope).or_insert((live.claim, stored.offset));
                }
            }
        }
        heads
    }

    /// Verifies that there is nothing to run, and that the time to look again is right.
    pub(in crate::executor) fn idle(&self, until: Option<Instant>, now: Instant) -> Verified {
        ensure!(
            until.is_none_or(|until| until > now),
            "idle until a moment that has come: it spins"
        );
        if !self.strict && !self.open.is_empty() {
            return Ok(());
        }
        let mut first: Option<(Instant, Scope)> = None;
        for (scope, (claim, offset)) in self.heads() {
            let is_open = self.open.values().any(|open| open.scope == scope);
            let hold = self.holds.get(&scope);
            if is_open || hold == Some(&Hold::Blocked) || self.loads.contains(&(claim, offset)) {
                continue;
            }
            match self.back_offs.get(&scope).filter(|back_off| back_off.at_last > now) {
                // A group that is moved away need not wait for its back-off, but may.
                Some(back_off) => {
                    let sooner = first.as_ref().is_none_or(|(at, _)| back_off.at_last < *at);
                    if hold.is_none() && sooner {
                        first = Some((back_off.at_last, scope));
                    }
                }
                None if self.strict => {
                    return Err(format!("{scope} can start at {offset}, yet the executor is idle"));
                }
                None => {}
            }
        }
        let Some((at, scope)) = first else { return Ok(()) };
        ensure!(
            until.is_some_and(|until| until <= at),
            "{scope} backs off for {:?}, yet the executor is idle until {:?} from now",
            at - now,
            until.map(|until| until - now)
        );
        Ok(())
    }

    /// Verifies a snapshot of progress.
    pub(in crate::executor) fn progress(
        &self,
        claim: Claim,
        progress: Option<&Progress>,
    ) -> Verified {
        let lane = &self.partitions[&claim.partition];
        let Some(live) = self.live(claim) else {
            ensure!(progress.is_none(), "{claim} is stale, yet it has progress");
            return Ok(());
        };
        let Some(progress) = progress else {
            ensure!(
                !live.uncommitted,
                "records of {claim} became terminal, yet it has no progress"
            );
            return Ok(());
        };
        ensure!(
            live.uncommitted || live.moved,
            "nothing of {claim} is new since the last commit, yet it has progress {progress:?}"
        );
        ensure!(progress.next >= lane.durable.next, "progress fell below {:?}", lane.durable);
        let read = live.next.max(lane.durable.end());
        ensure!(progress.end() <= read, "{progress:?} names what was never read");
        let is_terminal =
            |offset: Offset| lane.durable.covers(offset) || live.terminal.contains(&offset);
        let above = lane.log.iter().map(|stored| stored.offset).find(|o| *o >= progress.next);
        ensure!(
            live.draining || above.is_none_or(|o| o >= live.next || !is_terminal(o)),
            "{above:?} of {claim} is terminal and all below it too, yet reading would go on at {}",
            progress.next
        );
        for stored in &lane.log {
            let offset = stored.offset;
            ensure!(
                progress.covers(offset) == is_terminal(offset),
                "{offset} of {claim} is {}terminal, yet {progress:?}",
                if is_terminal(offset) { "" } else { "not " }
            );
        }
        Ok(())
    }

    /// Verifies the counts.
    pub(in crate::executor) fn load(&self, load: Load) -> Verified {
        ensure!(
            load.open == self.open.len(),
            "{} turns are open, not {}",
            self.open.len(),
            load.open
        );
        let (mut least, mut most) = (Budget::ZERO, Budget::ZERO);
        for live in self.partitions.values().filter_map(|lane| lane.live.as_ref()) {
            let all = live.waiting.values().fold(Budget::ZERO, |sum, s| sum.plus(size(s)));
            most = most.plus(all);
            // What waits of a draining claim may be dropped.
            if !live.draining {
                least = least.plus(all);
            }
        }
        for open in self.open.values().filter(|open| open.zombie) {
            most = open.turn.records().iter().fold(most, |sum, s| sum.plus(size(s)));
        }
        ensure!(
            (least.records..=most.records).contains(&load.held.records)
                && load.held.bytes <= most.bytes,
            "{most:?} was admitted and is not terminal, the executor says {load:?}"
        );
        let heads = self.heads();
        ensure!(
            load.groups >= heads.len(),
            "{} groups have records, the executor says {load:?}",
            heads.len()
        );
        ensure!(
            load.groups <= heads.len() + self.open.len() || !self.partitions_rest(),
            "{} groups have records and {} turns are open, the executor says {load:?}",
            heads.len(),
            self.open.len()
        );
        Ok(())
    }

    fn partitions_rest(&self) -> bool {
        self.partitions.values().all(|lane| lane.live.as_ref().is_none_or(|live| !live.draining))
    }

    /// Verifies an explanation.
    pub(in crate::executor) fn explained(
        &self,
        scope: &Scope,
        explain: Option<&Explain>,
        now: Instant,
    ) -> Verified {
        let lane = &self.partitions[&scope.partition];
        let Some(live) = lane.live.as_ref().filter(|live| !live.draining) else { return Ok(()) };
        let records: Vec<_> = live.of(scope).collect();
        let open = self.open.values().find(|open| open.scope == *scope);
        let Some(head) = records.first() else {
            let left = open.is_some() || self.holds.contains_key(scope);
            ensure!(explain.is_none() || left, "nothing of {scope} is here, yet {explain:?}");
            return Ok(());
        };
        let Some(explain) = explain else {
            return Err(format!("{scope} has {} records here, and no explanation", records.len()));
        };
        ensure!(
            (explain.claim, explain.head, explain.records)
                == (live.claim, head.offset, records.len()),
            "{} records of {scope} are here, the head is {}; {explain:?}",
            records.len(),
            head.offset
        );
        let back_off = self.back_offs.get(scope);
        let is_right = match explain.state {
            GroupState::Running => open.is_some_and(|open| !open.zombie),
            GroupState::Shut => open.is_some_and(|open| open.zombie),
            GroupState::Held(hold) => self.holds.get(scope) == Some(&hold),
            GroupState::BackingOff { until } => {
                let known = back_off.is_some_and(|back_off| back_off.at_last == until);
                open.is_none() && (known || until <= now)
            }
            GroupState::Loading => open.is_none(),
            GroupState::Ready => {
                open.is_none()
                    && !self.holds.contains_key(scope)
                    && back_off.is_none_or(|back_off| back_off.not_before <= now)
            }
            _ => true,
        };
        ensure!(is_right, "{scope}: {explain:?}; open {open:?}, {:?}, {back_off:?}", self.holds);
        ensure!(explain.since <= now, "{scope} waits since a moment to come: {explain:?}");
        Ok(())
    }
}
