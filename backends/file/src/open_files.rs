//! The segment files that are open for reading: no more than a stated number, coldest out first.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile};
use crate::segments::Segment;

#[derive(Debug)]
pub(crate) struct OpenFiles {
    max: usize,
    /// Coldest first.
    open: Mutex<VecDeque<Arc<Segment>>>,
}

impl OpenFiles {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, open: Mutex::default() }
    }

    /// The file of a segment, opened at need.
    pub(crate) fn file(
        &self,
        segment: &Arc<Segment>,
        disk: &dyn Disk,
    ) -> io::Result<Arc<dyn DiskFile>> {
        self.note(segment);
        let mut cached = segment.cached();
        if let Some(file) = &cached.file {
            return Ok(Arc::clone(file));
        }
        let file = disk.open(&segment.path, false)?;
        cached.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// It is in use now, so another may have to go.
    pub(crate) fn note(&self, segment: &Arc<Segment>) {
        let cold = {
            let mut open = self.open();
            // Mostly the last one, and never many.
            if let Some(at) = open.iter().rposition(|open| Arc::ptr_eq(open, segment)) {
                open.remove(at);
            }
            open.push_back(Arc::clone(segment));
            if open.len() > self.max { open.pop_front() } else { None }
        };
        if let Some(cold) = cold {
            cold.cool();
        }
    }

    /// It is gone.
    pub(crate) fn forget(&self, segment: &Arc<Segment>) {
        self.open().retain(|open| !Arc::ptr_eq(open, segment));
        segment.cool();
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<Arc<Segment>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
