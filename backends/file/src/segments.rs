//! The files of the segment stream: their names, the spare, and how a new one begins.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// Bytes that may be read: what is durable.
    end: AtomicU64,
    /// Loaded at need, and unloaded again.
    cached: Mutex<Cached>,
}

#[derive(Debug, Default)]
pub(crate) struct Cached {
    pub(crate) spots: Option<Spots>,
    pub(crate) file: Option<Arc<dyn DiskFile>>,
}

impl Segment {
    pub(crate) fn new(header: SegmentHeader, path: PathBuf, end: u64, cached: Cached) -> Self {
        let (salt, cached) = (header.salt(), Mutex::new(cached));
        Self { header, salt, path, end: AtomicU64::new(end), cached }
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

    pub(crate) fn file(&self, disk: &dyn Disk) -> io::Result<Arc<dyn DiskFile>> {
        let mut cached = self.cached();
        if let Some(file) = &cached.file {
            return Ok(Arc::clone(file));
        }
        let file = disk.open(&self.path, false)?;
        cached.file = Some(Arc::clone(&file));
        Ok(file)
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
        let size = file.size()?;
        if head.iter().any(|byte| *byte != 0) {
            // The header goes last: as long as it is there, the rest is known to be dirty.
            let zeros = vec![0; 1 << 16];
            let mut at = head.len() as u64;
            while at < size {
                let n = zeros.len().min((size - at) as usize);
                write_all(&*file, &zeros[..n], at)?;
                at += n as u64;
            }
            file.sync()?;
            write_all(&*file, &zeros[..head.len()], 0)?;
            file.sync()?;
        }
        Ok(())
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
        let unfinished = self.at("spare.new");
        let made = self.disk.open(&unfinished, true).and_then(|file| {
            file.set_size(0)?;
            zero_fill(&*file, self.segment_bytes)
        });
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
        let end = (encoded.len() + batches.len()) as u64;
        let cached = Cached { spots: Some(Spots::new(partitions)), file: Some(Arc::clone(&file)) };
        Ok((Arc::new(Segment::new(header, path, end, cached)), file))
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

pub(crate) const SPARE: &str = "spare.seg";
/// In a backup that is not finished.
pub(crate) const UNFINISHED: &str = "backup.unfinished";
pub(crate) const META: &str = "meta";
pub(crate) const LOCK: &str = "lock";
pub(crate) const QUARANTINE: &str = "quarantine";
