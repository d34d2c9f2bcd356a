//! Turns do not allocate: places, wakers and chains are used again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::executor::block_on;
use procession::{ConsumerBuilder, Error};
use procession_memory::{MemoryLog, MemoryStore};

struct Counting;

thread_local! {
    /// Of this thread alone: the tests of a file run side by side.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "counts, and leaves everything to the system's allocator")]
// SAFETY: every call goes to `System` as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more, and nobody who asks.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Goal: no allocation per turn in steady state. Method: count those of the thread that runs
/// everything between two turns far apart; what is left belongs to the reads, a few a chunk.
#[test]
fn turns_do_not_allocate() {
    const FROM: u64 = 10_000;
    const TO: u64 = 50_000;
    let log = MemoryLog::new(1);
    block_on(support::fill(log.clone(), support::round_robin(100, 60_000)));
    let (turns, at_from, at_to) = (AtomicU64::new(0), Arc::default(), Arc::default());
    let (seen_from, seen_to): (Arc<AtomicU64>, Arc<AtomicU64>) =
        (Arc::clone(&at_from), Arc::clone(&at_to));
    let consumer = ConsumerBuilder::new("test", log, MemoryStore::new()).until_end();
    let run = consumer.run(move |_| {
        let now = ALLOCATIONS.with(Cell::get);
        match turns.fetch_add(1, Ordering::SeqCst) {
            FROM => at_from.store(now, Ordering::SeqCst),
            TO => at_to.store(now, Ordering::SeqCst),
            _ => {}
        }
        async { Ok::<_, Error>(()) }
    });
    block_on(run).unwrap();
    let counted = seen_to.load(Ordering::SeqCst) - seen_from.load(Ordering::SeqCst);
    println!("{counted} allocations in {} turns", TO - FROM);
    assert!(counted < (TO - FROM) / 100, "{counted} allocations in {} turns", TO - FROM);
}
