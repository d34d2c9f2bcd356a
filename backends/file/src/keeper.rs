//! Chores that nobody waits for: the indexes of sealed segments, and the spare segment.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::groups::GroupLast;
use crate::index::{self, Spots};
use crate::segments::Segment;
use crate::shared::Shared;
use crate::worker::{Bell, Pace, Worker};

#[derive(Debug)]
pub(crate) enum Chore {
    /// Write the index of a sealed segment with these groups.
    Index(Arc<Segment>, Vec<GroupLast>),
    /// Make a spare segment if there is none.
    Spare,
}

#[derive(Debug, Default)]
pub(crate) struct Keeping {
    queue: Mutex<Queue>,
    pub(crate) bell: Bell,
}

#[derive(Debug, Default)]
struct Queue {
    chores: VecDeque<Chore>,
    closed: bool,
}

impl Keeping {
    pub(crate) fn add(&self, chore: Chore) {
        self.queue().chores.push_back(chore);
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

/// Segments whose spots and file stay in memory after they are sealed.
const WARM_SEGMENTS: usize = 32;

#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
}

impl Keeper {
    fn index(&self, segment: &Segment, mut groups: Vec<GroupLast>) -> std::io::Result<()> {
        let shared = &*self.shared;
        let (path, id, end) = (shared.folder.index(segment.id()), segment.id(), segment.end());
        let partitions = segment.header.base.len();
        let spots = segment.cached().spots.clone().unwrap_or_else(|| Spots::new(partitions));
        index::write(&*shared.folder.disk, &path, shared.log, id, end, &spots, &mut groups)?;
        let read = index::read(&shared.folder.disk, &path, shared.log, id, end, partitions)?;
        let Some((_, lookup)) = read else {
            return Err(std::io::Error::other("the index does not read back"));
        };
        shared.front().groups.indexed(id, Arc::new(lookup));
        let all = shared.segments.all();
        if let Some(cold) = all.len().checked_sub(WARM_SEGMENTS + 1) {
            *all[cold].cached() = crate::segments::Cached::default();
        }
        Ok(())
    }
}

impl Worker for Keeper {
    fn step(&mut self) -> Pace {
        let (chore, closed) = {
            let mut queue = self.shared.keeping.queue();
            (queue.chores.pop_front(), queue.closed)
        };
        match chore {
            // An index is a cache: without it the groups stay in memory, and the next open
            // rebuilds it.
            Some(Chore::Index(segment, groups)) => {
                let _ = self.index(&segment, groups);
                Pace::More
            }
            // Without a spare the next roll makes one itself, and says what is wrong.
            Some(Chore::Spare) => {
                let _ = self.shared.folder.ensure_spare();
                Pace::More
            }
            None if closed => Pace::Stop,
            None => Pace::Idle(None),
        }
    }
}
