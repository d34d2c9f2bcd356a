//! Reads against a model, across rolls and reopens.

use futures::FutureExt;
use futures::executor::block_on;
use procession_core::*;
use proptest::prelude::*;

use super::support::*;
use crate::disk::MemoryDisk;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(u32, u8, u16)>),
    Read { from: Vec<u8>, records: u64, bytes: u64 },
    Reopen,
    Crash(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0..3_u32, any::<u8>(), 0..2000_u16);
    prop_oneof![
        6 => proptest::collection::vec(record, 1..12).prop_map(Step::Append),
        4 => (proptest::collection::vec(any::<u8>(), 3), 1..40_u64, 1..5000_u64)
            .prop_map(|(from, records, bytes)| Step::Read { from, records, bytes }),
        1 => Just(Step::Reopen),
        1 => any::<u64>().prop_map(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: reads give exactly what a list per partition would. Method: random appends, reads,
    /// reopens and crashes beside a `Vec` per partition.
    #[test]
    fn reads_give_exactly_what_was_appended(steps in proptest::collection::vec(step(), 1..40)) {
        let disk = MemoryDisk::new();
        let mut log = open(&disk);
        let mut model: Vec<Vec<Record>> = vec![Vec::new(); 3];
        for step in steps {
            match step {
                Step::Append(records) => {
                    let records: Vec<_> = records
                        .into_iter()
                        .map(|(partition, key, size)| {
                            let record = Record::new(vec![key % 9], vec![key; size.into()])
                                .with_timestamp(Timestamp::from_millis(1));
                            (Partition::new(partition), record)
                        })
                        .collect();
                    let outcomes = block_on(log.append(Batch::many(records.clone())));
                    for ((partition, record), outcome) in records.into_iter().zip(outcomes) {
                        let list = &mut model[partition.get() as usize];
                        let Outcome::Stored(receipt) = outcome else { panic!("{outcome:?}") };
                        prop_assert_eq!(receipt.offset.get(), list.len() as u64);
                        list.push(record);
                    }
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
                Step::Reopen => {
                    block_on(log.close()).unwrap();
                    log = open(&disk);
                    prop_assert!(log.recovery().clean);
                }
                Step::Crash(seed) => {
                    crash(log, &disk, seed);
                    log = open(&disk);
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
