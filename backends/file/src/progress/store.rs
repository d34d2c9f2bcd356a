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

use super::care::{self, Care};
use super::file::{Contents, Files, Known};
use crate::errors::{is_full, poisoned, system};
use crate::log::FileLog;
use crate::retention::Decision;
use crate::segments::Segment;
use crate::subscriptions::SubscriptionState;
use crate::trims::Trims;
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

    /// A file of a store that holds what this one holds now, and the removed segments it names.
    pub(crate) async fn image(&self) -> Result<(Vec<u8>, Trims), Error> {
        self.ask(Request::Image).await
    }

    /// Asks the worker behind the store.
    pub(crate) async fn ask<T>(
        &self,
        request: impl FnOnce(Answer<T>) -> Request,
    ) -> Result<T, Error> {
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

pub(crate) type Answer<T> = oneshot::Sender<Result<T, Error>>;

pub(crate) enum Request {
    Claim(Key, Epoch, Option<Offset>, Answer<Option<(Epoch, Progress)>>),
    Commit(Vec<(Key, Epoch, Bytes)>, Answer<Vec<Committed>>),
    List(Answer<Vec<Key>>),
    Forget(Key, Answer<()>),
    /// Decide what may go of these segments, and note it; then call back.
    Trim(Arc<Vec<Arc<Segment>>>, Decide),
    /// The state of every subscription, with these ends.
    Subscriptions(Arc<Vec<Arc<Segment>>>, Vec<u64>, Answer<Vec<SubscriptionState>>),
    /// Forget all progress of a subscription; by force even if it has a live member.
    Remove {
        name: Arc<str>,
        force: bool,
        answer: Answer<()>,
    },
    Image(Answer<(Vec<u8>, Trims)>),
}

/// Told what was decided, and which subscriptions expired, once that is durable.
pub(crate) type Decide = Box<dyn FnOnce(Result<(Decision, Vec<Arc<str>>), Error>) + Send>;

/// Requests on their way to the worker.
#[derive(Default)]
pub(crate) struct Filing {
    queue: Mutex<(VecDeque<Request>, bool)>,
    pub(crate) bell: Bell,
}

impl Filing {
    /// Asks. Once closed the request is dropped, and its answer with it.
    pub(crate) fn add(&self, request: Request) {
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
    contents: Contents,
    care: Care,
    dead: Option<Error>,
}

/// What a batch of requests changes: it lies on top until it is durable.
#[derive(Default)]
pub(super) struct Staged {
    pub(super) entries: HashMap<Key, Known>,
    trims: Option<Trims>,
    earliest: Option<Vec<u64>>,
    /// Whether any progress moved, or is no more.
    moved: bool,
}

/// An answer that waits for the sync.
enum Decided {
    Claim(Answer<Option<(Epoch, Progress)>>, Option<(Epoch, Progress)>),
    Commit(Answer<Vec<Committed>>, Vec<Committed>),
    Forget(Answer<()>),
    Trim(Decide, Decision, Vec<Arc<str>>),
}

impl Desk {
    /// Opens the store of a log.
    pub(crate) fn open(
        folder: &crate::segments::Folder,
        log: u128,
        begun: bool,
        skip_corruption: bool,
        filing: Arc<Filing>,
        care: Care,
    ) -> Result<Self, Error> {
        let (files, mut contents) = Files::open(folder, log, begun, skip_corruption)?;
        // Nobody knows when they moved: they get the benefit of the doubt.
        let now = care.clock.wall().as_millis();
        contents.entries.values_mut().filter(|k| k.moved == 0).for_each(|k| k.moved = now);
        Ok(Self { filing, files, contents, care, dead: None })
    }

    /// From now on these segments count as removed.
    pub(crate) fn adopt(&mut self, trims: Trims) -> Result<(), Error> {
        if trims == self.contents.trims {
            return Ok(());
        }
        self.write(&Staged { trims: Some(trims.clone()), ..Staged::default() })?;
        self.contents.trims = trims;
        Ok(())
    }

    /// One above every offset that any progress in this log names, by partition.
    pub(crate) fn floors(&self, log: u128, partitions: usize) -> Result<Vec<u64>, Error> {
        let mut floors = vec![0; partitions];
        for (key, known) in &self.contents.entries {
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
        let mut staged = Staged::default();
        let mut decided = Vec::new();
        let now = self.care.clock.wall().as_millis();
        for request in requests {
            match request {
                Request::List(answer) => {
                    let entries = self.contents.entries.iter();
                    let keys = entries.filter(|(_, known)| known.progress.is_some());
                    let _ = answer.send(Ok(keys.map(|(key, _)| key.clone()).collect()));
                }
                Request::Image(answer) => {
                    let image = self.files.image(&self.contents);
                    drop(answer.send(Ok((image, self.contents.trims.clone()))));
                }
                Request::Claim(key, floor, start, answer) => {
                    let earliest = staged.earliest.as_deref().unwrap_or(&self.care.earliest);
                    let start = start.map(|start| self.care.raise(&key, start, earliest));
                    match claim(self.known(&staged, &key), &key, floor, start, now) {
                        Err(error) => drop(answer.send(Err(error))),
                        Ok(None) => drop(answer.send(Ok(None))),
                        Ok(Some((known, epoch, progress))) => {
                            staged.entries.insert(key, known);
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
                                let (epoch, progress) = (epoch.get(), Some(bytes));
                                let known = Known { epoch, progress, moved: now };
                                staged.entries.insert(key, known);
                                staged.moved = true;
                            }
                            outcome
                        })
                        .collect();
                    decided.push(Decided::Commit(answer, outcomes));
                }
                Request::Forget(key, answer) => {
                    self.forget(&mut staged, key);
                    decided.push(Decided::Forget(answer));
                }
                Request::Remove { name, force, answer } => {
                    let keys = self.care.keys_of(&self.contents, &staged, &name);
                    match self.care.may_remove(&name, force, keys.is_empty()) {
                        Err(error) => drop(answer.send(Err(error))),
                        Ok(()) => {
                            keys.into_iter().for_each(|key| self.forget(&mut staged, key));
                            decided.push(Decided::Forget(answer));
                        }
                    }
                }
                Request::Trim(segments, then) => {
                    let (decision, expired) = self.decide(&segments, &mut staged);
                    decided.push(Decided::Trim(then, decision, expired));
                }
                Request::Subscriptions(segments, ends, answer) => {
                    let standings = self.care.standings(&self.contents, &staged);
                    let _ = answer.send(Ok(care::describe(&standings, &segments, &ends)));
                }
            }
        }
        match self.write(&staged) {
            Ok(()) => {
                let moved = staged.moved;
                self.accept(staged);
                decided.into_iter().for_each(Decided::answer);
                if moved {
                    self.care.keeping.progress_moved();
                }
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

    fn accept(&mut self, staged: Staged) {
        self.contents.entries.extend(staged.entries);
        if let Some(trims) = staged.trims {
            self.contents.trims = trims;
        }
        if let Some(earliest) = staged.earliest {
            self.care.earliest = earliest;
        }
    }

    /// What may go, with what was said before it in the same batch: all of it becomes durable with
    /// one sync, in this order.
    fn decide(&self, segments: &[Arc<Segment>], staged: &mut Staged) -> (Decision, Vec<Arc<str>>) {
        let now = self.care.clock.wall().as_millis();
        let (expired, noted) = self.care.signs_of_life(&self.contents, staged, now);
        let keys_of = |names: &[Arc<str>], staged: &Staged| -> Vec<Key> {
            names.iter().flat_map(|n| self.care.keys_of(&self.contents, staged, n)).collect()
        };
        for key in keys_of(&expired, staged) {
            self.forget(staged, key);
        }
        for key in keys_of(&noted, staged) {
            if let Some(known) = self.known(staged, &key) {
                let known = Known { moved: now, ..known.clone() };
                staged.entries.insert(key, known);
            }
        }
        let trims = staged.trims.as_ref().unwrap_or(&self.contents.trims);
        let decision = self.care.decide(&self.contents, staged, segments, trims, now);
        self.care.keeping.decided(!decision.pins.is_empty());
        if !decision.segments.is_empty() {
            staged.trims = Some(decision.trims.clone());
            staged.earliest = Some(decision.earliest.clone());
        }
        (decision, expired)
    }

    /// The epoch stays, as a floor.
    fn forget(&self, staged: &mut Staged, key: Key) {
        if let Some(known) = self.known(staged, &key) {
            let known = Known { progress: None, ..known.clone() };
            staged.entries.insert(key, known);
            staged.moved = true;
        }
    }

    fn known<'a>(&'a self, staged: &'a Staged, key: &Key) -> Option<&'a Known> {
        staged.entries.get(key).or_else(|| self.contents.entries.get(key))
    }

    fn write(&mut self, staged: &Staged) -> Result<(), Error> {
        const OPERATION: &str = "write to the progress store";
        let Staged { entries, trims, .. } = staged;
        if entries.is_empty() && trims.is_none() {
            return Ok(());
        }
        let bytes: usize = entries.iter().map(|(key, known)| Files::length(key, known)).sum();
        let bytes = bytes + trims.as_ref().map_or(0, Files::trims_length);
        if let Err(e) = self.files.room(&self.contents, bytes) {
            let path = self.files.path();
            return Err(if is_full(&e) {
                system(OPERATION, path, e)
            } else {
                poisoned(OPERATION, path, e)
            });
        }
        // Removed segments come last: whatever frees them is read back before them.
        let written = self.files.append(entries.iter(), trims.as_ref());
        written.map_err(|e| poisoned(OPERATION, self.files.path(), e))
    }
}

/// The entry after a claim, or `None` for a new key without a start.
fn claim(
    known: Option<&Known>,
    key: &Key,
    floor: Epoch,
    start: Option<Offset>,
    now: i64,
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
    let known = Known { epoch: epoch.get(), progress: Some(bytes), moved: now };
    Ok(Some((known, epoch, progress)))
}

fn judge(known: Option<&Known>, key: &Key, epoch: Epoch) -> Committed {
    match known {
        Some(known) if epoch.get() < known.epoch => match Epoch::new(known.epoch) {
            Some(newer) => Committed::Fenced(newer),
            None => Committed::Fenced(Epoch::LAST),
        },
        Some(known) if epoch.get() == known.epoch && known.progress.is_some() => Committed::Done,
        Some(known) if epoch.get() == known.epoch => Committed::Unknown(
            Error::new(ErrorKind::NotFound, format!("commit progress of {key}")).with_hint(
                "the subscription was removed, or forgotten, while this member ran; run it again \
                 to begin anew",
            ),
        ),
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
            Self::Trim(then, decision, expired) => then(Ok((decision, expired))),
        }
    }

    fn fail(self, error: &Error, unclear: bool) {
        match self {
            Self::Claim(answer, _) => drop(answer.send(Err(error.clone()))),
            Self::Forget(answer) => drop(answer.send(Err(error.clone()))),
            Self::Trim(then, ..) => then(Err(error.clone())),
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
                let _ = self.files.close(&self.contents);
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
            Self::Trim(_, then) => then(Err(error)),
            Self::Subscriptions(_, _, answer) => drop(answer.send(Err(error))),
            Self::Remove { answer, .. } => drop(answer.send(Err(error))),
            Self::Image(answer) => drop(answer.send(Err(error))),
        }
    }
}

impl fmt::Debug for Filing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filing").field("waiting", &self.queue().0.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("entries", &self.contents.entries.len())
            .finish_non_exhaustive()
    }
}
