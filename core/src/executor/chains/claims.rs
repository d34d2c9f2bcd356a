//! The claims, what each holds, and how much more it may have.

use std::collections::{HashMap, VecDeque};

use crate::types::{Budget, Claim, PartitionId, Progress};

use super::entries::Entries;
use crate::executor::OffsetWindow;

/// Every partition that was ever seen, by a number that stays its own; at most as many as the
/// logs have partitions.
#[derive(Debug)]
pub(super) struct Claims {
    slots: Vec<Slot>,
    index: HashMap<PartitionId, u32>,
    budget: Budget,
    ranges_max: usize,
    /// Claims among which the budget is shared: those that are not draining.
    sharing: u64,
    share: Budget,
    /// Slots whose window has moved far enough to say so.
    news: VecDeque<u32>,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) id: PartitionId,
    pub(super) live: Option<Live>,
    /// Blocked chains of records that are scopes of their own: nothing names them one by one.
    pub(super) blocked_loose: Vec<u32>,
    in_news: bool,
}

/// A claim that was not fenced.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) claim: Claim,
    pub(super) window: OffsetWindow,
    /// By the window's slots.
    pub(super) entries: Entries,
    pub(super) draining: bool,
    /// Open turns.
    pub(super) open: usize,
    /// Chains in the ready queues.
    pub(super) ready: usize,
    /// Records that are not terminal, and the bytes of their bodies.
    pub(super) held: Budget,
    /// What was delivered since the claim, held or not.
    pub(super) delivered: Budget,
    /// The largest window that was announced.
    announced: Budget,
    /// Below this much returned, the window has not moved far.
    near: Budget,
    /// Versions of the window that are committed, or were given out to be.
    committed: u64,
    given: [Option<(Extent, u64)>; 4],
}

/// What tells two snapshots of one window apart: what they cover only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    next: u64,
    ranges: usize,
    covered: u64,
}

impl Extent {
    fn of(progress: &Progress) -> Self {
        let covered = progress.done.iter().map(|(from, to)| to.get() - from.get()).sum();
        Self { next: progress.next.get(), ranges: progress.done.len(), covered }
    }
}

impl Claims {
    pub(super) fn new(budget: Budget, ranges_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            index: HashMap::new(),
            budget,
            ranges_max,
            sharing: 0,
            share: budget,
            news: VecDeque::new(),
        }
    }

    pub(super) fn slot(&mut self, id: PartitionId) -> u32 {
        *self.index.entry(id).or_insert_with(|| {
            let slot = Slot { id, live: None, blocked_loose: Vec::new(), in_news: false };
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        })
    }

    pub(super) fn find(&self, id: PartitionId) -> Option<u32> {
        self.index.get(&id).copied()
    }

    /// The slot of a claim that is neither fenced nor superseded.
    pub(super) fn find_live(&self, claim: Claim) -> Option<u32> {
        let slot = self.find(claim.partition)?;
        self.get(slot).live.as_ref().is_some_and(|live| live.claim == claim).then_some(slot)
    }

    pub(super) fn get(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    pub(super) fn live(&self, slot: u32) -> Option<&Live> {
        self.get(slot).live.as_ref()
    }

    pub(super) fn live_mut(&mut self, slot: u32) -> Option<&mut Live> {
        self.get_mut(slot).live.as_mut()
    }

    /// Whether the claim holds less than half of its share of the bytes.
    pub(super) fn is_half_empty(&self, slot: u32) -> bool {
        self.live(slot).is_some_and(|live| live.held.bytes < self.share.bytes / 2)
    }

    /// One claim more, or one less, among which the budget is shared.
    pub(super) fn share_among(&mut self, joins: bool) {
        self.sharing = if joins { self.sharing + 1 } else { self.sharing - 1 };
        let among = self.sharing.max(1);
        self.share =
            Budget::new((self.budget.records / among).max(1), (self.budget.bytes / among).max(1));
        for slot in 0..self.slots.len() as u32 {
            let share = self.share;
            if let Some(live) = self.live_mut(slot) {
                live.near = live.near_of(share);
            }
            self.notice(slot);
        }
    }

    /// Makes it news if the window of this claim has moved far enough: by an eighth of its share,
    /// or by anything at all when the claim has nothing ready to run, so that a few slow groups
    /// never keep the rest from being read.
    #[inline]
    pub(super) fn notice(&mut self, slot: u32) {
        let Slot { live: Some(live), in_news: false, .. } = &self.slots[slot as usize] else {
            return;
        };
        let (returned, near) = (live.returned(), live.near);
        if live.ready == 0 || returned.records >= near.records || returned.bytes >= near.bytes {
            self.notice_moved(slot);
        }
    }

    fn notice_moved(&mut self, slot: u32) {
        let (share, ranges_max) = (self.share, self.ranges_max);
        let it = &mut self.slots[slot as usize];
        let Some(live) = &it.live else { return };
        if live.window_now(share, ranges_max).minus(live.announced) != Budget::ZERO {
            it.in_news = true;
            self.news.push_back(slot);
        }
    }

    /// The next claim whose window has moved, and the window.
    pub(super) fn tell(&mut self) -> Option<(Claim, Budget)> {
        while let Some(slot) = self.news.pop_front() {
            let (share, ranges_max) = (self.share, self.ranges_max);
            let slot = &mut self.slots[slot as usize];
            slot.in_news = false;
            let Some(live) = &mut slot.live else { continue };
            let window = live.window_now(share, ranges_max);
            if window.minus(live.announced) != Budget::ZERO {
                // A share may have shrunk since; a window never does.
                live.announced.records = live.announced.records.max(window.records);
                live.announced.bytes = live.announced.bytes.max(window.bytes);
                live.near = live.near_of(share);
                return Some((live.claim, live.announced));
            }
        }
        None
    }
}

impl Live {
    pub(super) fn new(claim: Claim, progress: &Progress) -> Self {
        Self {
            claim,
            window: OffsetWindow::new(progress),
            entries: Entries::default(),
            draining: false,
            open: 0,
            ready: 0,
            held: Budget::ZERO,
            delivered: Budget::ZERO,
            announced: Budget::ZERO,
            near: Budget::ZERO,
            committed: 0,
            given: [None; 4],
        }
    }

    /// What was delivered and is held no longer.
    const fn returned(&self) -> Budget {
        self.delivered.minus(self.held)
    }

    /// How much is returned when the window has moved by an eighth of its share, or less than that
    /// at the end of the numbers.
    fn near_of(&self, share: Budget) -> Budget {
        let eighth = Budget::new(share.records.div_ceil(8), share.bytes.div_ceil(8));
        self.announced.plus(eighth).minus(share)
    }

    /// Everything that may have been delivered by now. At the bound of the progress map it stands
    /// still, as long as anything can make the map smaller.
    fn window_now(&self, share: Budget, ranges_max: usize) -> Budget {
        if self.draining || (self.window.ranges() >= ranges_max && self.held.records > 0) {
            return self.announced;
        }
        self.returned().plus(share)
    }

    pub(super) fn progress(&mut self) -> Option<Progress> {
        let version = self.window.version();
        if version == self.committed {
            return None;
        }
        let progress = self.window.snapshot();
        let extent = Extent::of(&progress);
        if !self.given.iter().flatten().any(|(given, _)| *given == extent) {
            self.given.rotate_right(1);
            self.given[0] = Some((extent, version));
        }
        Some(progress)
    }

    /// Only one of the last four snapshots is taken; of an older one, the answer came too late to
    /// be worth anything.
    pub(super) fn committed(&mut self, progress: &Progress) {
        let extent = Extent::of(progress);
        let given = self.given.iter().flatten().find(|(given, _)| *given == extent);
        if let Some((_, version)) = given {
            self.committed = self.committed.max(*version);
        }
    }
}
