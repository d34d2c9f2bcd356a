//! From a log to its producers and consumers, in one call each.

use std::sync::Arc;

use procession_core::{ConsumerBuilder, Producer};

use crate::FileLog;

impl FileLog {
    /// A producer with the defaults; [`Producer::builder`] has settings.
    #[must_use]
    pub fn producer(&self) -> Producer {
        Producer::new(self.clone())
    }

    /// A consumer of the subscription `name`: an independent position over this log, kept in the
    /// log's own progress store. A subscription has one live member at a time; a second one is
    /// refused when it is run.
    pub fn subscribe(&self, name: impl Into<Arc<str>>) -> ConsumerBuilder {
        ConsumerBuilder::new(name, self.clone(), self.store()).membership(self.membership())
    }
}
