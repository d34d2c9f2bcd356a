//! A disk on which nothing can be changed, whatever is tried.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Disk, DiskFile, Kind, Watch};

/// Another disk, for reading. A log that is open for reading only sees no other, so that no code
/// that it shares with the writer can touch the folder.
#[derive(Debug)]
pub(crate) struct ReadOnlyDisk(pub(crate) Arc<dyn Disk>);

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the log is open for reading only"))
}

impl Disk for ReadOnlyDisk {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        if create { refused() } else { self.open_read(path) }
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ReadOnlyFile(self.0.open_read(path)?)))
    }

    fn watch(&self, folder: &Path) -> io::Result<Arc<dyn Watch>> {
        self.0.watch(folder)
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        self.0.kind(path)
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.list(path)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn unlink(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }
}

#[derive(Debug)]
struct ReadOnlyFile(Arc<dyn DiskFile>);

impl DiskFile for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buf, at)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn set_size(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn try_lock(&self) -> io::Result<bool> {
        refused()
    }
}
