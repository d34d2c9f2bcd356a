//! A process that is killed in the middle of appending.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use futures::executor::block_on;
use procession_core::*;

use super::support::{contents, record};
use crate::FileLog;

const CHILD: &str = "PROCESSION_FILE_KILL_TEST_FOLDER";

fn open(path: &Path) -> FileLog {
    let options = FileLog::open(path).partitions(3).segment_bytes(1 << 20).record_bytes_max(1000);
    options.open_blocking().unwrap()
}

/// Not a test by itself: what the killed process does.
#[test]
fn child_appends_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let log = open(Path::new(&folder));
    let first = contents(&log, 1).len();
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
    }
}

/// Goal: what a killed process was told is stored is there, in order. Method: kill a real process
/// after a random number of receipts, ten times on one folder, each time after recovery.
#[test]
fn what_a_killed_process_was_told_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let seed = u64::from(std::process::id());
    let mut told: Vec<(u64, usize)> = Vec::new();
    for round in 0..10 {
        let kill_after = (seed.wrapping_mul(6_364_136_223_846_793_005) >> (round * 5)) % 300 + 1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::kill::child_appends_until_it_is_killed", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        for line in lines.map_while(Result::ok) {
            let Some(receipt) = line.strip_prefix("stored ") else { continue };
            let Some((offset, size)) = receipt.split_once(' ') else { continue };
            told.push((offset.parse().unwrap(), size.parse().unwrap()));
            heard += 1;
            if heard == kill_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let log = open(&path);
        let found = contents(&log, 1);
        for (i, (offset, ..)) in found.iter().enumerate() {
            assert_eq!(*offset, i as u64, "seed {seed} round {round}");
        }
        for (offset, size) in &told {
            let (_, _, payload) = found.get(*offset as usize).unwrap_or_else(|| {
                panic!("seed {seed} round {round}: offset {offset} is lost of {}", found.len())
            });
            assert_eq!(payload.len(), *size, "seed {seed} round {round}");
        }
        assert!(heard >= kill_after, "seed {seed} round {round}: the child ended by itself");
        block_on(log.close()).unwrap();
    }
}
