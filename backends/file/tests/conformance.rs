//! The file log and its progress store pass the whole public suite.

use std::sync::Arc;

use procession_conformance::{LogFactory, LogSetup, StoreFactory, log_suite, store_suite};
use procession_core::{BoxFuture, Error, Log, Offset, OffsetStore, Partition};
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
        None // It keeps everything, for now.
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
