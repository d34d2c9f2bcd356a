//! Retention: what goes, what stays, who keeps it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::{Fault, FaultOp, MemoryDisk};
use crate::format::batch::{BATCH_HEADER, BatchHeader};
use crate::format::frame::Frame;
use crate::keeper::Keeper;
use crate::worker::{Pace, Worker};
use crate::{FileLog, OpenOptions};

const SEGMENT: u64 = 64 << 10;

fn keeping(disk: &MemoryDisk, segments: u64) -> OpenOptions {
    options(disk).retain_bytes(segments * SEGMENT)
}

#[test]
fn everything_is_kept_unless_retention_is_asked_for() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let all = fill(&log, 0, "a", 5);
    let trimmed = trim(&log);
    assert_eq!((trimmed.segments, trimmed.bytes, earliest(&log, 0)), (0, 0, 0));
    assert_eq!(contents(&log, 0).len(), all.len());
}

#[test]
fn the_oldest_segments_go_and_the_newest_bytes_stay() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk, 3).open_blocking().unwrap();
    let all = fill(&log, 0, "a", 9);
    trim(&log);
    // The active one and two more have the bytes.
    assert_eq!(segment_files(&disk), [8, 9, 10]);
    let low = earliest(&log, 0);
    let left: Vec<u64> =
        read_from(&log, 0, low).unwrap().iter().map(|stored| stored.offset.get()).collect();
    assert_eq!(left[..], all[low as usize..]);
    assert!(left.len() as u64 * 3000 > SEGMENT, "{} are left", left.len());
    // Nothing more to do: the answer says so.
    let trimmed = trim(&log);
    assert_eq!((trimmed.segments, trimmed.earliest[0].get()), (0, low));
}

#[test]
fn retention_runs_by_itself_after_a_roll_and_after_progress_moved() {
    let disk = MemoryDisk::new();
    let options = || keeping(&disk, 2).clock(Arc::new(TestClock::default()));
    let mut parts = options().open_parts().unwrap();
    let mut keeper = Keeper::new(Arc::clone(&parts.shared), Arc::clone(&parts.filing));
    let mut settle = |parts: &mut crate::options::Parts| {
        while [parts.writer.step(), keeper.step(), parts.desk.step()].contains(&Pace::More) {}
    };
    settle(&mut parts);
    let append = |parts: &crate::options::Parts| {
        let record = Record::new("a", vec![7; 3800]);
        drop(parts.shared.append(Batch::one(Partition::new(0), record)));
    };
    let roll = |parts: &mut crate::options::Parts, settle: &mut dyn FnMut(&mut _), to: u64| {
        while parts.shared.segments.all().last().unwrap().id() < to {
            append(parts);
            settle(parts);
        }
    };
    roll(&mut parts, &mut settle, 5);
    assert_eq!(segment_files(&disk), [4, 5], "nobody asked for a trim");
    // A subscription keeps the next ones, until it gets on.
    let key =
        Key { subscription: "s".into(), log: parts.shared.info.uuid, partition: Partition::new(0) };
    let start = parts.shared.tail().earliest[0];
    let claim = request(&parts, |answer| {
        let start = Some(Offset::new(start));
        crate::progress::Request::Claim(key.clone(), Epoch::FIRST, start, answer)
    });
    settle(&mut parts);
    claim.now_or_panic().unwrap();
    roll(&mut parts, &mut settle, 8);
    assert_eq!(segment_files(&disk), [4, 5, 6, 7, 8]);
    let progress = Progress::at(Offset::new(parts.shared.tail().ends[0]));
    let bytes = progress.to_bytes().into();
    let commit = request(&parts, |answer| {
        crate::progress::Request::Commit(vec![(key, Epoch::FIRST, bytes)], answer)
    });
    settle(&mut parts);
    commit.now_or_panic();
    assert_eq!(segment_files(&disk), [7, 8], "what it finished goes, without a roll");
}

/// Goal: no wake-up is lost. Method: a commit that lets everything go stands right behind the
/// decision that kept it, in one batch of the store.
#[test]
fn progress_that_moves_right_behind_a_decision_is_not_overlooked() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let key = key(&log, "s", 0);
    block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    let end = fill(&log, 0, "a", 3).len() as u64;
    block_on(log.close()).unwrap();
    let clock = Arc::new(TestClock::default());
    let mut parts = keeping(&disk, 0).clock(clock).open_parts().unwrap();
    let mut keeper = Keeper::new(Arc::clone(&parts.shared), Arc::clone(&parts.filing));
    keeper.step();
    let bytes = Progress::at(Offset::new(end)).to_bytes().into();
    let commit = request(&parts, |answer| {
        crate::progress::Request::Commit(vec![(key, Epoch::FIRST, bytes)], answer)
    });
    while [parts.desk.step(), keeper.step()].contains(&Pace::More) {}
    assert!(matches!(commit.now_or_panic()[..], [Committed::Done]));
    assert_eq!(segment_files(&disk), [4]);
}

type Asked<T> = futures::channel::oneshot::Receiver<Result<T, Error>>;

fn request<T>(
    parts: &crate::options::Parts,
    of: impl FnOnce(futures::channel::oneshot::Sender<Result<T, Error>>) -> crate::progress::Request,
) -> Asked<T> {
    let (answer, answered) = futures::channel::oneshot::channel();
    parts.filing.add(of(answer));
    answered
}

trait Answered<T> {
    fn now_or_panic(self) -> T;
}

impl<T> Answered<T> for Asked<T> {
    fn now_or_panic(mut self) -> T {
        self.try_recv().unwrap().expect("it was answered").unwrap()
    }
}

#[test]
fn a_segment_goes_when_it_is_old_and_one_timed_wait_leads_there() {
    let disk = MemoryDisk::new();
    let clock = Arc::new(TestClock::default());
    let options =
        options(&disk).retain_for(Duration::from_secs(100)).clock(Arc::clone(&clock) as _);
    let mut parts = options.open_parts().unwrap();
    let mut keeper = Keeper::new(Arc::clone(&parts.shared), Arc::clone(&parts.filing));
    for second in [0, 50, 70] {
        clock.wall.store(second * 1000, Ordering::SeqCst);
        let count = parts.shared.segments.all().len();
        while parts.shared.segments.all().len() == count {
            let record = Record::new("a", vec![7; 3800]);
            drop(parts.shared.append(Batch::one(Partition::new(0), record)));
            while parts.writer.step() == Pace::More {}
        }
    }
    let mut settle = |desk: &mut crate::progress::Desk| loop {
        if ![keeper.step(), desk.step()].contains(&Pace::More) {
            return keeper.step();
        }
    };
    let seconds = |n| Pace::Idle(Some(Duration::from_secs(n)));
    // The first segment ended at 0, when the second began; the second one at 50.
    assert_eq!(settle(&mut parts.desk), seconds(30));
    assert_eq!(segment_files(&disk), [1, 2, 3, 4]);
    clock.wall.store(99_999, Ordering::SeqCst);
    assert_eq!(settle(&mut parts.desk), Pace::Idle(Some(Duration::from_millis(1))));
    clock.wall.store(100_000, Ordering::SeqCst);
    assert_eq!(settle(&mut parts.desk), seconds(50));
    assert_eq!(segment_files(&disk), [2, 3, 4]);
    clock.wall.store(1_000_000, Ordering::SeqCst);
    // The active one stays, and nothing is left to wait for.
    assert_eq!(settle(&mut parts.desk), Pace::Idle(None));
    assert_eq!(segment_files(&disk), [4]);
}

#[test]
fn an_unfinished_record_keeps_its_segment_and_the_report_says_whose_it_is() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk, 1).open_blocking().unwrap();
    let key = key(&log, "archive", 0);
    // Created at its claim, it keeps what lies from its position on.
    block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::new(1)))).unwrap();
    let all = fill(&log, 0, "a", 6);
    let trimmed = trim(&log);
    assert_eq!((trimmed.segments, earliest(&log, 0)), (0, 0));
    let pin = &trimmed.pinned_by[0];
    assert_eq!((&*pin.subscription, pin.partition.get(), pin.offset.get()), ("archive", 0, 1));
    assert_eq!(pin.bytes, 6 * SEGMENT);
    let next = all[all.len() / 2];
    finish(&log, &key, next, &[]);
    let trimmed = trim(&log);
    let low = earliest(&log, 0);
    assert!(low > 0 && low <= next, "{low} {next}");
    assert_eq!(trimmed.pinned_by[0].offset.get(), next);
    assert_eq!(read_from(&log, 0, low).unwrap()[0].offset.get(), low);
}

#[test]
fn unfinished_records_go_where_that_was_chosen_and_their_subscription_is_told() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk, 1).trim_unfinished(true).open_blocking().unwrap();
    let key = key(&log, "archive", 0);
    block_on(log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    fill(&log, 0, "a", 6);
    trim(&log);
    let low = earliest(&log, 0);
    assert!(low > 0);
    let handled = |_: Turn| async { Ok::<_, Error>(()) };
    let error = block_on(log.subscribe("archive").until_end().run(handled)).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Trimmed, Some(Offset::ZERO)));
    assert!(error.to_string().contains("were removed"), "{error}");
    // It may choose to go on where the log begins; a new one begins there anyway.
    let run = log.subscribe("archive").out_of_range(OutOfRange::Earliest).until_end();
    let left = block_on(log.ends(Position::End)).unwrap()[0].get() - low;
    assert_eq!(block_on(run.run(handled)).unwrap().turns_done, left);
    let summary = block_on(log.subscribe("new").until_end().run(handled)).unwrap();
    assert_eq!(summary.turns_done, left);
}

#[test]
fn trimmed_and_not_yet_written_are_two_errors_that_name_the_place() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk, 1).open_blocking().unwrap();
    let all = fill(&log, 1, "a", 4);
    trim(&log);
    let low = earliest(&log, 1);
    let error = read_from(&log, 1, low - 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Trimmed);
    assert_eq!(error.partition().unwrap().partition, Partition::new(1));
    assert_eq!(error.offset(), Some(Offset::new(low - 1)));
    assert!(error.to_string().contains(&format!("begins at {low} now")), "{error}");
    let beyond = Want {
        partition: Partition::new(1),
        from: Offset::new(all.len() as u64 + 1),
        max: Budget::MAX,
    };
    let error = block_on(log.read(&[beyond], Budget::MAX)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotYetWritten);
    // Other partitions were not touched.
    assert_eq!((earliest(&log, 0), earliest(&log, 2)), (0, 0));
    assert!(read_from(&log, 0, 0).unwrap().is_empty());
}

/// Goal: a new subscription never begins below what is left. Method: look the start up, trim, then
/// claim with the old answer.
#[test]
fn a_start_that_was_trimmed_meanwhile_is_raised_to_what_is_left() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk, 1).open_blocking().unwrap();
    let start = block_on(log.ends(Position::Earliest)).unwrap()[0];
    fill(&log, 0, "a", 4);
    trim(&log);
    let key = key(&log, "late", 0);
    let claimed = block_on(log.store().claim(&key, Epoch::FIRST, Some(start))).unwrap().unwrap();
    assert_eq!(claimed.1.next.get(), earliest(&log, 0));
    // Of another log nothing is known.
    let other = Key { log: LogUuid::from_u128(1), ..key };
    let claimed = block_on(log.store().claim(&other, Epoch::FIRST, Some(start))).unwrap().unwrap();
    assert_eq!(claimed.1.next, Offset::ZERO);
}

/// Sequences in the active segment, and whether they restarted.
fn flags(log: &FileLog, disk: &MemoryDisk) -> Vec<(u64, bool)> {
    let segments = log.shared().segments.all();
    let active = segments.last().unwrap();
    let (bytes, mut flags, mut at) = (disk.bytes(&active.path), Vec::new(), 0);
    while let Some((found, header)) = BatchHeader::search(&bytes, active.salt, at) {
        at = found + BATCH_HEADER;
        for _ in 0..header.records {
            let frame = Frame::check(&bytes[at..], active.salt).unwrap();
            flags.push((frame.place.sequence, frame.place.restarted));
            at += frame.length;
        }
    }
    flags
}

/// Goal: a group that was trimmed away never falls back, and says that it restarted. Method: few
/// groups in memory, real trimming, with and without a reopen; compare with every number it had.
#[test]
fn a_group_trimmed_away_restarts_above_everything_it_had_and_says_so() {
    for reopened in [false, true] {
        let disk = MemoryDisk::new();
        let options = || keeping(&disk, 1).groups_max(3);
        let mut log = options().open_blocking().unwrap();
        let first = stored(&log, 0, "gone", "1").sequence.unwrap().get();
        let last = stored(&log, 0, "gone", "2").sequence.unwrap().get();
        assert_eq!((first, last), (0, 1));
        let kept = fill(&log, 0, "kept", 4);
        for i in 0..9 {
            stored(&log, 0, &format!("other-{i}"), "pushes it out of memory");
        }
        trim(&log);
        if reopened {
            block_on(log.close()).unwrap();
            log = options().open_blocking().unwrap();
        }
        let receipt = stored(&log, 0, "gone", "3");
        // One record before it, then one a log number.
        let log_number = 2 + kept.len() as u64 + 9;
        assert_eq!(receipt.sequence, Some(Sequence::new(log_number)), "reopened: {reopened}");
        assert_eq!(stored(&log, 0, "gone", "4").sequence, Some(Sequence::new(log_number + 1)));
        let flags = flags(&log, &disk);
        let of = |sequence| flags.iter().find(|(s, _)| *s == sequence).map(|(_, flag)| *flag);
        assert_eq!((of(log_number), of(log_number + 1)), (Some(true), Some(false)));
        let next = stored(&log, 0, "kept", "goes on").sequence.unwrap().get();
        assert_eq!(next, kept.len() as u64, "it never left");
    }
}

#[test]
fn a_trim_that_the_progress_store_cannot_note_removes_nothing() {
    let disk = MemoryDisk::new();
    let log = options(&disk).open_blocking().unwrap();
    let all = fill(&log, 0, "a", 4);
    block_on(log.close()).unwrap();
    let clock = Arc::new(TestClock::default());
    let parts = keeping(&disk, 1).clock(clock).open_parts().unwrap();
    let mut keeper = Keeper::new(Arc::clone(&parts.shared), Arc::clone(&parts.filing));
    let mut desk = parts.desk;
    let (op, kind) = (FaultOp::Sync, std::io::ErrorKind::Other);
    disk.fail(Fault { op, path: "progress".into(), after: 0, kind, stays: false });
    let (asker, mut answered) = futures::channel::oneshot::channel();
    parts.shared.keeping.trim(asker);
    while [keeper.step(), desk.step()].contains(&Pace::More) {}
    let error = answered.try_recv().unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    drop((keeper, desk, parts.writer, parts.shared, parts.lock));
    disk.crash(5);
    let log = open(&disk);
    assert_eq!(contents(&log, 0).len(), all.len());
}

#[test]
fn segments_that_were_not_trimmed_are_missed_and_those_that_were_are_not() {
    let disk = MemoryDisk::new();
    let log = keeping(&disk, 4).open_blocking().unwrap();
    fill(&log, 0, "a", 7);
    trim(&log);
    let low = earliest(&log, 0);
    block_on(log.close()).unwrap();
    assert_eq!(segment_files(&disk), [5, 6, 7, 8]);
    let whole = image(&disk);
    let without = |name: &str| {
        let ends = |path: &std::path::Path| path.to_string_lossy().ends_with(name);
        disk_of(&whole.iter().filter(|(path, _)| !ends(path)).cloned().collect())
    };
    // The oldest, one in the middle; and with the progress files goes the knowledge of the rest.
    for name in ["05.seg", "06.seg"] {
        let error = options(&without(name)).open_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.path().unwrap().ends_with(format!("000000000000000000{name}")), "{error}");
        assert!(error.to_string().contains("not removed by retention"), "{error}");
        let disk = without(name);
        let log = options(&disk).skip_corruption(true).open_blocking().unwrap();
        let missing: u64 = name[..2].parse().unwrap();
        assert_eq!(log.recovery().segments_missing, [missing]);
        let low = earliest(&log, 0);
        let left = read_from(&log, 0, low).unwrap();
        assert!(left.is_sorted_by(|a, b| a.offset < b.offset) && left.len() > 30);
        block_on(log.close()).unwrap();
        // Given up once, and no trouble ever after.
        let log = open(&disk);
        assert!(log.recovery().segments_missing.is_empty());
        assert_eq!(read_from(&log, 0, low).unwrap(), left);
    }
    let log = open(&disk_of(&whole));
    assert!(log.recovery().clean && log.recovery().segments_missing.is_empty());
    assert_eq!(earliest(&log, 0), low);
}
