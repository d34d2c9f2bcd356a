//! The declared orders: one path, three lanes.

use super::*;
use crate::executor::Order;

const ORDERS: [Order; 3] = [Order::PerGroup, Order::PerPartition, Order::Unordered];

/// Two partitions with the same records in each: a, b, a, no key.
fn bench(options: ChainsOptions) -> Bench {
    let mut bench = Bench::new(options);
    for partition in 0..2 {
        let keys = [Some("a"), Some("b"), Some("a"), None];
        bench.assign(claim(partition, 1), 0);
        let records = keys.iter().enumerate().map(|(n, key)| stored(n as u64, *key, 1)).collect();
        bench.admit_stored(claim(partition, 1), records);
    }
    bench
}

#[test]
fn each_order_runs_side_by_side_what_it_does_not_order() {
    let expected: [&[u64]; 3] = [&[0, 0, 1, 1, 3, 3], &[0, 0], &[0, 0, 1, 1, 2, 2, 3, 3]];
    for (order, expected) in ORDERS.into_iter().zip(expected) {
        let mut bench = bench(ChainsOptions::new().order(order));
        assert_eq!(bench.run_all().0, expected, "{order:?}");
    }
}

#[test]
fn a_failing_record_delays_its_scope_and_nothing_else_in_every_order() {
    let expected: [&[u64]; 3] = [&[1, 3], &[], &[1, 2, 3]];
    for (order, expected) in ORDERS.into_iter().zip(expected) {
        let mut bench = bench(ChainsOptions::new().order(order));
        let mut ran = Vec::new();
        while let Some(turn) = bench.run() {
            if turn.offset() == Offset::ZERO {
                bench.again_in(turn.id(), 1_000, true);
                continue;
            }
            if turn.partition() == claim(0, 1).partition {
                ran.push(turn.offset().get());
            }
            bench.done(turn.id());
        }
        ran.sort_unstable();
        assert_eq!(ran, expected, "{order:?}");
        assert_eq!(bench.progress(claim(0, 1)).is_some(), !expected.is_empty(), "{order:?}");
    }
}

/// A global order is the per-partition order over one partition.
#[test]
fn partition_order_is_a_global_order_where_there_is_one_partition() {
    for partitions in [1, 3] {
        let mut bench = Bench::new(ChainsOptions::new().order(Order::PerPartition));
        for partition in 0..partitions {
            bench.assign(claim(partition, 1), 0);
            let keys = ["a", "b", "c", "a", "d"];
            let records: Vec<_> = keys.iter().zip(0..).map(|(key, n)| (n, *key)).collect();
            bench.admit(claim(partition, 1), &records);
        }
        for offset in 0..5 {
            let (offsets, ids) = bench.run_all();
            assert_eq!(offsets, vec![offset; partitions as usize], "of {partitions}");
            for id in ids {
                bench.done(id);
            }
        }
        assert_eq!(bench.chains.load(), Load::default());
    }
}

#[test]
fn any_key_names_the_one_scope_of_a_partition_in_order() {
    let mut bench = bench(ChainsOptions::new().order(Order::PerPartition));
    bench.chains.hold(&scope(0, "never seen"), Some(Hold::Blocked));
    let (_, ids) = bench.run_all();
    assert_eq!(ids.len(), 1, "the other partition");
    for key in ["a", "b", "z"] {
        let explain = bench.chains.explain(&scope(0, key)).unwrap();
        assert_eq!((explain.head, explain.records), (Offset::ZERO, 4));
        assert_eq!(explain.state, GroupState::Held(Hold::Blocked));
    }
    bench.chains.hold(&scope(0, "b"), None);
    assert!(bench.run().is_some());
}

#[test]
fn an_unordered_record_is_named_by_nothing_and_let_go_by_any_key() {
    let mut bench = bench(ChainsOptions::new().order(Order::Unordered));
    bench.chains.hold(&scope(0, "a"), Some(Hold::Blocked));
    let (offsets, ids) = bench.run_all();
    assert_eq!(offsets.len(), 8, "none can be held beforehand");
    assert_eq!(bench.chains.explain(&scope(0, "a")), None);
    for id in ids {
        bench.chains.complete(id, Verdict { terminal: 0, rest: Rest::Hold }, bench.now);
    }
    assert!(bench.run().is_none());
    bench.chains.hold(&scope(0, "any"), None);
    assert_eq!(bench.run_all().0, [0, 1, 2, 3], "those of one partition");
}

#[test]
fn a_turn_of_several_records_follows_the_order() {
    let expected: [&[&[u64]]; 3] =
        [&[&[0, 2], &[1], &[3]], &[&[0, 1, 2, 3]], &[&[0], &[1], &[2], &[3]]];
    for (order, expected) in ORDERS.into_iter().zip(expected) {
        // Records of their own never linger: nothing can join them.
        let linger = Duration::from_millis(u64::from(order == Order::Unordered));
        let mut bench = bench(ChainsOptions::new().order(order).batch(4, linger));
        let turns = std::iter::from_fn(|| bench.run());
        let mut turns: Vec<_> = turns.filter(|t| t.claim() == claim(0, 1)).collect();
        turns.sort_by_key(Turn::offset);
        assert_eq!(turns.iter().map(offsets).collect::<Vec<_>>(), expected, "{order:?}");
    }
}
