//! A log with subscriptions and retention, against a model.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::executor::block_on;
use procession_core::*;
use proptest::prelude::*;

use super::support::*;
use crate::FileLog;
use crate::disk::MemoryDisk;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(u32, u8, u16)>),
    /// A subscription finishes what lies in these parts of a partition, in 256ths of it.
    Finish {
        name: u8,
        partition: u32,
        next: u8,
        done: Vec<(u8, u8)>,
    },
    Remove(u8),
    Read {
        partition: u32,
        from: u8,
    },
    /// With this many segments' bytes kept from now on.
    Reopen(u64),
    Crash(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0..2_u32, 0..12_u8, 200..3500_u16);
    let done = proptest::collection::vec((any::<u8>(), any::<u8>()), 0..4);
    prop_oneof![
        6 => proptest::collection::vec(record, 1..40).prop_map(Step::Append),
        4 => (0..3_u8, 0..2_u32, any::<u8>(), done)
            .prop_map(|(name, partition, next, done)| Step::Finish { name, partition, next, done }),
        1 => (0..3_u8).prop_map(Step::Remove),
        3 => (0..2_u32, any::<u8>()).prop_map(|(partition, from)| Step::Read { partition, from }),
        1 => (0..4_u64).prop_map(Step::Reopen),
        1 => any::<u64>().prop_map(Step::Crash),
    ]
}

/// What must be true of the log.
#[derive(Default)]
struct Model {
    /// By partition and offset: key, payload length, sequence.
    records: [Vec<(u8, u16, u64)>; 2],
    /// Finished offsets, by subscription and partition.
    subscriptions: BTreeMap<(u8, u32), BTreeSet<u64>>,
    /// What could be read at the last look.
    readable: [BTreeSet<u64>; 2],
    /// Appended since then.
    fresh: [Vec<u64>; 2],
}

fn open(disk: &MemoryDisk, segments: u64) -> FileLog {
    let options = options(disk).partitions(2).groups_max(4).retain_bytes(segments * (64 << 10));
    options.open_blocking().unwrap()
}

fn name(number: u8) -> String {
    format!("s{number}")
}

impl Model {
    fn append(&mut self, log: &FileLog, records: Vec<(u32, u8, u16)>) {
        for (partition, key, size) in records {
            let record = Record::new(vec![key], vec![key; size.into()]);
            let batch = Batch::one(Partition::new(partition), record);
            let Some(Outcome::Stored(receipt)) = block_on(log.append(batch)).into_iter().next()
            else {
                panic!("it was not stored");
            };
            let (p, sequence) = (partition as usize, receipt.sequence.unwrap().get());
            assert_eq!(receipt.offset.get(), self.records[p].len() as u64);
            let last = self.last_of(p, key, receipt.offset.get());
            assert!(last.is_none_or(|last| sequence > last), "group {key} of {p}: {sequence}");
            self.readable[p].insert(receipt.offset.get());
            self.fresh[p].push(receipt.offset.get());
            self.records[p].push((key, size, sequence));
        }
    }

    /// The sequence of a group's last record below an offset.
    fn last_of(&self, p: usize, key: u8, below: u64) -> Option<u64> {
        let mut mine = self.records[p][..below as usize].iter().filter(|(k, ..)| *k == key);
        mine.next_back().map(|(.., sequence)| *sequence)
    }

    fn finish(&mut self, log: &FileLog, number: u8, partition: u32, next: u8, done: &[(u8, u8)]) {
        let end = self.records[partition as usize].len() as u64;
        let part = |of: u8| u64::from(of) * end / 255;
        // What a consumer commits never shrinks.
        let finished = self.subscriptions.entry((number, partition)).or_default();
        finished.extend(0..part(next));
        for (from, to) in done {
            finished.extend(part(*from.min(to))..part(*from.max(to)));
        }
        let low = (0..).find(|at| !finished.contains(at)).unwrap_or_default();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for at in finished.range(low..) {
            match ranges.last_mut() {
                Some((_, to)) if *to == *at => *to += 1,
                _ => ranges.push((*at, at + 1)),
            }
        }
        let key = key(log, &name(number), partition);
        let committed = finish(log, &key, low, &ranges);
        assert!(matches!(committed, Committed::Done), "{committed:?}");
    }

    fn remove(&mut self, log: &FileLog, number: u8) {
        let known = self.subscriptions.keys().any(|(name, _)| *name == number);
        self.subscriptions.retain(|(name, _), _| *name != number);
        assert_eq!(block_on(log.remove_subscription(name(number))).is_ok(), known);
    }

    /// Looks at everything that can be read.
    fn check(&mut self, log: &FileLog) {
        let trimmed = trim(log);
        for (partition, records) in self.records.iter().enumerate() {
            let low = earliest(log, partition);
            assert_eq!(trimmed.earliest[partition].get(), low);
            let found = read_from(log, partition as u32, low).unwrap();
            let mut readable = BTreeSet::new();
            let mut sequences = HashMap::new();
            for stored in &found {
                let (key, size, sequence) = records[stored.offset.get() as usize];
                assert_eq!(stored.record.key().unwrap().as_ref(), [key]);
                assert_eq!(stored.record.payload().unwrap()[..], vec![key; size.into()]);
                assert_eq!(stored.sequence, Some(Sequence::new(sequence)));
                assert!(sequences.insert(key, sequence).is_none_or(|last| last < sequence));
                assert!(readable.insert(stored.offset.get()), "it was read twice");
            }
            // What can be read now could be read then: as long as the log keeps a record of a group,
            // its numbers follow each other.
            for at in &self.fresh[partition] {
                let (key, _, sequence) = records[*at as usize];
                if readable.range(..*at).any(|older| records[*older as usize].0 == key) {
                    let last = self.last_of(partition, key, *at).unwrap();
                    assert_eq!(sequence, last + 1, "group {key} of {partition} at {at}");
                }
            }
            assert!(readable.is_subset(&self.readable[partition]), "what went stays away");
            for ((number, of), finished) in &self.subscriptions {
                if *of as usize == partition {
                    let mut all = 0..records.len() as u64;
                    let lost = all.find(|at| !finished.contains(at) && !readable.contains(at));
                    let lost = lost.filter(|at| self.readable[partition].contains(at));
                    assert_eq!(lost, None, "s{number} has not finished it in {partition}");
                }
            }
            self.readable[partition] = readable;
        }
        self.fresh = Default::default();
        let ends: Vec<u64> = self.records.iter().map(|list| list.len() as u64).collect();
        for state in block_on(log.subscriptions()).unwrap() {
            for partition in &state.partitions {
                let number = state.name[1..].parse().unwrap();
                let finished = &self.subscriptions[&(number, partition.partition.get())];
                let end = ends[partition.partition.get() as usize];
                assert_eq!(partition.unfinished, end - finished.len() as u64, "{state:?}");
            }
        }
    }

    fn read(&self, log: &FileLog, partition: u32, from: u8) {
        let p = partition as usize;
        let from = u64::from(from) * self.records[p].len() as u64 / 255;
        let low = earliest(log, p);
        match read_from(log, partition, from) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Trimmed);
                assert!(from < low, "{from} {low}");
            }
            Ok(found) => {
                let found: Vec<u64> = found.iter().map(|stored| stored.offset.get()).collect();
                let readable: Vec<u64> = self.readable[p].range(from..).copied().collect();
                assert_eq!(found, readable);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: retention removes nothing that a subscription has not finished, brings nothing back,
    /// and everything that is left reads as it was appended, gaps or not. Method: random appends,
    /// commits with holes, removals, reads, reopens and crashes beside a model.
    #[test]
    fn a_log_with_retention_and_subscriptions_behaves_like_its_model(
        steps in proptest::collection::vec(step(), 1..50)
    ) {
        let disk = MemoryDisk::new();
        let mut segments = 1;
        let mut log = open(&disk, segments);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Append(records) => model.append(&log, records),
                Step::Finish { name, partition, next, done } => {
                    model.finish(&log, name, partition, next, &done);
                }
                Step::Remove(name) => model.remove(&log, name),
                Step::Read { partition, from } => model.read(&log, partition, from),
                Step::Reopen(kept) => {
                    block_on(log.close()).unwrap();
                    segments = kept;
                    log = open(&disk, segments);
                    prop_assert!(log.recovery().segments_missing.is_empty());
                }
                Step::Crash(seed) => {
                    crash(log, &disk, seed);
                    log = open(&disk, segments);
                    prop_assert!(log.recovery().segments_missing.is_empty());
                }
            }
            model.check(&log);
        }
        // Without subscriptions only the newest bytes are left: the rest of two segments at most.
        for number in 0..3 {
            if model.subscriptions.keys().any(|(name, _)| *name == number) {
                model.remove(&log, number);
            }
        }
        model.check(&log);
        prop_assert!(log.shared().segments.all().len() as u64 <= segments + 3);
    }
}
