//! The runtime of those who have none: std threads and one timer thread for the whole process.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Instant, SystemTime};

use super::{BoxFuture, Runtime, Timer};

/// A [`Runtime`] of nothing but `std`: each spawned future gets a thread, and all timers of the
/// process share one timer thread, which starts at the first wait and sleeps until the next timer
/// is due.
///
/// # Panics
/// `spawn` and the first wait panic if the system refuses a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bare;

/// Polls a future to its end on this thread, asleep in between. Unlike that of `futures` it may be
/// nested: what runs in it may wait for other futures in the same way.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let parked = Arc::new(Parked { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&parked));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        // What is nested may have used up the token of a wake-up of ours, but not the flag.
        while !parked.woken.swap(false, Ordering::SeqCst) {
            thread::park();
        }
    }
}

struct Parked {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Runtime for Bare {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        thread::Builder::new()
            .name("procession-worker".to_owned())
            .spawn(move || block_on(task))
            .expect("the system gives a worker thread");
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(BareTimer { armed: None })
    }
}

/// Which alarm: its time, and a number that keeps equal times apart.
type AlarmId = (Instant, u64);

struct BareTimer {
    armed: Option<AlarmId>,
}

impl Timer for BareTimer {
    fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if at <= Instant::now() {
            self.disarm();
            return Poll::Ready(());
        }
        let clock = clock();
        let mut alarms = clock.lock();
        if let Some(id) = self.armed.take() {
            if id.0 == at
                && let Some(waker) = alarms.waiting.get_mut(&id)
            {
                waker.clone_from(cx.waker());
                self.armed = Some(id);
                return Poll::Pending;
            }
            alarms.waiting.remove(&id);
        }
        alarms.last += 1;
        let id = (at, alarms.last);
        alarms.waiting.insert(id, cx.waker().clone());
        self.armed = Some(id);
        if alarms.waiting.first_key_value().is_some_and(|(first, _)| *first == id) {
            drop(alarms);
            clock.sooner.notify_one();
        }
        Poll::Pending
    }
}

impl BareTimer {
    fn disarm(&mut self) {
        if let Some(id) = self.armed.take() {
            clock().lock().waiting.remove(&id);
        }
    }
}

impl Drop for BareTimer {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// All alarms of the process. Bounded by the number of live timers: each has at most one.
#[derive(Default)]
struct Alarms {
    waiting: BTreeMap<AlarmId, Waker>,
    last: u64,
}

#[derive(Default)]
struct Clock {
    alarms: Mutex<Alarms>,
    sooner: Condvar,
}

impl Clock {
    fn lock(&self) -> MutexGuard<'_, Alarms> {
        // Wakers are called outside the lock, so nothing of ours can poison it half-way.
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> ! {
        let mut due = Vec::new();
        let mut alarms = self.lock();
        loop {
            let now = Instant::now();
            while let Some(first) = alarms.waiting.first_entry() {
                if first.key().0 > now {
                    break;
                }
                due.push(first.remove());
            }
            if !due.is_empty() {
                drop(alarms);
                due.drain(..).for_each(Waker::wake);
                alarms = self.lock();
                continue;
            }
            alarms = match alarms.waiting.first_key_value() {
                None => self.sooner.wait(alarms).unwrap_or_else(PoisonError::into_inner),
                Some((first, _)) => {
                    let left = first.0.saturating_duration_since(now);
                    self.sooner.wait_timeout(alarms, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn clock() -> &'static Arc<Clock> {
    static CLOCK: OnceLock<Arc<Clock>> = OnceLock::new();
    CLOCK.get_or_init(|| {
        let clock = Arc::<Clock>::default();
        let run = Arc::clone(&clock);
        thread::Builder::new()
            .name("procession-timer".to_owned())
            .spawn(move || run.run())
            .expect("the system gives a timer thread");
        clock
    })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_fire_in_time_order_and_never_early() {
        let start = Instant::now();
        let after = |ms| {
            let mut timer = Bare.timer();
            let at = start + Duration::from_millis(ms);
            async move {
                poll_fn(|cx| timer.poll_at(at, cx)).await;
                assert!(Instant::now() >= at);
                ms
            }
        };
        let mut all: futures::stream::FuturesUnordered<_> =
            [30, 10, 20].map(after).into_iter().collect();
        let order = futures::executor::block_on(async {
            let mut order = Vec::new();
            while let Some(ms) = futures::StreamExt::next(&mut all).await {
                order.push(ms);
            }
            order
        });
        assert_eq!(order, [10, 20, 30]);
    }

    #[test]
    fn a_dropped_timer_leaves_no_alarm_behind() {
        let far = Instant::now() + Duration::from_secs(3600);
        let mut timer = BareTimer { armed: None };
        let waker = futures::task::noop_waker();
        assert!(timer.poll_at(far, &mut Context::from_waker(&waker)).is_pending());
        let id = timer.armed.expect("armed");
        assert!(clock().lock().waiting.contains_key(&id));
        drop(timer);
        assert!(!clock().lock().waiting.contains_key(&id));
    }
}
