//! A virtual clock: tests that wait for minutes run in no time, and a lost wake-up is a panic
//! instead of a hang.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant, SystemTime};

use procession::{BoxFuture, Log, Record, Runtime, Timer};

/// A runtime of one thread whose time stands still while anything can run, and then jumps to the
/// next timer.
#[derive(Clone)]
pub struct Virtual(Arc<Mutex<World>>);

struct World {
    start: Instant,
    now: Instant,
    timers: BTreeMap<(Instant, u64), Waker>,
    timer_ids: u64,
    spawned: Vec<BoxFuture<'static, ()>>,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Virtual {
    pub fn new() -> Self {
        let start = Instant::now();
        let (timers, spawned) = (BTreeMap::new(), Vec::new());
        Self(Arc::new(Mutex::new(World { start, now: start, timers, timer_ids: 0, spawned })))
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        let world = self.0.lock().unwrap();
        world.now - world.start
    }

    pub async fn sleep(&self, duration: Duration) {
        let mut timer = self.timer();
        let at = self.now() + duration;
        poll_fn(|cx| timer.poll_at(at, cx)).await;
    }

    /// What a handler does that blocks its thread for so long.
    pub fn block(&self, duration: Duration) {
        self.0.lock().unwrap().now += duration;
    }

    /// Runs the future, and what it spawns, to its end. Panics if nothing can ever wake it.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut tasks: Vec<(BoxFuture<'static, ()>, Arc<Flag>)> = Vec::new();
        let main = Arc::new(Flag(AtomicBool::new(true)));
        loop {
            let mut moved = self.fire_due();
            if main.0.swap(false, Ordering::SeqCst) {
                moved = true;
                let waker = Waker::from(Arc::clone(&main));
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return value;
                }
            }
            for task in std::mem::take(&mut self.0.lock().unwrap().spawned) {
                tasks.push((task, Arc::new(Flag(AtomicBool::new(true)))));
            }
            tasks.retain_mut(|(task, flag)| {
                if !flag.0.swap(false, Ordering::SeqCst) {
                    return true;
                }
                moved = true;
                let waker = Waker::from(Arc::clone(flag));
                task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            });
            if !moved {
                self.jump();
            }
        }
    }

    /// Fires what a blocked thread kept from firing.
    fn fire_due(&self) -> bool {
        let mut due = Vec::new();
        {
            let mut world = self.0.lock().unwrap();
            let now = world.now;
            while let Some(first) = world.timers.first_entry() {
                if first.key().0 > now {
                    break;
                }
                due.push(first.remove());
            }
        }
        let any = !due.is_empty();
        due.into_iter().for_each(Waker::wake);
        any
    }

    fn jump(&self) {
        let waker = {
            let mut world = self.0.lock().unwrap();
            let ((at, _), waker) =
                world.timers.pop_first().expect("asleep for ever: nothing can wake this future");
            world.now = world.now.max(at);
            waker
        };
        waker.wake();
    }
}

impl Runtime for Virtual {
    fn now(&self) -> Instant {
        self.0.lock().unwrap().now
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.elapsed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().unwrap().spawned.push(task);
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(VirtualTimer { world: Arc::clone(&self.0), armed: None })
    }
}

struct VirtualTimer {
    world: Arc<Mutex<World>>,
    armed: Option<(Instant, u64)>,
}

impl Timer for VirtualTimer {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let mut world = self.world.lock().unwrap();
        if let Some(id) = self.armed.take() {
            world.timers.remove(&id);
        }
        if at <= world.now {
            return Poll::Ready(());
        }
        world.timer_ids += 1;
        let id = (at, world.timer_ids);
        world.timers.insert(id, cx.waker().clone());
        self.armed = Some(id);
        Poll::Pending
    }
}

impl Drop for VirtualTimer {
    fn drop(&mut self) {
        if let Some(id) = self.armed.take() {
            self.world.lock().unwrap().timers.remove(&id);
        }
    }
}

/// Appends `records` of (group, payload), in order.
pub async fn fill(log: impl Log + 'static, records: impl IntoIterator<Item = (String, String)>) {
    let producer = procession::Producer::new(log);
    let sends: Vec<_> = records
        .into_iter()
        .map(|(group, payload)| producer.send(Record::new(group, payload)))
        .collect();
    for sending in sends {
        sending.await.unwrap();
    }
}

/// `count` records over `groups` groups, in turn; payloads count up inside each group.
pub fn round_robin(groups: usize, count: usize) -> impl Iterator<Item = (String, String)> {
    (0..count).map(move |n| (format!("g{}", n % groups), (n / groups).to_string()))
}

/// What handlers did, in the order of effects.
#[derive(Clone, Default)]
pub struct Effects(Arc<Mutex<Vec<(String, u64)>>>);

impl Effects {
    pub fn add(&self, turn: &procession::Turn) {
        let stored = turn.record();
        let payload = stored.record.payload().unwrap();
        let number = std::str::from_utf8(payload).unwrap().parse().unwrap();
        self.0.lock().unwrap().push((turn.group().unwrap().to_string(), number));
    }

    pub fn all(&self) -> Vec<(String, u64)> {
        self.0.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Asserts that every group counts 0, 1, 2 … once repeats are dropped, up to `count` records
    /// in all; returns the number of repeats.
    pub fn assert_ordered_and_complete(&self, count: usize) -> usize {
        let mut next: BTreeMap<String, u64> = BTreeMap::new();
        let mut repeats = 0;
        for (group, number) in self.all() {
            let next = next.entry(group.clone()).or_default();
            assert!(number <= *next, "group {group}: {number} before {next}");
            if number < *next {
                repeats += 1;
            } else {
                *next += 1;
            }
        }
        assert_eq!(next.values().sum::<u64>() as usize, count, "records missing");
        repeats
    }
}

/// Polls once with a waker that does nothing.
pub fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&futures::task::noop_waker()))
}

/// Gives way once.
pub async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// What runs and what ran, over all members: panics at once if two turns of a group overlap or a
/// record runs before its predecessor is done.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<BTreeMap<String, Line>>>);

#[derive(Default)]
struct Line {
    running: bool,
    done: u64,
    repeats: usize,
}

/// A turn that runs, until it is dropped: ended or cut off, it runs no more.
pub struct Running {
    ledger: Ledger,
    group: String,
}

impl Ledger {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Line>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn begin(&self, turn: &procession::Turn) -> Running {
        let group = turn.group().unwrap().to_string();
        {
            let mut lines = self.lock();
            let line = lines.entry(group.clone()).or_default();
            assert!(!line.running, "two turns of {group} overlap");
            line.running = true;
        }
        Running { ledger: self.clone(), group }
    }

    pub fn repeats(&self) -> usize {
        self.lock().values().map(|line| line.repeats).sum()
    }

    pub fn done(&self) -> usize {
        self.lock().values().map(|line| line.done as usize).sum()
    }
}

impl Running {
    /// The effect of every record of the turn; payloads count 0, 1, 2 … inside a group.
    pub fn done(self, turn: &procession::Turn) {
        turn.records().iter().for_each(|stored| self.effect(stored));
    }

    pub fn effect(&self, stored: &procession::Stored) {
        let payload = stored.record.payload().unwrap();
        let number: u64 = std::str::from_utf8(payload).unwrap().parse().unwrap();
        let mut lines = self.ledger.lock();
        let line = lines.get_mut(&self.group).unwrap();
        assert!(number <= line.done, "group {}: {number} before {}", self.group, line.done);
        if number < line.done {
            line.repeats += 1;
        } else {
            line.done += 1;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(line) = self.ledger.lock().get_mut(&self.group) {
            line.running = false;
        }
    }
}

/// A number from the environment, for the long forms of tests.
pub fn scale(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}
