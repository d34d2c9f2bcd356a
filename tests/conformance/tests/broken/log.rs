//! The memory log, wrong in one way.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::FutureExt;
use procession_conformance::{LogFactory, LogSetup};
use procession_core::{
    Appending, Batch, BoxFuture, Budget, Chunk, Error, ErrorKind, Log, LogInfo, Offset, OneOrMany,
    Outcome, Partition, Position, Receipt, Receipts, Record, Sequence, Timestamp, Version, Want,
};
use procession_memory::MemoryLog;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogBug {
    None,
    ReordersBatches,
    AppendsWhenPolled,
    AnswersWithLess,
    TakesAbsentForEmpty,
    ReadsFromTheStart,
    IgnoresBudgets,
    NextSkipsRecords,
    EmptyBeyondTheEnd,
    EndIsTheLastRecord,
    ForgetsWhatWasSeen,
    NeverWakes,
    WrapsPartitions,
    TakesOversizeRecords,
    SequencesAreOffsets,
    LogTimeFalls,
    ForgetsOnReopen,
    KeepsPermits,
    EmptyBelowTheEarliest,
}

#[derive(Clone)]
pub(crate) struct BrokenLog {
    log: MemoryLog,
    bug: LogBug,
}

impl BrokenLog {
    fn is(&self, bug: LogBug) -> bool {
        self.bug == bug
    }

    fn edit(&self, mut chunk: Chunk) -> Chunk {
        for stored in &mut chunk.records {
            match self.bug {
                LogBug::SequencesAreOffsets => {
                    stored.sequence = Some(Sequence::new(stored.offset.get()));
                }
                LogBug::LogTimeFalls => {
                    stored.log_time = Timestamp::from_millis(-(stored.offset.get() as i64));
                }
                LogBug::TakesAbsentForEmpty => {
                    let record = &stored.record;
                    let payload = Some(record.payload().cloned().unwrap_or_default());
                    let (key, headers) = (record.key().cloned(), record.headers().clone());
                    stored.record = Record::from_parts(key, payload, headers, record.timestamp());
                }
                _ => {}
            }
        }
        chunk
    }
}

/// An append that happens when its future is polled.
struct Lazy(MemoryLog, Mutex<Option<Batch>>);

impl Receipts for Lazy {
    fn poll(&self, _: u32, _: u32, cx: &mut Context<'_>) -> Poll<OneOrMany<Outcome>> {
        let batch = self.1.lock().expect("no panic here").take().expect("polled once");
        self.0.append(batch).poll_unpin(cx)
    }
}

fn edited(appending: Appending, edit: impl Fn(Receipt) -> Receipt) -> Appending {
    let outcomes = appending.now_or_never().expect("memory is ready at once");
    let outcomes = outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Stored(receipt) => Outcome::Stored(edit(receipt)),
        other => other,
    });
    Appending::ready(outcomes.collect::<OneOrMany<_>>())
}

#[async_trait]
impl Log for BrokenLog {
    fn info(&self) -> Arc<LogInfo> {
        let mut info = (*self.log.info()).clone();
        if self.is(LogBug::TakesOversizeRecords) {
            info.record_bytes_max /= 2;
        }
        Arc::new(info)
    }

    fn append(&self, mut batch: Batch) -> Appending {
        match self.bug {
            LogBug::ReordersBatches => {
                let mut records: Vec<_> = batch.records.into_iter().collect();
                records.reverse();
                batch.records = records.into_iter().collect();
                self.log.append(batch)
            }
            LogBug::AppendsWhenPolled => {
                let count = batch.records.len() as u32;
                let lazy = Lazy(self.log.clone(), Mutex::new(Some(batch)));
                Appending::waiting(Arc::new(lazy), 0, count)
            }
            LogBug::AnswersWithLess => {
                batch.durability = None;
                self.log.append(batch)
            }
            LogBug::WrapsPartitions => {
                let count = self.log.info().partitions.get();
                let wrap =
                    |(p, record): (Partition, Record)| (Partition::new(p.get() % count), record);
                batch.records = batch.records.into_iter().map(wrap).collect();
                self.log.append(batch)
            }
            LogBug::SequencesAreOffsets => edited(self.log.append(batch), |receipt| {
                let sequence = Some(Sequence::new(receipt.offset.get()));
                Receipt::new(receipt.partition, receipt.offset, sequence, receipt.durability)
            }),
            LogBug::KeepsPermits => {
                std::mem::forget(batch.permit.take());
                self.log.append(batch)
            }
            _ => self.log.append(batch),
        }
    }

    async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        let mut wants = wants.to_vec();
        let mut max = max;
        for want in &mut wants {
            if self.is(LogBug::ReadsFromTheStart) {
                want.from = Offset::ZERO;
            }
            if self.is(LogBug::IgnoresBudgets) {
                (want.max, max) = (Budget::MAX, Budget::MAX);
            }
        }
        let mut chunks = match self.log.read(&wants, max).await {
            Err(error)
                if self.is(LogBug::EmptyBeyondTheEnd)
                    && error.kind() == ErrorKind::NotYetWritten
                    || self.is(LogBug::EmptyBelowTheEarliest)
                        && error.kind() == ErrorKind::Trimmed =>
            {
                Vec::new()
            }
            other => other?,
        };
        if self.is(LogBug::NextSkipsRecords) {
            let ends = self.log.ends(Position::End).await?;
            for chunk in &mut chunks {
                chunk.next = ends[chunk.partition.get() as usize];
            }
        }
        Ok(chunks.into_iter().map(|chunk| self.edit(chunk)).collect())
    }

    async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> {
        let ends = self.log.ends(at).await?;
        if self.is(LogBug::EndIsTheLastRecord) && at == Position::End {
            let last = |end: Offset| Offset::new(end.get().saturating_sub(1));
            return Ok(ends.into_iter().map(last).collect());
        }
        Ok(ends)
    }

    async fn changed(&self, seen: Version) -> Result<Version, Error> {
        match self.bug {
            LogBug::ForgetsWhatWasSeen if seen != Version::NEVER => {
                let now = self.log.changed(Version::NEVER).await?;
                self.log.changed(now).await
            }
            LogBug::NeverWakes => match self.log.changed(seen).now_or_never() {
                Some(changed) => changed,
                None => std::future::pending().await,
            },
            _ => self.log.changed(seen).await,
        }
    }
}

/// Makes broken logs, and keeps the last one.
pub(crate) struct BrokenLogs(LogBug, Mutex<Option<BrokenLog>>);

impl BrokenLogs {
    pub(crate) fn new(bug: LogBug) -> Self {
        Self(bug, Mutex::new(None))
    }

    fn kept(&self) -> BrokenLog {
        self.1.lock().expect("no panic here").clone().expect("a log was made")
    }
}

impl LogFactory for BrokenLogs {
    fn create(&self, setup: LogSetup) -> BoxFuture<'_, Result<Arc<dyn Log>, Error>> {
        Box::pin(async move {
            let log = MemoryLog::builder()
                .partitions(setup.partitions)
                .record_bytes_max(setup.record_bytes_max)
                .build()?;
            let log = BrokenLog { log, bug: self.0 };
            *self.1.lock().expect("no panic here") = Some(log.clone());
            Ok(Arc::new(log) as Arc<dyn Log>)
        })
    }

    fn reopen(&self, log: Arc<dyn Log>) -> Option<BoxFuture<'_, Result<Arc<dyn Log>, Error>>> {
        drop(log);
        if self.0 == LogBug::ForgetsOnReopen {
            return Some(self.create(LogSetup::default()));
        }
        Some(Box::pin(async { Ok(Arc::new(self.kept()) as Arc<dyn Log>) }))
    }

    fn trim(
        &self,
        _: &Arc<dyn Log>,
        partition: Partition,
        offset: Offset,
    ) -> Option<BoxFuture<'_, Result<(), Error>>> {
        Some(Box::pin(async move { self.kept().log.trim(partition, offset) }))
    }
}
