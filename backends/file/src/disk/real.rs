//! The operating system's disk and clocks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::FileExt;
#[cfg(windows)]
use std::os::windows::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use procession_core::Timestamp;

#[cfg(target_os = "linux")]
use super::Watch;
use super::{Clock, Disk, DiskFile, Kind};

/// The file system of this machine, through `std`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file =
            OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)?;
        Ok(Arc::new(RealFile::new(file)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile::new(File::open(path)?)))
    }

    #[cfg(target_os = "linux")]
    fn watch(&self, folder: &Path) -> io::Result<Arc<dyn Watch>> {
        Ok(Arc::new(super::watch::FolderWatch::new(folder)?))
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(Kind::Folder),
            Ok(_) => Ok(Kind::File),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Kind::Missing),
            Err(e) => Err(e),
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // Windows cannot open folders this way, and journals its entries by itself.
        if cfg!(windows) { Ok(()) } else { File::open(path)?.sync_all() }
    }
}

#[derive(Debug)]
struct RealFile(File, AtomicBool);

impl RealFile {
    const fn new(file: File) -> Self {
        Self(file, AtomicBool::new(false))
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        // Closing is not enough: a child process that is just being started shares the open file,
        // and with it the lock, until it becomes another program.
        if *self.1.get_mut() {
            // The file is closed next, which is the best that is left if this fails.
            let _ = self.0.unlock();
        }
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        #[cfg(unix)]
        return self.0.read_at(buf, at);
        #[cfg(windows)]
        return self.0.seek_read(buf, at);
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        #[cfg(unix)]
        return self.0.write_at(buf, at);
        #[cfg(windows)]
        return self.0.seek_write(buf, at);
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.0.try_lock() {
            Ok(()) => {
                self.1.store(true, Ordering::SeqCst);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct RealClock(Instant);

impl Default for RealClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> Timestamp {
        SystemTime::now().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_file_even_if_a_child_process_inherited_it() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let path = folder.path().join("lock");
            let options =
                File::options().read(true).write(true).create(true).truncate(false).open(path);
            RealFile::new(options.unwrap())
        };
        let first = open();
        assert!(first.try_lock().unwrap());
        assert!(!open().try_lock().unwrap());
        // What a fork does: the same open file under another descriptor.
        let inherited = first.0.try_clone().unwrap();
        drop(first);
        assert!(open().try_lock().unwrap(), "the lock outlived its file");
        drop(inherited);
    }
}
