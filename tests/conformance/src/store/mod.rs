//! The checks of an [`OffsetStore`], and what they need to make one.

mod claim;
mod commit;
mod keys;
mod tools;

use std::sync::Arc;

use procession_core::{BoxFuture, Error, OffsetStore};

pub use claim::*;
pub use commit::*;
pub use keys::*;

/// Makes the stores of a backend for the checks.
pub trait StoreFactory: Send + Sync {
    /// A new, empty store.
    ///
    /// # Errors
    /// If the store cannot be made: the check fails.
    fn create(&self) -> BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>>;

    /// The same store after a restart: `store` is the last handle the check held. `None` declares
    /// that it cannot be reopened.
    ///
    /// # Errors
    /// If the store cannot be opened: the check fails.
    fn reopen(
        &self,
        store: Arc<dyn OffsetStore>,
    ) -> Option<BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>>>;
}
