//! The file log and its progress store pass the whole public suite.

use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use procession_conformance::{LogFactory, LogSetup, StoreFactory, log, log_suite, store_suite};
use procession_core::{
    Batch, BoxFuture, Epoch, Error, Key, Log, Offset, OffsetStore, Outcome, Partition, Record,
};
use procession_file::FileLog;
use tempfile::TempDir;

struct Folder {
    parent: TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { parent: tempfile::tempdir().expect("a temporary folder") }
    }

    async fn open(&self, setup: LogSetup) -> Result<FileLog, Error> {
        FileLog::open(self.parent.path().join("log"))
            .partitions(setup.partitions)
            .record_bytes_max(setup.record_bytes_max)
            .await
    }
}

impl LogFactory for Folder {
    fn create(&self, setup: LogSetup) -> BoxFuture<'_, Result<Arc<dyn Log>, Error>> {
        Box::pin(async move { Ok(Arc::new(self.open(setup).await?) as Arc<dyn Log>) })
    }

    fn reopen(&self, log: Arc<dyn Log>) -> Option<BoxFuture<'_, Result<Arc<dyn Log>, Error>>> {
        let info = log.info();
        let mut setup = LogSetup::default();
        setup.partitions = info.partitions.get();
        setup.record_bytes_max = info.record_bytes_max;
        drop(log);
        Some(LogFactory::create(self, setup))
    }

    fn trim(
        &self,
        _: &Arc<dyn Log>,
        _: Partition,
        _: Offset,
    ) -> Option<BoxFuture<'_, Result<(), Error>>> {
        None // Twenty small records are one segment, which is never removed: see `Small`.
    }
}

impl StoreFactory for Folder {
    fn create(&self) -> BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>> {
        Box::pin(async move {
            Ok(Arc::new(self.open(LogSetup::default()).await?.store()) as Arc<dyn OffsetStore>)
        })
    }

    fn reopen(
        &self,
        store: Arc<dyn OffsetStore>,
    ) -> Option<BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>>> {
        drop(store);
        Some(StoreFactory::create(self))
    }
}

log_suite!(Folder::new());
store_suite!(Folder::new());

/// Logs of tiny segments, the first of which is nearly full: the check's records begin in it and go
/// on in the next.
#[derive(Default)]
struct Small {
    parents: Mutex<Vec<TempDir>>,
    last: Mutex<Option<FileLog>>,
}

impl LogFactory for Small {
    fn create(&self, setup: LogSetup) -> BoxFuture<'_, Result<Arc<dyn Log>, Error>> {
        Box::pin(async move {
            let parent = tempfile::tempdir().expect("a temporary folder");
            let log = FileLog::open(parent.path().join("log"))
                .partitions(setup.partitions)
                .record_bytes_max(200)
                .round_bytes_max(400)
                .segment_bytes(8 << 10)
                .retain_bytes(0)
                .await?;
            // 3,612 of 4,096 bytes: four or five records of the check, and a mark, find room.
            let filler = (0..12).map(|_| (Partition::new(2), Record::new("f", vec![b'x'; 164])));
            let outcomes = log.append(Batch::many(filler)).await;
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored(_))));
            // Retention runs by itself: somebody must keep the records until they are trimmed.
            let (uuid, partition) = (log.info().uuid, Partition::new(0));
            let key = Key { subscription: "keeps".into(), log: uuid, partition };
            log.store().claim(&key, Epoch::FIRST, Some(Offset::ZERO)).await?;
            self.parents.lock().expect("one thread").push(parent);
            *self.last.lock().expect("one thread") = Some(log.clone());
            Ok(Arc::new(log) as Arc<dyn Log>)
        })
    }

    fn reopen(&self, _: Arc<dyn Log>) -> Option<BoxFuture<'_, Result<Arc<dyn Log>, Error>>> {
        None
    }

    fn trim(
        &self,
        _: &Arc<dyn Log>,
        _: Partition,
        _: Offset,
    ) -> Option<BoxFuture<'_, Result<(), Error>>> {
        Some(Box::pin(async move {
            let log = self.last.lock().expect("one thread").clone().expect("it was created");
            log.remove_subscription("keeps").await?;
            log.trim().await.map(drop)
        }))
    }
}

#[test]
fn reading_below_the_earliest_of_a_trimmed_log_is_trimmed() {
    block_on(log::reading_below_the_earliest_is_trimmed(&Small::default()));
}
