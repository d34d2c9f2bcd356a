//! What the store knows of the log's own subscriptions: who pins what, who is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use procession_core::{
    Error, ErrorKind, Key, LocalMembership, LogUuid, Offset, Partition, Progress, Timestamp,
};

use super::file::Contents;
use super::store::Staged;
use crate::disk::Clock;
use crate::keeper::Keeping;
use crate::retention::{self, Decision, Finished, Rules, Standing};
use crate::segments::Segment;
use crate::subscriptions::{PartitionState, SubscriptionState};
use crate::trims::Trims;

/// What decisions need beside the progress itself.
pub(crate) struct Care {
    pub(crate) log: LogUuid,
    pub(crate) rules: Rules,
    pub(crate) clock: Arc<dyn Clock>,
    /// Who has joined through `FileLog::subscribe`.
    pub(crate) membership: LocalMembership,
    pub(crate) keeping: Arc<Keeping>,
    /// The lowest offsets that can be read, as far as it was decided.
    pub(crate) earliest: Vec<u64>,
}

impl Care {
    /// A new subscription cannot begin below what is left: what its owner looked up may have been
    /// removed meanwhile.
    pub(super) fn raise(&self, key: &Key, start: Offset, earliest: &[u64]) -> Offset {
        match earliest.get(key.partition.get() as usize) {
            Some(low) if key.log == self.log => start.max(Offset::new(*low)),
            _ => start,
        }
    }

    /// The keys of a subscription that have progress in this log.
    pub(super) fn keys_of(&self, contents: &Contents, staged: &Staged, name: &str) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        let new = staged.entries.keys().filter(|key| !contents.entries.contains_key(*key));
        for key in contents.entries.keys().chain(new) {
            let known = staged.entries.get(key).or_else(|| contents.entries.get(key));
            let here = key.log == self.log && *key.subscription == *name;
            if here && known.is_some_and(|known| known.progress.is_some()) {
                keys.push(key.clone());
            }
        }
        keys
    }

    /// Whether a subscription may be removed now.
    pub(super) fn may_remove(&self, name: &str, force: bool, unknown: bool) -> Result<(), Error> {
        let error = |kind| Error::new(kind, format!("remove subscription \"{name}\""));
        if unknown {
            return Err(error(ErrorKind::NotFound).with_hint(
                "it has no progress in this log; `subscriptions()` lists those that do",
            ));
        }
        if !force && self.membership.members(name) > 0 {
            return Err(error(ErrorKind::Locked).with_hint(
                "it has a live member in this process; shut that one down first, or remove it by \
                 force with `remove_subscription_by_force`",
            ));
        }
        Ok(())
    }

    /// How far every subscription of this log got, by name. One whose progress cannot be decoded
    /// counts as one that has finished nothing.
    pub(super) fn standings(&self, contents: &Contents, staged: &Staged) -> Vec<Standing> {
        let mut standings: BTreeMap<Arc<str>, Standing> = BTreeMap::new();
        let new = staged.entries.keys().filter(|key| !contents.entries.contains_key(*key));
        for key in contents.entries.keys().chain(new).filter(|key| key.log == self.log) {
            let known = staged.entries.get(key).or_else(|| contents.entries.get(key));
            let Some((known, bytes)) = known.and_then(|k| Some((k, k.progress.as_ref()?))) else {
                continue;
            };
            let progress = Progress::from_bytes(bytes).unwrap_or_default();
            let standing =
                standings.entry(Arc::clone(&key.subscription)).or_insert_with(|| Standing {
                    name: Arc::clone(&key.subscription),
                    moved: i64::MIN,
                    live: self.membership.members(&key.subscription) > 0,
                    partitions: Vec::new(),
                });
            standing.moved = standing.moved.max(known.moved);
            standing.partitions.push((key.partition.get(), Finished::of(&progress)));
        }
        let mut standings: Vec<_> = standings.into_values().collect();
        standings.iter_mut().for_each(|s| s.partitions.sort_by_key(|(partition, _)| *partition));
        standings
    }

    /// Who is forgotten now, and whose life must be noted.
    pub(super) fn signs_of_life(
        &self,
        contents: &Contents,
        staged: &Staged,
        now: i64,
    ) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        if self.rules.expire.is_none() {
            return (Vec::new(), Vec::new());
        }
        let standings = self.standings(contents, staged);
        let expired = retention::expired(&standings, &self.rules, now);
        (expired, retention::to_note(&standings, &self.rules, now))
    }

    pub(super) fn decide(
        &self,
        contents: &Contents,
        staged: &Staged,
        segments: &[Arc<Segment>],
        trims: &Trims,
        now: i64,
    ) -> Decision {
        let standings = self.standings(contents, staged);
        // The log's time never falls, even if the clock does.
        let now = segments.last().map_or(now, |active| now.max(active.header.log_time));
        retention::decide(segments, &self.rules, &standings, trims, now)
    }
}

/// What people want to know of the subscriptions.
pub(super) fn describe(
    standings: &[Standing],
    segments: &[Arc<Segment>],
    ends: &[u64],
) -> Vec<SubscriptionState> {
    let describe = |standing: &Standing| {
        let pins: Vec<&[Arc<Segment>]> =
            segments.windows(2).filter(|pair| standing.pin(&pair[0], &pair[1]).is_some()).collect();
        let partition = |(partition, finished): &(u32, Finished)| PartitionState {
            partition: Partition::new(*partition),
            next: Offset::new(finished.next),
            unfinished: finished.unfinished(ends.get(*partition as usize).copied().unwrap_or(0)),
        };
        SubscriptionState {
            name: Arc::clone(&standing.name),
            partitions: standing.partitions.iter().map(partition).collect(),
            pinned_bytes: pins.iter().map(|pair| pair[0].size).sum(),
            pins_oldest: pins
                .first()
                .is_some_and(|pair| segments.first().is_some_and(|s| s.id() == pair[0].id())),
            last_moved: Timestamp::from_millis(standing.moved),
            live: standing.live,
        }
    };
    standings.iter().map(describe).collect()
}
