//! The seam between the log and the machine: files, folders and clocks.
//!
//! Everything that touches a disk goes through [`Disk`], so that a simulation runs the code that
//! production runs. [`RealDisk`] is the operating system; [`MemoryDisk`] is a disk that loses power
//! and fails on request.

mod memory;
mod read_only;
mod real;
mod watch;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use procession_core::Timestamp;

pub use memory::{Fault, FaultOp, MemoryDisk};
pub(crate) use read_only::ReadOnlyDisk;
pub use real::{RealClock, RealDisk};
pub(crate) use watch::TimedWatch;
pub use watch::Watch;

/// A file system, as far as a log needs one.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file for reading and writing; creates an empty one if asked to and there is none.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that is there, for reading only.
    ///
    /// # Errors
    /// What the system says.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path, false)
    }

    /// Watches a folder for changes of its segments, as a log that is open for reading only needs
    /// it. Without one, as here, such a log looks every 100 ms.
    ///
    /// # Errors
    /// What the system says; `Unsupported` if it cannot be done.
    fn watch(&self, folder: &Path) -> io::Result<Arc<dyn Watch>> {
        let _ = folder;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What lies at `path`.
    ///
    /// # Errors
    /// What the system says; a missing entry is not an error.
    fn kind(&self, path: &Path) -> io::Result<Kind>;

    /// Creates one folder; its parent must exist.
    ///
    /// # Errors
    /// What the system says.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The names inside a folder.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Renames a file, replacing what was there.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Makes the entries of a folder durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Missing,
    /// A file.
    File,
    /// A folder.
    Folder,
}

/// An open file. Closed, and its lock released, when the last reference goes.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads up to `buf.len()` bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes some of `buf`.
    ///
    /// # Errors
    /// What the system says.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize>;

    /// Makes the data durable, and the length with it.
    ///
    /// # Errors
    /// What the system says. After a failure nothing is known of any unsynced byte.
    fn sync(&self) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self) -> io::Result<u64>;

    /// Cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// What the system says.
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// Takes the exclusive lock of the file; false if somebody has it.
    ///
    /// # Errors
    /// What the system says.
    fn try_lock(&self) -> io::Result<bool>;
}

/// The two clocks of a log.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time that only grows, for intervals.
    fn now(&self) -> Duration;

    /// The wall clock, which may jump.
    fn wall(&self) -> Timestamp;
}

/// Writes all of `buf`.
pub(crate) fn write_all(file: &dyn DiskFile, mut buf: &[u8], mut at: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match file.write_at(buf, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                buf = &buf[n..];
                at += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Fills as much of `buf` as the file has from `at` on; returns how much.
pub(crate) fn read_full(file: &dyn DiskFile, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// The whole file.
pub(crate) fn read_whole(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let size = usize::try_from(file.size()?).map_err(io::Error::other)?;
    let mut buf = vec![0; size];
    let n = read_full(file, &mut buf, 0)?;
    buf.truncate(n);
    Ok(buf)
}

/// Makes the file `size` bytes of written zeros, synced: later writes inside need neither free
/// space nor a change of the file system's books, which makes a sync about twice as fast.
pub(crate) fn zero_fill(file: &dyn DiskFile, size: u64) -> io::Result<()> {
    const CHUNK: usize = 1 << 20;
    let zeros = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
    let mut at = 0;
    while at < size {
        let n = zeros.len().min(usize::try_from(size - at).unwrap_or(CHUNK));
        write_all(file, &zeros[..n], at)?;
        at += n as u64;
    }
    if file.size()? > size {
        file.set_size(size)?;
    }
    file.sync()
}

/// The folder that holds `path`.
pub(crate) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
