//! Faults of a real machine: other processes, file systems that are read-only or full.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind as Io, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession_core::*;
use tempfile::TempDir;

use super::support::{contents, key, record, send, stored};
use crate::{FileLog, OpenOptions};

const CHILD: &str = "PROCESSION_FILE_MACHINE_TEST_FOLDER";

fn options(path: &Path) -> OpenOptions {
    FileLog::open(path)
        .partitions(3)
        .segment_bytes(64 << 10)
        .round_bytes_max(16 << 10)
        .record_bytes_max(4 << 10)
}

/// A log that is closed in order, so its spare segment is there.
fn create(path: &Path) {
    let log = options(path).open_blocking().unwrap();
    stored(&log, 0, "case", "first");
    block_on(log.close()).unwrap();
}

/// Not a test by itself: what the other process does.
#[test]
fn child_opens_and_appends_until_its_input_ends() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    match options(Path::new(&folder)).open_blocking() {
        Err(error) => println!("refused {error}"),
        Ok(log) => {
            stored(&log, 0, "case", "of the child");
            println!("open");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
    }
}

/// Another process that tries to open the log, and what it says of it.
struct Other {
    process: Child,
    says: String,
    /// It ends when this does.
    _input: ChildStdin,
}

impl Other {
    fn start(path: &Path) -> Self {
        let name = "tests::machine::child_opens_and_appends_until_its_input_ends";
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        // The harness may print the name of the test in front of it.
        let says = lines
            .find_map(|line| {
                let line = line.ok()?;
                let at = line.find("refused ").or_else(|| line.find("open"))?;
                (!line.contains("child_opens") || at > line.find(" ... ")?)
                    .then(|| line[at..].to_owned())
            })
            .unwrap_or_default();
        Self { process, says, _input: input }
    }

    /// With `kill -9`.
    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn a_log_open_in_another_process_is_locked_until_that_process_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let other = Other::start(&path);
    assert_eq!(other.says, "open");
    let Err(error) = options(&path).open_blocking() else {
        panic!("opened while process {} has it", other.process.id());
    };
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert_eq!(error.path(), Some(&*path));
    assert!(error.to_string().contains(&format!("process {}", other.process.id())), "{error}");
    other.kill();
    // The lock went with the process; nothing has to be cleaned up.
    let log = options(&path).open_blocking().unwrap();
    assert_eq!(contents(&log, 0).len(), 1);
    let other = Other::start(&path);
    let me = format!("process {}", std::process::id());
    assert!(other.says.starts_with("refused ") && other.says.contains(&me), "{}", other.says);
    other.kill();
    stored(&log, 0, "case", "undisturbed");
}

/// A file system in memory, mounted for one test.
struct Mount(TempDir);

impl Mount {
    /// A small file system of its own. `None`, said loudly, where this process may not mount.
    fn tmpfs(test: &str) -> Option<Self> {
        Self::new(test, &[&["-t", "tmpfs", "-o", "size=1m", "tmpfs"]])
    }

    /// The same folder at another place, where it is read-only.
    fn read_only(test: &str, folder: &Path) -> Option<Self> {
        let folder = folder.to_str().unwrap();
        Self::new(test, &[&["--bind", folder], &["-o", "remount,bind,ro"]])
    }

    fn new(test: &str, steps: &[&[&str]]) -> Option<Self> {
        let mount = Self(tempfile::tempdir().unwrap());
        for step in steps {
            let why = match Command::new("mount").args(*step).arg(mount.0.path()).output() {
                Ok(done) if done.status.success() => continue,
                Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
                Err(e) => e.to_string(),
            };
            let why = why.lines().next().unwrap_or_default();
            let line = format!("\nSKIPPED {test}: cannot mount ({why})\n");
            // Past the harness, which keeps what passing tests print.
            let _ = std::io::stderr().write_all(line.as_bytes());
            return None;
        }
        Some(mount)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut filler = File::options().create(true).append(true).open(self.at("filler")).unwrap();
        loop {
            if let Err(e) = filler.write_all(&[1; 4096]) {
                return assert_eq!(e.kind(), Io::StorageFull, "{e}");
            }
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.at("filler")).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Quietly: the last step of mounting may have failed.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn a_read_only_file_system_is_denied_and_nothing_is_harmed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    create(&path);
    let test = "a_read_only_file_system_is_denied_and_nothing_is_harmed";
    let Some(mount) = Mount::read_only(test, folder.path()) else { return };
    for name in ["log", "new"] {
        let error = options(&mount.at(name)).open_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert_eq!(error.path(), Some(&*mount.at(name)));
        assert!(error.to_string().contains("read-only"), "{error}");
    }
    // Reading does not need to write.
    let reader = options(&mount.at("log")).read_only().open_blocking().unwrap();
    assert_eq!(block_on(reader.ends(Position::End)).unwrap()[0], Offset::new(1));
    let log = options(&path).open_blocking().unwrap();
    assert!(log.recovery().clean);
    assert_eq!(contents(&log, 0).len(), 1);
}

/// Goal: a full disk stops only what needs room. Method: fill a real file system; append into what
/// is preallocated, and on until rolling finds no room, while a subscription handles and commits
/// what is stored; reopen without any room; make room.
#[test]
fn a_full_file_system_refuses_what_needs_room_while_reads_and_commits_go_on() {
    let Some(mount) =
        Mount::tmpfs("a_full_file_system_refuses_what_needs_room_while_reads_and_commits_go_on")
    else {
        return;
    };
    let path = mount.at("log");
    create(&path);
    let log = options(&path).open_blocking().unwrap();
    mount.fill();
    let consumer = log
        .subscribe("s")
        .commit_every(Duration::from_millis(1))
        .runtime(Bare)
        .workers(1)
        .build()
        .unwrap();
    let handle = consumer.handle();
    let (handled, seen) = mpsc::channel();
    let (mut kept, mut refused) = (1, 0);
    thread::scope(|scope| {
        let running = scope.spawn(move || {
            block_on(consumer.run(move |turn: Turn| {
                let sent = handled.send(turn.record().offset.get());
                async move { sent }
            }))
        });
        let stop = Stop(handle);
        while refused < 20 {
            let payload = format!("{kept:0>1000}");
            match send(&log, 0, "case", &payload) {
                Outcome::Stored(receipt) => {
                    assert_eq!(receipt.sequence, Some(Sequence::new(kept)));
                    kept += 1;
                }
                Outcome::Refused(back, error) => {
                    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                    assert_eq!(back.payload(), record("case", &payload).payload());
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
            assert!(kept < 500, "the file system never fills");
        }
        // Both preallocated segments took records before rolling found no room.
        assert!(kept > 70, "only {kept} found room");
        for offset in 0..kept {
            assert_eq!(seen.recv_timeout(Duration::from_secs(60)), Ok(offset));
        }
        assert_eq!(block_on(stop.0.shutdown()), 0);
        running.join().unwrap().unwrap();
    });
    block_on(log.close()).unwrap();
    let log = options(&path).open_blocking().unwrap();
    assert_eq!(contents(&log, 0).len() as u64, kept);
    let key = key(&log, "s", 0);
    let (_, progress) = block_on(log.store().claim(&key, Epoch::FIRST, None)).unwrap().unwrap();
    assert_eq!(progress.next, Offset::new(kept));
    let again = send(&log, 0, "case", &"x".repeat(4000));
    assert!(matches!(again, Outcome::Refused(_, e) if e.kind() == ErrorKind::Full));
    mount.make_room();
    assert_eq!(stored(&log, 0, "case", &"x".repeat(4000)).sequence, Some(Sequence::new(kept)));
}

/// A test that fails ends its run too.
struct Stop(Handle);

impl Drop for Stop {
    fn drop(&mut self) {
        drop(self.0.shutdown());
    }
}

#[test]
fn a_killed_log_reopens_on_a_full_file_system() {
    let Some(mount) = Mount::tmpfs("a_killed_log_reopens_on_a_full_file_system") else { return };
    let path = mount.at("log");
    create(&path);
    mount.fill();
    let other = Other::start(&path);
    assert_eq!(other.says, "open");
    other.kill();
    // The spare segment takes what recovery has to rewrite.
    let log = options(&path).open_blocking().unwrap();
    assert!(!log.recovery().clean);
    assert_eq!(contents(&log, 0).len(), 2);
    block_on(log.close()).unwrap();
    // Without a spare it is rewritten where it is, and again.
    for records in 3..6 {
        mount.fill();
        let other = Other::start(&path);
        assert_eq!(other.says, "open");
        other.kill();
        mount.fill();
        let log = options(&path).open_blocking().unwrap();
        assert_eq!(contents(&log, 0).len(), records);
        block_on(log.close()).unwrap();
    }
    mount.make_room();
    let log = options(&path).open_blocking().unwrap();
    assert!(log.recovery().clean);
    stored(&log, 0, "case", "goes on");
}

#[test]
fn progress_that_finds_no_room_to_grow_is_refused_and_goes_on_when_there_is_room() {
    let Some(mount) = Mount::tmpfs(
        "progress_that_finds_no_room_to_grow_is_refused_and_goes_on_when_there_is_room",
    ) else {
        return;
    };
    let path = mount.at("log");
    create(&path);
    let log = options(&path).open_blocking().unwrap();
    let store = log.store();
    let key = |number: u64| key(&log, &format!("{number:0>200}"), 0);
    let claim = |number| block_on(store.claim(&key(number), Epoch::FIRST, Some(Offset::ZERO)));
    let commit = |number, next| {
        let (key, progress) = (key(number), Progress::at(Offset::new(next)));
        let epoch = Epoch::FIRST;
        block_on(store.commit(&[Commit { key: &key, epoch, progress: &progress }]))
    };
    for number in 0..10 {
        claim(number).unwrap();
    }
    mount.fill();
    // Many times the size of the files: compactions need no room.
    for i in 0..500 {
        let answer = commit(i % 10, i).unwrap();
        assert!(matches!(answer[..], [Committed::Done]), "commit {i}: {answer:?}");
    }
    let mut claimed = 10;
    let error = loop {
        match claim(claimed) {
            Ok(_) => claimed += 1,
            Err(error) => break error,
        }
        assert!(claimed < 1000, "the file system never fills");
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    mount.make_room();
    for i in 0..500 {
        assert!(matches!(commit(i % 10, 500 + i).unwrap()[..], [Committed::Done]), "{i}");
    }
    claim(claimed).unwrap();
    drop(store);
    block_on(log.close()).unwrap();
    let log = options(&path).open_blocking().unwrap();
    assert_eq!(block_on(log.store().list()).unwrap().len() as u64, claimed + 1);
    let first = super::support::key(&log, &format!("{:0>200}", 0), 0);
    let (_, progress) = block_on(log.store().claim(&first, Epoch::FIRST, None)).unwrap().unwrap();
    assert_eq!(progress.next, Offset::new(990));
}
