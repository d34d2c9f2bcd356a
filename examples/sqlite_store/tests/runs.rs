//! Whole runs of a consumer over the store.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::executor::block_on;
use futures::future::{Either, select};
use procession::{
    Commit, Committed, ConsumerBuilder, Epoch, Error, ErrorKind, Fence, Key, Log, Offset,
    OffsetStore, Progress, Retry, Turn,
};
use procession_memory::MemoryStore;
use rusqlite::{Connection, TransactionBehavior};

use super::support::*;
use crate::store::{Marks, SqliteStore};

/// As the store, but no commit ever gets through.
struct NeverCommits(SqliteStore);

#[async_trait]
impl OffsetStore for NeverCommits {
    async fn claim(
        &self,
        key: &Key,
        floor: Epoch,
        start: Option<Offset>,
    ) -> Result<Option<(Epoch, Progress)>, Error> {
        self.0.claim(key, floor, start).await
    }
    async fn commit(&self, _: &[Commit<'_>]) -> Result<Vec<Committed>, Error> {
        Err(Error::new(ErrorKind::Unavailable, "commit"))
    }
    async fn list(&self) -> Result<Vec<Key>, Error> {
        self.0.list().await
    }
    async fn forget(&self, key: &Key) -> Result<(), Error> {
        self.0.forget(key).await
    }
}

fn transact(connection: &Mutex<Connection>, marks: &Marks, turn: &Turn) -> Result<(), Error> {
    let mut connection = connection.lock().unwrap();
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    effect(&tx, marks, turn)?;
    tx.commit().unwrap();
    Ok(())
}

/// Goal: what the database knows as done is done, though no commit ever came through. Method: a run
/// that is dropped in its middle, over a store whose commits fail; then a run that ends.
#[test]
fn a_marked_record_never_runs_again_though_nothing_was_committed() {
    const RECORDS: u64 = 40;
    const MARKED: usize = 17;
    let bench = Bench::new();
    bench.append(RECORDS, 5);
    let connection = Arc::new(Mutex::new(bench.connect()));
    let handled = Arc::new(AtomicUsize::new(0));
    let (stop, stopped) = futures::channel::oneshot::channel();
    let stop = Mutex::new(Some(stop));

    let store = NeverCommits(bench.store.clone());
    let run = ConsumerBuilder::new("balances", Arc::clone(&bench.log), store).run({
        let (handled, marks) = (Arc::clone(&handled), bench.marks.clone());
        let connection = Arc::clone(&connection);
        move |turn| {
            let number = handled.fetch_add(1, Ordering::SeqCst) + 1;
            if number == MARKED
                && let Some(stop) = stop.lock().unwrap().take()
            {
                stop.send(()).unwrap();
            }
            let done = if number <= MARKED { transact(&connection, &marks, &turn) } else { Ok(()) };
            async move {
                if number > MARKED {
                    // The crash finds it in the middle of its work.
                    std::future::pending::<()>().await;
                }
                done
            }
        }
    });
    match block_on(select(Box::pin(run), stopped)) {
        Either::Left((ended, _)) => panic!("the run ended by itself: {ended:?}"),
        // Dropping it is a crash.
        Either::Right((_, run)) => drop(run),
    }
    assert_eq!(bench.effects().len(), MARKED);

    let turns = Arc::new(AtomicUsize::new(0));
    let (builder, marks) = bench.store.subscribe("balances", &[Arc::clone(&bench.log)]).unwrap();
    let run = builder.until_end().run({
        let (turns, connection) = (Arc::clone(&turns), Arc::clone(&connection));
        move |turn| {
            turns.fetch_add(1, Ordering::SeqCst);
            let done = transact(&connection, &marks, &turn);
            async move { done }
        }
    });
    block_on(run).unwrap();
    assert_eq!(turns.load(Ordering::SeqCst), RECORDS as usize - MARKED, "turns of the next run");
    let mut effects = bench.effects();
    effects.sort_unstable();
    assert_eq!(effects, (0..RECORDS as i64).collect::<Vec<_>>(), "each effect once");
    assert_eq!(bench.marks_left(), [0; 0], "the commit at the end folded them all");
}

/// Goal: a handler that fails after its transaction was committed is tried again, and its effect is
/// not. Method: turns of several records whose first attempt fails so.
#[test]
fn a_turn_that_fails_after_its_commit_repeats_no_effect() {
    const RECORDS: u64 = 60;
    let bench = Bench::new();
    bench.append(RECORDS, 4);
    let connection = Arc::new(Mutex::new(bench.connect()));
    let failures = Arc::new(AtomicU64::new(0));
    let (builder, marks) = bench.store.subscribe("balances", &[Arc::clone(&bench.log)]).unwrap();
    let retry = Retry::exponential().initial(Duration::from_millis(1));
    let run = builder.batch(7, Duration::ZERO).retry(retry).until_end().run({
        let failures = Arc::clone(&failures);
        move |turn| {
            let done = transact(&connection, &marks, &turn);
            let fails = turn.attempt() == 1;
            failures.fetch_add(u64::from(fails), Ordering::SeqCst);
            async move {
                done?;
                if fails { Err(Error::new(ErrorKind::Unavailable, "answer")) } else { Ok(()) }
            }
        }
    });
    let summary = block_on(run).unwrap();
    assert_eq!(summary.turns_failed, failures.load(Ordering::SeqCst));
    assert!(summary.turns_failed > 0, "every first attempt failed");
    let mut effects = bench.effects();
    effects.sort_unstable();
    assert_eq!(effects, (0..RECORDS as i64).collect::<Vec<_>>(), "each effect once");
}

/// Progress elsewhere, effects here: the consumer claims above what the database remembers.
#[test]
fn a_consumer_with_its_progress_elsewhere_claims_above_the_fence() {
    let bench = Bench::new();
    bench.append(1, 1);
    let known = Epoch::new(41).unwrap();
    assert_eq!(block_on(bench.store.raise(&bench.key(), known)).unwrap(), known);
    let seen = Arc::new(Mutex::new(None));
    let log: Arc<dyn Log> = Arc::clone(&bench.log);
    let run = ConsumerBuilder::new("balances", log, MemoryStore::new())
        .fence(bench.store.clone())
        .until_end()
        .run({
            let seen = Arc::clone(&seen);
            move |turn| {
                *seen.lock().unwrap() = Some(turn.epoch());
                async { Ok::<_, Error>(()) }
            }
        });
    block_on(run).unwrap();
    assert_eq!(*seen.lock().unwrap(), Epoch::new(42));
    assert_eq!(bench.mark(known, &[0]).unwrap_err().kind(), ErrorKind::NotFound);
}
