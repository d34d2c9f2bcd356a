//! What can be wrong with a database, and what a person is told.

use std::fs;
use std::path::Path;
use std::sync::mpsc::TryRecvError::Disconnected;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::executor::block_on;
use procession::{Committed, Error, ErrorKind, OffsetStore};
use rusqlite::{Connection, TransactionBehavior};

use super::support::*;
use crate::store::{Desk, SqliteStore};

/// A wait that is over at once.
const AT_ONCE: Duration = Duration::from_millis(1);

fn open(path: impl AsRef<Path>) -> Result<SqliteStore, Error> {
    block_on(SqliteStore::open_waiting(path, AT_ONCE))
}

/// The error is of this kind, and names the file.
#[track_caller]
fn told<T>(result: Result<T, Error>, kind: ErrorKind, path: &Path, hint: &str) {
    let Err(error) = result else { panic!("it went well, though it should be {kind:?}") };
    let said = error.to_string();
    assert_eq!(error.kind(), kind, "{said}");
    assert!(said.contains(&path.display().to_string()), "no path in: {said}");
    assert!(said.contains(hint), "no {hint:?} in: {said}");
}

#[test]
fn a_read_only_database_is_denied_with_its_path() {
    let bench = Bench::new();
    bench.claim();
    // Also root may not write there; read-only permissions would not keep it out.
    let address = format!("file:{}?mode=ro", bench.path().display());
    told(open(&address), ErrorKind::Denied, &bench.path(), "read-only");
}

#[test]
fn a_missing_folder_is_named_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("bank.db");
    told(open(&path), ErrorKind::NotFound, &path, "the folder above must exist");
    assert!(!folder.path().join("missing").exists());
}

#[test]
fn a_corrupt_file_is_refused_with_its_path_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bank.db");
    let bytes = b"account,balance\naccount-1,100\n".repeat(400);
    fs::write(&path, &bytes).unwrap();
    told(open(&path), ErrorKind::Corrupt, &path, "not a sound SQLite file");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn damaged_rows_are_corrupt_and_name_their_key() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    let claim = || block_on(bench.store.claim(&bench.key(), epoch, None));
    let connection = bench.connect();
    connection.execute("UPDATE procession_progress SET progress = x'01'", []).unwrap();
    told(claim(), ErrorKind::Corrupt, &bench.path(), "subscription \"balances\"");
    connection.execute("UPDATE procession_progress SET progress = x'63'", []).unwrap();
    told(claim(), ErrorKind::Version, &bench.path(), "subscription \"balances\"");
    connection.execute("UPDATE procession_epochs SET epoch = 0", []).unwrap();
    told(claim(), ErrorKind::Corrupt, &bench.path(), "an epoch outside");
    connection.execute("UPDATE procession_epochs SET log = 'no number'", []).unwrap();
    told(block_on(bench.store.list()), ErrorKind::Corrupt, &bench.path(), "no log's number");
}

#[test]
fn a_database_of_a_newer_schema_is_refused_and_left_alone() {
    let bench = Bench::new();
    bench.claim();
    let connection = bench.connect();
    connection.execute("UPDATE procession_schema SET version = 2", []).unwrap();
    connection.execute("DROP TABLE procession_marks", []).unwrap();
    told(open(bench.path()), ErrorKind::Version, &bench.path(), "version 2, this build knows 1");
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'procession_marks'";
    let made: i64 = connection.query_row(tables, [], |row| row.get(0)).unwrap();
    assert_eq!(made, 0, "it makes no tables of its own beside the newer ones");
}

#[test]
fn the_tables_of_the_application_and_its_version_stay_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bank.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE orders (n INTEGER); PRAGMA user_version = 7;").unwrap();
    open(&path).unwrap();
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 7);
    let names = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'orders'";
    assert_eq!(connection.query_row(names, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

#[test]
fn a_locked_database_is_unavailable_once_the_wait_is_over() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    let impatient = open(bench.path()).unwrap();
    let mut connection = bench.connect();
    let held = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let hint = "look for a transaction that was left open";
    let claim = block_on(impatient.claim(&bench.key(), epoch, None));
    told(claim, ErrorKind::Unavailable, &bench.path(), hint);
    told(open(bench.path()), ErrorKind::Unavailable, &bench.path(), hint);
    drop(held);
    assert!(block_on(impatient.claim(&bench.key(), epoch, None)).unwrap().is_some());
}

/// Goal: a lock that is held for longer than the busy timeout ends no run. Method: the handler's
/// last turn is done while somebody keeps the lock; it is let go once a commit has failed.
#[test]
fn a_locked_database_delays_a_commit_and_ends_no_run() {
    let bench = Bench::new();
    bench.append(3, 3);
    let impatient = open(bench.path()).unwrap();
    let (builder, _) = impatient.subscribe("balances", &[Arc::clone(&bench.log)]).unwrap();
    let consumer = builder.build().unwrap();
    let handle = consumer.handle();
    let (ask, asked) = std::sync::mpsc::channel();
    let (tell, told) = std::sync::mpsc::channel();
    let path = bench.path();
    let somebody = std::thread::spawn(move || {
        let mut connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        asked.recv().unwrap();
        let held = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        tell.send(()).unwrap();
        // Until the run has noticed, or is over without having noticed.
        while handle.counts().commits_failed == 0 && asked.try_recv() != Err(Disconnected) {
            std::thread::yield_now();
        }
        drop(held);
        handle.request_shutdown();
    });
    let first = Mutex::new(Some((ask.clone(), told)));
    let run = consumer.run(move |_| {
        if let Some((ask, told)) = first.lock().unwrap().take() {
            ask.send(()).unwrap();
            // Nothing is finished before the lock is held.
            told.recv().unwrap();
        }
        async { Ok::<_, Error>(()) }
    });
    let summary = block_on(run);
    drop(ask);
    somebody.join().unwrap();
    let summary = summary.unwrap();
    assert!(summary.commits_failed > 0 && summary.commits > 0, "{summary:?}");
    assert_eq!(bench.claim().1, progress(3, &[]));
}

#[test]
fn a_full_database_refuses_an_effect_with_its_mark_and_goes_on_when_there_is_room() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    let mut connection = bench.connect();
    let limit = |connection: &Connection, pages: i64| {
        let sql = format!("PRAGMA max_page_count = {pages}");
        connection.query_row(&sql, [], |_| Ok(())).unwrap();
    };
    limit(&connection, 1); // SQLite makes of it what there is now
    let turn = turn(epoch, &(0..2_000).collect::<Vec<_>>());
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    told(mark(&bench.marks, &tx, &turn), ErrorKind::Full, &bench.path(), "free some space");
    drop(tx);
    assert_eq!((bench.effects(), bench.marks_left()), (vec![], vec![]));
    limit(&connection, 1_000_000);
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    effect(&tx, &bench.marks, &turn).unwrap();
    tx.commit().unwrap();
    assert_eq!((bench.effects().len(), bench.marks_left().len()), (2_000, 2_000));
}

#[test]
fn a_commit_of_several_partitions_happens_as_a_whole_or_not_at_all() {
    let bench = Bench::new();
    let (epoch, _) = bench.claim();
    let other = key("audit", bench.log.info().uuid);
    let (other_epoch, _) = claim(&bench.store, &other);
    bench
        .connect()
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE UPDATE ON procession_progress WHEN OLD.key = 2
         BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
        .unwrap();
    let (mine, key) = (progress(5, &[]), bench.key());
    let batch = [
        procession::Commit { key: &key, epoch, progress: &mine },
        procession::Commit { key: &other, epoch: other_epoch, progress: &mine },
    ];
    let refused = block_on(bench.store.commit(&batch));
    told(refused, ErrorKind::Unsupported, &bench.path(), "2 partitions");
    bench.connect().execute_batch("DROP TRIGGER refuse").unwrap();
    assert_eq!(bench.claim().1, progress(0, &[]), "the first is undone with the second");
    let committed = block_on(bench.store.commit(&batch[1..])).unwrap();
    assert!(matches!(committed[..], [Committed::Done]), "{committed:?}");
}

#[test]
fn a_connection_whose_job_panicked_is_closed_and_says_so() {
    let bench = Bench::new();
    let desk: Desk = block_on(bench.store.connect()).unwrap();
    let panics = desk.call::<()>("count".to_owned(), |_| panic!("on purpose"));
    told(block_on(panics), ErrorKind::Closed, &bench.path(), "panicked");
    let after = desk.call("count".to_owned(), |_| Ok(1));
    told(block_on(after), ErrorKind::Closed, &bench.path(), "panicked");
    bench.claim();
}

/// Each call that waits is held; there is a bound, and at it a call is refused at once.
#[test]
fn a_connection_with_too_many_waiting_jobs_refuses_more() {
    let bench = Bench::new();
    let desk = block_on(bench.store.connect()).unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let mut first = Some(move || assert!(wait.lock().unwrap().recv().is_err(), "let go"));
    let mut calls: Vec<_> = (0..1_100)
        .map(|_| {
            let block = first.take();
            Box::pin(desk.call("count".to_owned(), move |_| {
                if let Some(block) = block {
                    block();
                }
                Ok(())
            }))
        })
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    let refused: Vec<_> = calls
        .iter_mut()
        .filter_map(|call| match call.as_mut().poll(&mut context) {
            Poll::Ready(Err(error)) => Some(error.kind()),
            _ => None,
        })
        .collect();
    // The one that runs may or may not have left the queue by then.
    assert!((75..=76).contains(&refused.len()), "{} of 1,100", refused.len());
    assert!(refused.iter().all(|kind| *kind == ErrorKind::Unavailable));
    drop(go);
    for call in calls.into_iter().take(1_024) {
        block_on(call).unwrap();
    }
}
