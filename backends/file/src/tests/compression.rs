//! Compressed batches: the same records in less room, and the same care for damage.

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::MemoryDisk;
use crate::format::batch::{BATCH_HEADER, BatchHeader};
use crate::format::segment::SegmentHeader;
use crate::{Compression, FileLog, HistoryEnd};

/// 600 records that shrink, ten a batch.
fn fill(log: &FileLog) -> Vec<Record> {
    let records: Vec<_> = (0..600)
        .map(|i| {
            let payload = format!("{{\"number\":{i},\"text\":\"{}\"}}", "word ".repeat(60));
            Record::new(format!("case-{}", i % 7), payload)
                .with_header("n", format!("{i}"))
                .with_timestamp(Timestamp::from_millis(i))
        })
        .collect();
    for batch in records.chunks(10) {
        let batch = Batch::many(batch.iter().map(|r| (Partition::new(0), r.clone())));
        let outcomes = block_on(log.append(batch));
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored(_))));
    }
    records
}

/// The codecs of the batches with records in a segment.
fn codecs(disk: &MemoryDisk, path: &std::path::Path) -> Vec<u16> {
    let bytes = disk.bytes(path);
    let header = SegmentHeader::decode(&bytes, 3).unwrap();
    let (salt, mut at, mut found) = (header.salt(), SegmentHeader::size(3), Vec::new());
    while let Some(batch) = BatchHeader::check(&bytes[at..], salt, at as u64) {
        if batch.records > 0 {
            found.push(batch.codec);
        }
        at += BATCH_HEADER + batch.body as usize;
    }
    found
}

fn first_segment() -> std::path::PathBuf {
    std::path::Path::new(FOLDER).join("00000000000000000001.seg")
}

#[test]
fn compressed_batches_give_back_what_was_appended_in_less_room() {
    let segments = |packed: bool| {
        let disk = MemoryDisk::new();
        let log = open_packed(&disk, packed);
        let records = fill(&log);
        let check = |log: &FileLog| {
            let found = read_from(log, 0, 0).unwrap();
            assert!(found.iter().map(|stored| &stored.record).eq(&records));
            // From any place, also from the middle of a batch.
            for from in [1, 9, 10, 155, 599] {
                let found = read_from(log, 0, from).unwrap();
                assert!(found.iter().map(|s| &s.record).eq(&records[from as usize..]));
            }
            let history = log.history("case-3").in_partition(Partition::new(0));
            let past = block_on(history.oldest_first(Budget::MAX)).unwrap();
            let expected = records.iter().skip(3).step_by(7);
            assert!(past.records.iter().map(|stored| &stored.record).eq(expected));
            assert_eq!(past.end, Some(HistoryEnd::First));
        };
        check(&log);
        let count = log.shared().segments.all().len();
        assert!(codecs(&disk, &first_segment()).contains(&u16::from(packed)));
        crash(log, &disk, 11);
        // Recovery rewrites, and reads without being told that there is anything compressed.
        let log = open(&disk);
        check(&log);
        block_on(log.close()).unwrap();
        let without_index: Image = image(&disk)
            .into_iter()
            .filter(|(path, _)| path.extension().is_none_or(|extension| extension != "idx"))
            .collect();
        check(&open(&disk_of(&without_index)));
        count
    };
    let (plain, packed) = (segments(false), segments(true));
    assert!(packed * 2 < plain, "{packed} segments instead of {plain}");
}

#[test]
fn a_batch_that_does_not_shrink_is_stored_as_it_is() {
    let disk = MemoryDisk::new();
    let log = open_packed(&disk, true);
    let mut state = 7_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let payload: Vec<u8> = (0..2000).map(|_| noise()).collect();
    let batch = Batch::one(Partition::new(0), Record::new("case", payload.clone()));
    block_on(log.append(batch));
    stored(&log, 0, "case", &"x".repeat(2000));
    assert_eq!(codecs(&disk, &first_segment()), [0, 1]);
    assert_eq!(read_from(&log, 0, 0).unwrap()[0].record.payload().unwrap(), &payload);
}

#[test]
fn budgets_count_what_records_are_without_compression_and_records_share_a_buffer() {
    let disk = MemoryDisk::new();
    let log = open_packed(&disk, true);
    let records = fill(&log);
    let size = records[0].size_bytes() as u64;
    let (partition, from) = (Partition::new(0), Offset::ZERO);
    let want = Want { partition, from, max: Budget::new(u64::MAX, 3 * size) };
    let chunks = block_on(log.read(&[want], Budget::MAX)).unwrap();
    assert_eq!(chunks[0].records.len(), 3);
    let place = |stored: &Stored| stored.record.payload().unwrap().as_ptr() as usize;
    let apart = place(&chunks[0].records[1]) - place(&chunks[0].records[0]);
    assert_eq!(apart, size as usize + crate::format::frame::FRAME_HEADER, "slices of one buffer");
}

/// Goal: damage to a compressed batch is noticed like any other: an error where it was proven
/// durable, the end of the log where it was not. Method: flip each bit-bearing byte of its body.
#[test]
fn a_damaged_compressed_batch_is_corruption_where_proven_and_a_cut_tail_where_not() {
    let disk = MemoryDisk::new();
    let log = open_packed(&disk, true);
    for i in 0..3 {
        stored(&log, 0, "case", &format!("{i:a<500}"));
    }
    // No mark: the last batch is not proven, those before are.
    disk.power_off_after(0);
    drop(log);
    let image = image(&disk);
    let bytes = disk.bytes(&first_segment());
    let header = SegmentHeader::decode(&bytes, 3).unwrap();
    let (mut at, mut batches) = (SegmentHeader::size(3), Vec::new());
    while let Some(batch) = BatchHeader::check(&bytes[at..], header.salt(), at as u64) {
        assert_eq!(batch.codec, 1);
        batches.push((at, batch.body as usize));
        at += BATCH_HEADER + batch.body as usize;
    }
    assert_eq!(batches.len(), 3);
    for (number, (at, body)) in batches.into_iter().enumerate() {
        for byte in 0..body {
            let mut damaged = image.clone();
            file_of(&mut damaged, "1.seg")[at + BATCH_HEADER + byte] ^= 0x10;
            let disk = disk_of(&damaged);
            if number < 2 {
                let error = options(&disk).open_blocking().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "batch {number} byte {byte}");
                let log = options(&disk).skip_corruption(true).open_blocking().unwrap();
                assert_eq!(contents(&log, 0).len(), 2, "batch {number} byte {byte}");
            } else {
                let log = open(&disk);
                assert!(log.recovery().cut_may_have_been_acknowledged);
                assert_eq!(contents(&log, 0).len(), 2, "byte {byte}");
            }
        }
    }
}

#[test]
fn a_damaged_compressed_batch_of_an_older_segment_is_an_error_of_the_read() {
    let disk = MemoryDisk::new();
    let log = open_packed(&disk, true);
    fill(&log);
    fill(&log);
    assert!(log.shared().segments.all().len() > 1);
    block_on(log.close()).unwrap();
    let mut image = image(&disk);
    file_of(&mut image, "1.seg")[SegmentHeader::size(3) + BATCH_HEADER + 30] ^= 1;
    let log = open(&disk_of(&image));
    assert_eq!(read_from(&log, 0, 0).unwrap_err().kind(), ErrorKind::Corrupt);
    let log = options(&disk_of(&image)).skip_corruption(true).open_blocking().unwrap();
    assert_eq!(read_from(&log, 0, 0).unwrap().len(), 1190, "one batch is stepped over");
}

#[test]
fn compression_may_be_switched_at_every_open() {
    let disk = MemoryDisk::new();
    let mut all = Vec::new();
    for life in 0..6 {
        let log = options(&disk)
            .compression(if life % 2 == 0 { Compression::None } else { Compression::Lz4 })
            .open_blocking()
            .unwrap();
        for i in 0..3 {
            let payload = format!("{life}-{i}-{}", "x".repeat(300));
            stored(&log, 0, "case", &payload);
            all.push(payload);
        }
        let found: Vec<_> = contents(&log, 0).into_iter().map(|(_, _, payload)| payload).collect();
        assert_eq!(found, all);
        block_on(log.close()).unwrap();
    }
    // A build without the feature must see at the open what it cannot read.
    for path in disk.files().iter().filter(|path| path.extension().is_some_and(|e| e == "seg")) {
        let Ok(header) = SegmentHeader::decode(&disk.bytes(path), 3) else { continue };
        let said = |codec: u16| codec == 0 || header.codecs & 1 << codec != 0;
        assert!(codecs(&disk, path).into_iter().all(said), "{} does not say so", path.display());
    }
}
