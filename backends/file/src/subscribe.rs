//! From a log to its producers and consumers, in one call each; and what it knows of them.

use std::sync::Arc;

use futures::channel::oneshot;
use procession_core::{ConsumerBuilder, Error, ErrorKind, Producer};

use crate::FileLog;
use crate::progress::Request;
use crate::subscriptions::{SubscriptionState, Trimmed};

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
    /// log's own progress store. Consumers of one subscription that run at the same time are its
    /// members and share the partitions; see [`LocalMembership`](procession_core::LocalMembership).
    pub fn subscribe(&self, name: impl Into<Arc<str>>) -> ConsumerBuilder {
        ConsumerBuilder::new(name, self.clone(), self.store()).membership(self.membership())
    }

    /// Removes what retention lets go, now, and says who keeps what. It happens by itself too;
    /// without [`retain_bytes`](crate::OpenOptions::retain_bytes) or
    /// [`retain_for`](crate::OpenOptions::retain_for) nothing is removed.
    ///
    /// # Durability
    /// That a segment is removed is durable before its file goes. What a crash left of it goes at
    /// the next open.
    ///
    /// # Errors
    /// [`Poisoned`](ErrorKind::Poisoned) if the progress store stopped, [`Full`](ErrorKind::Full) if
    /// it has to grow and cannot, [`Closed`](ErrorKind::Closed), or what the system says to the removal of a file: the segment
    /// is gone all the same, its file goes at the next open.
    ///
    /// # Cancel safety
    /// Once polled it happens even if this is dropped.
    pub async fn trim(&self) -> Result<Trimmed, Error> {
        let (asker, answered) = oneshot::channel();
        self.shared().keeping.trim(asker);
        answered.await.unwrap_or_else(|_| {
            let operation = format!("trim log \"{}\"", self.shared().info.name);
            Err(Error::new(ErrorKind::Closed, operation))
        })
    }

    /// The subscriptions that have progress in this log, by name: how far they got, what they keep
    /// from being removed, who keeps the oldest segment.
    ///
    /// ```
    /// # use procession_core::*;
    /// # use procession_file::FileLog;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # futures::executor::block_on(async {
    /// # let log = FileLog::open(folder.path().join("permits")).segment_bytes(4 << 20).await?;
    /// log.producer().send(Record::new("case-10011", "submitted")).await?;
    /// log.subscribe("archive").until_end().run(|_| async { Ok::<_, Error>(()) }).await?;
    /// log.producer().send(Record::new("case-10011", "granted")).await?;
    /// let archive = &log.subscriptions().await?[0];
    /// assert_eq!((&*archive.name, archive.lag(), archive.live), ("archive", 1, false));
    /// log.remove_subscription("archive").await?;
    /// assert!(log.subscriptions().await?.is_empty());
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Poisoned`](ErrorKind::Poisoned) if the progress store stopped,
    /// [`Closed`](ErrorKind::Closed).
    pub async fn subscriptions(&self) -> Result<Vec<SubscriptionState>, Error> {
        let ends = self.shared().tail().ends.clone();
        let segments = self.shared().segments.all();
        self.store().ask(|answer| Request::Subscriptions(segments, ends, answer)).await
    }

    /// Forgets all progress of a subscription in this log: it keeps no segment any more. Its epoch
    /// stays as a floor, so members of its past stay fenced if it comes back.
    ///
    /// # Durability
    /// Synced when this returns.
    ///
    /// # Cancel safety
    /// Once polled it may happen even if this is dropped.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if it has no progress here,
    /// [`Locked`](ErrorKind::Locked) while it has a live member that joined through
    /// [`subscribe`](Self::subscribe) in this process, [`Poisoned`](ErrorKind::Poisoned) or
    /// [`Full`](ErrorKind::Full) if the progress store cannot write, [`Closed`](ErrorKind::Closed).
    pub async fn remove_subscription(&self, name: impl Into<Arc<str>>) -> Result<(), Error> {
        self.remove(name.into(), false).await
    }

    /// As [`remove_subscription`](Self::remove_subscription), even while it has a live member: the
    /// next commit of that member is refused, which ends its run with
    /// [`NotFound`](ErrorKind::NotFound). Turns that were running may end first.
    ///
    /// # Errors
    /// As there, without `Locked`.
    pub async fn remove_subscription_by_force(
        &self,
        name: impl Into<Arc<str>>,
    ) -> Result<(), Error> {
        self.remove(name.into(), true).await
    }

    async fn remove(&self, name: Arc<str>, force: bool) -> Result<(), Error> {
        self.store().ask(|answer| Request::Remove { name, force, answer }).await
    }
}
