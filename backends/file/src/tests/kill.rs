//! A process that is killed in the middle of appending and committing.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use futures::executor::block_on;
use procession_core::*;

use super::support::{contents, key, read_from, record};
use crate::FileLog;

const CHILD: &str = "PROCESSION_FILE_KILL_TEST_FOLDER";
/// Set if the log keeps only what is not finished.
const RETAIN: &str = "PROCESSION_FILE_KILL_TEST_RETAIN";

fn open(path: &Path, retain: bool) -> FileLog {
    let options = FileLog::open(path).partitions(3).record_bytes_max(1000);
    let options = if retain {
        options.segment_bytes(32 << 10).retain_bytes(0)
    } else {
        options.segment_bytes(1 << 20)
    };
    options.open_blocking().unwrap()
}

/// Not a test by itself: what the killed process does. It appends, and says how far it got.
#[test]
fn child_appends_and_commits_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let log = open(Path::new(&folder), std::env::var_os(RETAIN).is_some());
    let (store, key) = (log.store(), key(&log, "s", 1));
    let (epoch, _) =
        block_on(store.claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap().unwrap();
    let first = block_on(log.ends(Position::End)).unwrap()[1].get() as usize;
    for i in first.. {
        let waiting: Vec<_> = (0..1 + i % 4)
            .map(|_| {
                log.append(Batch::one(Partition::new(1), record("case", &"x".repeat(i % 500))))
            })
            .collect();
        for appending in waiting {
            if let Some(Outcome::Stored(receipt)) = block_on(appending).into_iter().next() {
                println!("stored {} {}", receipt.offset, i % 500);
            }
        }
        // As a consumer does: what can be read is finished and committed.
        let next = block_on(log.ends(Position::End)).unwrap()[1];
        let progress = Progress::at(next);
        let committed = block_on(store.commit(&[Commit { key: &key, epoch, progress: &progress }]));
        if matches!(committed.unwrap()[..], [Committed::Done]) {
            println!("committed {next}");
        }
    }
}

/// Goal: a reader in another process gives only what stays, while the writer is killed with -9 and
/// recovers, again and again. Method: read whenever the reader is woken, in the end compare.
#[test]
fn a_reader_beside_a_process_that_is_killed_gives_only_what_stays() {
    let seed = std::env::var("PROCESSION_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("PROCESSION_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    block_on(open(&path, false).close()).unwrap();
    let reader = FileLog::open(&path).read_only().open_blocking().unwrap();
    let (mut given, mut seen) = (Vec::new(), Version::NEVER);
    for round in 0..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::kill::child_appends_and_commits_until_it_is_killed"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let enough = given.len() + 100 + ((seed >> round) % 200) as usize;
        while given.len() < enough {
            seen = block_on(reader.changed(seen)).unwrap();
            let (partition, from) = (Partition::new(1), Offset::new(given.len() as u64));
            let want = Want { partition, from, max: Budget::MAX };
            for chunk in block_on(reader.read(&[want], Budget::MAX)).unwrap() {
                for stored in chunk.records {
                    assert_eq!(stored.offset.get(), given.len() as u64, "nothing is left out");
                    given.push(stored.record.payload().unwrap().len());
                }
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let log = open(&path, false);
    let found: Vec<usize> = contents(&log, 1).iter().map(|(.., payload)| payload.len()).collect();
    assert!(
        found.len() >= given.len(),
        "{} of {} are gone",
        given.len() - found.len(),
        given.len()
    );
    assert_eq!(found[..given.len()], given);
}

/// Goal: what a killed process was told is stored or committed is there, in order. Method: kill -9
/// a real process after a random number of answers, again and again on one folder, and judge what
/// recovery leaves. `PROCESSION_KILLS=200` is the long form, `PROCESSION_SEED` replays the moments.
#[test]
fn what_a_killed_process_was_told_is_there() {
    kill_again_and_again(false);
}

/// As the one above, in a log that removes what is finished, so that kills hit trims too.
#[test]
fn what_a_killed_process_was_told_is_there_or_was_finished_and_trimmed() {
    kill_again_and_again(true);
}

fn kill_again_and_again(retain: bool) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("PROCESSION_KILLS").unwrap_or(10);
    let seed = number("PROCESSION_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("PROCESSION_SEED={seed}");
    let mut state = seed;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut told: Vec<(u64, usize)> = Vec::new();
    let (mut committed, mut low) = (0, 0);
    for round in 0..kills {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let kill_after = (state >> 33) % 300 + 1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::kill::child_appends_and_commits_until_it_is_killed"])
            .arg("--nocapture")
            .env(CHILD, &path)
            .envs(retain.then_some((RETAIN, "1")))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        for line in lines.map_while(Result::ok) {
            if let Some(next) = line.strip_prefix("committed ") {
                committed = next.parse().unwrap();
            } else if let Some((offset, size)) =
                line.strip_prefix("stored ").and_then(|receipt| receipt.split_once(' '))
            {
                told.push((offset.parse().unwrap(), size.parse().unwrap()));
            } else {
                continue;
            }
            heard += 1;
            if heard == kill_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(heard >= kill_after, "seed {seed} round {round}: the child ended by itself");
        let log = open(&path, retain);
        assert!(log.recovery().segments_missing.is_empty(), "seed {seed} round {round}");
        // What retention lets go is gone when this returns.
        block_on(log.trim()).unwrap();
        low = block_on(log.ends(Position::Earliest)).unwrap()[1].get();
        let found = read_from(&log, 1, low).unwrap();
        for (i, stored) in found.iter().enumerate() {
            assert_eq!(stored.offset.get(), low + i as u64, "seed {seed} round {round}");
        }
        let end = low + found.len() as u64;
        for (offset, size) in told.iter().filter(|(offset, _)| *offset >= low) {
            let stored = found.get((*offset - low) as usize).unwrap_or_else(|| {
                panic!("seed {seed} round {round}: offset {offset} is lost of {end}")
            });
            let payload = stored.record.payload().unwrap();
            assert_eq!(payload.len(), *size, "seed {seed} round {round}");
        }
        let claimed = block_on(log.store().claim(&key(&log, "s", 1), Epoch::FIRST, None)).unwrap();
        let next = claimed.expect("the child has claimed it").1.next.get();
        assert!(
            next >= committed && next <= end && low <= next,
            "seed {seed} round {round}: progress {next}, committed {committed} of {low} to {end}"
        );
        block_on(log.close()).unwrap();
    }
    assert_eq!(low > 0, retain, "seed {seed}: {low}");
    println!("kills={kills} stored={} committed={committed} trimmed={low}", told.len());
}
