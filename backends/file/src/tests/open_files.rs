//! The number of open files is bounded, however many segments there are.

use std::path::Path;
use std::process::Command;

use futures::executor::block_on;
use procession_core::*;

use super::support::record;
use crate::{FileLog, OpenOptions};

const CHILD: &str = "PROCESSION_FILE_LIMIT_TEST_FOLDER";
const SEGMENTS: usize = 2100;

fn options(path: &Path) -> OpenOptions {
    FileLog::open(path)
        .partitions(1)
        .segment_bytes(8 << 10)
        .round_bytes_max(1900)
        .record_bytes_max(1700)
        .open_files_max(16)
}

/// Four records fill what a segment has room for.
fn append(log: &FileLog) {
    let record = record("case", &"x".repeat(1300));
    let outcomes = block_on(log.append(Batch::one(Partition::new(0), record)));
    assert!(matches!(outcomes.as_slice(), [Outcome::Stored(_)]), "{outcomes:?}");
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Not a test by itself: what a process does that may open 64 files.
#[test]
fn child_reads_every_segment_with_few_open_files() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let spare: Vec<_> = (0..100).map_while(|_| std::fs::File::open("/dev/null").ok()).collect();
    assert!(spare.len() < 64, "the limit of the system is not there");
    drop(spare);
    let log = options(Path::new(&folder)).open_blocking().unwrap();
    let end = block_on(log.ends(Position::End)).unwrap()[0];
    let mut most = 0;
    // Forwards through all of them, then far apart, both ways.
    let far = (0..200_u64).map(|i| Offset::new(i * 7919 % end.get()));
    let mut from = Offset::ZERO;
    while from < end {
        let want = Want { partition: Partition::new(0), from, max: Budget::new(50, u64::MAX) };
        let chunk = block_on(log.read(&[want], Budget::MAX)).unwrap().remove(0);
        assert_eq!(chunk.records[0].offset, from);
        from = chunk.next;
        most = most.max(open_files());
    }
    for from in far {
        let want = Want { partition: Partition::new(0), from, max: Budget::new(1, u64::MAX) };
        let chunk = block_on(log.read(&[want], Budget::MAX)).unwrap().remove(0);
        assert_eq!(chunk.records[0].offset, from);
        most = most.max(open_files());
    }
    for _ in 0..80 {
        append(&log);
        most = most.max(open_files());
    }
    block_on(log.close()).unwrap();
    println!("most open files: {most}, end: {end}");
}

/// Goal: more segments than a process may open files. Method: write them here, read all of them in
/// a process with the limit of the system at 64.
#[test]
fn thousands_of_segments_are_read_with_a_few_open_files() {
    // Thousands of files with several syncs each: in memory, where there is such a place.
    let memory = Path::new("/dev/shm");
    let folder =
        if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let path = folder.path().join("log");
    let log = options(&path).open_blocking().unwrap();
    let mut records = 0;
    while log.shared().segments.all().len() < SEGMENTS {
        append(&log);
        records += 1;
    }
    block_on(log.close()).unwrap();
    let run = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "tests::open_files::child_reads_every_segment_with_few_open_files"])
        .args(["--nocapture", "--test-threads", "1"])
        .env(CHILD, &path)
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{says}{}", String::from_utf8_lossy(&run.stderr));
    assert!(says.contains(&format!("end: {records}")), "{says}");
}

#[test]
fn fewer_open_files_than_reading_needs_is_a_configuration_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = options(&folder.path().join("log")).open_files_max(3).open_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("open_files_max(3)"), "{error}");
}
