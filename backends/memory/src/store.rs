//! The offset store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use procession_core::{
    Commit, Committed, Epoch, Error, ErrorKind, Key, Offset, OffsetStore, Progress,
};

/// An offset store in memory. Clones are handles to the same store.
///
/// It keeps progress as bytes, as a real store does: whatever does not survive
/// [`Progress::to_bytes`] does not survive here.
///
/// Bounded by the keys that were ever claimed: subscriptions times partitions.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<HashMap<Key, Entry>>>);

#[derive(Debug)]
struct Entry {
    epoch: Epoch,
    /// `None` once it was forgotten: the epoch stays as a floor.
    progress: Option<Vec<u8>>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        // Nothing panics while it is held; were it so, the map would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl OffsetStore for MemoryStore {
    async fn claim(
        &self,
        key: &Key,
        floor: Epoch,
        start: Option<Offset>,
    ) -> Result<Option<(Epoch, Progress)>, Error> {
        let mut entries = self.lock();
        let (epoch, stored) = match entries.get(key) {
            None => (floor, None),
            Some(entry) => {
                let next = entry.epoch.next().ok_or_else(|| {
                    Error::new(ErrorKind::Exhausted, format!("claim {key}"))
                        .with_hint("no epoch is left")
                })?;
                (floor.max(next), entry.progress.as_deref())
            }
        };
        let progress = match (stored, start) {
            (Some(bytes), _) => Progress::from_bytes(bytes)?,
            (None, Some(start)) => Progress::at(start),
            (None, None) => return Ok(None),
        };
        let entry = Entry { epoch, progress: Some(progress.to_bytes()) };
        entries.insert(key.clone(), entry);
        Ok(Some((epoch, progress)))
    }

    async fn commit(&self, batch: &[Commit<'_>]) -> Result<Vec<Committed>, Error> {
        let mut entries = self.lock();
        let answer = |Commit { key, epoch, progress }: &Commit<'_>| match entries.get_mut(key) {
            Some(entry) if entry.progress.is_some() && *epoch < entry.epoch => {
                Committed::Fenced(entry.epoch)
            }
            Some(entry) if entry.progress.is_some() && *epoch == entry.epoch => {
                entry.progress = Some(progress.to_bytes());
                Committed::Done
            }
            _ => Committed::Unknown(
                Error::new(ErrorKind::NotFound, format!("commit {key}"))
                    .with_hint(format!("epoch {epoch} was never claimed, or was forgotten")),
            ),
        };
        Ok(batch.iter().map(answer).collect())
    }

    async fn list(&self) -> Result<Vec<Key>, Error> {
        let entries = self.lock();
        let live = entries.iter().filter(|(_, entry)| entry.progress.is_some());
        Ok(live.map(|(key, _)| key.clone()).collect())
    }

    async fn forget(&self, key: &Key) -> Result<(), Error> {
        if let Some(entry) = self.lock().get_mut(key) {
            entry.progress = None;
        }
        Ok(())
    }
}
