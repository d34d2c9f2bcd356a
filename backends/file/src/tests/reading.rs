//! Reads against a model, across rolls and reopens.

use futures::FutureExt;
use futures::executor::block_on;
use procession_core::*;
use proptest::prelude::*;

use super::support::*;
use crate::disk::MemoryDisk;

#[derive(Clone, Debug)]
enum Step {
    /// Records, and whether they have a stamp.
    Append(Vec<(u32, u8, u16)>, bool),
    /// The last batch that had a stamp comes again.
    Again,
    Read {
        from: Vec<u8>,
        records: u64,
        bytes: u64,
    },
    /// With compression, or without, from then on.
    Reopen(bool),
    Crash(u64, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0..3_u32, any::<u8>(), 0..2000_u16);
    prop_oneof![
        6 => (proptest::collection::vec(record, 1..12), any::<bool>())
            .prop_map(|(records, stamped)| Step::Append(records, stamped)),
        1 => Just(Step::Again),
        4 => (proptest::collection::vec(any::<u8>(), 3), 1..40_u64, 1..5000_u64)
            .prop_map(|(from, records, bytes)| Step::Read { from, records, bytes }),
        1 => any::<bool>().prop_map(Step::Reopen),
        1 => (any::<u64>(), any::<bool>()).prop_map(|(seed, packed)| Step::Crash(seed, packed)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: reads give exactly what a list per partition would. Method: random appends, reads,
    /// reopens and crashes beside a `Vec` per partition, with compression and stamps now and then.
    #[test]
    fn reads_give_exactly_what_was_appended(steps in proptest::collection::vec(step(), 1..40)) {
        let disk = MemoryDisk::new();
        let mut log = open(&disk);
        let mut model: Vec<Vec<Record>> = vec![Vec::new(); 3];
        let enlisted = block_on(log.enlist("p")).unwrap();
        let stamped = |base, records: Vec<(Partition, Record)>| {
            let mut batch = Batch::many(records);
            let Enlisted { producer, epoch, .. } = enlisted;
            batch.stamp = Some(Stamp { producer, epoch, base: Some(base) });
            batch
        };
        // The number of the next record with a stamp, and the last such batch with its receipts.
        let mut next = 0;
        let mut last = None;
        for step in steps {
            match step {
                Step::Append(records, has_stamp) => {
                    let records: Vec<_> = records
                        .into_iter()
                        .map(|(partition, key, size)| {
                            let record = Record::new(vec![key % 9], vec![key; size.into()])
                                .with_timestamp(Timestamp::from_millis(1));
                            (Partition::new(partition), record)
                        })
                        .collect();
                    let batch = match has_stamp {
                        true => stamped(next, records.clone()),
                        false => Batch::many(records.clone()),
                    };
                    let outcomes = block_on(log.append(batch));
                    if has_stamp {
                        last = Some((next, records.clone(), format!("{outcomes:?}")));
                        next += records.len() as u64;
                    }
                    for ((partition, record), outcome) in records.into_iter().zip(outcomes) {
                        let list = &mut model[partition.get() as usize];
                        let Outcome::Stored(receipt) = outcome else { panic!("{outcome:?}") };
                        prop_assert_eq!(receipt.offset.get(), list.len() as u64);
                        list.push(record);
                    }
                }
                Step::Again => {
                    let Some((base, records, before)) = &last else { continue };
                    let outcomes = block_on(log.append(stamped(*base, records.clone())));
                    prop_assert_eq!(&format!("{outcomes:?}"), before);
                }
                Step::Read { from, records, bytes } => {
                    let wants: Vec<Want> = from
                        .iter()
                        .zip(&model)
                        .enumerate()
                        .map(|(p, (from, list))| Want {
                            partition: Partition::new(p as u32),
                            from: Offset::new(u64::from(*from) % (list.len() as u64 + 1)),
                            max: Budget::new(records, bytes),
                        })
                        .collect();
                    let max = Budget::new(records * 2, bytes * 2);
                    let chunks = block_on(log.read(&wants, max)).unwrap();
                    let total: usize = chunks.iter().map(|chunk| chunk.records.len()).sum();
                    let any = wants.iter().zip(&model).any(|(w, l)| w.from.get() < l.len() as u64);
                    prop_assert_eq!(total > 0, any);
                    prop_assert!(total as u64 <= max.records);
                    for chunk in chunks {
                        let p = chunk.partition.get() as usize;
                        let mut at = wants[p].from.get();
                        prop_assert!(chunk.records.len() as u64 <= records);
                        for stored in chunk.records {
                            prop_assert_eq!(stored.offset.get(), at);
                            prop_assert_eq!(&stored.record, &model[p][at as usize]);
                            at += 1;
                        }
                        prop_assert_eq!(chunk.next.get(), at);
                    }
                }
                Step::Reopen(packed) => {
                    block_on(log.close()).unwrap();
                    log = open_packed(&disk, packed);
                    prop_assert!(log.recovery().clean);
                }
                Step::Crash(seed, packed) => {
                    crash(log, &disk, seed);
                    log = open_packed(&disk, packed);
                }
            }
        }
        for (p, list) in model.iter().enumerate() {
            let found = read_from(&log, p as u32, 0).unwrap();
            prop_assert_eq!(found.len(), list.len());
        }
    }
}

#[test]
fn reading_at_the_end_is_empty_and_beyond_it_is_not_yet_written() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    stored(&log, 0, "a", "1");
    let read = |partition, from| {
        let (partition, from) = (Partition::new(partition), Offset::new(from));
        block_on(log.read(&[Want { partition, from, max: Budget::MAX }], Budget::MAX))
    };
    assert_eq!(read(0, 0).unwrap()[0].next, Offset::new(1));
    assert!(read(0, 1).unwrap().is_empty());
    let error = read(0, 2).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::NotYetWritten, Some(Offset::new(2))));
    assert_eq!(read(3, 0).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn changed_never_loses_a_wake_up() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let mut seen = block_on(log.changed(Version::NEVER)).unwrap();
    for i in 0..200 {
        assert!(log.changed(seen).now_or_never().is_none());
        let reader = log.clone();
        let waiting = std::thread::spawn(move || block_on(reader.changed(seen)).unwrap());
        stored(&log, 0, "a", &i.to_string());
        let now = waiting.join().unwrap();
        assert!(now > seen);
        seen = block_on(log.changed(Version::NEVER)).unwrap();
        assert_eq!(contents(&log, 0).len(), i + 1);
    }
}

#[test]
fn one_pass_serves_wants_that_lie_far_apart() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..400 {
        stored(&log, i % 3, "a", &format!("{i:0>1000}"));
    }
    let want = |partition, from| Want {
        partition: Partition::new(partition),
        from: Offset::new(from),
        max: Budget::new(2, u64::MAX),
    };
    let chunks = block_on(log.read(&[want(0, 0), want(1, 130), want(2, 66)], Budget::MAX)).unwrap();
    let firsts: Vec<u64> = chunks.iter().map(|c| c.records[0].offset.get()).collect();
    assert_eq!(firsts, [0, 130, 66]);
}
