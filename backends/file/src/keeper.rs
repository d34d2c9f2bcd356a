//! Chores that nobody waits for: the indexes of sealed segments, the spare segment, retention.
//!
//! ```text
//!  keeper: what could go? ──> desk: decides, notes it, syncs ──> keeper: unlinks, or makes a spare
//! ```
//!
//! Retention runs after a roll, after progress moved while somebody kept segments, when a segment
//! reaches its age, and when asked. At most one decision is on its way.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::oneshot;
use procession_core::{Error, Offset};

use crate::errors::system;
use crate::groups::GroupLast;
use crate::index::{self, Spots};
use crate::progress::{Filing, Request};
use crate::retention::Decision;
use crate::segments::Segment;
use crate::shared::Shared;
use crate::subscriptions::Trimmed;
use crate::worker::{Bell, Pace, Worker};

pub(crate) enum Chore {
    /// Write the index of a sealed segment with these groups.
    Index(Arc<Segment>, Vec<GroupLast>),
    /// Make a spare segment if there is none.
    Spare,
    /// Remove what was decided upon, which is noted durably, and tell these.
    Free(Decided, Vec<Asker>),
}

/// What was decided, and which subscriptions expired.
type Decided = Result<(Decision, Vec<Arc<str>>), Error>;
type Asker = oneshot::Sender<Result<Trimmed, Error>>;

#[derive(Debug, Default)]
pub(crate) struct Keeping {
    queue: Mutex<Queue>,
    /// Whether a subscription keeps segments that retention would remove.
    pinned: AtomicBool,
    pub(crate) bell: Bell,
}

#[derive(Default)]
struct Queue {
    chores: VecDeque<Chore>,
    /// Somebody should look whether anything may go.
    trim: bool,
    askers: Vec<Asker>,
    closed: bool,
}

impl Keeping {
    pub(crate) fn add(&self, chore: Chore) {
        self.queue().chores.push_back(chore);
        self.bell.ring();
    }

    /// Something may go now.
    pub(crate) fn look_again(&self) {
        self.queue().trim = true;
        self.bell.ring();
    }

    /// What the last decision said. Told by whoever decides, before any later progress.
    pub(crate) fn decided(&self, pinned: bool) {
        self.pinned.store(pinned, Ordering::SeqCst);
    }

    /// Progress became durable, or was forgotten: what was kept for it may go.
    pub(crate) fn progress_moved(&self) {
        if self.pinned.load(Ordering::SeqCst) {
            self.look_again();
        }
    }

    /// Asks for a trim. Once closed the answer is dropped.
    pub(crate) fn trim(&self, asker: Asker) {
        {
            let mut queue = self.queue();
            if queue.closed {
                return;
            }
            queue.askers.push(asker);
            queue.trim = true;
        }
        self.bell.ring();
    }

    pub(crate) fn close(&self) {
        self.queue().closed = true;
        self.bell.ring();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names of expired subscriptions that are kept until somebody asks.
const EXPIRED_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    filing: Arc<Filing>,
    /// A decision is on its way; what follows it makes the spare.
    deciding: bool,
    /// When time alone may change what may go, wall time in ms.
    due: Option<i64>,
    expired: VecDeque<Arc<str>>,
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>, filing: Arc<Filing>) -> Self {
        Self { shared, filing, deciding: false, due: None, expired: VecDeque::new() }
    }

    fn index(&self, segment: &Arc<Segment>, mut groups: Vec<GroupLast>) -> std::io::Result<()> {
        let shared = &*self.shared;
        // Read or not, it is one of those whose file is open.
        shared.files.note(segment);
        let (path, id, end) = (shared.folder.index(segment.id()), segment.id(), segment.end());
        let partitions = segment.header.base.len();
        let spots = segment.cached().spots.clone().unwrap_or_else(|| Spots::new(partitions));
        index::write(&*shared.folder.disk, &path, shared.log, id, end, &spots, &mut groups)?;
        // Once its segment is removed it cannot be rebuilt.
        shared.folder.disk.sync_dir(&shared.folder.path)?;
        let read = index::read(&shared.folder.disk, &path, shared.log, id, end, partitions)?;
        let Some((_, lookup)) = read else {
            return Err(std::io::Error::other("the index does not read back"));
        };
        shared.front().groups.indexed(id, Arc::new(lookup));
        segment.cached().indexed = true;
        Ok(())
    }

    /// Asks the progress store what may go.
    fn ask(&mut self, askers: Vec<Asker>) {
        let shared = Arc::clone(&self.shared);
        let segments = shared.segments.all();
        self.deciding = true;
        let then = move |decided| shared.keeping.add(Chore::Free(decided, askers));
        self.filing.add(Request::Trim(segments, Box::new(then)));
    }

    fn free(&mut self, decided: Decided) -> Result<Trimmed, Error> {
        let (decision, expired) = decided?;
        self.due = decision.due;
        self.expired.extend(expired);
        let surplus = self.expired.len().saturating_sub(EXPIRED_MAX);
        self.expired.drain(..surplus);
        let removed = self.shared.remove(&decision);
        let mut trimmed = Trimmed {
            segments: removed.len() as u64,
            bytes: removed.iter().map(|segment| segment.size).sum(),
            earliest: decision.earliest.iter().copied().map(Offset::new).collect(),
            pinned_by: decision.pins,
            expired: Vec::new(),
        };
        if !removed.is_empty() {
            let oldest = self.shared.segments.all().first().map_or(0, |segment| segment.id());
            let lost = self.shared.front().groups.removed(&decision.segments, oldest);
            let folder = &self.shared.folder;
            for segment in &removed {
                let released = folder.release(&segment.path, segment.size);
                released.map_err(|e| system("trim the log", &segment.path, e))?;
            }
            for id in lost {
                let path = folder.index(id);
                folder.unlink(&path).map_err(|e| system("trim the log", &path, e))?;
            }
            let synced = folder.disk.sync_dir(&folder.path);
            synced.map_err(|e| system("trim the log", &folder.path, e))?;
        }
        trimmed.expired = self.expired.iter().cloned().collect();
        Ok(trimmed)
    }

    fn tell(&mut self, trimmed: Result<Trimmed, Error>, askers: Vec<Asker>) {
        // Whoever asked may be gone; that is no concern of ours.
        for asker in askers {
            if asker.send(trimmed.clone()).is_ok() && trimmed.is_ok() {
                self.expired.clear();
            }
        }
    }

    /// Until time alone may change what may go.
    fn until_due(&self) -> Option<Duration> {
        let now = self.shared.clock.wall().as_millis();
        let wait = self.due?.saturating_sub(now);
        Some(Duration::from_millis(u64::try_from(wait).unwrap_or(0)))
    }
}

impl Worker for Keeper {
    fn step(&mut self) -> Pace {
        let due = self.until_due();
        let (chore, trim, closed) = {
            let mut queue = self.shared.keeping.queue();
            let chore = queue.chores.pop_front();
            // Behind the chores: every sealed segment has its index by then.
            let idle = chore.as_ref().is_none_or(|chore| matches!(chore, Chore::Spare));
            let wanted = queue.trim || due == Some(Duration::ZERO);
            let trim = idle && wanted && !self.deciding && !queue.closed;
            let askers = trim.then(|| {
                queue.trim = false;
                std::mem::take(&mut queue.askers)
            });
            if queue.closed {
                queue.askers.clear();
            }
            (chore, askers, queue.closed)
        };
        let asked = trim.is_some();
        if let Some(askers) = trim {
            self.due = None;
            self.ask(askers);
        }
        match chore {
            // An index is a cache: without it the groups stay in memory, and the next open
            // rebuilds it.
            Some(Chore::Index(segment, groups)) => {
                let _ = self.index(&segment, groups);
                Pace::More
            }
            // Behind a decision: a removed segment may become the spare.
            Some(Chore::Spare) if self.deciding && !closed => Pace::More,
            // Without a spare the next roll makes one itself, and says what is wrong.
            Some(Chore::Spare) => {
                let _ = self.shared.folder.ensure_spare();
                Pace::More
            }
            Some(Chore::Free(decided, askers)) => {
                self.deciding = false;
                let trimmed = self.free(decided);
                self.tell(trimmed, askers);
                let _ = self.shared.folder.ensure_spare();
                Pace::More
            }
            None if asked => Pace::More,
            None if closed => {
                if self.deciding {
                    let _ = self.shared.folder.ensure_spare();
                }
                Pace::Stop
            }
            None if self.deciding => Pace::Idle(None),
            None => Pace::Idle(due),
        }
    }
}

impl std::fmt::Debug for Chore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(segment, _) => write!(f, "Index({})", segment.id()),
            Self::Spare => f.write_str("Spare"),
            Self::Free(..) => f.write_str("Free"),
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("chores", &self.chores).finish_non_exhaustive()
    }
}
