//! What a log knows of its subscriptions, removing them, and forgetting those that nobody uses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::MemoryDisk;
use crate::{FileLog, SubscriptionState};

fn states(log: &FileLog) -> Vec<SubscriptionState> {
    block_on(log.subscriptions()).unwrap()
}

/// A run that holds its first record until it is told to go on.
struct Running {
    go: mpsc::Sender<()>,
    handle: Handle,
    run: thread::JoinHandle<Result<Summary, Error>>,
}

impl Running {
    fn start(log: &FileLog, name: &str) -> Self {
        let consumer = log
            .subscribe(name)
            .commit_every(Duration::from_millis(1))
            .concurrency(1)
            .until_end()
            .build()
            .unwrap();
        let handle = consumer.handle();
        let (go, wait) = mpsc::channel();
        let (begun, has_begun) = mpsc::channel();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let run = thread::spawn(move || {
            block_on(consumer.run(move |_: Turn| {
                let _ = begun.send(());
                let _ = wait.lock().unwrap().recv();
                async { Ok::<_, Error>(()) }
            }))
        });
        has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
        Self { go, handle, run }
    }

    fn end(self) -> Result<Summary, Error> {
        drop(self.go);
        block_on(self.handle.shutdown());
        self.run.join().unwrap()
    }
}

#[test]
fn subscriptions_say_how_far_they_are_and_who_keeps_the_oldest_segment() {
    let disk = MemoryDisk::new();
    let clock = Arc::new(TestClock::default());
    let log = options(&disk).clock(Arc::clone(&clock) as _).open_blocking().unwrap();
    assert!(states(&log).is_empty());
    let end = fill(&log, 0, "a", 4).len() as u64;
    stored(&log, 2, "b", "1");
    clock.wall.store(5000, Ordering::SeqCst);
    finish(&log, &key(&log, "ahead", 0), end, &[]);
    clock.wall.store(7000, Ordering::SeqCst);
    finish(&log, &key(&log, "behind", 0), 3, &[(5, 9), (10, 12)]);
    finish(&log, &key(&log, "behind", 2), 0, &[]);
    // Of another log: none of ours.
    let other = Key { log: LogUuid::from_u128(7), ..key(&log, "other", 0) };
    block_on(log.store().claim(&other, Epoch::FIRST, Some(Offset::ZERO))).unwrap();
    let check = |log: &FileLog| {
        let [ahead, behind] = &states(log)[..] else { panic!("{:?}", states(log)) };
        assert_eq!((&*ahead.name, ahead.lag(), ahead.pinned_bytes), ("ahead", 0, 0));
        assert_eq!((ahead.last_moved, ahead.pins_oldest), (Timestamp::from_millis(5000), false));
        assert_eq!((&*behind.name, behind.pins_oldest, behind.live), ("behind", true, false));
        assert_eq!(behind.pinned_bytes, 4 * (64 << 10));
        assert_eq!(behind.last_moved, Timestamp::from_millis(7000));
        let lag: Vec<_> = behind
            .partitions
            .iter()
            .map(|p| (p.partition.get(), p.next.get(), p.unfinished))
            .collect();
        assert_eq!(lag, [(0, 3, end - 3 - 4 - 2), (2, 0, 1)]);
        assert_eq!(behind.lag(), end - 8);
    };
    check(&log);
    block_on(log.close()).unwrap();
    // Also what moved when is durable.
    check(&open(&disk));
}

#[test]
fn a_subscription_with_a_live_member_is_locked_and_free_when_the_member_is_gone() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    stored(&log, 0, "a", "1");
    let unknown = block_on(log.remove_subscription("s")).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let running = Running::start(&log, "s");
    assert!(states(&log)[0].live);
    let error = block_on(log.remove_subscription("s")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("\"s\"") && error.to_string().contains("live member"));
    running.end().unwrap();
    assert!(!states(&log)[0].live);
    block_on(log.remove_subscription("s")).unwrap();
    assert!(states(&log).is_empty());
    crash(log, &disk, 3);
    let log = open(&disk);
    assert!(states(&log).is_empty());
    // Its epoch stays as a floor.
    let (epoch, progress) =
        block_on(log.store().claim(&key(&log, "s", 0), Epoch::FIRST, Some(Offset::ZERO)))
            .unwrap()
            .unwrap();
    assert_eq!((epoch.get(), progress.next), (2, Offset::ZERO));
}

#[test]
fn a_running_subscription_removed_by_force_fails_at_its_next_commit_and_stays_removed() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..3 {
        stored(&log, 0, "a", &i.to_string());
    }
    let running = Running::start(&log, "s");
    block_on(log.remove_subscription_by_force("s")).unwrap();
    let Running { go, run, handle } = running;
    drop(go);
    let error = run.join().unwrap().unwrap_err();
    drop(handle);
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("was removed"), "{error}");
    assert!(states(&log).is_empty(), "the commit did not bring it back");
    let summary = log.subscribe("s").until_end().run(|_| async { Ok::<_, Error>(()) });
    assert_eq!(block_on(summary).unwrap().turns_done, 3, "it begins anew");
}

#[test]
fn a_removed_subscription_keeps_nothing_any_more() {
    let disk = MemoryDisk::new();
    let log = options(&disk).retain_bytes(0).open_blocking().unwrap();
    finish(&log, &key(&log, "s", 0), 0, &[]);
    fill(&log, 0, "a", 4);
    assert_eq!(trim(&log).pinned_by.len(), 1);
    assert_eq!(segment_files(&disk).len(), 5);
    block_on(log.remove_subscription("s")).unwrap();
    assert!(trim(&log).pinned_by.is_empty());
    assert_eq!(segment_files(&disk).len(), 1);
}

/// Goal: a subscription that nobody uses is forgotten after its time, also across reopens, and one
/// with a live member never is. Method: a clock that the test moves, and trims in between.
#[test]
fn a_subscription_nobody_uses_is_forgotten_after_its_time_and_is_reported() {
    let disk = MemoryDisk::new();
    let clock = Arc::new(TestClock::default());
    let at = |millis: i64| clock.wall.store(1000 + millis, Ordering::SeqCst);
    at(0);
    let open = || {
        let options = options(&disk).retain_bytes(0).clock(Arc::clone(&clock) as _);
        options.expire_subscriptions_after(Duration::from_secs(80)).open_blocking().unwrap()
    };
    let log = open();
    finish(&log, &key(&log, "idle", 0), 0, &[]);
    fill(&log, 0, "a", 3);
    let running = Running::start(&log, "live");
    let names = |log: &FileLog| -> Vec<String> {
        states(log).iter().map(|state| state.name.to_string()).collect()
    };
    at(89_999);
    assert!(trim(&log).expired.is_empty());
    assert_eq!(names(&log), ["idle", "live"]);
    at(90_000);
    let trimmed = trim(&log);
    assert_eq!(trimmed.expired, ["idle".into()]);
    assert_eq!(names(&log), ["live"]);
    // The live one keeps what it has not finished, however long it takes.
    at(900_000);
    let trimmed = trim(&log);
    assert!(trimmed.expired.is_empty(), "reported once");
    assert_eq!(&*trimmed.pinned_by[0].subscription, "live");
    // The power goes while it lives. Its last sign of life is durable: it is not forgotten at once,
    // and a reopen does not begin its time again.
    disk.crash(1);
    assert!(running.end().is_err());
    drop(log);
    let log = open();
    at(989_999);
    assert!(trim(&log).expired.is_empty());
    at(990_001);
    trim(&log);
    assert!(names(&log).is_empty());
    assert!(block_on(log.store().list()).unwrap().is_empty());
}
