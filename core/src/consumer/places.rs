//! A fixed number of pinned places in which futures run, one after another, without allocating.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// What a panic left.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Places for futures, each with a label of what runs there.
pub(crate) struct Places<F, L> {
    places: Vec<Place<F, L>>,
    /// Places that were made and are empty.
    free: Vec<u32>,
    /// How many more may be made.
    unmade: usize,
    woken: Arc<Woken>,
    /// Taken from the woken list and not polled yet, last first.
    round: Vec<u32>,
}

struct Place<F, L> {
    future: Pin<Box<Option<F>>>,
    label: Option<L>,
    flag: Arc<PlaceWaker>,
    waker: Waker,
}

/// The places that were woken since the last look, and the task to wake for them.
struct Woken {
    list: Mutex<Vec<u32>>,
    task: AtomicWaker,
}

/// One place's persistent waker.
struct PlaceWaker {
    index: u32,
    listed: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for PlaceWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::SeqCst) {
            self.woken.lock().push(self.index);
            self.woken.task.wake();
        }
    }
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F, L> Places<F, L> {
    /// Places are made when they are first needed, so a high bound costs nothing.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            unmade: count.min(u32::MAX as usize),
            woken: Arc::new(Woken { list: Mutex::default(), task: AtomicWaker::new() }),
            round: Vec::new(),
        }
    }

    pub(crate) const fn free(&self) -> usize {
        self.free.len() + self.unmade
    }

    /// Who is woken when a place is.
    pub(crate) fn register(&self, task: &Waker) {
        self.woken.task.register(task);
    }

    /// Empties the places whose label answers true, dropping their futures where they stand.
    pub(crate) fn evict(&mut self, mut which: impl FnMut(&L) -> bool, mut out: impl FnMut(L)) {
        for index in 0..self.places.len() {
            let place = &mut self.places[index];
            if let Some(label) = place.label.take_if(|label| which(label)) {
                place.clear();
                self.free.push(index as u32);
                out(label);
            }
        }
    }
}

impl<F: Future, L> Places<F, L> {
    /// Puts a future into a free place and polls it once.
    ///
    /// # Panics
    /// If no place is free.
    pub(crate) fn start(&mut self, future: F, label: L) -> Option<(L, Result<F::Output, Panic>)> {
        let index = self.free.pop().unwrap_or_else(|| self.make());
        let place = &mut self.places[index as usize];
        place.future.set(Some(future));
        place.label = Some(label);
        self.poll_place(index)
    }

    fn make(&mut self) -> u32 {
        let unmade = self.unmade.checked_sub(1);
        self.unmade = unmade.expect("the caller checked that a place is free");
        let index = self.places.len() as u32;
        let listed = AtomicBool::new(false);
        let flag = Arc::new(PlaceWaker { index, listed, woken: Arc::clone(&self.woken) });
        let waker = Waker::from(Arc::clone(&flag));
        self.places.push(Place { future: Box::pin(None), label: None, flag, waker });
        index
    }

    /// Polls the next place that was woken, if there is one; hands over what ended.
    pub(crate) fn poll_woken(&mut self) -> Option<Option<(L, Result<F::Output, Panic>)>> {
        if self.round.is_empty() {
            std::mem::swap(&mut *self.woken.lock(), &mut self.round);
            // In the order of the wake-ups: the list is taken from its end.
            self.round.reverse();
        }
        let index = self.round.pop()?;
        Some(self.poll_place(index))
    }

    fn poll_place(&mut self, index: u32) -> Option<(L, Result<F::Output, Panic>)> {
        let place = &mut self.places[index as usize];
        // Before the poll: a wake-up that comes during it must be listed again.
        place.flag.listed.store(false, Ordering::SeqCst);
        let future = place.future.as_mut().as_pin_mut()?;
        let mut cx = Context::from_waker(&place.waker);
        let output = match catch_unwind(AssertUnwindSafe(|| future.poll(&mut cx))) {
            Ok(Poll::Pending) => return None,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(panic),
        };
        place.clear();
        self.free.push(index);
        place.label.take().map(|label| (label, output))
    }
}

impl<F, L> Drop for Places<F, L> {
    fn drop(&mut self) {
        // One by one: two destructors that panic in one go would abort the process.
        self.places.iter_mut().for_each(Place::clear);
    }
}

impl<F, L> Place<F, L> {
    fn clear(&mut self) {
        // A destructor may panic too; the place is empty afterwards all the same.
        let emptied = catch_unwind(AssertUnwindSafe(|| self.future.set(None)));
        if emptied.is_err() {
            self.future = Box::pin(None);
        }
    }
}
