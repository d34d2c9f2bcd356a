//! The `permits` example as a person runs it: bad input, second runs, kills.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A folder with data, log and output, and the example's program.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new(data: &str) -> Self {
        let stage = Self { folder: tempfile::tempdir().unwrap() };
        stage.data(data);
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self, text: &str) {
        fs::write(self.path("data.csv"), text).unwrap();
    }

    fn out(&self) -> String {
        fs::read_to_string(self.path("out.csv")).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(["--dir".into(), self.path("log")])
            .args(["--out".into(), self.path("out.csv")])
            .args(["--data".into(), self.path("data.csv")])
            .args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run(self.command(args).output().unwrap())
    }
}

struct Run(Output);

impl Run {
    fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    fn last_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.0.stdout);
        text.lines().last().unwrap_or_default().to_owned()
    }

    fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// The run did all there was to do; returns what its last line says.
    fn holds(&self, records: usize) -> String {
        let line = self.last_line();
        assert_eq!(self.code(), Some(0), "{line}\n{}", self.complaint());
        assert!(line.starts_with(&format!("records={records} ")), "{line}");
        assert!(line.contains(" lost=0 ") && line.contains(" reordered=0 "), "{line}");
        line
    }

    /// The input was refused, with a sentence that has all of this.
    fn refuses(&self, parts: &[&str]) {
        let complaint = self.complaint();
        assert_eq!(self.code(), Some(2), "{complaint}");
        for part in parts {
            assert!(complaint.contains(part), "no {part:?} in: {complaint}");
        }
    }
}

/// `cargo test` builds the examples beside the tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let target = tests.parent().and_then(Path::parent).unwrap();
    let program = target.join("examples").join(format!("permits{}", std::env::consts::EXE_SUFFIX));
    assert!(
        program.exists(),
        "{} is not built; run `cargo test` without filters on targets",
        program.display()
    );
    program
}

const HEADER: &str = "case,activity,resource,timestamp\n";

fn rows(count: usize, cases: usize) -> String {
    (0..count).fold(HEADER.to_owned(), |mut text, n| {
        writeln!(text, "case-{},step {n},r,2020-01-01 00:00:{:02}", n % cases, n % 60).unwrap();
        text
    })
}

#[test]
fn a_second_run_appends_nothing_twice_and_goes_on() {
    let stage = Stage::new(&rows(300, 20));
    stage.run(&["--work-ms", "0"]).holds(300);
    let before = stage.out();
    let again = stage.run(&["--work-ms", "0"]);
    assert!(again.holds(300).contains("speedup=0.00 ideal_speedup=0.00"));
    assert_eq!(stage.out(), before);
    stage.data(&rows(500, 20));
    stage.run(&["--work-ms", "0"]).holds(500);
    assert_eq!(stage.out().lines().count(), 500);
}

#[test]
fn every_runtime_runs_with_the_plain_command() {
    for runtime in ["none", "tokio", "smol"] {
        let stage = Stage::new(&rows(200, 10));
        stage.run(&["--work-ms", "1", "--runtime", runtime]).holds(200);
    }
}

#[test]
fn a_missing_or_unreadable_csv_is_named() {
    let stage = Stage::new(HEADER);
    fs::remove_file(stage.path("data.csv")).unwrap();
    stage.run(&[]).refuses(&["data.csv", "No such file"]);
    fs::create_dir(stage.path("data.csv")).unwrap();
    stage.run(&[]).refuses(&["data.csv", "directory"]);
}

#[test]
fn a_missing_column_is_named_with_what_there_is() {
    let stage = Stage::new("case,activity,when\n");
    stage.run(&[]).refuses(&["line 1", "no column \"resource\"", "case,activity,when"]);
    stage.data(&rows(3, 1));
    stage.run(&["--key", "permit"]).refuses(&["no column \"permit\""]);
}

#[test]
fn a_malformed_line_is_named_what_came_before_stays_and_a_corrected_rerun_goes_on() {
    let good = rows(50, 5);
    let stage = Stage::new(&format!("{good}case-1,only two\n"));
    stage.run(&["--work-ms", "0"]).refuses(&["line 52", "50 rows appended before it"]);
    stage.data(&rows(60, 5));
    stage.run(&["--work-ms", "0"]).holds(60);
    assert_eq!(stage.out().lines().count(), 60);
}

#[test]
fn invalid_text_is_a_malformed_line() {
    let stage = Stage::new("");
    let mut bytes = rows(2, 1).into_bytes();
    bytes.extend(b"case-1,\xff,r,t\n");
    fs::write(stage.path("data.csv"), bytes).unwrap();
    stage.run(&[]).refuses(&["line 4", "UTF-8"]);
}

#[test]
fn an_empty_file_with_a_header_is_no_work() {
    let stage = Stage::new(HEADER);
    stage.run(&[]).holds(0);
}

#[test]
fn empty_keys_quotes_and_line_breaks_are_values_like_any_other() {
    let text = format!(
        "{HEADER},first,r,t\n,\"sec,ond\",r,t\n\"a\"\"b\",\"two\nlines\",r,t\n,third,r,t\n"
    );
    let stage = Stage::new(&text);
    stage.run(&["--work-ms", "0"]).holds(4);
    stage.run(&["--work-ms", "0"]).holds(4);
}

#[test]
fn another_column_may_be_the_group() {
    let stage = Stage::new(&rows(100, 10));
    let line = stage.run(&["--work-ms", "0", "--key", "resource"]).holds(100);
    assert!(line.contains("groups=1 "), "{line}");
}

#[test]
fn a_log_of_other_data_is_refused() {
    let stage = Stage::new(&rows(20, 2));
    stage.run(&["--work-ms", "0"]).holds(20);
    stage.data(&rows(20, 3));
    stage.run(&["--work-ms", "0"]).refuses(&["filled from another file"]);
}

#[test]
fn a_torn_last_line_of_the_output_is_cut_at_start() {
    let stage = Stage::new(&rows(30, 3));
    stage.run(&["--work-ms", "0"]).holds(30);
    let whole = stage.out();
    fs::write(stage.path("out.csv"), format!("{whole}case-0,1,st")).unwrap();
    stage.run(&["--work-ms", "0"]).holds(30);
    assert_eq!(stage.out(), whole);
}

#[test]
fn an_output_that_lost_a_line_is_found_out() {
    let stage = Stage::new(&rows(30, 3));
    stage.run(&["--work-ms", "0"]).holds(30);
    let out = stage.out();
    let without_last: String = out.lines().take(29).map(|line| format!("{line}\n")).collect();
    fs::write(stage.path("out.csv"), without_last).unwrap();
    let run = stage.run(&["--work-ms", "0"]);
    assert_eq!(run.code(), Some(1));
    assert!(run.last_line().contains(" lost=1 "), "{}", run.last_line());
}

#[test]
fn an_output_out_of_order_is_found_out() {
    let stage = Stage::new(&rows(4, 1));
    stage.run(&["--work-ms", "0"]).holds(4);
    let out = stage.out();
    let mut lines: Vec<_> = out.lines().collect();
    lines.swap(1, 2);
    fs::write(stage.path("out.csv"), format!("{}\n", lines.join("\n"))).unwrap();
    let run = stage.run(&["--work-ms", "0"]);
    assert_eq!(run.code(), Some(1));
    assert!(run.last_line().contains(" reordered=1 "), "{}", run.last_line());
}

#[test]
fn partitions_zero_and_a_changed_count_are_refused() {
    let stage = Stage::new(&rows(5, 2));
    stage.run(&["--partitions", "0"]).refuses(&["partitions"]);
    stage.run(&["--partitions", "3", "--work-ms", "0"]).holds(5);
    stage.run(&["--partitions", "4"]).refuses(&["3", "4"]);
    stage.run(&["--work-ms", "0"]).holds(5);
}

/// Goal: wherever the process is killed, in the middle of appending too, the next runs complete the
/// output. Method: kill -9 after a random time, from the start or from the first commit, again and
/// again, then let one run end.
/// `PROCESSION_KILLS=200` is the long form, `PROCESSION_SEED` replays the waits.
#[test]
fn killed_at_random_points_it_loses_and_reorders_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let kills = number("PROCESSION_KILLS").unwrap_or(10);
    let seed = number("PROCESSION_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("PROCESSION_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let count = 400 * kills as usize;
    let stage = Stage::new(&rows(count, 97));
    let args = ["--work-ms", "5", "--concurrency", "8", "--commit-ms", "10", "--partitions", "4"];
    let mut killed = 0;
    for kill in 0..kills {
        let mut child =
            stage.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(child.stderr.take().unwrap()).lines();
        // Every other one dies once it has committed something, however slow the machine is.
        let committed = kill % 2 == 1
            && says.by_ref().map_while(Result::ok).any(|line| line.contains("first commit"));
        // A real wait: the moment of the kill is what varies.
        let most = if committed { 50_000 } else { 250_000 };
        std::thread::sleep(Duration::from_micros(random.u64(0..most)));
        drop(says);
        killed += u64::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let line = stage.run(&["--work-ms", "0"]).holds(count);
    println!("kills={killed} {line}");
    assert!(killed > 0, "no run lived long enough to be killed");
}
