//! How often this process syncs, and how much it writes, whoever does it.

#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Totals since the process began. A contender's share is the difference of two of these.
///
/// Counted from outside, by one rule for all contenders, so none has to be trusted about itself:
/// a sync is a call of `fsync` or `fdatasync` of the C library, written bytes are what the kernel
/// saw in write calls. `None` where the platform has no such count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    /// Calls of `fsync` and `fdatasync`.
    pub(crate) syncs: Option<u64>,
    /// Bytes passed to `write` and its relatives.
    pub(crate) written_bytes: Option<u64>,
}

impl Counters {
    /// The totals now.
    pub(crate) fn now() -> Self {
        Self { syncs: syncs(), written_bytes: written_bytes() }
    }

    /// What was added since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let added = |now: Option<u64>, then: Option<u64>| Some(now? - then?);
        Self {
            syncs: added(self.syncs, earlier.syncs),
            written_bytes: added(self.written_bytes, earlier.written_bytes),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn syncs() -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn syncs() -> Option<u64> {
    Some(SYNCS.load(Relaxed))
}

/// `wchar` of `/proc/self/io`.
fn written_bytes() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
}

#[cfg(target_os = "linux")]
static SYNCS: AtomicU64 = AtomicU64::new(0);

/// A program's own symbol comes before the C library's of the same name, so the standard library
/// and every peer call these two. A crate that makes its system calls itself is not counted.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "defines two C symbols, each of which makes one system call")]
mod interposed {
    use super::{Relaxed, SYNCS};
    use libc::c_int;

    #[unsafe(no_mangle)]
    extern "C" fn fdatasync(fd: c_int) -> c_int {
        SYNCS.fetch_add(1, Relaxed);
        // SAFETY: the call takes a number and touches no memory of ours; `syscall` sets `errno`
        // as `fdatasync` would.
        unsafe { libc::syscall(libc::SYS_fdatasync, fd) as c_int }
    }

    #[unsafe(no_mangle)]
    extern "C" fn fsync(fd: c_int) -> c_int {
        SYNCS.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_fsync, fd) as c_int }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn counts_syncs_and_bytes() -> anyhow::Result<()> {
        use std::io::Write;
        let mut file = tempfile::tempfile()?;
        let before = Counters::now();
        file.write_all(&[7; 1_000])?;
        file.sync_data()?;
        file.sync_all()?;
        let added = Counters::now().since(before);
        // Other tests run beside this one and may add theirs.
        assert!(added.syncs >= Some(2), "{added:?}");
        assert!(added.written_bytes >= Some(1_000), "{added:?}");
        Ok(())
    }
}
