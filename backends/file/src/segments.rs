//! The files of the segment stream: their names, the spare, and how a new one begins.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::disk::{Disk, DiskFile, read_full, write_all, zero_fill};
use crate::format::Salt;
use crate::format::segment::SegmentHeader;
use crate::index::Spots;

/// One file of the stream.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) salt: Salt,
    pub(crate) path: PathBuf,
    /// Bytes its file takes.
    pub(crate) size: u64,
    /// Bytes that may be read: what is durable.
    end: AtomicU64,
    /// Set before its file is unlinked or used again.
    removed: AtomicBool,
    /// Loaded at need, and unloaded again.
    cached: Mutex<Cached>,
}

#[derive(Debug, Default)]
pub(crate) struct Cached {
    pub(crate) spots: Option<Spots>,
    pub(crate) file: Option<Arc<dyn DiskFile>>,
    /// Whether the spots can be read again.
    pub(crate) indexed: bool,
}

impl Segment {
    pub(crate) fn new(
        header: SegmentHeader,
        path: PathBuf,
        end: u64,
        size: u64,
        cached: Cached,
    ) -> Self {
        let (salt, cached) = (header.salt(), Mutex::new(cached));
        let (end, removed) = (AtomicU64::new(end), AtomicBool::new(false));
        Self { header, salt, path, size, end, removed, cached }
    }

    pub(crate) fn id(&self) -> u64 {
        self.header.id
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// More of it can be read.
    pub(crate) fn publish(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    pub(crate) fn cached(&self) -> MutexGuard<'_, Cached> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be had again is dropped.
    pub(crate) fn cool(&self) {
        let mut cached = self.cached();
        cached.file = None;
        if cached.indexed {
            cached.spots = None;
        }
    }

    /// Whether retention has removed it: what its file holds now means nothing.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::SeqCst)
    }

    fn remove(&self) {
        self.removed.store(true, Ordering::SeqCst);
    }
}

/// The stream, oldest segment first.
#[derive(Debug, Default)]
pub(crate) struct Segments(RwLock<Arc<Vec<Arc<Segment>>>>);

impl Segments {
    pub(crate) fn all(&self) -> Arc<Vec<Arc<Segment>>> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another list: what was removed, and what came instead.
    pub(crate) fn replace(&self, segments: Vec<Arc<Segment>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(segments);
    }

    pub(crate) fn push(&self, segment: Arc<Segment>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut all).push(segment);
    }

    /// Takes these out of the stream.
    pub(crate) fn remove(&self, ids: &[u64]) -> Vec<Arc<Segment>> {
        let goes = |segment: &&Arc<Segment>| ids.binary_search(&segment.id()).is_ok();
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let removed: Vec<_> = all.iter().filter(goes).cloned().collect();
        let left: Vec<_> = all.iter().filter(|segment| !goes(segment)).cloned().collect();
        *all = Arc::new(left);
        drop(all);
        // Whoever has the older list finds this before it finds the file changed.
        removed.iter().for_each(|segment| segment.remove());
        removed
    }
}

/// The folder of a log, and the one spare file in it.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) path: PathBuf,
    pub(crate) segment_bytes: u64,
    /// Held by whoever makes or takes the spare.
    spare: Mutex<()>,
}

impl Folder {
    pub(crate) fn new(disk: Arc<dyn Disk>, path: PathBuf, segment_bytes: u64) -> Self {
        Self { disk, path, segment_bytes, spare: Mutex::new(()) }
    }

    pub(crate) fn segment(&self, id: u64) -> PathBuf {
        self.path.join(format!("{id:020}.seg"))
    }

    pub(crate) fn index(&self, id: u64) -> PathBuf {
        self.path.join(format!("{id:020}.idx"))
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The number of a segment file of this name.
    pub(crate) fn parse(name: &str) -> Option<u64> {
        let digits = name.strip_suffix(".seg")?;
        (digits.len() == 20).then(|| digits.parse().ok())?
    }

    /// Removes the indexes of segments below the oldest one, which a crash may have left. Without
    /// permission they stay, which harms nobody.
    pub(crate) fn drop_stale_indexes(&self, names: &[String], oldest: u64) {
        for name in names {
            let id = name.strip_suffix(".idx").and_then(|digits| digits.parse::<u64>().ok());
            if id.is_some_and(|id| id < oldest) {
                let _ = self.unlink(&self.at(name));
            }
        }
    }

    /// Makes the spare segment if there is none: full of written zeros, so that rolling and
    /// reopening need no free space.
    pub(crate) fn ensure_spare(&self) -> io::Result<()> {
        let _guard = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_spare()
    }

    /// At open: a spare that an earlier attempt has begun to fill is wiped, in place.
    pub(crate) fn wipe_spare(&self) -> io::Result<()> {
        let _guard = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = self.open_spare()? else { return Ok(()) };
        let mut head = vec![0; 4096];
        read_full(&*file, &mut head, 0)?;
        if head.iter().any(|byte| *byte != 0) {
            // The header goes last: as long as it is there, the rest is known to be dirty.
            wipe(&*file, head.len() as u64, file.size()?)?;
            wipe(&*file, 0, head.len() as u64)?;
        }
        Ok(())
    }

    /// Gives the room of a removed segment back: as the spare if there is none, else to the disk.
    /// Nothing refers to the file any more, and that it was removed is durable: a crash at any
    /// point leaves a file that the next open releases, or a spare that it finishes.
    pub(crate) fn release(&self, path: &Path, size: u64) -> io::Result<()> {
        let _guard = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if size < self.segment_bytes || self.open_spare()?.is_some() {
            return self.unlink(path);
        }
        match self.disk.rename(path, &self.at(UNFINISHED)) {
            Ok(()) => self.make_spare(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn file_size(&self, path: &Path) -> io::Result<u64> {
        self.disk.open(path, false)?.size()
    }

    /// Removes a file, if it is there.
    pub(crate) fn unlink(&self, path: &Path) -> io::Result<()> {
        match self.disk.unlink(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn open_spare(&self) -> io::Result<Option<Arc<dyn DiskFile>>> {
        match self.disk.open(&self.at(SPARE), false) {
            Ok(file) if file.size()? >= self.segment_bytes => Ok(Some(file)),
            Ok(_) => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn make_spare(&self) -> io::Result<()> {
        if self.open_spare()?.is_some() {
            return Ok(());
        }
        let unfinished = self.at(UNFINISHED);
        let file = self.disk.open(&unfinished, true)?;
        let size = file.size()?;
        let made = if size >= self.segment_bytes {
            // It was a segment. Zeros over all of it: stale frames would not decode under another
            // salt, but recovery tells a torn write by what is not zero.
            wipe(&*file, 0, size)
        } else {
            file.set_size(0).and_then(|()| zero_fill(&*file, self.segment_bytes))
        };
        if let Err(e) = made {
            // Give the room back that it took in vain; the cause matters more than this.
            let _ = self.disk.unlink(&unfinished);
            return Err(e);
        }
        self.disk.rename(&unfinished, &self.at(SPARE))?;
        self.disk.sync_dir(&self.path)
    }

    /// Turns the spare into a segment with these first batches. The segment exists when this
    /// returns, durably and whole, or it does not exist.
    pub(crate) fn begin(
        &self,
        header: SegmentHeader,
        batches: &[u8],
        partitions: usize,
    ) -> io::Result<(Arc<Segment>, Arc<dyn DiskFile>)> {
        let _guard = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_spare()?;
        let file = self.disk.open(&self.at(SPARE), false)?;
        let encoded = header.encode();
        write_all(&*file, &encoded, 0)?;
        // The header must be durable before anything behind it: it marks the spare as dirty.
        file.sync()?;
        if !batches.is_empty() {
            write_all(&*file, batches, encoded.len() as u64)?;
            file.sync()?;
        }
        let path = self.segment(header.id);
        // From here on the segment may exist: not even a full disk is harmless any more.
        self.disk.rename(&self.at(SPARE), &path).map_err(io::Error::other)?;
        self.disk.sync_dir(&self.path).map_err(io::Error::other)?;
        let (end, size) = ((encoded.len() + batches.len()) as u64, file.size()?);
        let (spots, open) = (Some(Spots::new(partitions)), Some(Arc::clone(&file)));
        let cached = Cached { spots, file: open, indexed: false };
        Ok((Arc::new(Segment::new(header, path, end, size, cached)), file))
    }

    /// Writes a small file whole, or not at all.
    pub(crate) fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let unfinished = path.with_extension("new");
        let file = self.disk.open(&unfinished, true)?;
        file.set_size(0)?;
        write_all(&*file, bytes, 0)?;
        file.sync()?;
        self.disk.rename(&unfinished, path)?;
        self.disk.sync_dir(&self.path)
    }
}

/// Zeros over these bytes of a file, synced.
fn wipe(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 16];
    let mut at = from;
    while at < to {
        let n = zeros.len().min((to - at) as usize);
        write_all(file, &zeros[..n], at)?;
        at += n as u64;
    }
    file.sync()
}

pub(crate) const SPARE: &str = "spare.seg";
/// In a backup that is not finished.
pub(crate) const UNFINISHED_BACKUP: &str = "backup.unfinished";
/// A spare that is being made, or a removed segment that becomes one.
const UNFINISHED: &str = "spare.new";
pub(crate) const META: &str = "meta";
pub(crate) const LOCK: &str = "lock";
pub(crate) const QUARANTINE: &str = "quarantine";
