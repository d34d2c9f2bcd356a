//! The store as users see it, and the worker behind it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::channel::oneshot;
use procession_core::{
    Commit, Committed, Epoch, Error, ErrorKind, Key, Offset, OffsetStore, Progress,
};

use super::file::{Entries, Files, Known};
use crate::errors::{is_full, poisoned, system};
use crate::log::FileLog;
use crate::worker::{Bell, Pace, Worker};

/// The progress store in the folder of a [`FileLog`].
///
/// It keeps the progress of any subscription, for this log and for others. Cheap to clone; a clone
/// keeps the log open.
///
/// # Durability
/// Claims, commits and forgetting are synced before they are answered; what comes in while a sync
/// runs shares the next one.
///
/// # Cancel safety
/// A dropped call may or may not have happened; all of them may be repeated.
#[derive(Clone)]
pub struct FileStore {
    log: FileLog,
}

impl FileStore {
    pub(crate) const fn new(log: FileLog) -> Self {
        Self { log }
    }

    /// A file of a store that holds what this one holds now.
    pub(crate) async fn image(&self) -> Result<Vec<u8>, Error> {
        self.ask(Request::Image).await
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.log.filing().add(request(answer));
        answered.await.unwrap_or_else(|_| {
            let operation = format!("use the progress store of \"{}\"", self.log.path().display());
            Err(Error::new(ErrorKind::Closed, operation))
        })
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").field("path", &self.log.path()).finish()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl OffsetStore for FileStore {
    async fn claim(
        &self,
        key: &Key,
        floor: Epoch,
        start: Option<Offset>,
    ) -> Result<Option<(Epoch, Progress)>, Error> {
        self.ask(|answer| Request::Claim(key.clone(), floor, start, answer)).await
    }

    async fn commit(&self, batch: &[Commit<'_>]) -> Result<Vec<Committed>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let items = batch
            .iter()
            .map(|commit| (commit.key.clone(), commit.epoch, commit.progress.to_bytes().into()))
            .collect();
        self.ask(|answer| Request::Commit(items, answer)).await
    }

    async fn list(&self) -> Result<Vec<Key>, Error> {
        self.ask(Request::List).await
    }

    async fn forget(&self, key: &Key) -> Result<(), Error> {
        self.ask(|answer| Request::Forget(key.clone(), answer)).await
    }
}

type Answer<T> = oneshot::Sender<Result<T, Error>>;

#[derive(Debug)]
pub(crate) enum Request {
    Claim(Key, Epoch, Option<Offset>, Answer<Option<(Epoch, Progress)>>),
    Commit(Vec<(Key, Epoch, Bytes)>, Answer<Vec<Committed>>),
    List(Answer<Vec<Key>>),
    Forget(Key, Answer<()>),
    Image(Answer<Vec<u8>>),
}

/// Requests on their way to the worker.
#[derive(Debug, Default)]
pub(crate) struct Filing {
    queue: Mutex<(VecDeque<Request>, bool)>,
    pub(crate) bell: Bell,
}

impl Filing {
    /// Asks. Once closed the request is dropped, and its answer with it.
    fn add(&self, request: Request) {
        {
            let mut queue = self.queue();
            if queue.1 {
                return;
            }
            queue.0.push_back(request);
        }
        self.bell.ring();
    }

    pub(crate) fn close(&self) {
        self.queue().1 = true;
        self.bell.ring();
    }

    fn queue(&self) -> MutexGuard<'_, (VecDeque<Request>, bool)> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The worker: takes everything that came in, decides, writes, syncs once, answers.
pub(crate) struct Desk {
    filing: Arc<Filing>,
    files: Files,
    entries: Entries,
    dead: Option<Error>,
}

/// An answer that waits for the sync.
enum Decided {
    Claim(Answer<Option<(Epoch, Progress)>>, Option<(Epoch, Progress)>),
    Commit(Answer<Vec<Committed>>, Vec<Committed>),
    Forget(Answer<()>),
}

impl Desk {
    /// Opens the store of a log.
    pub(crate) fn open(
        folder: &crate::segments::Folder,
        log: u128,
        begun: bool,
        skip_corruption: bool,
        filing: Arc<Filing>,
    ) -> Result<Self, Error> {
        let (files, entries) = Files::open(folder, log, begun, skip_corruption)?;
        Ok(Self { filing, files, entries, dead: None })
    }

    /// One above every offset that any progress in this log names, by partition.
    pub(crate) fn floors(&self, log: u128, partitions: usize) -> Result<Vec<u64>, Error> {
        let mut floors = vec![0; partitions];
        for (key, known) in &self.entries {
            let Some(bytes) = &known.progress else { continue };
            if key.log.as_u128() == log
                && let Some(floor) = floors.get_mut(key.partition.get() as usize)
            {
                let progress = Progress::from_bytes(bytes)?;
                *floor = (*floor).max(progress.end().get());
            }
        }
        Ok(floors)
    }

    fn serve(&mut self, requests: VecDeque<Request>) {
        // What the batch changes lies on top until it is durable.
        let mut staged: HashMap<Key, Known> = HashMap::new();
        let mut decided = Vec::new();
        for request in requests {
            match request {
                Request::List(answer) => {
                    let keys = self.entries.iter().filter(|(_, known)| known.progress.is_some());
                    let _ = answer.send(Ok(keys.map(|(key, _)| key.clone()).collect()));
                }
                Request::Image(answer) => drop(answer.send(Ok(self.files.image(&self.entries)))),
                Request::Claim(key, floor, start, answer) => {
                    match claim(self.known(&staged, &key), &key, floor, start) {
                        Err(error) => drop(answer.send(Err(error))),
                        Ok(None) => drop(answer.send(Ok(None))),
                        Ok(Some((known, epoch, progress))) => {
                            staged.insert(key, known);
                            decided.push(Decided::Claim(answer, Some((epoch, progress))));
                        }
                    }
                }
                Request::Commit(items, answer) => {
                    let outcomes = items
                        .into_iter()
                        .map(|(key, epoch, bytes)| {
                            let outcome = judge(self.known(&staged, &key), &key, epoch);
                            if matches!(outcome, Committed::Done) {
                                let known = Known { epoch: epoch.get(), progress: Some(bytes) };
                                staged.insert(key, known);
                            }
                            outcome
                        })
                        .collect();
                    decided.push(Decided::Commit(answer, outcomes));
                }
                Request::Forget(key, answer) => {
                    if let Some(known) = self.known(&staged, &key) {
                        let known = Known { epoch: known.epoch, progress: None };
                        staged.insert(key, known);
                    }
                    decided.push(Decided::Forget(answer));
                }
            }
        }
        match self.write(&staged) {
            Ok(()) => {
                self.entries.extend(staged);
                decided.into_iter().for_each(Decided::answer);
            }
            Err(error) => {
                let unclear = error.kind() == ErrorKind::Poisoned;
                decided.into_iter().for_each(|decided| decided.fail(&error, unclear));
                if unclear {
                    self.dead = Some(error);
                }
            }
        }
    }

    fn known<'a>(&'a self, staged: &'a HashMap<Key, Known>, key: &Key) -> Option<&'a Known> {
        staged.get(key).or_else(|| self.entries.get(key))
    }

    fn write(&mut self, staged: &HashMap<Key, Known>) -> Result<(), Error> {
        const OPERATION: &str = "write to the progress store";
        if staged.is_empty() {
            return Ok(());
        }
        let bytes = staged.iter().map(|(key, known)| Files::length(key, known)).sum();
        if let Err(e) = self.files.room(&self.entries, bytes) {
            let path = self.files.path();
            return Err(if is_full(&e) {
                system(OPERATION, path, e)
            } else {
                poisoned(OPERATION, path, e)
            });
        }
        self.files.append(staged.iter()).map_err(|e| poisoned(OPERATION, self.files.path(), e))
    }
}

/// The entry after a claim, or `None` for a new key without a start.
fn claim(
    known: Option<&Known>,
    key: &Key,
    floor: Epoch,
    start: Option<Offset>,
) -> Result<Option<(Known, Epoch, Progress)>, Error> {
    let progress = match known.and_then(|known| known.progress.as_ref()) {
        Some(bytes) => Progress::from_bytes(bytes)?,
        None => match start {
            Some(start) => Progress::at(start),
            None => return Ok(None),
        },
    };
    let above = known.map_or(1, |known| known.epoch + 1);
    let Some(epoch) = Epoch::new(above.max(floor.get())) else {
        return Err(Error::new(ErrorKind::Exhausted, format!("claim {key}"))
            .with_hint("the epochs of this key are used up"));
    };
    let bytes = progress.to_bytes().into();
    Ok(Some((Known { epoch: epoch.get(), progress: Some(bytes) }, epoch, progress)))
}

fn judge(known: Option<&Known>, key: &Key, epoch: Epoch) -> Committed {
    match known {
        Some(known) if epoch.get() < known.epoch => match Epoch::new(known.epoch) {
            Some(newer) => Committed::Fenced(newer),
            None => Committed::Fenced(Epoch::LAST),
        },
        Some(known) if epoch.get() == known.epoch && known.progress.is_some() => Committed::Done,
        _ => Committed::Unknown(
            Error::new(ErrorKind::NotFound, format!("commit progress of {key}"))
                .with_hint(format!("there is no claim of epoch {epoch}; claim it first")),
        ),
    }
}

impl Decided {
    fn answer(self) {
        // Whoever asked may be gone; that is no concern of ours.
        match self {
            Self::Claim(answer, claimed) => drop(answer.send(Ok(claimed))),
            Self::Commit(answer, outcomes) => drop(answer.send(Ok(outcomes))),
            Self::Forget(answer) => drop(answer.send(Ok(()))),
        }
    }

    fn fail(self, error: &Error, unclear: bool) {
        match self {
            Self::Claim(answer, _) => drop(answer.send(Err(error.clone()))),
            Self::Forget(answer) => drop(answer.send(Err(error.clone()))),
            Self::Commit(answer, outcomes) if unclear => {
                let each = outcomes.into_iter().map(|outcome| match outcome {
                    Committed::Done => Committed::Unknown(error.clone()),
                    other => other,
                });
                drop(answer.send(Ok(each.collect())));
            }
            Self::Commit(answer, _) => drop(answer.send(Err(error.clone()))),
        }
    }
}

impl Worker for Desk {
    fn step(&mut self) -> Pace {
        let (requests, closed) = {
            let mut queue = self.filing.queue();
            (std::mem::take(&mut queue.0), queue.1)
        };
        if !requests.is_empty() {
            match &self.dead {
                Some(error) => requests.into_iter().for_each(|request| request.fail(error)),
                None => self.serve(requests),
            }
            return Pace::More;
        }
        if closed {
            if self.dead.is_none() {
                // Without the mark the next open only proves less.
                let _ = self.files.close(&self.entries);
            }
            return Pace::Stop;
        }
        Pace::Idle(None)
    }
}

impl Request {
    fn fail(self, error: &Error) {
        let error = error.clone();
        match self {
            Self::Claim(_, _, _, answer) => drop(answer.send(Err(error))),
            Self::Commit(_, answer) => drop(answer.send(Err(error))),
            Self::List(answer) => drop(answer.send(Err(error))),
            Self::Forget(_, answer) => drop(answer.send(Err(error))),
            Self::Image(answer) => drop(answer.send(Err(error))),
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}
