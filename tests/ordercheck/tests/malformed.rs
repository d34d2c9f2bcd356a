//! What cannot be judged is refused, with its line.

use procession_ordercheck::{Checker, Malformed, Options};

fn read(history: &str) -> Result<(), Malformed> {
    let mut checker = Checker::new(Options::default());
    history.split_terminator('\n').try_for_each(|line| checker.line(line))
}

fn refused(name: &str, second: &str, why: &str) {
    let history = format!("{{\"t\":1,\"e\":\"finish\"}}\n{second}\n{{\"t\":9,\"e\":\"finish\"}}\n");
    let error = read(&history).expect_err(name);
    assert_eq!(error.line, 2, "{name}: {error}");
    assert!(error.to_string().contains(why), "{name}: {error}");
}

#[test]
fn each_fault_is_named_with_its_line() {
    let commit = |done: &str| {
        format!(r#"{{"t":2,"e":"commit","o":5,"done":{done},"m":"x","ep":1,"res":"ok"}}"#)
    };
    for (name, line, why) in [
        ("bad json", r#"{"t":2,"e":}"#, "line 2, column 12: bad json"),
        ("two values", r#"{"t":2,"e":"finish"} {}"#, "bad json"),
        ("no object", "[]", "not a json object"),
        ("blank", "", "blank line"),
        ("spaces", "  ", "blank line"),
        ("the same ticket", r#"{"t":1,"e":"finish"}"#, "ticket"),
        ("a lower ticket", r#"{"t":0,"e":"finish"}"#, "ticket"),
        ("no ticket", r#"{"e":"finish"}"#, "t is missing"),
        ("a ticket in words", r#"{"t":"2","e":"finish"}"#, "column 2: t is"),
        ("a ticket with a fraction", r#"{"t":2.0,"e":"finish"}"#, "t is 2.0"),
        ("unknown event", r#"{"t":2,"e":"stop"}"#, "unknown event"),
        ("no event", r#"{"t":2}"#, "e is missing"),
        ("missing field", r#"{"t":2,"e":"stored","g":"a"}"#, "o is missing"),
        ("null is another type", r#"{"t":2,"e":"stored","g":"a","o":1,"seq":null}"#, "seq is null"),
        ("a subscription by number", r#"{"t":2,"e":"reset","s":1,"o":1}"#, "s is 1"),
        ("a group by number", r#"{"t":2,"e":"barrier","g":1,"re":1}"#, "g is 1"),
        ("odd hex", r#"{"t":2,"e":"barrier","g":{"hex":"616"},"re":1}"#, "hex"),
        ("no hex", r#"{"t":2,"e":"barrier","g":{"hex":"6g"},"re":1}"#, "hex"),
        ("an object without hex", r#"{"t":2,"e":"barrier","g":{},"re":1}"#, "hex"),
        ("no why", r#"{"t":2,"e":"dead","o":1,"g":"a"}"#, "why is missing"),
        (
            "unlisted scope",
            r#"{"t":2,"e":"park","o":1,"g":"a","why":"","scope":"all"}"#,
            "scope is",
        ),
        ("unlisted res", r#"{"t":2,"e":"send","g":"a","seq":0,"res":"OK"}"#, "res is"),
        ("unlisted how", r#"{"t":2,"e":"drop","m":"x","ep":1,"how":"gone"}"#, "how is"),
        ("unlisted v", r#"{"t":2,"e":"end","o":1,"g":"a","m":"x","ep":1,"v":"bad"}"#, "v is"),
        (
            "end without begin",
            r#"{"t":2,"e":"end","o":1,"g":"a","m":"x","ep":1,"v":"ok"}"#,
            "without its open begin",
        ),
        ("no done", r#"{"t":2,"e":"commit","o":5,"m":"x","ep":1,"res":"ok"}"#, "done is missing"),
        ("done is a number", &commit("7"), "done is not"),
        ("done is no pair", &commit("[[6,7,8]]"), "not a range"),
        ("an empty range", &commit("[[6,6]]"), "is empty"),
        ("a range below o", &commit("[[4,7]]"), "below"),
        ("no gap", &commit("[[6,7],[7,8]]"), "no gap"),
        ("descending", &commit("[[8,9],[6,7]]"), "no gap"),
    ] {
        refused(name, line, why);
    }
}

#[test]
fn an_end_needs_the_begin_that_is_its_own() {
    let begin = r#"{"t":1,"e":"begin","o":1,"g":"a","m":"x","ep":1}"#;
    for end in [
        r#"{"t":3,"e":"end","o":1,"g":"a","m":"x","ep":1,"a":2,"v":"ok"}"#,
        r#"{"t":3,"e":"end","o":1,"g":"a","m":"x","ep":2,"v":"ok"}"#,
        r#"{"t":3,"e":"end","o":1,"g":"b","m":"x","ep":1,"v":"ok"}"#,
        r#"{"t":3,"e":"end","o":1,"g":"a","m":"y","ep":1,"v":"ok"}"#,
        r#"{"t":3,"e":"end","s":"t","o":1,"g":"a","m":"x","ep":1,"v":"ok"}"#,
    ] {
        assert_eq!(read(&format!("{begin}\n{end}")).unwrap_err().line, 2, "{end}");
    }
    let end = r#"{"t":3,"e":"end","o":1,"g":{"hex":"61"},"p":0,"a":1,"m":"x","ep":1,"v":"ok"}"#;
    read(&format!("{begin}\n{end}")).unwrap();
    let crash = r#"{"t":2,"e":"crash","m":"x"}"#;
    assert_eq!(read(&format!("{begin}\n{crash}\n{end}")).unwrap_err().line, 3);
}

#[test]
fn what_is_allowed() {
    let commit = r#"{"t":1,"e":"commit","o":5,"done":[[5,6],[8,9]],"m":"x","ep":1,"res":"ok"}"#;
    let unknown = r#"{"t":-4,"e":"trim","o":5,"s":7,"note":[{"a":null}]}"#;
    for history in [
        "",
        "\n",
        commit,
        unknown,
        "{\"t\":1,\"e\":\"finish\"}\n",
        "{\"t\":1,\"e\":\"finish\"}\n\n",
    ] {
        assert_eq!(read(history), Ok(()), "{history:?}");
    }
    assert_eq!(read("\n\n").unwrap_err().line, 1);
}
