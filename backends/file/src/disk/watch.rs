//! Waiting for somebody else to change a folder.

use std::fmt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes whoever waits for changes of the segments in a folder.
pub trait Watch: Send + Sync + fmt::Debug {
    /// Returns when a segment may have changed since the last return, come or gone; when
    /// [`wake`](Self::wake) was called; or when so much time has passed. It may return for nothing.
    fn wait(&self, limit: Option<Duration>);

    /// Makes [`wait`](Self::wait) return, also if it is called only later.
    fn wake(&self);
}

/// For disks that cannot be watched: returns after [`EVERY`](Self::EVERY), changed or not. The one
/// place where a log looks without being called, because nothing calls.
#[derive(Debug, Default)]
pub(crate) struct TimedWatch {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl TimedWatch {
    pub(crate) const EVERY: Duration = Duration::from_millis(100);
}

impl Watch for TimedWatch {
    fn wait(&self, limit: Option<Duration>) {
        let limit = limit.map_or(Self::EVERY, |limit| limit.min(Self::EVERY));
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(woken, limit, |woken| !*woken);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    fn wake(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::FolderWatch;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

    use super::Watch;

    /// inotify on a folder. It tells of changes made on this machine, not over a network.
    #[derive(Debug)]
    pub(crate) struct FolderWatch {
        changes: OwnedFd,
        wakes: OwnedFd,
    }

    impl FolderWatch {
        pub(crate) fn new(folder: &Path) -> io::Result<Self> {
            let changes = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let what = WatchFlags::MODIFY
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF;
            add_watch(&changes, folder, what)?;
            let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Self { changes, wakes })
        }

        /// Takes what there is; whether any of it matters.
        fn drain(&self) -> bool {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(&self.changes, &mut buffer);
            let mut matters = false;
            // Ends with "would block".
            while let Ok(event) = reader.next() {
                // Without a name it is about the folder itself, or too many to be told.
                let name = event.file_name().map(|name| name.to_bytes().ends_with(b".seg"));
                matters |=
                    name.unwrap_or(true) || event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            }
            matters
        }
    }

    impl Watch for FolderWatch {
        fn wait(&self, limit: Option<Duration>) {
            let until = limit.map(|limit| Instant::now() + limit);
            loop {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                let timeout = left.and_then(|left| Timespec::try_from(left).ok());
                let mut both = [
                    PollFd::new(&self.changes, PollFlags::IN),
                    PollFd::new(&self.wakes, PollFlags::IN),
                ];
                // Interrupted, at worst: then it is asked again.
                let _ = poll(&mut both, timeout.as_ref());
                let woken = !both[1].revents().is_empty();
                if woken {
                    // It was seen; if it cannot be taken it is only seen again.
                    let _ = rustix::io::read(&self.wakes, &mut [0; 8]);
                }
                // Both, always: what is left here would wake at once.
                if self.drain() || woken || left.is_some_and(|left| left.is_zero()) {
                    return;
                }
            }
        }

        fn wake(&self) {
            // Full means that it was woken often enough.
            let _ = rustix::io::write(&self.wakes, &1_u64.to_ne_bytes());
        }
    }

    #[cfg(test)]
    mod tests {
        use std::fs;

        use super::*;

        #[test]
        fn a_watch_returns_for_segments_and_for_a_wake_and_for_nothing_else() {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("1.seg"), b"1").unwrap();
            let watch = FolderWatch::new(folder.path()).unwrap();
            let returns = || {
                let begin = Instant::now();
                watch.wait(Some(Duration::from_secs(60)));
                assert!(begin.elapsed() < Duration::from_secs(30), "it slept");
            };
            fs::write(folder.path().join("1.seg"), b"2").unwrap();
            returns();
            fs::write(folder.path().join("2.seg"), b"2").unwrap();
            returns();
            fs::rename(folder.path().join("2.seg"), folder.path().join("3.seg")).unwrap();
            returns();
            fs::remove_file(folder.path().join("1.seg")).unwrap();
            returns();
            watch.wake();
            returns();
            // Commits are of no concern: only the limit ends this.
            fs::write(folder.path().join("progress.a"), b"x").unwrap();
            assert!(!watch.drain());
            let begin = Instant::now();
            watch.wait(Some(Duration::from_millis(1)));
            assert!(begin.elapsed() >= Duration::from_millis(1));
        }
    }
}
