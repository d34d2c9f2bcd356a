//! What the log holds and where its groups are written, whoever reads it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A group as it is judged: by its id, and within its partition where the scope says so.
pub(super) type Key = (i64, u32);

/// Where a record stands in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pos {
    pub(super) rank: i64,
    pub(super) partition: i64,
    pub(super) offset: i64,
}

impl Pos {
    /// By offset inside a partition, by routing epoch between partitions.
    pub(super) fn before(&self, other: &Self) -> bool {
        if self.partition == other.partition {
            self.offset < other.offset
        } else {
            self.rank < other.rank
        }
    }
}

/// One stored record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) group: u32,
    pub(super) seq: Option<i64>,
    pub(super) line: u64,
    pub(super) rank: i64,
}

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) records: BTreeMap<i64, Record>,
    /// Everything below is gone on purpose.
    pub(super) trim: i64,
}

impl Default for Partition {
    fn default() -> Self {
        Self { records: BTreeMap::new(), trim: i64::MIN }
    }
}

/// A partition the group is written to from a line on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) partition: i64,
    /// Its routing epoch; the lowest number there is for a first `stored`.
    pub(super) rank: i64,
    pub(super) line: u64,
    /// The line that stored a record of the group in another partition before.
    pub(super) elsewhere: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Home {
    partition: i64,
    first_line: u64,
    highest: i64,
}

#[derive(Debug, Default)]
pub(super) struct GroupLog {
    pub(super) name: Vec<u8>,
    pub(super) routes: Vec<Route>,
    homes: Vec<Home>,
    pub(super) barrier: Option<i64>,
    /// The lines of the sends that went well, failed, and the seqs of neither.
    pub(super) sent: BTreeMap<i64, u64>,
    pub(super) failed: BTreeMap<i64, u64>,
    pub(super) unknown: BTreeSet<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    partition_scope: bool,
    ids: HashMap<Vec<u8>, u32>,
    pub(super) groups: Vec<GroupLog>,
    pub(super) partitions: HashMap<i64, Partition>,
}

impl Log {
    pub(super) fn new(partition_scope: bool) -> Self {
        Self { partition_scope, ..Self::default() }
    }

    pub(super) fn group(&mut self, name: &[u8]) -> u32 {
        if let Some(group) = self.ids.get(name) {
            return *group;
        }
        let group = self.groups.len() as u32;
        self.ids.insert(name.to_vec(), group);
        self.groups.push(GroupLog { name: name.to_vec(), ..GroupLog::default() });
        group
    }

    pub(super) fn key(&self, partition: i64, group: u32) -> Key {
        (if self.partition_scope { partition } else { 0 }, group)
    }

    pub(super) fn trim(&self, partition: i64) -> i64 {
        self.partitions.get(&partition).map_or(i64::MIN, |part| part.trim)
    }

    pub(super) fn record(&self, partition: i64, offset: i64) -> Option<&Record> {
        self.partitions.get(&partition)?.records.get(&offset)
    }

    /// The position of a record: as stored, or as it would be stored now.
    pub(super) fn pos(&self, partition: i64, offset: i64, group: u32) -> Pos {
        let stored = self.record(partition, offset).filter(|record| record.group == group);
        let rank = stored.map_or_else(|| self.rank(partition, offset, group), |record| record.rank);
        Pos { rank, partition, offset }
    }

    /// The epoch of the latest route to the partition, but never above that of a record behind
    /// it there: a record logged late was stored under the route of its neighbours.
    fn rank(&self, partition: i64, offset: i64, group: u32) -> i64 {
        let state = &self.groups[group as usize];
        let Some(last) = state.routes.last().filter(|_| !self.partition_scope) else {
            return i64::MIN;
        };
        let mut routes = state.routes.iter().rev();
        let rank = routes.find(|route| route.partition == partition).unwrap_or(last).rank;
        let home = state.homes.iter().find(|home| home.partition == partition);
        if state.routes.len() < 2 || home.is_none_or(|home| home.highest < offset) {
            return rank;
        }
        let behind = self.partitions.get(&partition).and_then(|part| {
            part.records.range(offset..).find(|(_, record)| record.group == group)
        });
        behind.map_or(rank, |(_, record)| rank.min(record.rank))
    }

    /// Adds a record that is not held yet.
    pub(super) fn insert(
        &mut self,
        partition: i64,
        offset: i64,
        group: u32,
        seq: Option<i64>,
        line: u64,
    ) -> Pos {
        let rank = self.rank(partition, offset, group);
        let part = self.partitions.entry(partition).or_default();
        part.records.insert(offset, Record { group, seq, line, rank });
        let homes = &mut self.groups[group as usize].homes;
        match homes.iter_mut().find(|home| home.partition == partition) {
            Some(home) => home.highest = home.highest.max(offset),
            None => homes.push(Home { partition, first_line: line, highest: offset }),
        }
        Pos { rank, partition, offset }
    }

    pub(super) fn route(&mut self, group: &[u8], partition: i64, epoch: i64, line: u64) {
        let group = self.group(group);
        let state = &mut self.groups[group as usize];
        let mut others = state.homes.iter().filter(|home| home.partition != partition);
        let elsewhere = others.next().map(|home| home.first_line);
        state.routes.push(Route { partition, rank: epoch, line, elsewhere });
    }

    pub(super) fn barrier(&mut self, group: &[u8], epoch: i64) {
        let group = self.group(group);
        let barrier = &mut self.groups[group as usize].barrier;
        *barrier = (*barrier).max(Some(epoch));
    }
}
