//! No partition waits for another that is far behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::executor::block_on;
use procession::*;
use procession_memory::{MemoryLog, MemoryStore};

/// A log that serves one partition a read, the lowest that has anything. The contract allows it, and
/// the file log does it while one partition is far behind: its pass over the stream ends before it
/// gets to where the others read.
struct LowestFirst(MemoryLog);

#[async_trait]
impl Log for LowestFirst {
    fn info(&self) -> Arc<LogInfo> {
        self.0.info()
    }

    fn append(&self, batch: Batch) -> Appending {
        self.0.append(batch)
    }

    async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        // Reading takes a while: turns run meanwhile, so the window of the lowest is never used up.
        for _ in 0..16 {
            support::yield_once().await;
        }
        for want in wants {
            let chunks = self.0.read(&[*want], max).await?;
            if !chunks.is_empty() {
                return Ok(chunks);
            }
        }
        Ok(Vec::new())
    }

    async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> {
        self.0.ends(at).await
    }

    async fn changed(&self, seen: Version) -> Result<Version, Error> {
        self.0.changed(seen).await
    }
}

#[test]
fn a_partition_that_is_far_behind_delays_no_other() {
    const BACKLOG: usize = 50_000;
    let log = MemoryLog::builder().partitions(2).router(first_byte()).build().unwrap();
    block_on(support::fill(
        log.clone(),
        (0..BACKLOG).map(|n| (format!("0{}", n % 5000), "x".into())),
    ));
    block_on(support::fill(log.clone(), [("1".to_owned(), "x".to_owned())]));
    let behind = AtomicUsize::new(0);
    let before = Arc::new(AtomicUsize::new(usize::MAX));
    let seen = Arc::clone(&before);
    let consumer = ConsumerBuilder::new("s", LowestFirst(log), MemoryStore::new()).until_end();
    let summary = block_on(consumer.run(move |turn| {
        let count = behind.fetch_add(1, Ordering::SeqCst);
        if turn.partition().partition == Partition::new(1) {
            seen.store(count, Ordering::SeqCst);
        }
        async { Ok::<_, Error>(()) }
    }));
    assert_eq!(summary.unwrap().turns_done as usize, BACKLOG + 1);
    let before = before.load(Ordering::SeqCst);
    assert!(before < BACKLOG / 4, "the other partition waited for {before} records");
}

fn first_byte() -> impl Router {
    router("first byte", |group: &[u8], _| u32::from(group[0] - b'0'))
}
