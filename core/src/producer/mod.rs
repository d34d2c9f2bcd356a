//! Sending records into a log.

mod identity;
mod sending;
mod stock;

pub use identity::{Enlisted, IdentityBuilder, Stamp};
pub use sending::{SendError, Sending};

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use crate::log::{Batch, Durability, Log, LogInfo};
use crate::router::Router;
use crate::types::{OneOrMany, Partition, Record, Timestamp};
use crate::{AbsentKey, Error, ErrorKind};
use stock::Stock;

/// Sends records. Cheap to clone; clones share one bound of bytes in flight.
///
/// ```
/// # use procession_core::*;
/// # async fn f(log: std::sync::Arc<dyn Log>) -> Result<(), Box<dyn std::error::Error>> {
/// let producer = Producer::new(log);
/// // Many in flight: send first, await later.
/// let sends: Vec<_> = (0..3).map(|n| producer.send(Record::new("case-7", format!("{n}")))).collect();
/// for sending in sends {
///     let receipt = sending.await?;
///     println!("stored at {} and {}", receipt.offset, receipt.durability);
/// }
/// # Ok(()) }
/// ```
///
/// # Ordering
/// The order of the records is the order of the calls to [`send`](Self::send), however their
/// futures are polled. A refused record leaves no gap; what was sent after it is stored all the
/// same, so await receipts one by one where a later record must not stand without an earlier one.
///
/// # Durability
/// A receipt names the level the record has reached; by default the log's own (file: synced).
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
}

struct Shared {
    info: Arc<LogInfo>,
    stock: Arc<Stock>,
    absent_key: AbsentKey,
    durability: Option<Durability>,
    spread: AtomicU32,
    enlisted: Option<Enlisted>,
}

/// What a producer will be.
#[must_use = "a builder does nothing until it is built"]
pub struct ProducerBuilder {
    log: Arc<dyn Log>,
    absent_key: AbsentKey,
    durability: Option<Durability>,
    bytes_max: u64,
}

impl ProducerBuilder {
    /// What becomes of records without a key. Refused by default.
    pub const fn absent_key(mut self, policy: AbsentKey) -> Self {
        self.absent_key = policy;
        self
    }

    /// The level that receipts wait for. The log's own by default.
    pub const fn durability(mut self, level: Durability) -> Self {
        self.durability = Some(level);
        self
    }

    /// Bytes in flight (key + payload + headers, one byte a record at least) over all clones; 16 MiB
    /// by default. At the bound further sends wait for their turn, in the order of the calls. A
    /// single record larger than the bound is sent when nothing else is in flight.
    pub const fn bytes_in_flight_max(mut self, bytes: u64) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// Gives the producer an identity that outlives it: every record it sends is numbered, and a
    /// log that absorbs repeats stores each number once. Settings come before this. Only the last
    /// producer built with a name can send; it fences those before it.
    ///
    /// What this is for: an application that keeps its own *outbox*, a table of records to send
    /// with ascending row numbers. After a crash, or an outcome that nobody knows, it sends them
    /// again *with their original numbers*, and what was stored is not stored twice.
    ///
    /// ```
    /// # use procession_core::*;
    /// # use std::sync::Arc;
    /// # async fn f(log: Arc<dyn Log>, outbox: Vec<(u64, Record)>) -> Result<(), Box<dyn std::error::Error>> {
    /// let producer = Producer::builder(log).id("orders").build().await?;
    /// // All rows below this number are stored: they can be removed from the outbox.
    /// let next = producer.enlisted().map_or(0, |enlisted| enlisted.next);
    /// for (row, record) in outbox.into_iter().filter(|(row, _)| *row >= next) {
    ///     producer.send_as(row, record).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn id(self, name: impl Into<String>) -> IdentityBuilder {
        IdentityBuilder { producer: self, name: name.into() }
    }

    /// The producer.
    #[must_use]
    pub fn build(self) -> Producer {
        self.build_with(None)
    }

    fn build_with(self, enlisted: Option<Enlisted>) -> Producer {
        let Self { log, absent_key, durability, bytes_max } = self;
        let info = log.info();
        let stock = Stock::new(log, bytes_max);
        let spread = AtomicU32::new(0);
        let shared = Shared { info, stock, absent_key, durability, spread, enlisted };
        Producer { shared: Arc::new(shared) }
    }
}

impl Producer {
    /// A producer with the defaults.
    #[must_use]
    pub fn new(log: impl Log + 'static) -> Self {
        Self::builder(log).build()
    }

    /// A producer with settings.
    pub fn builder(log: impl Log + 'static) -> ProducerBuilder {
        ProducerBuilder {
            log: Arc::new(log),
            absent_key: AbsentKey::Reject,
            durability: None,
            bytes_max: 16 << 20,
        }
    }

    /// Sends one record. Its place in the order is taken at this call; the future resolves with
    /// the receipt.
    ///
    /// # Cancel safety
    /// Dropping the future before the record was queued (the bound was reached) means that it is
    /// not sent. Afterwards the record may be stored or not: its outcome is unknown to you.
    ///
    /// # Errors
    /// The future resolves with [`SendError`], which hands a refused record back.
    pub fn send(&self, record: Record) -> Sending {
        self.send_numbered(record, None)
    }

    /// Sends one record with this number: the caller's own ascending numbers, or, after an outcome
    /// that is not known, the number that [`SendError::number`] names. Needs an
    /// [identity](ProducerBuilder::id). A number that is stored already is absorbed: the future
    /// resolves with the receipt of the first time. [`Stamp`] says what else may become of it.
    ///
    /// # Ordering
    /// Numbers must come one by one: await, or send in order; one that comes too early is refused
    /// and handed back.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`Config`](ErrorKind::Config) without an identity.
    pub fn send_as(&self, number: u64, record: Record) -> Sending {
        match self.shared.enlisted {
            Some(_) => self.send_numbered(record, Some(number)),
            None => {
                let error = identity::without_identity(&self.shared.info.name);
                Sending::refused(SendError::refused(record, error))
            }
        }
    }

    /// What the log knew of this producer when it was built, if it has an identity.
    #[must_use]
    pub fn enlisted(&self) -> Option<Enlisted> {
        self.shared.enlisted
    }

    fn send_numbered(&self, record: Record, base: Option<u64>) -> Sending {
        let record = match record.timestamp() {
            Some(_) => record,
            None => record.with_timestamp(Timestamp::from(SystemTime::now())),
        };
        let partition = match self.partition(&record) {
            Ok(partition) => partition,
            Err(error) => return Sending::refused(SendError::refused(record, error)),
        };
        // One at least: what weighs nothing would be neither bounded nor waited for.
        let bytes = record.size_bytes().max(1) as u64;
        let records = OneOrMany::One((partition, record));
        let stamp =
            self.shared.enlisted.map(|e| Stamp { producer: e.producer, epoch: e.epoch, base });
        let batch = Batch { records, durability: self.shared.durability, stamp, permit: None };
        self.shared.stock.send(batch, bytes)
    }

    /// Resolves once nothing that was sent through this producer or a clone is in flight: every
    /// record has its outcome, which its own [`Sending`] tells. Sends that go on meanwhile are
    /// waited for too.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, nothing else.
    pub fn flush(&self) -> impl Future<Output = ()> + Send + use<> {
        let stock = Arc::clone(&self.shared.stock);
        async move { stock.settled().await }
    }

    fn partition(&self, record: &Record) -> Result<Partition, Error> {
        let Shared { info, absent_key, .. } = &*self.shared;
        let count = info.partitions;
        match (record.key(), absent_key) {
            (Some(key), _) => Ok(Partition::new(info.router.route(key.as_ref(), count))),
            (None, AbsentKey::Serial) => Ok(Partition::new(info.router.route(b"", count))),
            (None, AbsentKey::Spread) => {
                let turn = self.shared.spread.fetch_add(1, Ordering::Relaxed);
                Ok(Partition::new(turn % count.get()))
            }
            (None, AbsentKey::Reject) => {
                let operation = format!("send to log \"{}\"", info.name);
                Err(Error::new(ErrorKind::Unsupported, operation).with_hint(
                    "the record has no key; declare what becomes of such records with `absent_key`",
                ))
            }
        }
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("log", &self.shared.info.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for ProducerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProducerBuilder")
            .field("log", &self.log.info().name)
            .field("bytes_max", &self.bytes_max)
            .finish_non_exhaustive()
    }
}
