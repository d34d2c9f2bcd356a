//! Marks, claims and commits: what one knows of the other.

use std::sync::Arc;

use futures::executor::block_on;
use procession::{Committed, Epoch, ErrorKind, Fence, Log, Offset, OffsetStore};
use procession_memory::MemoryLog;
use rusqlite::TransactionBehavior;

use super::support::*;

#[test]
fn an_effect_and_its_mark_are_there_together_or_not_at_all() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    let mut connection = bench.connect();

    // The transaction goes without a commit, as it does when a handler fails or is dropped.
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    effect(&tx, &bench.marks, &turn(epoch, &[0, 1])).unwrap();
    drop(tx);
    assert_eq!((bench.effects(), bench.marks_left()), (vec![], vec![]), "nothing happened");

    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    effect(&tx, &bench.marks, &turn(epoch, &[0, 1])).unwrap();
    assert_eq!((bench.effects(), bench.marks_left()), (vec![], vec![]), "nothing is seen before");
    tx.commit().unwrap();
    assert_eq!((bench.effects(), bench.marks_left()), (vec![0, 1], vec![0, 1]), "both are there");
}

#[test]
fn a_second_mark_of_a_record_is_noticed_before_and_after_a_commit() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    assert_eq!(bench.mark(epoch, &[3, 4]).unwrap(), [3, 4]);
    // A retry takes along what has come meanwhile.
    assert_eq!(bench.mark(epoch, &[3, 4, 7, 8]).unwrap(), [7, 8]);
    let committed = bench.commit(epoch, &progress(4, &[(7, 9)]));
    assert!(matches!(committed, Committed::Done), "{committed:?}");
    assert_eq!(bench.mark(epoch, &[3, 4, 7, 8, 9]).unwrap(), [9]);
}

#[test]
fn a_claim_returns_what_is_marked_as_finished() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    let committed = bench.commit(epoch, &progress(2, &[(5, 7)]));
    assert!(matches!(committed, Committed::Done), "{committed:?}");
    bench.mark(epoch, &[2, 7, 20]).unwrap();
    let (_, first) = bench.claim();
    assert_eq!(first, progress(3, &[(5, 8), (20, 21)]), "the marks are in the progress");
    assert_eq!(bench.marks_left(), [0; 0], "and nowhere else: they are bounded by one claim");
    let (_, second) = bench.claim();
    assert_eq!(second, first, "for good");
}

#[test]
fn a_commit_folds_the_marks_that_it_covers_and_no_others() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    bench.mark(epoch, &[0, 1, 2, 5, 6, 9]).unwrap();
    let committed = bench.commit(epoch, &progress(2, &[(5, 6)]));
    assert!(matches!(committed, Committed::Done), "{committed:?}");
    assert_eq!(bench.marks_left(), [2, 6, 9]);
    let (_, claimed) = bench.claim();
    assert_eq!(claimed, progress(3, &[(5, 7), (9, 10)]), "none of them is lost");
}

#[test]
fn a_fenced_commit_leaves_every_mark_where_it_is() {
    let bench = Bench::new();
    let (old, _) = bench.claim();
    let (new, _) = bench.claim();
    bench.mark(new, &[0, 1]).unwrap();
    let committed = bench.commit(old, &progress(2, &[]));
    assert!(matches!(committed, Committed::Fenced(by) if by == new), "{committed:?}");
    assert_eq!(bench.marks_left(), [0, 1]);
}

#[test]
fn a_mark_below_the_claimed_epoch_is_refused() {
    let bench = Bench::new();
    let (old, _) = bench.claim();
    bench.mark(old, &[0]).unwrap();
    let (new, _) = bench.claim();
    let refused = bench.mark(old, &[1]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    assert!(refused.to_string().contains(&format!("epoch {new} has claimed it")), "{refused}");
    assert_eq!(bench.marks_left(), [0; 0], "nothing was written");
    assert_eq!(bench.mark(new, &[0, 1]).unwrap(), [1], "the new owner goes on behind it");
}

/// Goal: a zombie's transaction that began before the claim writes nothing after it. Method: a
/// deferred transaction reads, a claim comes, the transaction marks.
#[test]
fn a_transaction_that_a_claim_overtook_cannot_write() {
    let bench = Bench::new();
    let (old, _) = bench.claim();
    let mut connection = bench.connect();
    let tx = connection.transaction().unwrap();
    let count = "SELECT count(*) FROM effects";
    assert_eq!(tx.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    let (new, _) = bench.claim();
    // It still sees the old epoch: that it cannot write is what keeps it out.
    let refused = mark(&bench.marks, &tx, &turn(old, &[0])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("begin it as IMMEDIATE"), "{refused}");
    drop(tx);
    assert_eq!(bench.mark(old, &[0]).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(bench.mark(new, &[0]).unwrap(), [0]);
}

#[test]
fn a_mark_without_a_claim_in_this_database_is_refused() {
    let bench = Bench::new();
    let never = bench.mark(Epoch::FIRST, &[0]).unwrap_err();
    assert_eq!(never.kind(), ErrorKind::NotFound);
    let (epoch, _) = bench.claim();
    bench.mark(epoch, &[0]).unwrap();
    let ahead = bench.mark(epoch.next().unwrap(), &[0]).unwrap_err();
    assert_eq!(ahead.kind(), ErrorKind::NotFound, "an epoch of another store");
    block_on(bench.store.forget(&bench.key())).unwrap();
    assert_eq!(bench.marks_left(), [0; 0], "forgotten with everything that was finished");
    assert_eq!(bench.mark(epoch, &[1]).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(bench.claim().1, progress(0, &[]), "it begins anew");

    let other = rusqlite::Connection::open_in_memory();
    let mut other = other.unwrap();
    let elsewhere = mark(&bench.marks, &other.transaction().unwrap(), &turn(epoch, &[0]));
    let elsewhere = elsewhere.unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::NotFound);
    assert!(elsewhere.to_string().contains("not the database of the store"), "{elsewhere}");
}

#[test]
fn a_raised_fence_refuses_marks_and_commits_below_it() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    let raised = Epoch::new(epoch.get() + 10).unwrap();
    let raise = |epoch| block_on(bench.store.raise(&bench.key(), epoch)).unwrap();
    assert_eq!(raise(raised), raised);
    assert_eq!(raise(epoch), raised, "it answers the highest that it knows");
    assert_eq!(bench.mark(epoch, &[0]).unwrap_err().kind(), ErrorKind::Fenced);
    let committed = bench.commit(epoch, &progress(9, &[]));
    assert!(matches!(committed, Committed::Fenced(by) if by == raised), "{committed:?}");
    let (next, claimed) = bench.claim();
    assert!(next > raised, "{next}");
    assert_eq!(claimed, progress(0, &[]));
}

#[test]
fn subscriptions_and_logs_side_by_side_share_no_marks() {
    let bench = Bench::new();
    let second: Arc<dyn Log> = Arc::new(MemoryLog::new(1));
    let logs = [Arc::clone(&bench.log), Arc::clone(&second)];
    let balances = bench.store.subscribe("balances", &logs).unwrap().1;
    let audit = bench.store.subscribe("audit", &logs).unwrap().1;
    let names = ["balances", "audit"];
    let keys = names.map(|name| logs.each_ref().map(|log| key(name, log.info().uuid)));
    let mut connection = bench.connect();
    let epochs = keys.each_ref().map(|keys| keys.each_ref().map(|key| claim(&bench.store, key).0));
    for (name, marks) in [&balances, &audit].into_iter().enumerate() {
        for (log, epoch) in epochs[name].iter().enumerate() {
            let offsets = [10 * name as u64 + log as u64];
            let turn = turn_of_log(log as u32, *epoch, &offsets);
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            assert_eq!(mark(marks, &tx, &turn).unwrap(), offsets);
            tx.commit().unwrap();
        }
    }
    for (name, keys) in keys.iter().enumerate() {
        for (log, key) in keys.iter().enumerate() {
            let offset = 10 * name as u64 + log as u64;
            let (_, claimed) = claim(&bench.store, key);
            assert!(claimed.covers(Offset::new(offset)), "{key}: {claimed:?}");
            let sum: u64 = [0, 1, 10, 11].iter().filter(|o| claimed.covers(Offset::new(**o))).sum();
            assert_eq!(sum, offset, "{key} has the marks of another: {claimed:?}");
        }
    }
    let unread =
        mark(&balances, &connection.transaction().unwrap(), &turn_of_log(2, epochs[0][0], &[0]));
    let unread = unread.unwrap_err();
    assert_eq!(unread.kind(), ErrorKind::Config);
}

#[test]
fn an_offset_that_sql_cannot_count_is_refused_and_a_commit_may_name_it() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    let highest = i64::MAX as u64;
    assert_eq!(bench.mark(epoch, &[highest]).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(bench.mark(epoch, &[highest - 1]).unwrap(), [highest - 1]);
    let committed = bench.commit(epoch, &progress(u64::MAX, &[]));
    assert!(matches!(committed, Committed::Done), "{committed:?}");
    assert_eq!(bench.marks_left(), [0; 0]);
}
