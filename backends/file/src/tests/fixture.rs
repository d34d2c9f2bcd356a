//! Logs that released versions wrote. They stay for ever.

use std::fs;
use std::path::Path;

use futures::executor::block_on;
use procession_core::*;

use super::support::{contents, earliest, finish, read_from, record, trim};
use crate::{FileLog, OpenOptions};

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

fn options(path: &Path) -> OpenOptions {
    FileLog::open(path)
        .partitions(3)
        .router(std::sync::Arc::new(SipRouter::new(42)))
        .segment_bytes(12 << 10)
        .round_bytes_max(3 << 10)
        .record_bytes_max(1000)
}

fn open(path: &Path) -> FileLog {
    options(path).open_blocking().unwrap()
}

/// What version 2 adds: six records with a stamp, in partition 0.
fn number(log: &FileLog) -> Vec<Outcome> {
    let Enlisted { producer, epoch, .. } = block_on(log.enlist("outbox")).unwrap();
    let records = (0..6).map(|i| (Partition::new(0), record("numbered", &format!("row-{i}"))));
    let mut batch = Batch::many(records);
    batch.stamp = Some(Stamp { producer, epoch, base: Some(0) });
    block_on(log.append(batch)).into_iter().collect()
}

fn fixture(version: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(version)
}

/// Once per format version, by hand: `PROCESSION_WRITE_FIXTURE=v3` writes the one of this build into
/// the source tree; of `v3-lz4` the batches are compressed.
#[test]
fn a_fixture_of_this_build_is_written_where_it_is_asked_for() {
    let Ok(version) = std::env::var("PROCESSION_WRITE_FIXTURE") else { return };
    let path = fixture(&version);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let options = options(&path);
    #[cfg(feature = "lz4")]
    let options = match version.ends_with("lz4") {
        true => options.compression(crate::Compression::Lz4),
        false => options,
    };
    let log = options.open_blocking().unwrap();
    fill(&log);
    number(&log);
    block_on(log.close()).unwrap();
    // It names the machine.
    fs::write(path.join("lock"), b"").unwrap();
}

/// A log with its first segment trimmed, a stuck record in the next one, and a gap behind it.
fn fill_and_trim(path: &Path) -> (FileLog, u64) {
    let log = trimming(path);
    let key = Key { partition: Partition::new(0), ..key(&log) };
    block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    for i in 0..60_u32 {
        let record = record(&format!("case-{}", i % 5), &format!("{i:0>700}"));
        let outcomes = block_on(log.append(Batch::one(Partition::new(0), record)));
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Stored(_))));
    }
    let stuck = log.shared().segments.all()[1].header.base[0] + 1;
    finish(&log, &key, stuck, &[(stuck + 1, 60)]);
    trim(&log);
    (log, stuck)
}

fn trimming(path: &Path) -> FileLog {
    let options = FileLog::open(path)
        .partitions(3)
        .router(std::sync::Arc::new(SipRouter::new(42)))
        .segment_bytes(12 << 10)
        .round_bytes_max(3 << 10)
        .record_bytes_max(1000)
        .retain_bytes(0);
    options.open_blocking().unwrap()
}

/// By hand: `PROCESSION_WRITE_TRIMMED_FIXTURE=trimmed-v2` writes it into the source tree first.
#[test]
fn opens_what_retention_left_in_version_2_of_the_progress_files() {
    if let Ok(name) = std::env::var("PROCESSION_WRITE_TRIMMED_FIXTURE") {
        let path = fixture(&name);
        block_on(fill_and_trim(&path).0.close()).unwrap();
        fs::write(path.join("lock"), b"").unwrap();
    }
    // What this build does with the same calls is what the fixture holds.
    let fresh = tempfile::tempdir().unwrap();
    let (fresh, stuck) = fill_and_trim(fresh.path());
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture("trimmed-v2")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let log = trimming(folder.path());
    assert!(log.recovery().clean && log.recovery().segments_missing.is_empty());
    let low = earliest(&log, 0);
    assert!(low > 0 && low == earliest(&fresh, 0));
    let offsets = |log: &FileLog| -> Vec<u64> {
        read_from(log, 0, low).unwrap().iter().map(|stored| stored.offset.get()).collect()
    };
    let found = offsets(&log);
    assert_eq!(found, offsets(&fresh));
    assert!(found.contains(&stuck) && found.len() as u64 + low < 60, "{found:?}");
    let state = &block_on(log.subscriptions()).unwrap()[0];
    assert_eq!((state.lag(), state.pins_oldest), (1, true));
    assert!(state.last_moved > Timestamp::from_millis(0));
}

/// A copy of the fixture that may be opened.
fn copy(version: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(version)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

fn check(log: &FileLog, numbered: bool) {
    assert!(log.recovery().clean);
    for partition in 0..3_u32 {
        let mut expected: Vec<_> = (0..60_u32)
            .filter(|i| i % 3 == partition)
            .enumerate()
            .map(|(at, i)| (at as u64, format!("case-{}", i % 5), format!("payload-{i}")))
            .collect();
        if numbered && partition == 0 {
            let more = (0..6).map(|i| (20 + i, "numbered".to_owned(), format!("row-{i}")));
            expected.extend(more);
        }
        assert_eq!(contents(log, partition), expected);
        for (at, stored) in read_from(log, partition, 0).unwrap().iter().enumerate().take(20) {
            let i = partition + 3 * at as u32;
            assert_eq!(stored.record.headers().get("n"), Some(&i.to_le_bytes()[..]));
            assert_eq!(stored.record.timestamp(), Some(Timestamp::from_millis(i.into())));
            assert_eq!(stored.sequence, Some(Sequence::new(at as u64 / 5)));
        }
    }
    let claimed = block_on(log.store().claim(&key(log), Epoch::FIRST, None)).unwrap().unwrap();
    assert_eq!((claimed.0.get(), claimed.1.next, claimed.1.done.len()), (2, Offset::new(7), 1));
    if numbered {
        let before = contents(log, 0).len();
        for (i, outcome) in number(log).into_iter().enumerate() {
            let Outcome::Stored(receipt) = outcome else { panic!("{outcome:?}") };
            assert_eq!(receipt.offset, Offset::new(20 + i as u64), "of the first time");
        }
        assert_eq!(contents(log, 0).len(), before);
    }
}

#[test]
fn opens_what_version_1_wrote() {
    let folder = copy("v1");
    let version = |segment: &str| fs::read(folder.path().join(segment)).unwrap()[8];
    assert_eq!(version("00000000000000000002.seg"), 1);
    let log = open(folder.path());
    check(&log, false);
    // What this version adds goes into a segment that says so: an older build refuses it.
    assert_eq!(version("00000000000000000003.seg"), 2);
}

#[test]
fn opens_what_version_2_wrote_with_stamps() {
    check(&open(copy("v2").path()), true);
}

#[cfg(feature = "lz4")]
#[test]
fn opens_what_version_2_wrote_with_compression() {
    check(&open(copy("v2-lz4").path()), true);
}

#[cfg(not(feature = "lz4"))]
#[test]
fn a_build_without_the_feature_names_it_and_leaves_compressed_batches_alone() {
    let folder = copy("v2-lz4");
    let error = options(folder.path()).open_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("feature `lz4`"), "{error}");
    for entry in fs::read_dir(fixture("v2-lz4")).unwrap() {
        let name = entry.unwrap().file_name();
        if name != "lock" {
            let read = |path: &Path| fs::read(path.join(&name)).unwrap();
            assert_eq!(read(folder.path()), read(&fixture("v2-lz4")), "{}", name.display());
        }
    }
}
