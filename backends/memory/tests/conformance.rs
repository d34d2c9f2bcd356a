//! The memory backend passes the whole suite.

use std::sync::{Arc, Mutex};

use procession_conformance::{LogFactory, LogSetup, StoreFactory, log_suite, store_suite};
use procession_core::{BoxFuture, Error, Log, Offset, OffsetStore, Partition};
use procession_memory::{MemoryLog, MemoryStore};

/// Keeps a handle of the log it made: that is all it takes to open it again, or to trim it.
#[derive(Default)]
struct Logs(Mutex<Option<MemoryLog>>);

impl Logs {
    fn kept(&self) -> MemoryLog {
        self.0.lock().expect("no panic here").clone().expect("a log was made")
    }
}

impl LogFactory for Logs {
    fn create(&self, setup: LogSetup) -> BoxFuture<'_, Result<Arc<dyn Log>, Error>> {
        Box::pin(async move {
            let log = MemoryLog::builder()
                .partitions(setup.partitions)
                .record_bytes_max(setup.record_bytes_max)
                .build()?;
            *self.0.lock().expect("no panic here") = Some(log.clone());
            Ok(Arc::new(log) as Arc<dyn Log>)
        })
    }

    fn reopen(&self, log: Arc<dyn Log>) -> Option<BoxFuture<'_, Result<Arc<dyn Log>, Error>>> {
        drop(log);
        Some(Box::pin(async { Ok(Arc::new(self.kept()) as Arc<dyn Log>) }))
    }

    fn trim(
        &self,
        _: &Arc<dyn Log>,
        partition: Partition,
        offset: Offset,
    ) -> Option<BoxFuture<'_, Result<(), Error>>> {
        Some(Box::pin(async move { self.kept().trim(partition, offset) }))
    }
}

#[derive(Default)]
struct Stores(MemoryStore);

impl StoreFactory for Stores {
    fn create(&self) -> BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn OffsetStore>) })
    }

    fn reopen(
        &self,
        store: Arc<dyn OffsetStore>,
    ) -> Option<BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>>> {
        drop(store);
        Some(self.create())
    }
}

log_suite!(Logs::default());
store_suite!(Stores::default());
