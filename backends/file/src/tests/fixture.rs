//! Logs that released versions wrote. They stay for ever.

use std::fs;
use std::path::Path;

use futures::executor::block_on;
use procession_core::*;

use super::support::{contents, read_from, record};
use crate::FileLog;

/// What every fixture holds: 60 records in 5 groups over 3 partitions, two segments, progress.
fn fill(log: &FileLog) {
    for i in 0..60_u32 {
        let record = record(&format!("case-{}", i % 5), &format!("payload-{i}"))
            .with_header("n", i.to_le_bytes())
            .with_timestamp(Timestamp::from_millis(i.into()));
        let outcomes = block_on(log.append(Batch::one(Partition::new(i % 3), record)));
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Stored(_))));
    }
    let key = key(log);
    let (epoch, _) =
        block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap().unwrap();
    let mut done = Ranges::default();
    done.push(Offset::new(9), Offset::new(12));
    let progress = Progress::with_done(Offset::new(7), done);
    block_on(log.store().commit(&[Commit { key: &key, epoch, progress: &progress }])).unwrap();
}

fn key(log: &FileLog) -> Key {
    Key { subscription: "archive".into(), log: log.info().uuid, partition: Partition::new(2) }
}

fn open(path: &Path) -> FileLog {
    let options = FileLog::open(path)
        .partitions(3)
        .router(std::sync::Arc::new(SipRouter::new(42)))
        .segment_bytes(12 << 10)
        .round_bytes_max(3 << 10)
        .record_bytes_max(1000);
    options.open_blocking().unwrap()
}

fn fixture(version: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(version)
}

fn write(version: &str) {
    let path = fixture(version);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let log = open(&path);
    fill(&log);
    block_on(log.close()).unwrap();
    // It names the machine.
    fs::write(path.join("lock"), b"").unwrap();
}

/// Once per format version, by hand: `PROCESSION_WRITE_FIXTURE=v2` writes the one of this build
/// into the source tree first.
#[test]
fn opens_what_version_1_wrote() {
    if let Ok(version) = std::env::var("PROCESSION_WRITE_FIXTURE") {
        write(&version);
    }
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture("v1")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let version = |segment: &str| fs::read(folder.path().join(segment)).unwrap()[8];
    assert_eq!(version("00000000000000000002.seg"), 1);
    let log = open(folder.path());
    assert!(log.recovery().clean);
    // What this version adds goes into a segment that says so: an older build refuses it.
    assert_eq!(version("00000000000000000003.seg"), 2);
    for partition in 0..3_u32 {
        let expected: Vec<_> = (0..60_u32)
            .filter(|i| i % 3 == partition)
            .enumerate()
            .map(|(at, i)| (at as u64, format!("case-{}", i % 5), format!("payload-{i}")))
            .collect();
        assert_eq!(contents(&log, partition), expected);
        for (at, stored) in read_from(&log, partition, 0).unwrap().iter().enumerate() {
            let i = partition + 3 * at as u32;
            assert_eq!(stored.record.headers().get("n"), Some(&i.to_le_bytes()[..]));
            assert_eq!(stored.record.timestamp(), Some(Timestamp::from_millis(i.into())));
            assert_eq!(stored.sequence, Some(Sequence::new(at as u64 / 5)));
        }
    }
    let claimed = block_on(log.store().claim(&key(&log), Epoch::FIRST, None)).unwrap().unwrap();
    assert_eq!((claimed.0.get(), claimed.1.next, claimed.1.done.len()), (2, Offset::new(7), 1));
}
