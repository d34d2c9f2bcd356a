//! Opening: every way it can be refused says what, where, and what to do.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::{Fault, FaultOp, MemoryDisk};
use crate::{FileLog, OpenOptions};

#[track_caller]
fn refused(options: OpenOptions, kind: ErrorKind, says: &[&str]) {
    let error = options.open_blocking().unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    for word in says {
        assert!(error.to_string().contains(word), "{word} is not in: {error}");
    }
    assert!(error.path().is_some(), "{error:?}");
}

#[test]
fn no_partitions_is_a_configuration_error() {
    let disk = MemoryDisk::new();
    refused(options(&disk).partitions(0), ErrorKind::Config, &["partitions(0)"]);
    assert!(disk.files().is_empty(), "nothing was created");
}

#[test]
fn a_missing_parent_a_file_and_a_foreign_folder_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| {
        FileLog::open(folder.path().join(name)).segment_bytes(1 << 20).record_bytes_max(1000)
    };
    refused(at("missing/log"), ErrorKind::NotFound, &["missing", "does not exist", "create it"]);
    std::fs::write(folder.path().join("file"), b"x").unwrap();
    refused(at("file"), ErrorKind::Mismatch, &["it is a file"]);
    std::fs::create_dir(folder.path().join("photos")).unwrap();
    std::fs::write(folder.path().join("photos/cat.jpg"), b"x").unwrap();
    refused(at("photos"), ErrorKind::Mismatch, &["cat.jpg", "not a log"]);
    assert_eq!(std::fs::read_dir(folder.path().join("photos")).unwrap().count(), 1);
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    at("empty").open_blocking().unwrap();
}

#[test]
fn a_read_only_folder_is_denied() {
    let disk = MemoryDisk::new();
    let fault =
        |kind| Fault { op: FaultOp::Create, path: "lock".into(), after: 0, kind, stays: true };
    disk.fail(fault(std::io::ErrorKind::ReadOnlyFilesystem));
    refused(options(&disk), ErrorKind::Denied, &["read-only", "/log"]);
}

#[test]
fn a_log_that_is_open_is_locked_and_says_by_whom() {
    let folder = tempfile::tempdir().unwrap();
    let options = || FileLog::open(folder.path().join("log")).segment_bytes(4 << 20);
    let log = options().open_blocking().unwrap();
    refused(options(), ErrorKind::Locked, &[&std::process::id().to_string(), "host", "boot"]);
    block_on(log.close()).unwrap();
    block_on(async { options().await }).unwrap();
}

#[test]
fn a_log_can_be_opened_again_once_its_last_clone_is_dropped() {
    let disk = MemoryDisk::new();
    for i in 0..5 {
        let log = open(&disk);
        let clone = log.clone();
        drop(log);
        assert_eq!(stored(&clone, 0, "a", "b").offset, Offset::new(i));
    }
}

#[test]
fn another_number_of_partitions_another_router_and_another_seed_are_mismatches() {
    let disk = MemoryDisk::new();
    drop(open(&disk));
    refused(options(&disk).partitions(5), ErrorKind::Mismatch, &["has 3 partitions", "5 were"]);
    let by_length = router("by-length", |key: &[u8], n: NonZeroU32| key.len() as u32 % n.get());
    refused(
        options(&disk).router(Arc::new(by_length)),
        ErrorKind::Mismatch,
        &["by-length", "siphash"],
    );
    refused(options(&disk).router(Arc::new(SipRouter::new(1))), ErrorKind::Mismatch, &["seed 1"]);
    let log = FileLog::open(FOLDER)
        .disk(Arc::new(disk))
        .segment_bytes(64 << 10)
        .record_bytes_max(1000)
        .open_blocking()
        .unwrap();
    assert_eq!(log.info().partitions.get(), 3);
}

#[test]
fn a_new_log_has_eight_partitions_and_a_seed_of_its_own() {
    let seeds: Vec<u64> = (0..2)
        .map(|_| {
            let disk: Arc<dyn crate::disk::Disk> = Arc::new(MemoryDisk::new());
            let options = FileLog::open("/log").disk(disk).segment_bytes(4 << 20);
            let log = options.open_blocking().unwrap();
            assert_eq!(log.info().partitions.get(), 8);
            log.info().router.id().seed
        })
        .collect();
    assert_ne!(seeds[0], seeds[1]);
}

#[test]
fn a_newer_format_is_a_version_error_in_every_file() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    stored(&log, 0, "a", "b");
    block_on(log.close()).unwrap();
    let image = image(&disk);
    for (name, version) in [("meta", 2), ("1.seg", 3), ("progress.a", 3)] {
        let mut newer = image.clone();
        file_of(&mut newer, name)[8] = version;
        let says = format!("version {version}");
        refused(options(&disk_of(&newer)), ErrorKind::Version, &[&says, "upgrade", name]);
    }
}

/// As a build without the feature, or an older one, meets it: the segment says what it takes to
/// read its batches.
#[test]
fn a_codec_that_this_build_lacks_is_named_at_the_open_and_nothing_is_lost() {
    use crate::format::segment::SegmentHeader;
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..200 {
        stored(&log, 0, "a", &format!("{i:0>1000}"));
    }
    block_on(log.close()).unwrap();
    let whole = image(&disk);
    for name in ["01.seg", "02.seg", "04.seg"] {
        let mut strange = whole.clone();
        let bytes = file_of(&mut strange, name);
        let mut header = SegmentHeader::decode(bytes, 3).unwrap();
        header.codecs |= 1 << 9;
        let encoded = header.encode();
        bytes[..encoded.len()].copy_from_slice(&encoded);
        let disk = disk_of(&strange);
        refused(options(&disk), ErrorKind::Unsupported, &["compressed", "upgrade", name]);
        refused(options(&disk).skip_corruption(true), ErrorKind::Unsupported, &[name]);
        for (path, bytes) in &strange {
            let touched = path.ends_with("lock") || path.ends_with("spare.seg");
            assert!(touched || disk.bytes(path) == *bytes, "{} is as it was", path.display());
        }
    }
}

#[test]
fn missing_files_are_noticed() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..300 {
        stored(&log, 0, "a", &format!("{i:0>1000}"));
    }
    block_on(log.close()).unwrap();
    let whole = image(&disk);
    let without = |name: &str| {
        let ends = |path: &Path| path.to_string_lossy().ends_with(name);
        disk_of(&whole.iter().filter(|(path, _)| !ends(path)).cloned().collect())
    };
    refused(options(&without("meta")), ErrorKind::Corrupt, &["meta", "restore"]);
    refused(options(&without("02.seg")), ErrorKind::Corrupt, &["02.seg", "missing"]);
    refused(options(&without(".seg")), ErrorKind::Corrupt, &["segments are missing"]);
    refused(options(&without("progress.a")), ErrorKind::Corrupt, &["progress", "restore"]);
    let log = options(&without(".idx")).open_blocking().unwrap();
    assert!(log.recovery().indexes_rebuilt > 2);
    assert_eq!(stored(&log, 0, "a", "next").sequence, Some(Sequence::new(300)));
}

#[test]
fn a_closed_log_refuses_and_says_so() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let clone = log.clone();
    block_on(log.close()).unwrap();
    assert!(
        matches!(send(&clone, 0, "a", "b"), Outcome::Refused(_, e) if e.kind() == ErrorKind::Closed)
    );
    let want = Want { partition: Partition::new(0), from: Offset::ZERO, max: Budget::MAX };
    assert_eq!(block_on(clone.read(&[want], Budget::MAX)).unwrap_err().kind(), ErrorKind::Closed);
    let changed = block_on(clone.changed(Version(99)));
    assert_eq!(changed.unwrap_err().kind(), ErrorKind::Closed);
    let listed = block_on(clone.store().list());
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::Closed);
    open(&disk);
}
