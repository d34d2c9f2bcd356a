//! The program, killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Parser;
use futures::executor::block_on;
use rusqlite::Connection;

use crate::args::Args;
use crate::check::{Verdict, check};

const CHILD: &str = "PROCESSION_SQLITE_KILL_TEST_FOLDER";
const RECORDS: &str = "PROCESSION_SQLITE_KILL_TEST_RECORDS";
const GROUPS: u64 = 23;

/// The program as a person starts it, with small transactions so that there are many moments to
/// be killed at.
fn run(dir: &Path, records: u64) -> (u64, Verdict) {
    let (records, groups) = (records.to_string(), GROUPS.to_string());
    let args = ["sqlite_store", "--records", &records, "--groups", &groups, "--batch", "3"];
    let args = Args::parse_from(args);
    let begins = |_| {
        println!("begins");
        Ok(())
    };
    block_on(crate::run(&args, dir, begins)).unwrap()
}

/// Not a test by itself: what the killed process does.
#[test]
fn child_applies_transfers_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let records = std::env::var(RECORDS).unwrap().parse().unwrap();
    run(Path::new(&folder), records);
}

/// Goal: wherever the process is killed, every transfer has its effect once, in the order of its
/// account. Method: kill -9 after a random time, from the start or from the first turn, again and
/// again; what is there each time must be a beginning of the source, and in the end all of it.
/// `PROCESSION_KILLS=200` is the long form, `PROCESSION_SEED` replays the waits.
#[test]
fn killed_at_any_moment_every_effect_is_there_once() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let kills = number("PROCESSION_KILLS").unwrap_or(10);
    let seed = number("PROCESSION_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("PROCESSION_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let records = 200 * kills;
    let (mut killed, mut in_between) = (0, 0);
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::kill::child_applies_transfers_until_it_is_killed"])
            .arg("--nocapture")
            .env(CHILD, folder.path())
            .env(RECORDS, records.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap()).lines();
        // Three of four die once they consume, however slow the machine is.
        let begun = kill % 4 != 0
            && says.by_ref().map_while(Result::ok).any(|line| line.contains("begins"));
        // A real wait: the moment of the kill is what varies.
        let most = if begun { 100_000 } else { 200_000 };
        std::thread::sleep(Duration::from_micros(random.u64(0..most)));
        killed += u64::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        drop(says);
        let path = folder.path().join("bank.db");
        let Ok(connection) = Connection::open(path) else { continue };
        // Killed before the tables were made.
        let Ok(verdict) = check(&connection, records, GROUPS, 0) else { continue };
        assert!(verdict.is_a_beginning(), "kill {kill}: {verdict:?}");
        in_between += u64::from(verdict.effects > 0 && verdict.lost > 0);
    }
    let (repeated, verdict) = run(folder.path(), records);
    println!("kills={killed} in_between={in_between} repeated_turns={repeated} {verdict:?}");
    assert!(verdict.holds(), "{verdict:?}");
    assert_eq!(verdict.effects, records, "one effect a transfer");
    assert_eq!(repeated, 0, "what was marked did not even run again");
    assert!(killed > 0, "no run lived long enough to be killed");
}

/// The verdict can fail: each kind of wrong is found in a database that was right.
#[test]
fn a_database_that_is_not_right_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let (_, right) = run(folder.path(), 200);
    assert!(right.holds(), "{right:?}");
    let mut connection = Connection::open(folder.path().join("bank.db")).unwrap();
    let mut after = |sql: &str| {
        let tx = connection.transaction().unwrap();
        assert!(tx.execute(sql, []).unwrap() > 0, "{sql}");
        check(&tx, 200, GROUPS, 0).unwrap()
    };
    let last = "DELETE FROM applied WHERE position = (SELECT max(position) FROM applied)";
    assert_eq!((after(last).lost, after(last).holds()), (1, false));
    let twice = "INSERT INTO applied (account, sequence, amount)
                 SELECT account, sequence, amount FROM applied LIMIT 1";
    assert_eq!((after(twice).duplicated, after(twice).holds()), (1, false));
    let swapped = "UPDATE applied SET position = -position WHERE sequence = 1";
    assert!(after(swapped).reordered > 0 && !after(swapped).holds());
    let balance = "UPDATE accounts SET balance = balance + 1";
    assert_eq!((after(balance).wrong_balances, after(balance).holds()), (GROUPS, false));
}
