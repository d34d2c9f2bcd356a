//! The public suite.

use std::sync::Arc;

use procession::{BoxFuture, Error, OffsetStore};
use procession_conformance::{StoreFactory, store_suite};
use tempfile::TempDir;

use crate::store::SqliteStore;

struct Databases {
    folder: TempDir,
}

impl StoreFactory for Databases {
    fn create(&self) -> BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>> {
        Box::pin(async move {
            let store = SqliteStore::open(self.folder.path().join("bank.db")).await?;
            Ok(Arc::new(store) as Arc<dyn OffsetStore>)
        })
    }

    fn reopen(
        &self,
        store: Arc<dyn OffsetStore>,
    ) -> Option<BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>>> {
        drop(store);
        Some(self.create())
    }
}

store_suite!(Databases { folder: tempfile::tempdir().unwrap() });
