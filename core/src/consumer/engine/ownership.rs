//! Partitions come and go: assigned, claimed, drained, lost.
//!
//! ```text
//!  Assigned ─> pending ─(flight: store, fences)─> claims ─ draining ─> Lost
//!                 │ unwanted: taken away before it was ours        │
//!                 └────────────────> drained <─────────────────────┘
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::Shared;

use super::hooks::Call;
use super::{After, Engine, State};
use crate::consumer::Warning;
use crate::consumer::drain::{Drain, DrainHome, DrainState};
use crate::executor::Revoke;
use crate::log::Chunk;
use crate::membership::{Drained, Event, Inlet};
use crate::runtime::{BoxFuture, later};
use crate::store::Key;
use crate::types::{Claim, Offset, PartitionId, Progress};
use crate::{AbsentKey, Error, ErrorKind};

/// A claimed partition.
pub(super) struct Owned {
    pub(super) claim: Claim,
    pub(super) key: Arc<Key>,
    pub(super) draining: bool,
    /// Everything below was given to the executor.
    pub(super) admitted: Offset,
    /// Where the run may end, and whether everything below is finished.
    pub(super) end: Option<Offset>,
    pub(super) end_reached: bool,
    /// Its turns are to be dropped where they stand.
    cut: bool,
}

/// A claim that was accepted, and from where it goes on.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) claim: Claim,
    pub(crate) key: Arc<Key>,
    pub(crate) progress: Progress,
}

/// A claim under way. Shared, so that whoever takes the partition away can see it through.
pub(crate) type ClaimFlight = Shared<BoxFuture<'static, Result<Accepted, Error>>>;

/// An assigned partition that is not claimed yet.
pub(super) struct Pending {
    flight: Option<ClaimFlight>,
    /// False once it was taken away again.
    wanted: bool,
    /// Assigned anew while the unwanted claim was still under way.
    again: bool,
}

impl Pending {
    const NEW: Self = Self { flight: None, wanted: true, again: false };
}

impl Engine {
    // ---- Coming ----------------------------------------------------------------------------

    fn assigned(&self, partitions: Vec<PartitionId>) {
        if partitions.is_empty() {
            return self.warn(&Warning::NothingAssigned);
        }
        self.with(|state, after| {
            for partition in partitions {
                let pending = state.pending.entry(partition).or_insert(Pending::NEW);
                pending.again = !pending.wanted;
            }
            after.control = true;
        });
    }

    /// Starts what is assigned and not yet on its way; returns the flights.
    pub(crate) fn start_claims(
        &self,
        start: impl Fn(PartitionId) -> ClaimFlight,
    ) -> Vec<(PartitionId, ClaimFlight)> {
        let mut state = self.lock();
        let mut started: Vec<_> = state
            .pending
            .iter_mut()
            .filter(|(_, pending)| pending.flight.is_none())
            .map(|(partition, pending)| {
                let flight = start(*partition);
                pending.flight = Some(flight.clone());
                (*partition, flight)
            })
            .collect();
        started.sort_unstable_by_key(|(partition, _)| *partition);
        started
    }

    /// Asked before each step of a claim: whether the partition is still to be ours.
    pub(crate) fn wants(&self, partition: PartitionId) -> bool {
        self.lock().pending.get(&partition).is_some_and(|pending| pending.wanted)
    }

    /// The flights of these partitions have ended: from here on their records may come.
    pub(crate) fn claimed(&self, partitions: &[PartitionId]) {
        let now = self.runtime.now();
        let failed = self.with(|state, after| {
            let mut failed = None;
            let mut accepted = Vec::new();
            for partition in partitions {
                let Some(pending) = state.pending.get(partition) else { continue };
                let Some(flight) = &pending.flight else { continue };
                let Some(result) = flight.peek().cloned() else { continue };
                let (wanted, again) = (pending.wanted, pending.again);
                state.pending.remove(partition);
                if !wanted {
                    // The epoch is raised, which harms nobody.
                    state.report(Drained::nothing(*partition), after);
                    if again {
                        state.pending.insert(*partition, Pending::NEW);
                        after.control = true;
                    }
                    continue;
                }
                match result {
                    Ok(claim) => accepted.push(claim),
                    Err(error) => failed = Some(error),
                }
            }
            if state.stop.is_some() {
                // Too late to start anything.
                return failed;
            }
            let mut claims = Vec::new();
            for Accepted { claim, key, progress } in accepted {
                state.executor.assign(claim, &progress, now);
                after.starts.push((claim, progress.next));
                claims.push(claim);
                let admitted = progress.next;
                let end = state.end_of(claim.partition);
                let (draining, end_reached, cut) = (false, false, false);
                let owned = Owned { claim, key, draining, admitted, end, end_reached, cut };
                state.claims.insert(claim.partition, owned);
            }
            if !claims.is_empty() {
                self.hooks.push(Call::Assigned(claims));
                after.hooks = true;
            }
            failed
        });
        if let Some(error) = failed {
            self.fail(error);
        }
    }

    /// Where the logs end now: the run ends there.
    pub(crate) fn set_ends(&self, ends: Vec<Vec<Offset>>) {
        self.lock().ends = Some(ends);
    }

    fn records(&self, claim: Claim, chunk: Chunk) {
        let chunk = self.without_absent_keys(claim, chunk);
        self.look_at(&chunk);
        let now = self.runtime.now();
        self.with(|state, after| {
            if let Some(owned) = state.claims.get_mut(&claim.partition)
                && owned.claim == claim
                && !owned.draining
            {
                owned.admitted = owned.admitted.max(chunk.next);
                state.executor.admit(claim, chunk, now);
                // A chunk without records still moves the position.
                if !state.dirty {
                    state.dirty = true;
                    after.control = true;
                }
                after.ring = true;
            }
        });
    }

    /// A body that was dropped is here again.
    pub(crate) fn reloaded(&self, claim: Claim, chunk: Chunk) {
        let now = self.runtime.now();
        self.with(|state, after| {
            state.executor.admit(claim, chunk, now);
            after.ring = true;
        });
    }

    /// A consumer that refuses absent keys stops at the first: it and what follows stay unread.
    fn without_absent_keys(&self, claim: Claim, mut chunk: Chunk) -> Chunk {
        if self.options.absent_key != AbsentKey::Reject {
            return chunk;
        }
        let Some(at) = chunk.records.iter().position(|r| r.record.key().is_none()) else {
            return chunk;
        };
        let offset = chunk.records[at].offset;
        chunk.records.truncate(at);
        chunk.next = offset;
        self.fail(
            self.error(ErrorKind::Unsupported)
                .in_partition(claim.partition)
                .at_offset(offset)
                .with_hint(
                    "the record has no key; declare what becomes of such records with `absent_key`",
                ),
        );
        chunk
    }

    // ---- Going -----------------------------------------------------------------------------

    /// Starts the drain of these partitions; see [`Inlet::revoking`].
    pub(crate) fn drain(self: &Arc<Self>, partitions: &[PartitionId], within: Duration) -> Drain {
        let within = within.min(self.options.drain_within);
        let deadline = later(self.runtime.now(), within);
        let drain = self.with(|state, after| {
            let drain = DrainState::new(partitions.to_vec());
            state.drains.push(Arc::clone(&drain));
            for partition in partitions {
                if let Some(pending) = state.pending.get_mut(partition) {
                    // Under way: whoever drains waits until the store has answered.
                    pending.again = false;
                    pending.wanted = false;
                    if pending.flight.is_some() {
                        continue;
                    }
                    state.pending.remove(partition);
                }
                if let Some(drained) = state.start_drain(*partition) {
                    after.reports.push((Arc::clone(&drain), drained));
                }
            }
            drain
        });
        let home: Arc<dyn DrainHome> = Arc::<Self>::clone(self);
        Drain::new(drain, home, deadline, self.runtime.timer())
    }

    /// These are somebody else's from now on. After a drain nothing is left to be fenced.
    pub(crate) fn lost(&self, partitions: &[PartitionId]) {
        self.with(|state, after| {
            let mut claims = Vec::new();
            for partition in partitions {
                if let Some(pending) = state.pending.get_mut(partition) {
                    (pending.wanted, pending.again) = (false, false);
                    if pending.flight.is_none() {
                        state.pending.remove(partition);
                    }
                }
                claims.extend(state.let_go(*partition, after));
            }
            if !claims.is_empty() {
                self.hooks.push(Call::Revoked(claims));
                after.hooks = true;
            }
        });
        self.tell_cut();
    }

    /// The store has refused this claim: forget it. Says whether it was still ours.
    pub(super) fn fenced(&self, claim: Claim) -> bool {
        let ours = self.lock().claims.get(&claim.partition).is_some_and(|o| o.claim == claim);
        if ours {
            self.lost(&[claim.partition]);
        }
        ours
    }

    /// Every partition that is owned now.
    pub(crate) fn owned(&self) -> Vec<PartitionId> {
        let mut all: Vec<_> = self.lock().claims.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Drops the turns that still run, where they stand.
    pub(crate) fn cut_off(&self) {
        self.with(|state, _| {
            state.claims.values_mut().for_each(|owned| owned.cut = true);
        });
        self.tell_cut();
    }

    /// Moves when turns of some claims are to be dropped where they stand.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }

    /// Whether a turn of this claim is to be dropped: its claim was cut off or replaced.
    pub(crate) fn is_cut(&self, claim: Claim) -> bool {
        let state = self.lock();
        let owned = state.claims.get(&claim.partition);
        self.is_closed() || owned.is_none_or(|owned| owned.claim != claim || owned.cut)
    }
}

impl State {
    fn end_of(&self, partition: PartitionId) -> Option<Offset> {
        let log = self.ends.as_ref()?.get(partition.log.get() as usize)?;
        log.get(partition.partition.get() as usize).copied()
    }

    /// Starts nothing more of the partition; answers if nothing of it runs.
    fn start_drain(&mut self, partition: PartitionId) -> Option<Drained> {
        let Some(owned) = self.claims.get_mut(&partition) else {
            return (self.left_running() == 0).then(|| Drained::nothing(partition));
        };
        owned.draining = true;
        let open = self.executor.revoke(owned.claim, Revoke::Drain);
        (open == 0).then(|| self.drained(partition, 0))
    }

    pub(super) fn drained(&mut self, partition: PartitionId, open: usize) -> Drained {
        let claim = self.claims.get(&partition).map(|owned| owned.claim);
        let progress = claim.and_then(|claim| self.executor.progress(claim));
        Drained { partition, claim, progress, open }
    }

    /// Tells everybody who waits for this.
    pub(super) fn report(&mut self, drained: Drained, after: &mut After) {
        self.drains.retain(|drain| !drain.is_settled());
        for drain in &self.drains {
            after.reports.push((Arc::clone(drain), drained.clone()));
        }
        after.control = true;
    }

    /// Turns that outlived the end of the run, when every claim was let go. Nobody knows any more of
    /// which partition they are: who takes over waits for the seat, which goes with the last one.
    fn left_running(&self) -> usize {
        if self.drained { self.executor.load().open } else { 0 }
    }

    fn let_go(&mut self, partition: PartitionId, after: &mut After) -> Option<Claim> {
        let owned = self.claims.remove(&partition)?;
        let open = self.executor.revoke(owned.claim, Revoke::Fence);
        self.abandoned.retain(|(of, _), _| *of != partition);
        let claim = Some(owned.claim);
        if open == 0 || !self.drained {
            self.report(Drained { partition, claim, progress: None, open }, after);
        }
        after.ring = true;
        claim
    }
}

impl Drained {
    const fn nothing(partition: PartitionId) -> Self {
        Self { partition, claim: None, progress: None, open: 0 }
    }
}

impl DrainHome for Engine {
    fn expire(&self, partition: PartitionId) -> Drained {
        let drained = self.with(|state, _| {
            let Some(owned) = state.claims.get_mut(&partition) else {
                // A claim whose store does not answer counts as open.
                let pending = usize::from(state.pending.contains_key(&partition));
                let open = pending.max(state.left_running());
                return Drained { open, ..Drained::nothing(partition) };
            };
            owned.cut = true;
            let claim = owned.claim;
            let open = state.executor.revoke(claim, Revoke::Drain);
            state.drained(partition, open)
        });
        self.tell_cut();
        drained
    }

    fn is_over(&self) -> bool {
        self.is_closed()
    }
}

/// The engine as the membership sees it.
pub(crate) struct EngineInlet(pub(crate) Arc<Engine>);

impl Inlet for EngineInlet {
    fn event(&self, event: Event) {
        let engine = &self.0;
        match event {
            Event::Records(claim, chunk) => engine.records(claim, chunk),
            Event::Assigned(partitions) => engine.assigned(partitions),
            Event::Lost(partitions) => engine.lost(&partitions),
            Event::Skipped { claim, from, to } => {
                engine.warn(&Warning::Skipped { partition: claim.partition, from, to });
            }
            Event::Failed(error) => engine.fail(error),
        }
    }

    fn revoking(&self, partitions: &[PartitionId], within: Duration) -> Drain {
        self.0.drain(partitions, within)
    }

    fn settle(&self, partitions: &[PartitionId]) -> BoxFuture<'static, Result<(), Error>> {
        let engine = Arc::clone(&self.0);
        let partitions = partitions.to_vec();
        Box::pin(async move {
            let flights: Vec<ClaimFlight> = {
                let state = engine.lock();
                let of = |partition| state.pending.get(partition)?.flight.clone();
                partitions.iter().filter_map(of).collect()
            };
            for flight in flights {
                // Its error is reported where it is taken in.
                let _ = flight.await;
            }
            engine.claimed(&partitions);
            engine.commit().await
        })
    }

    fn is_over(&self) -> bool {
        self.0.is_closed()
    }
}
