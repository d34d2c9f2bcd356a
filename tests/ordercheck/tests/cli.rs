//! The program: its exit codes, and a history on standard input.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ordercheck"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the program");
    // A program that refuses its arguments closes its input early.
    let written = child.stdin.take().expect("its input").write_all(input);
    drop(written);
    child.wait_with_output().expect("its output")
}

fn check(args: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let output = run(&[&["check"], args, &["-"]].concat(), input);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_sound_history_exits_0_with_its_counts() {
    let (code, out, err) = check(&[], b"");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let expected = "events=0 groups=0 turns=0 retries=0 crashes=0 handoffs=0 replays=0 zombies=0 \
        A1=0 A2=0 A3=0 A4=0 A5=0 A6=0 A7=0 A8=0 A9=0 A10=0 A11=0 A12=0 A13=0 A14=0 A15=0 anomalies=0\n";
    assert_eq!(out, expected);
}

#[test]
fn an_anomaly_exits_1() {
    let twice = br#"{"t":1,"e":"stored","o":0,"g":"a b"}
{"t":2,"e":"effect","o":0,"g":"a b","m":"x","ep":1,"res":"applied"}
{"t":3,"e":"effect","o":0,"g":"a b","m":"x","ep":1,"res":"applied"}"#;
    assert_eq!(check(&[], twice).0, Some(0));
    let (code, out, _) = check(&["--dedup"], twice);
    assert_eq!(code, Some(1));
    let first = "A12 dedup leak group=\"a b\" partition=0 offset=0 lines=2,3: applied twice\n";
    assert!(out.starts_with(first), "{out}");
}

#[test]
fn a_malformed_history_exits_2_before_any_verdict() {
    let history = b"{\"t\":1,\"e\":\"begin\",\"o\":1,\"g\":\"a\",\"m\":\"x\",\"ep\":1}\n{\"t\":2,\"e\":\"\xff\"}\n";
    let (code, out, err) = check(&[], history);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("line 2, column 13: not utf-8"), "{err}");
    assert_eq!(run(&["check", "no/such/file"], b"").status.code(), Some(2));
}

#[test]
fn help_names_the_options() {
    let output = run(&["check", "--help"], b"");
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for option in ["--max-replay", "--dedup", "--allow-backlog", "--cascade", "--scope"] {
        assert!(help.contains(option), "{help}");
    }
}

#[test]
fn explain_tells_the_story_of_one_group() {
    let history = br#"{"t":1,"e":"own","p":3,"m":"x","ep":1}
{"t":2,"e":"stored","p":3,"o":7,"g":"a","seq":0}
{"t":3,"e":"stored","p":3,"o":8,"g":"b","seq":0}
{"t":4,"e":"begin","p":3,"o":7,"g":"a","m":"x","ep":1}
{"t":5,"e":"own","p":3,"m":"y","ep":2}
{"t":6,"e":"crash","m":"x"}
"#;
    let expected = "       2  stored at 3/7, seq 0
       4  3/7 begins, attempt 1, by x, epoch 1
       5  y owns partition 3 for main, epoch 2
       6  x crashes
";
    for name in ["a", "hex:61"] {
        let output = run(&["explain", "-", "--group", name], history);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        assert_eq!(output.status.code(), Some(0));
    }
    assert_eq!(run(&["explain", "-", "--group", "a"], b"{").status.code(), Some(2));
}
