//! From a log to its producers and consumers, in one call each.

use std::sync::Arc;

use procession_core::{ConsumerBuilder, Producer};

use crate::FileLog;

impl FileLog {
    /// A producer with the defaults; [`Producer::builder`] has settings, and gives it an identity.
    ///
    /// With one, an application that keeps its records in a table until it knows that they are
    /// stored may send them again with their row numbers, also after a crash:
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("permits");
    /// use procession_core::{ErrorKind, Log, Position, Producer, Record};
    /// use procession_file::FileLog;
    /// # futures::executor::block_on(async {
    /// let rows = ["submitted", "checked", "granted"];
    /// let log = FileLog::open(&path).partitions(1).await?;
    /// let producer = Producer::builder(log.clone()).id("permit-office").build().await?;
    /// for (row, state) in rows.iter().enumerate().take(2) {
    ///     producer.send_as(row as u64, Record::new("case-10011", *state)).await?;
    /// }
    /// // Here the process is killed, before it could note that the second row is stored.
    /// # drop((producer, log));
    /// let log = FileLog::open(&path).partitions(1).await?;
    /// let producer = Producer::builder(log.clone()).id("permit-office").build().await?;
    /// for (row, state) in rows.iter().enumerate().skip(1) {
    ///     match producer.send_as(row as u64, Record::new("case-10011", *state)).await {
    ///         Ok(receipt) => println!("row {row} is stored at {}", receipt.offset),
    ///         // Stored too long ago for its receipt to be remembered.
    ///         Err(error) if error.kind() == ErrorKind::Repeated => println!("row {row} is stored"),
    ///         Err(error) => return Err(error.into()),
    ///     }
    /// }
    /// assert_eq!(log.ends(Position::End).await?[0].get(), 3, "each of them once");
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
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
