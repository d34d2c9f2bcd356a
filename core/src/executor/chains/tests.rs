//! The promises of the contract, one by one; random walks are in `tests/chains_model.rs`.

use std::mem::size_of;
use std::time::Duration;

use bytes::Bytes;

use super::chain::Chain;
use super::entries::Entry;
use super::*;
use crate::AbsentKey;
use crate::executor::{Rest, Turn};
use crate::types::{
    Epoch, GroupKey, Headers, LogId, Offset, Partition, PartitionId, Ranges, Record, RoutingEpoch,
    Stored, Timestamp,
};

mod interval;
mod orders;
mod several;

struct Bench {
    chains: Chains,
    now: Instant,
}

fn claim(partition: u32, epoch: u64) -> Claim {
    let partition = PartitionId::new(LogId::new(0), Partition::new(partition));
    Claim { partition, epoch: Epoch::new(epoch).unwrap() }
}

fn scope(partition: u32, key: &str) -> Scope {
    Scope::new(claim(partition, 1).partition, key)
}

fn stored(offset: u64, key: Option<&str>, bytes: usize) -> Stored {
    let payload = Some(Bytes::from(vec![b'x'; bytes]));
    Stored {
        offset: Offset::new(offset),
        sequence: None,
        log_time: Timestamp::from_millis(0),
        routing: RoutingEpoch::new(1),
        record: Record::from_parts(key.map(GroupKey::from), payload, Headers::default(), None),
    }
}

fn offsets(turn: &Turn) -> Vec<u64> {
    turn.records().iter().map(|stored| stored.offset.get()).collect()
}

impl Bench {
    fn new(options: ChainsOptions) -> Self {
        Self { chains: Chains::new(options), now: Instant::now() }
    }

    /// One claim, partition 0 at epoch 1, from offset 0.
    fn assigned() -> Self {
        let mut bench = Self::new(ChainsOptions::new());
        bench.assign(claim(0, 1), 0);
        bench
    }

    fn assign(&mut self, claim: Claim, from: u64) {
        self.chains.assign(claim, &Progress::at(Offset::new(from)), self.now);
    }

    fn admit(&mut self, claim: Claim, records: &[(u64, &str)]) {
        let records: Vec<_> =
            records.iter().map(|(offset, key)| stored(*offset, Some(*key), 10)).collect();
        self.admit_stored(claim, records);
    }

    fn admit_stored(&mut self, claim: Claim, records: Vec<Stored>) {
        let next = records.last().map_or(Offset::ZERO, |last| last.offset.after());
        let chunk = Chunk { partition: claim.partition.partition, records, next };
        self.chains.admit(claim, chunk, self.now);
    }

    fn run(&mut self) -> Option<Turn> {
        match self.chains.next(self.now) {
            Next::Run(turn) => Some(turn),
            Next::Idle { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    /// All that can start now, as offsets.
    fn run_all(&mut self) -> (Vec<u64>, Vec<TurnId>) {
        let turns: Vec<_> = std::iter::from_fn(|| self.run()).collect();
        let mut offsets: Vec<u64> = turns.iter().map(|turn| turn.record().offset.get()).collect();
        offsets.sort_unstable();
        (offsets, turns.iter().map(Turn::id).collect())
    }

    fn done(&mut self, id: TurnId) -> Completed {
        self.chains.complete(id, Verdict::done(1), self.now)
    }

    /// The turn ends, with at most so many of its records terminal.
    fn end(&mut self, turn: &Turn, terminal: u32, rest: Rest) -> Completed {
        self.chains.complete(turn.id(), Verdict { terminal, rest }, self.now)
    }

    /// Nothing may run now; until when.
    fn idle(&mut self) -> Option<Instant> {
        match self.chains.next(self.now) {
            Next::Idle { until } => until,
            other => panic!("{other:?}"),
        }
    }

    fn again_in(&mut self, id: TurnId, millis: u64, counted: bool) -> Completed {
        let verdict = Verdict::again(self.now + Duration::from_millis(millis), counted);
        self.chains.complete(id, verdict, self.now)
    }

    fn progress(&mut self, claim: Claim) -> Option<(u64, Vec<(u64, u64)>)> {
        let progress = self.chains.progress(claim)?;
        let done = progress.done.iter().map(|(from, to)| (from.get(), to.get())).collect();
        Some((progress.next.get(), done))
    }

    fn window(&mut self) -> Option<Budget> {
        std::iter::from_fn(|| self.chains.credit()).last().map(|(_, window)| window)
    }
}

#[test]
fn runs_one_group_in_order_and_never_two_turns_at_once() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (4, "a"), (9, "a")]);
    for offset in [0, 4, 9] {
        let turn = bench.run().unwrap();
        assert_eq!(turn.record().offset.get(), offset);
        assert!(bench.run().is_none());
        bench.done(turn.id());
    }
    assert_eq!(bench.chains.load(), Load::default());
}

#[test]
fn runs_groups_side_by_side() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "b"), (2, "a"), (3, "c"), (4, "")]);
    assert_eq!(bench.run_all().0, [0, 1, 3, 4]);
}

#[test]
fn equal_keys_in_two_partitions_are_two_scopes() {
    let mut bench = Bench::assigned();
    bench.assign(claim(1, 1), 0);
    bench.admit(claim(0, 1), &[(0, "a")]);
    bench.admit(claim(1, 1), &[(0, "a")]);
    assert_eq!(bench.run_all().0, [0, 0]);
}

#[test]
fn a_retry_waits_its_time_and_nothing_overtakes_it() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a")]);
    let id = bench.run().unwrap().id();
    bench.again_in(id, 50, true);
    let until = bench.now + Duration::from_millis(50);
    let Next::Idle { until: Some(at) } = bench.chains.next(bench.now) else { panic!() };
    assert_eq!(at, until);
    bench.now = until - Duration::from_nanos(1);
    assert!(bench.run().is_none());
    bench.now = until;
    let turn = bench.run().unwrap();
    assert_eq!((turn.record().offset.get(), turn.attempt()), (0, 2));
    bench.done(turn.id());
    let turn = bench.run().unwrap();
    assert_eq!((turn.record().offset.get(), turn.attempt()), (1, 1));
}

/// The bucketed sample ran A2 in its bucket although A1 had failed, and replayed A1 after it.
#[test]
fn a_failed_record_is_run_again_before_its_successor() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a"), (2, "b")]);
    let (offsets, ids) = bench.run_all();
    assert_eq!(offsets, [0, 2]);
    // The longest chain, a, was served first. A failure is not progress either.
    assert!(!bench.again_in(ids[0], 0, true).progressed);
    assert_eq!(bench.progress(claim(0, 1)), None);
    assert_eq!(bench.run_all().0, [0]);
}

#[test]
fn a_back_off_delays_only_its_group() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "b"), (2, "b")]);
    while let Some(turn) = bench.run() {
        if turn.group() == Some(&GroupKey::from("a")) {
            bench.again_in(turn.id(), 1_000, true);
        } else {
            bench.done(turn.id());
        }
    }
    assert_eq!(bench.chains.load().held.records, 1);
    assert_eq!(bench.progress(claim(0, 1)), Some((0, vec![(1, 3)])));
}

#[test]
fn an_uncounted_retry_is_not_an_attempt() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a")]);
    for (attempt, counted) in [(1, false), (1, true), (2, false), (2, true), (3, true)] {
        let turn = bench.run().unwrap();
        assert_eq!(turn.attempt(), attempt);
        bench.again_in(turn.id(), 0, counted);
    }
}

#[test]
fn a_held_group_starts_no_turn_until_it_is_let_go() {
    let mut bench = Bench::assigned();
    bench.chains.hold(&scope(0, "a"), Some(Hold::Blocked));
    assert_eq!(bench.chains.load(), Load::default());
    bench.admit(claim(0, 1), &[(0, "a"), (1, "b")]);
    assert_eq!(bench.run_all().0, [1]);
    let state = bench.chains.explain(&scope(0, "a")).unwrap().state;
    assert_eq!(state, GroupState::Held(Hold::Blocked));
    bench.chains.hold(&scope(0, "a"), None);
    assert_eq!(bench.run_all().0, [0]);
}

#[test]
fn a_verdict_of_hold_blocks_the_group_at_its_head() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a")]);
    let id = bench.run().unwrap().id();
    bench.chains.complete(id, Verdict { terminal: 0, rest: Rest::Hold }, bench.now);
    assert!(bench.run().is_none());
    bench.chains.hold(&scope(0, "a"), None);
    assert_eq!(bench.run().unwrap().attempt(), 2);
}

#[test]
fn a_blocked_record_without_a_key_can_be_let_go() {
    let mut bench = Bench::new(ChainsOptions::new().absent_key(AbsentKey::Spread));
    bench.assign(claim(0, 1), 0);
    bench.admit_stored(claim(0, 1), vec![stored(0, None, 1), stored(1, None, 1)]);
    let (_, ids) = bench.run_all();
    bench.chains.complete(ids[0], Verdict { terminal: 0, rest: Rest::Hold }, bench.now);
    assert!(bench.run().is_none());
    bench.chains.hold(&Scope { partition: claim(0, 1).partition, key: None }, None);
    assert!(bench.run().is_some());
}

#[test]
fn a_parked_group_is_diverted_and_not_run() {
    let mut bench = Bench::assigned();
    bench.chains.hold(&scope(0, "a"), Some(Hold::Parked));
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a")]);
    for _ in 0..2 {
        let Next::Divert(turn) = bench.chains.next(bench.now) else { panic!() };
        bench.done(turn.id());
    }
    // Nothing of it is here, and what comes later is diverted all the same.
    assert_eq!(bench.chains.load(), Load::default());
    bench.admit(claim(0, 1), &[(2, "a")]);
    assert!(matches!(bench.chains.next(bench.now), Next::Divert(_)));
}

#[test]
fn progress_never_passes_an_unfinished_record() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(3, "a"), (7, "b"), (20, "c")]);
    let turns: Vec<_> = std::iter::from_fn(|| bench.run()).collect();
    for (index, expected) in [(1, (3, vec![(4, 20)])), (2, (3, vec![(4, 21)])), (0, (21, vec![]))] {
        assert!(bench.done(turns[index].id()).progressed);
        assert_eq!(bench.progress(claim(0, 1)), Some(expected));
    }
}

#[test]
fn progress_is_none_until_something_new_is_finished() {
    let mut bench = Bench::assigned();
    assert_eq!(bench.progress(claim(0, 1)), None);
    bench.admit(claim(0, 1), &[(5, "a"), (6, "b")]);
    assert_eq!(bench.progress(claim(0, 1)), None);
    let (_, ids) = bench.run_all();
    bench.done(ids[0]);
    let first = bench.chains.progress(claim(0, 1)).unwrap();
    bench.done(ids[1]);
    // The answer to an old snapshot says nothing of what was finished after it.
    bench.chains.committed(claim(0, 1), &first);
    let second = bench.chains.progress(claim(0, 1)).unwrap();
    assert_eq!(second.next, Offset::new(7));
    bench.chains.committed(claim(0, 1), &second);
    assert_eq!(bench.progress(claim(0, 1)), None);
}

#[test]
fn finished_records_are_not_run_again() {
    let mut bench = Bench::new(ChainsOptions::new());
    let mut done = Ranges::default();
    done.push(Offset::new(3), Offset::new(6));
    bench.chains.assign(claim(0, 1), &Progress::with_done(Offset::new(2), done), bench.now);
    bench.admit(claim(0, 1), &[(2, "a"), (3, "a"), (5, "b"), (6, "b")]);
    assert_eq!(bench.run_all().0, [2, 6]);
    assert_eq!(bench.chains.load().held.records, 2);
}

#[test]
fn stale_claims_are_ignored() {
    let mut bench = Bench::assigned();
    bench.assign(claim(0, 3), 0);
    bench.admit(claim(0, 1), &[(0, "a")]);
    bench.assign(claim(0, 2), 7);
    assert!(bench.run().is_none());
    bench.admit(claim(0, 3), &[(0, "a")]);
    let id = bench.run().unwrap().id();
    bench.done(id);
    bench.chains.committed(claim(0, 1), &Progress::at(Offset::new(1)));
    assert_eq!(bench.progress(claim(0, 1)), None);
    assert_eq!(bench.chains.revoke(claim(0, 1), Revoke::Fence), 0);
    assert_eq!(bench.progress(claim(0, 3)), Some((1, vec![])));
}

#[test]
fn a_drain_starts_nothing_and_reports_when_it_is_done() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "b"), (2, "a"), (3, "c")]);
    let (first, second) = (bench.run().unwrap(), bench.run().unwrap());
    assert_eq!(bench.chains.revoke(claim(0, 1), Revoke::Drain), 2);
    assert_eq!(bench.chains.load().held.records, 2);
    bench.admit(claim(0, 1), &[(4, "d")]);
    assert!(bench.run().is_none());
    assert_eq!(bench.done(first.id()).drained, None);
    let completed = bench.again_in(second.id(), 0, true);
    assert_eq!(completed.drained, Some(claim(0, 1)));
    assert_eq!(bench.progress(claim(0, 1)), Some((1, vec![])));
    assert_eq!(bench.chains.load(), Load::default());
    assert_eq!(bench.chains.revoke(claim(0, 1), Revoke::Drain), 0);
    bench.chains.revoke(claim(0, 1), Revoke::Fence);
    assert_eq!(bench.progress(claim(0, 1)), None);
}

#[test]
fn a_fence_forgets_the_claim_and_its_late_verdicts_change_nothing() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "b")]);
    let id = bench.run().unwrap().id();
    assert_eq!(bench.chains.revoke(claim(0, 1), Revoke::Fence), 1);
    assert_eq!(bench.chains.load(), Load { groups: 1, open: 1, held: Budget::ZERO });
    assert_eq!(bench.progress(claim(0, 1)), None);
    assert_eq!(bench.done(id), Completed::default());
    assert_eq!(bench.chains.load(), Load::default());
}

#[test]
fn a_returning_partition_waits_for_the_old_turn_of_each_group() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "b")]);
    let old = bench.run().unwrap();
    // Straight back to us, and again after somebody else had it.
    for epoch in [2, 4] {
        bench.assign(claim(0, epoch), 0);
        bench.admit(claim(0, epoch), &[(0, "a"), (1, "b"), (2, "a")]);
        let other = bench.run().unwrap();
        assert_ne!(other.group(), old.group());
        assert!(bench.run().is_none());
        let explain = bench.chains.explain(&scope(0, "a")).unwrap();
        assert_eq!((explain.state, explain.claim), (GroupState::Shut, claim(0, epoch)));
        bench.done(other.id());
    }
    assert!(bench.done(old.id()).runnable);
    let turn = bench.run().unwrap();
    assert_eq!((turn.record().offset.get(), turn.epoch().get(), turn.attempt()), (0, 4, 1));
}

#[test]
fn a_stale_turn_id_is_ignored() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a")]);
    let first = bench.run().unwrap().id();
    bench.done(first);
    let second = bench.run().unwrap().id();
    assert_ne!(first, second);
    assert_eq!(bench.done(first), Completed::default());
    assert_eq!(bench.chains.load().open, 1);
    let unknown = TurnId { index: 77, generation: 0 };
    assert_eq!(bench.done(unknown), Completed::default());
}

#[test]
fn the_window_bounds_what_is_held() {
    let mut bench = Bench::new(ChainsOptions::new().budget(Budget::new(16, 1_600)));
    bench.assign(claim(0, 1), 0);
    assert_eq!(bench.window(), Some(Budget::new(16, 1_600)));
    let records = (0..16).map(|n| stored(n, Some("a"), 99)).collect();
    bench.admit_stored(claim(0, 1), records);
    assert_eq!(bench.window(), None);
    // One of sixteen is less than an eighth, and there is more to run.
    let id = bench.run().unwrap().id();
    bench.done(id);
    assert_eq!(bench.window(), None);
    let id = bench.run().unwrap().id();
    bench.done(id);
    assert_eq!(bench.window(), Some(Budget::new(18, 1_800)));
}

#[test]
fn every_claim_has_an_equal_share_and_at_least_one_record() {
    let mut bench = Bench::new(ChainsOptions::new().budget(Budget::new(2, 2)));
    for partition in 0..5 {
        bench.assign(claim(partition, 1), 0);
    }
    let told: Vec<_> = std::iter::from_fn(|| bench.chains.credit()).collect();
    assert_eq!(told.len(), 5);
    assert!(told.iter().all(|(_, window)| *window == Budget::new(1, 1)));
}

/// A claim with a slow group and several in back-off has little to run: it is told of every bit.
#[test]
fn a_few_slow_groups_never_keep_the_rest_from_being_read() {
    let mut bench = Bench::new(ChainsOptions::new().budget(Budget::new(100, 1 << 20)));
    bench.assign(claim(0, 1), 0);
    bench.window();
    let records = (0..100).map(|n| stored(n, Some(if n < 99 { "slow" } else { "b" }), 1)).collect();
    bench.admit_stored(claim(0, 1), records);
    while let Some(turn) = bench.run() {
        if turn.record().offset.get() == 99 {
            bench.done(turn.id());
        }
    }
    assert_eq!(bench.window().map(|window| window.records), Some(101));
}

#[test]
fn a_full_progress_map_stops_the_window_until_it_shrinks() {
    let options = ChainsOptions::new().budget(Budget::new(8, 1 << 20)).ranges_max(2);
    let mut bench = Bench::new(options);
    bench.assign(claim(0, 1), 0);
    bench.window();
    let keys = ["a", "b", "c", "d", "e", "f"];
    let records: Vec<_> = keys.iter().enumerate().map(|(n, key)| (n as u64, *key)).collect();
    bench.admit(claim(0, 1), &records);
    let turns: Vec<_> = std::iter::from_fn(|| bench.run()).collect();
    let id = |offset| turns.iter().find(|t| t.record().offset.get() == offset).unwrap().id();
    bench.done(id(1));
    assert_eq!(bench.window().map(|window| window.records), Some(9));
    bench.done(id(3));
    bench.done(id(5));
    assert_eq!(bench.window(), None);
    bench.done(id(0));
    bench.done(id(2));
    assert_eq!(bench.window().map(|window| window.records), Some(13));
}

#[test]
fn a_group_over_its_share_is_loaded_again_in_order() {
    let mut bench = Bench::new(ChainsOptions::new().rereadable(true).bodies_max(2));
    bench.assign(claim(0, 1), 0);
    bench.admit(claim(0, 1), &[(0, "a"), (1, "a"), (2, "a"), (3, "a")]);
    assert_eq!(bench.chains.load().held, Budget::new(4, 22));
    let mut ran = Vec::new();
    loop {
        match bench.chains.next(bench.now) {
            Next::Run(turn) => {
                ran.push(turn.record().offset.get());
                bench.done(turn.id());
            }
            Next::Load { claim, offset } => {
                assert!(bench.run().is_none(), "nothing overtakes it");
                let state = bench.chains.explain(&scope(0, "a")).unwrap().state;
                assert_eq!(state, GroupState::Loading);
                // Some other old record is not what was asked for.
                bench.admit(claim, &[(0, "a")]);
                bench.admit(claim, &[(offset.get(), "a")]);
            }
            _ => break,
        }
    }
    assert_eq!(ran, [0, 1, 2, 3]);
    assert_eq!(bench.progress(claim(0, 1)), Some((4, vec![])));
    assert_eq!(bench.chains.load(), Load::default());
}

/// What the old claim asked for is nothing to the new one, though offset and group are the same.
#[test]
fn what_a_fenced_claim_asked_for_is_neither_filled_nor_passed_over_later() {
    for how in [Revoke::Fence, Revoke::Drain] {
        let mut bench = Bench::new(ChainsOptions::new().rereadable(true).bodies_max(1));
        bench.assign(claim(0, 1), 0);
        bench.admit(claim(0, 1), &[(0, "a"), (1, "a")]);
        let id = bench.run().unwrap().id();
        bench.done(id);
        assert!(matches!(bench.chains.next(bench.now), Next::Load { .. }));
        bench.chains.revoke(claim(0, 1), how);
        let gone = bench.chains.gone(claim(0, 1), Offset::new(1), bench.now);
        assert_eq!(gone, Completed::default(), "{how:?}");
        bench.assign(claim(0, 2), 1);
        bench.admit(claim(0, 2), &[(1, "a"), (2, "a")]);
        bench.admit(claim(0, 2), &[(1, "a")]);
        let gone = bench.chains.gone(claim(0, 2), Offset::new(1), bench.now);
        assert_eq!(gone, Completed::default(), "{how:?}");
        assert_eq!(bench.run_all().0, [1], "{how:?}");
    }
}

#[test]
fn bodies_are_dropped_only_when_the_share_is_half_used() {
    // Records of 11 bytes: 100 of them are just over a half of the share.
    let options = ChainsOptions::new().rereadable(true).budget(Budget::new(1000, 2200));
    let mut bench = Bench::new(options);
    bench.assign(claim(0, 1), 0);
    let records: Vec<_> = (0..150).map(|offset| (offset, "a")).collect();
    bench.admit(claim(0, 1), &records);
    assert_eq!(bench.chains.load().held, Budget::new(150, 1100), "100 bodies of 150");
}

#[test]
fn the_longest_chain_is_first_and_a_short_one_still_has_its_turn() {
    let mut bench = Bench::assigned();
    let mut offset = 0;
    let mut more = |bench: &mut Bench, key: &str| {
        bench.admit(claim(0, 1), &[(offset, key)]);
        offset += 1;
    };
    more(&mut bench, "short");
    for key in ["x", "y"] {
        (0..64).for_each(|_| more(&mut bench, key));
    }
    for picks in 1.. {
        assert!(picks <= 2 * AGEING_BOUND, "it starves");
        let turn = bench.run().unwrap();
        if turn.group() == Some(&GroupKey::from("short")) {
            assert!(picks > 1, "the longest is first");
            break;
        }
        more(&mut bench, &turn.group().unwrap().to_string());
        bench.done(turn.id());
    }
}
const AGEING_BOUND: u32 = 8;

#[test]
fn a_hold_that_comes_and_goes_leaves_no_alarm_behind() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "a")]);
    let id = bench.run().unwrap().id();
    bench.again_in(id, 1_000, true);
    for _ in 0..10_000 {
        bench.chains.hold(&scope(0, "a"), Some(Hold::Blocked));
        bench.chains.hold(&scope(0, "a"), None);
    }
    assert!(bench.chains.clock.len() < 200, "{}", bench.chains.clock.len());
    bench.now += Duration::from_secs(1);
    assert!(bench.run().is_some());
}

/// One stuck record, a hundred thousand finished behind it: no memory, no range for each.
#[test]
fn a_stuck_record_keeps_nothing_alive_behind_it() {
    let mut bench = Bench::assigned();
    bench.admit(claim(0, 1), &[(0, "stuck")]);
    bench.run().unwrap();
    for offset in 1..100_000 {
        bench.admit(claim(0, 1), &[(offset, "a")]);
        let id = bench.run().unwrap().id();
        bench.done(id);
    }
    assert_eq!(bench.chains.load().held, Budget::new(1, 15));
    assert_eq!(bench.progress(claim(0, 1)), Some((0, vec![(1, 100_000)])));
}

/// Keys that a chain has room for, and longer ones, the empty one and an absent one beside them.
#[test]
fn keys_of_every_length_are_groups_of_their_own() {
    let mut bench = Bench::new(ChainsOptions::new().absent_key(AbsentKey::Serial));
    bench.assign(claim(0, 1), 0);
    let keys: Vec<Option<String>> =
        std::iter::once(None).chain((0..60).map(|len| Some("k".repeat(len)))).collect();
    for round in 0..3 {
        let first = round * 2 * keys.len() as u64;
        let records = (first..).zip(keys.iter().chain(&keys));
        bench.admit_stored(claim(0, 1), records.map(|(n, k)| stored(n, k.as_deref(), 1)).collect());
        for half in [first, first + keys.len() as u64] {
            let (offsets, ids) = bench.run_all();
            assert_eq!(offsets, Vec::from_iter(half..half + keys.len() as u64));
            for id in ids {
                bench.done(id);
            }
        }
        assert_eq!(bench.chains.load(), Load::default());
    }
}

/// Goal: a chain is found while it lives, and not afterwards, however full its bucket is. Method:
/// random comings and goings beside a set, through several doublings of the table.
#[test]
fn the_table_agrees_with_a_set() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut groups = Groups::new(Some((1, 2)));
    let mut live = HashMap::new();
    for step in 0..20_000 {
        let key = GroupKey::from(format!("group-{}", rng.u32(0..1_000)));
        // A few hashes for all keys: full buckets, and equal hashes of unequal keys.
        let hash = groups.hash(claim(0, 1).partition, Some(&key)) % 97;
        assert_eq!(groups.find(hash, 0, Some(&key)), live.get(&key).copied(), "step {step}");
        match live.remove(&key) {
            Some(chain) => groups.remove(chain),
            None => drop(live.insert(key.clone(), groups.add(hash, 0, Some(&key), 0))),
        }
        assert_eq!(groups.len(), live.len());
    }
}

/// A live group of one record: an entry and its link, a window's node (16 bytes), a chain, and
/// five to eleven bytes of buckets. A million of them are to fit into 250 MB.
#[test]
fn a_live_group_is_small() {
    assert!(size_of::<Entry>() <= 128, "{}", size_of::<Entry>());
    assert!(size_of::<Chain>() <= 80, "{}", size_of::<Chain>());
}
