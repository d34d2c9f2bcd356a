//! A log of your own, from outside the library: text files that people can read, one line a
//! record. It passes the public suite (`cargo test --example custom_backend`), so consumers and
//! producers work on it as on any other.
//!
//! `cargo run --example custom_backend`

mod line;
mod lines_log;

use std::error::Error;

use procession::{ConsumerBuilder, Producer, Record};
use procession_memory::MemoryStore;

use lines_log::LinesLog;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let log = LinesLog::open(folder.path(), 2, 1 << 20)?;
    futures::executor::block_on(async {
        let producer = Producer::new(log.clone());
        for (device, state) in [("pump-1", "on"), ("pump-2", "on"), ("pump-1", "off")] {
            producer.send(Record::new(device, state)).await?;
        }
        ConsumerBuilder::new("dashboard", log.clone(), MemoryStore::new())
            .until_end()
            .run(|turn| async move {
                println!("{:?} is {:?}", turn.group(), turn.record().record.payload());
                Ok::<_, std::io::Error>(())
            })
            .await?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use procession::{BoxFuture, Error, Log, Offset, Partition};
    use procession_conformance::{LogFactory, LogSetup, log_suite};
    use tempfile::TempDir;

    use super::LinesLog;

    struct Folders {
        folder: TempDir,
    }

    impl Folders {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().expect("a temporary folder") }
        }

        fn open(&self, setup: LogSetup) -> Result<Arc<dyn Log>, Error> {
            let log = LinesLog::open(self.folder.path(), setup.partitions, setup.record_bytes_max);
            Ok(Arc::new(log?))
        }
    }

    impl LogFactory for Folders {
        fn create(&self, setup: LogSetup) -> BoxFuture<'_, Result<Arc<dyn Log>, Error>> {
            Box::pin(async move { self.open(setup) })
        }

        fn reopen(&self, log: Arc<dyn Log>) -> Option<BoxFuture<'_, Result<Arc<dyn Log>, Error>>> {
            let info = log.info();
            let mut setup = LogSetup::default();
            setup.partitions = info.partitions.get();
            setup.record_bytes_max = info.record_bytes_max;
            drop(log);
            Some(Box::pin(async move { self.open(setup) }))
        }

        fn trim(
            &self,
            _: &Arc<dyn Log>,
            _: Partition,
            _: Offset,
        ) -> Option<BoxFuture<'_, Result<(), Error>>> {
            None // It keeps everything.
        }
    }

    log_suite!(Folders::new());
}
