//! The memory log with gaps: every offset three times as high, and two more. Nothing is wrong with
//! it, and the suite must say so.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use procession_conformance::{LogFactory, LogSetup};
use procession_core::{
    Appending, Batch, BoxFuture, Budget, Chunk, Error, ErrorKind, Log, LogInfo, Offset, OneOrMany,
    Outcome, Partition, Position, Receipt, Version, Want,
};
use procession_memory::MemoryLog;

/// A log whose records lie at offsets 2, 5, 8, …
pub(crate) struct Gaps(MemoryLog);

fn outer(inner: Offset) -> Offset {
    Offset::new(inner.get() * 3 + 2)
}

/// The lowest inner offset that is not below `outer`.
fn inner(outer: Offset) -> Offset {
    Offset::new(outer.get().saturating_sub(2).div_ceil(3))
}

/// Where inner records end, outer ones do too: right above the last one.
fn end(inner: Offset) -> Offset {
    Offset::new(inner.get() * 3)
}

#[async_trait]
impl Log for Gaps {
    fn info(&self) -> Arc<LogInfo> {
        self.0.info()
    }

    fn append(&self, batch: Batch) -> Appending {
        let outcomes = self.0.append(batch).now_or_never().expect("memory is ready at once");
        let outcomes = outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Stored(r) => {
                let offset = outer(r.offset);
                Outcome::Stored(Receipt::new(r.partition, offset, r.sequence, r.durability))
            }
            other => other,
        });
        Appending::ready(outcomes.collect::<OneOrMany<_>>())
    }

    async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        let ends = self.ends(Position::End).await?;
        let mut inner_wants = Vec::new();
        for want in wants {
            if ends.get(want.partition.get() as usize).is_some_and(|end| want.from > *end) {
                return Err(Error::new(ErrorKind::NotYetWritten, "read").at_offset(want.from));
            }
            inner_wants.push(Want { from: inner(want.from), ..*want });
        }
        let mut chunks = self.0.read(&inner_wants, max).await?;
        for chunk in &mut chunks {
            for stored in &mut chunk.records {
                stored.offset = outer(stored.offset);
            }
            chunk.next = end(chunk.next);
        }
        Ok(chunks)
    }

    async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> {
        Ok(self.0.ends(at).await?.into_iter().map(end).collect())
    }

    async fn changed(&self, seen: Version) -> Result<Version, Error> {
        self.0.changed(seen).await
    }
}

pub(crate) struct GapLogs;

impl LogFactory for GapLogs {
    fn create(&self, setup: LogSetup) -> BoxFuture<'_, Result<Arc<dyn Log>, Error>> {
        Box::pin(async move {
            let log = MemoryLog::builder().partitions(setup.partitions).build()?;
            Ok(Arc::new(Gaps(log)) as Arc<dyn Log>)
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
        None
    }
}
