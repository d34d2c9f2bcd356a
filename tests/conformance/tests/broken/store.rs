//! An offset store, wrong in one way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use procession_conformance::StoreFactory;
use procession_core::{
    BoxFuture, Commit, Committed, Epoch, Error, ErrorKind, Key, Offset, OffsetStore, Partition,
    Progress,
};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreBug {
    None,
    StartsAtZero,
    TakesTheNewestStart,
    KeepsTheEpoch,
    IgnoresTheFloor,
    ForgetsDoneRanges,
    FencesNobody,
    StoresWhatItFences,
    CommitsWithoutAClaim,
    AnswersAllLikeTheFirst,
    IgnoresThePartition,
    ListsForgottenKeys,
    ForgetsTheEpoch,
    ForgetsOnReopen,
    WrapsEpochs,
}

type Entries = HashMap<Key, (Epoch, Option<Progress>)>;

#[derive(Clone)]
pub(crate) struct BrokenStore {
    entries: Arc<Mutex<Entries>>,
    bug: StoreBug,
}

impl BrokenStore {
    fn is(&self, bug: StoreBug) -> bool {
        self.bug == bug
    }

    fn key(&self, key: &Key) -> Key {
        let mut key = key.clone();
        if self.is(StoreBug::IgnoresThePartition) {
            key.partition = Partition::new(0);
        }
        key
    }

    fn answer(&self, entries: &mut Entries, commit: &Commit<'_>) -> Committed {
        let mut progress = commit.progress.clone();
        if self.is(StoreBug::ForgetsDoneRanges) {
            progress = Progress::at(progress.next);
        }
        let not_found = || Error::new(ErrorKind::NotFound, format!("commit {}", commit.key));
        let key = self.key(commit.key);
        if self.is(StoreBug::CommitsWithoutAClaim) && !entries.contains_key(&key) {
            entries.insert(key.clone(), (commit.epoch, Some(progress.clone())));
        }
        let Some((epoch, stored @ Some(_))) = entries.get_mut(&key) else {
            return Committed::Unknown(not_found());
        };
        let is_old = commit.epoch < *epoch && !self.is(StoreBug::FencesNobody);
        if !is_old || self.is(StoreBug::StoresWhatItFences) {
            *stored = Some(progress);
        }
        if is_old { Committed::Fenced(*epoch) } else { Committed::Done }
    }
}

#[async_trait]
impl OffsetStore for BrokenStore {
    async fn claim(
        &self,
        key: &Key,
        floor: Epoch,
        start: Option<Offset>,
    ) -> Result<Option<(Epoch, Progress)>, Error> {
        let (key, mut entries) = (self.key(key), self.entries.lock().expect("no panic here"));
        let zero = self.is(StoreBug::StartsAtZero).then_some(Offset::ZERO);
        let start = start.or(zero);
        let floor = if self.is(StoreBug::IgnoresTheFloor) { Epoch::FIRST } else { floor };
        let stored = entries.get(&key);
        let epoch = match stored {
            None => floor,
            Some((epoch, _)) if self.is(StoreBug::KeepsTheEpoch) => floor.max(*epoch),
            Some((epoch, _)) => match epoch.next() {
                Some(next) => floor.max(next),
                None if self.is(StoreBug::WrapsEpochs) => Epoch::FIRST,
                None => return Err(Error::new(ErrorKind::Exhausted, format!("claim {key}"))),
            },
        };
        let stored = stored.and_then(|(_, progress)| progress.clone());
        let stored = stored.filter(|_| start.is_none() || !self.is(StoreBug::TakesTheNewestStart));
        let Some(progress) = stored.or_else(|| start.map(Progress::at)) else { return Ok(None) };
        entries.insert(key, (epoch, Some(progress.clone())));
        Ok(Some((epoch, progress)))
    }

    async fn commit(&self, batch: &[Commit<'_>]) -> Result<Vec<Committed>, Error> {
        let mut entries = self.entries.lock().expect("no panic here");
        let mut answers: Vec<_> =
            batch.iter().map(|commit| self.answer(&mut entries, commit)).collect();
        if self.is(StoreBug::AnswersAllLikeTheFirst) && !answers.is_empty() {
            let first = answers[0].clone();
            answers.fill(first);
        }
        Ok(answers)
    }

    async fn list(&self) -> Result<Vec<Key>, Error> {
        let entries = self.entries.lock().expect("no panic here");
        let all = self.is(StoreBug::ListsForgottenKeys);
        let live = entries.iter().filter(|(_, (_, progress))| progress.is_some() || all);
        Ok(live.map(|(key, _)| key.clone()).collect())
    }

    async fn forget(&self, key: &Key) -> Result<(), Error> {
        let (key, mut entries) = (self.key(key), self.entries.lock().expect("no panic here"));
        if self.is(StoreBug::ForgetsTheEpoch) {
            entries.remove(&key);
        } else if let Some((_, progress)) = entries.get_mut(&key) {
            *progress = None;
        }
        Ok(())
    }
}

pub(crate) struct BrokenStores(BrokenStore);

impl BrokenStores {
    pub(crate) fn new(bug: StoreBug) -> Self {
        Self(BrokenStore { entries: Arc::default(), bug })
    }
}

impl StoreFactory for BrokenStores {
    fn create(&self) -> BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn OffsetStore>) })
    }

    fn reopen(
        &self,
        _: Arc<dyn OffsetStore>,
    ) -> Option<BoxFuture<'_, Result<Arc<dyn OffsetStore>, Error>>> {
        if self.0.is(StoreBug::ForgetsOnReopen) {
            self.0.entries.lock().expect("no panic here").clear();
        }
        Some(self.create())
    }
}
