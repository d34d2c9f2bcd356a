//! What the operating system says of this process, and children that are measured in its place.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Processor time of all threads so far, ended ones included.
#[expect(unsafe_code, reason = "one system call that the standard library does not offer")]
pub(crate) fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into `time`, which lives through the call.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) } != 0 {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Bytes that this process has caused to be read from a disk, `read_bytes` of `/proc/self/io`.
/// `None` where there is no such count.
pub(crate) fn read_from_disk_bytes() -> Option<u64> {
    let io = fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.trim().parse().ok()
}

/// Memory that is resident now, in bytes: the second figure of `/proc/self/statm`.
pub(crate) fn resident_bytes() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm").context("read /proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("statm has a second figure")?.parse()?;
    Ok(pages * page_bytes())
}

/// The most memory that was ever resident, in bytes: `VmHWM` of `/proc/self/status`.
pub(crate) fn resident_bytes_max() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    Ok(field(&status, "VmHWM:").context("status has VmHWM")? * 1024)
}

#[expect(unsafe_code, reason = "one system call that the standard library does not offer")]
fn page_bytes() -> u64 {
    // SAFETY: takes a number, and touches no memory of ours.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.unsigned_abs()
}

/// How often each thread of this process has gone to sleep of its own will, by thread id, with
/// the thread's name. As often has it been woken.
pub(crate) fn sleeps() -> Result<BTreeMap<u32, (String, u64)>> {
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/task").context("list /proc/self/task")? {
        let path = entry?.path();
        // A thread may end between the two.
        let Ok(status) = fs::read_to_string(path.join("status")) else { continue };
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        let id = id.context("threads have numbers")?;
        let switches = field(&status, "voluntary_ctxt_switches:").context("a count of switches")?;
        threads.insert(id, (name.trim().to_owned(), switches));
    }
    Ok(threads)
}

/// The number of the calling thread, as in [`sleeps`].
pub(crate) fn thread_id() -> Result<u32> {
    let link = fs::read_link("/proc/thread-self").context("read /proc/thread-self")?;
    let name = link.file_name().and_then(|name| name.to_str());
    Ok(name.context("it ends with the number")?.parse()?)
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// This program again, with these arguments and a pipe for what it prints.
pub(crate) fn start(args: &[String]) -> Result<Child> {
    let program = std::env::current_exe().context("find this program")?;
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start this program a second time")
}

/// As [`start`], to its end; what it printed.
pub(crate) fn output(args: &[String]) -> Result<String> {
    let output = start(args)?.wait_with_output()?;
    ensure!(output.status.success(), "{}: {}", args.join(" "), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn resident_memory_grows_with_what_is_touched() -> Result<()> {
        let before = resident_bytes()?;
        let touched = black_box(vec![1_u8; 64 << 20]);
        let after = resident_bytes()?;
        // Other tests run beside this one and may free theirs.
        assert!(after >= before + (32 << 20), "{before} then {after}");
        assert!(resident_bytes_max()? >= after);
        drop(touched);
        Ok(())
    }

    #[test]
    fn a_thread_that_waits_is_counted() -> Result<()> {
        let me = thread_id()?;
        let before = sleeps()?[&me].1;
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let (answer, answered) = std::sync::mpsc::channel();
        let echo = std::thread::spawn(move || asked.iter().all(|()| answer.send(()).is_ok()));
        for _ in 0..100 {
            ask.send(())?;
            answered.recv()?;
        }
        drop(ask);
        assert!(echo.join().is_ok());
        assert!(sleeps()?[&me].1 > before);
        Ok(())
    }

    #[test]
    fn processor_time_passes_while_there_is_work() {
        let before = cpu();
        black_box((0..20_000_000_u64).fold(0, |sum, n| black_box(sum ^ n)));
        assert!(cpu() > before);
    }
}
