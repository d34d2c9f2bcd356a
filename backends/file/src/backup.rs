//! A copy of a log that is in use.
//!
//! ```text
//!  1  backup.unfinished, synced      whatever happens now, nobody takes it for a log
//!  2  the progress, as it is now     first: what it names is synced, so it is copied below
//!  3  the segments, oldest first     each checked whole; the last one up to what is synced, and
//!                                    closed with a mark
//!  4  progress.a, meta               all synced, and the folder
//!  5  backup.unfinished goes         now it is a log
//! ```
//!
//! Segments are copied, not linked: a segment that retention removes may be used again, and a link
//! would be to its new contents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use procession_core::{Error, ErrorKind, Offset};

use crate::disk::{Disk, Kind, parent, read_full, read_whole, write_all, zero_fill};
use crate::errors::system;
use crate::format::segment::SegmentHeader;
use crate::log::FileLog;
use crate::options::on_a_thread;
use crate::recover::check_segment;
use crate::segments::{Folder, META, Segment, UNFINISHED_BACKUP};
use crate::shared::Shared;
use crate::trims::Trims;

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// How many segments were copied.
    pub segments: usize,
    /// Bytes of their batches, all of which were read back and checked.
    pub bytes: u64,
    /// By partition, one above the highest offset in it.
    pub ends: Vec<Offset>,
}

/// Where retention removes segments while they are copied, all of it is done again, so often.
const ATTEMPTS: usize = 3;

impl FileLog {
    /// Copies the log as it is now into a folder that is missing or empty, while it is appended to,
    /// consumed and committed: everything that is synced when the last segment is reached, and
    /// progress that names nothing else. The log itself waits for nothing.
    ///
    /// # Restoring
    /// A backup is a log: open it where it is, or put the folder in the place of the lost one. It is
    /// *the same* log at an earlier time, with the same identity, so that progress that is kept
    /// elsewhere (in a database, by [`LogInfo::uuid`](procession_core::LogInfo::uuid)) still belongs
    /// to it; where such progress names records above its end, their offsets are not given again
    /// only if the progress is in the backup too. Never go on with both: the two would give the same
    /// offsets to different records.
    ///
    /// # Durability
    /// Synced when this returns. One that was interrupted has a file `backup.unfinished`, and is
    /// refused when it is opened; delete it and make another.
    ///
    /// # Cancel safety
    /// It goes on if this is dropped.
    ///
    /// # Bounds
    /// One segment at a time is in memory.
    ///
    /// # Errors
    /// - [`Mismatch`](ErrorKind::Mismatch): there is something at `dest`
    /// - [`NotFound`](ErrorKind::NotFound): the folder above is missing
    /// - [`Full`](ErrorKind::Full), [`Denied`](ErrorKind::Denied): as the system says
    /// - [`Corrupt`](ErrorKind::Corrupt): a segment does not read back as it was written; with
    ///   `skip_corruption` it is copied as it is
    /// - [`Unavailable`](ErrorKind::Unavailable): retention removes segments faster than they can be
    ///   copied
    /// - [`Closed`](ErrorKind::Closed): the log is closed
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// use procession_core::{Log, Position, Record};
    /// use procession_file::FileLog;
    /// # futures::executor::block_on(async {
    /// let log = FileLog::open(folder.path().join("permits")).await?;
    /// log.producer().send(Record::new("case-10011", "submitted")).await?;
    /// log.backup(folder.path().join("permits.copy")).await?;
    ///
    /// let copy = FileLog::open(folder.path().join("permits.copy")).await?;
    /// assert!(copy.recovery().clean);
    /// assert_eq!(copy.ends(Position::End).await?, log.ends(Position::End).await?);
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn backup(&self, dest: impl AsRef<Path> + Send) -> Result<BackupReport, Error> {
        let (log, dest) = (self.clone(), dest.as_ref().to_path_buf());
        on_a_thread(OPERATION, dest.clone(), move || Backup::new(&log, dest).run()).await
    }
}

const OPERATION: &str = "back up the log";

struct Backup<'a> {
    log: &'a FileLog,
    shared: &'a Shared,
    disk: &'a dyn Disk,
    /// The copy.
    folder: Folder,
}

impl<'a> Backup<'a> {
    fn new(log: &'a FileLog, dest: PathBuf) -> Self {
        let shared = &**log.shared();
        let from = &shared.folder;
        let folder = Folder::new(Arc::clone(&from.disk), dest, from.segment_bytes);
        Self { log, shared, disk: &*from.disk, folder }
    }

    fn run(&self) -> Result<BackupReport, Error> {
        self.enter()?;
        let mut attempts = 0;
        let (report, progress) = loop {
            // Before the segments: whatever it names is synced by now, and will be in them.
            let (progress, trims) = futures::executor::block_on(self.log.store().image())?;
            if let Some(report) = self.segments(&trims)? {
                break (report, progress);
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(self.error(ErrorKind::Unavailable).with_hint(
                    "retention removes segments faster than they can be copied; try again when \
                     less is going on",
                ));
            }
        };
        self.write(&self.folder.at(crate::progress::NAMES[0]), &progress)?;
        let meta = self.shared.folder.at(META);
        let read = || read_whole(&*self.disk.open_read(&meta)?);
        let bytes = read().map_err(|e| system(OPERATION, &meta, e))?;
        self.write(&self.folder.at(META), &bytes)?;
        self.sync()?;
        let unfinished = self.folder.at(UNFINISHED_BACKUP);
        self.disk.unlink(&unfinished).map_err(|e| system(OPERATION, &unfinished, e))?;
        self.sync()?;
        Ok(report)
    }

    /// Makes sure that there is nothing, and says that it is not finished.
    fn enter(&self) -> Result<(), Error> {
        let dest = &self.folder.path;
        let fail = |e| system(OPERATION, dest, e);
        match self.disk.kind(dest).map_err(fail)? {
            Kind::Missing => {
                let above = parent(dest);
                if self.disk.kind(&above).map_err(fail)? != Kind::Folder {
                    return Err(self.error(ErrorKind::NotFound).with_hint(format!(
                        "the folder \"{}\" does not exist; create it, or correct the path",
                        above.display()
                    )));
                }
                self.disk.create_dir(dest).map_err(fail)?;
                self.disk.sync_dir(&above).map_err(fail)?;
            }
            Kind::Folder if self.disk.list(dest).map_err(fail)?.is_empty() => {}
            Kind::Folder | Kind::File => {
                return Err(self.error(ErrorKind::Mismatch).with_hint(
                    "there is something at this path; choose an empty folder or a new path",
                ));
            }
        }
        self.write(
            &self.folder.at(UNFINISHED_BACKUP),
            b"delete this folder and make another backup\n",
        )?;
        self.sync()
    }

    /// Copies all segments that are not among the removed ones; `None` if others were removed
    /// meanwhile, which leaves no copy of any: the progress in the copy might not have let them go.
    fn segments(&self, trims: &Trims) -> Result<Option<BackupReport>, Error> {
        let segments = self.shared.segments.all();
        let segments: Vec<_> = segments.iter().filter(|s| !trims.contains(s.id())).collect();
        let ids: Vec<u64> = segments.iter().map(|segment| segment.id()).collect();
        let last = ids.last().copied().unwrap_or(0);
        if (1..last).any(|id| ids.binary_search(&id).is_err() && !trims.contains(id)) {
            return Ok(None);
        }
        // The last one ends where it is synced now. It may grow meanwhile, and others may follow.
        let ends = segments.iter().map(|segment| segment.end());
        let mut report = BackupReport { segments: segments.len(), bytes: 0, ends: Vec::new() };
        for (number, (segment, end)) in segments.iter().zip(ends).enumerate() {
            let active = number + 1 == segments.len();
            match self.segment(segment, end, active) {
                Ok((bytes, ends)) => {
                    report.bytes += bytes;
                    report.ends = ends.into_iter().map(Offset::new).collect();
                }
                Err(_) if self.is_gone(segment) => break,
                Err(error) => return Err(error),
            }
        }
        if !segments.iter().any(|segment| self.is_gone(segment)) {
            // The groups of removed segments go on in later ones.
            let first = ids.first().copied().unwrap_or(last);
            trims.between(first, last).try_for_each(|removed| self.index(removed))?;
            return Ok(Some(report));
        }
        for segment in &segments {
            for path in [self.folder.segment(segment.id()), self.folder.index(segment.id())] {
                // It may not have been copied yet.
                let _ = self.disk.unlink(&path);
            }
        }
        Ok(None)
    }

    fn is_gone(&self, segment: &Segment) -> bool {
        !self.shared.segments.all().iter().any(|kept| kept.id() == segment.id())
    }

    /// Copies one segment up to `end`; gives the bytes of its batches, and the next offsets.
    fn segment(&self, segment: &Segment, end: u64, active: bool) -> Result<(u64, Vec<u64>), Error> {
        let fail = |e| system(OPERATION, &segment.path, e);
        // On its own: the log's open files are not ours to keep.
        let file = self.disk.open_read(&segment.path).map_err(fail)?;
        let mut bytes = vec![0; end as usize];
        let n = read_full(&*file, &mut bytes, 0).map_err(fail)?;
        bytes.truncate(n);
        let sound = check_segment(&bytes, &segment.header, self.shared.info.routing.get());
        if sound.end < end as usize && !self.shared.skip_corruption {
            return Err(self.error(ErrorKind::Corrupt).at_path(&segment.path).with_hint(format!(
                "the bytes at {} do not read back as they were written; the log is damaged \
                 already: restore the file from an older copy, or open with \
                 `skip_corruption(true)` to copy it as it is",
                sound.end
            )));
        }
        let path = self.folder.segment(segment.id());
        let copy = self.disk.open(&path, true).map_err(|e| system(OPERATION, &path, e))?;
        let write = || {
            if active {
                // Preallocated, as the log's own.
                zero_fill(&*copy, self.folder.segment_bytes)?;
            }
            write_all(&*copy, &bytes, 0)?;
            if active && sound.end == end as usize {
                write_all(&*copy, &sound.closing_mark(&segment.header), end)?;
            }
            copy.sync()
        };
        write().map_err(|e| system(OPERATION, &path, e))?;
        if !active {
            self.index(segment.id())?;
        }
        let start = SegmentHeader::size(segment.header.base.len()) as u64;
        Ok((end - start, sound.ends))
    }

    /// Copies the index of a segment, if it has one: it is a cache, and checks itself.
    fn index(&self, id: u64) -> Result<(), Error> {
        let path = self.shared.folder.index(id);
        let Ok(file) = self.disk.open_read(&path) else { return Ok(()) };
        let bytes = read_whole(&*file).map_err(|e| system(OPERATION, &path, e))?;
        self.write(&self.folder.index(id), &bytes)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let write = || {
            let file = self.disk.open(path, true)?;
            file.set_size(0)?;
            write_all(&*file, bytes, 0)?;
            file.sync()
        };
        write().map_err(|e| system(OPERATION, path, e))
    }

    fn sync(&self) -> Result<(), Error> {
        let folder = &self.folder.path;
        self.disk.sync_dir(folder).map_err(|e| system(OPERATION, folder, e))
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, OPERATION).at_path(&self.folder.path)
    }
}
