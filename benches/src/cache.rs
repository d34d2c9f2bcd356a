//! The page cache: dropping a log's pages from it, and filling it with them.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

/// In which state a measurement finds the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// Every page of the log is in memory
    Warm,
    /// None is: every file was synced and its pages dropped
    Cold,
}

impl Cache {
    /// Its word in the lines.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }

    /// Brings all files of a folder into this state.
    pub(crate) fn prepare(self, folder: &Path) -> Result<()> {
        match self {
            Self::Warm => each_file(folder, |file| {
                let mut file = file;
                std::io::copy(&mut file, &mut std::io::sink())?;
                Ok(())
            }),
            Self::Cold => each_file(folder, |file| {
                // Dirty pages are never dropped.
                file.sync_all()?;
                forget(file)
            }),
        }
    }
}

fn each_file(folder: &Path, mut act: impl FnMut(&File) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_file() {
            let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
            act(&file)?;
        }
    }
    Ok(())
}

/// A wish of ours, which Linux grants for clean pages that nobody has mapped. What lies below (a
/// disk's or a host's own cache) is out of reach.
#[expect(unsafe_code, reason = "one system call that the standard library does not offer")]
fn forget(file: &File) -> Result<()> {
    // SAFETY: takes numbers, and touches no memory of ours.
    let error = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    ensure!(error == 0, "drop pages: {}", std::io::Error::from_raw_os_error(error));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    /// Not on a file system in memory, which has no disk to read from: the target folder.
    #[test]
    fn a_cold_file_is_read_from_the_disk_again() -> Result<()> {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR"))?;
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 8 << 20])?;
        Cache::Cold.prepare(dir.path())?;
        let before = process::read_from_disk_bytes();
        fs::read(&path)?;
        if let (Some(before), Some(after)) = (before, process::read_from_disk_bytes()) {
            assert!(after - before >= 4 << 20, "{} bytes came from the disk", after - before);
        }
        Ok(())
    }
}
