//! Every anomaly by hand, and beside each the nearest history that is sound.
//!
//! A case names what is to be found: codes with their lines, or nothing.

mod support;

use procession_ordercheck::{Checker, Malformed, Options, Report};

const PLAIN: Options = Options {
    max_replay: None,
    dedup: false,
    allow_backlog: false,
    cascade: false,
    partition_scope: false,
};
const PARTITION: Options = Options { partition_scope: true, ..PLAIN };

/// Two records of one group, stored.
const TWO: &str = "stored o=0 g=a seq=0\n stored o=1 g=a seq=1\n";

fn judge(options: Options, history: &str) -> Result<Report, Malformed> {
    let mut checker = Checker::new(options);
    for line in support::lines(history) {
        checker.line(&line)?;
    }
    Ok(checker.finish())
}

fn check(name: &str, options: Options, history: &str, expected: &str) {
    let report = judge(options, history).unwrap_or_else(|error| panic!("{name}: {error}"));
    let found: Vec<String> = report
        .anomalies
        .iter()
        .map(|anomaly| {
            let lines: Vec<String> = anomaly.lines.iter().map(u64::to_string).collect();
            format!("A{}:{}", anomaly.code, lines.join(","))
        })
        .collect();
    assert_eq!(found.join(" "), expected, "{name}\n{report}");
}

/// Every case: name, options, history after `TWO`, what is found.
fn table(cases: &[(&str, Options, &str, &str)]) {
    for (name, options, history, expected) in cases {
        check(name, *options, &format!("{TWO}{history}"), expected);
    }
}

#[test]
fn overlap() {
    table(&[
        (
            "two turns of one record",
            PLAIN,
            "begin o=0 g=a m=x ep=1\n begin o=0 g=a a=2 m=x ep=1",
            "A1:3,4",
        ),
        (
            "two members, no newer owner",
            PLAIN,
            "begin o=0 g=a m=x ep=1\n begin o=0 g=a m=y ep=1",
            "A1:3,4",
        ),
        (
            "one after the other",
            PLAIN,
            "begin o=0 g=a m=x ep=1\n end o=0 g=a m=x ep=1 v=transient\n begin o=0 g=a a=2 m=x ep=1",
            "",
        ),
        ("two subscriptions", PLAIN, "begin o=0 g=a m=x ep=1\n begin s=other o=0 g=a m=x ep=1", ""),
        (
            "its member crashed",
            PLAIN,
            "begin o=0 g=a m=x ep=1\n crash m=x\n begin o=0 g=a m=y ep=1",
            "",
        ),
        (
            "its member stands still",
            PLAIN,
            "begin o=0 g=a m=x ep=1\n pause m=x\n begin o=0 g=a m=y ep=1",
            "A1:3,5",
        ),
        (
            "the other is a zombie",
            PLAIN,
            "own m=x ep=1\n begin o=0 g=a m=x ep=1\n own m=y ep=2\n begin o=0 g=a m=y ep=2",
            "",
        ),
        (
            "a zombie begins",
            PLAIN,
            "own m=x ep=1\n own m=y ep=2\n begin o=0 g=a m=y ep=2\n begin o=0 g=a m=x ep=1",
            "",
        ),
        (
            "the other said it was drained",
            PLAIN,
            "own m=x ep=1\n begin o=0 g=a m=x ep=1\n drop m=x ep=1 how=drained\n own m=y ep=2\n begin o=0 g=a m=y ep=2",
            "A1:4,7",
        ),
        (
            "drained after the newer own is no promise kept",
            PLAIN,
            "own m=x ep=1\n begin o=0 g=a m=x ep=1\n own m=y ep=2\n drop m=x ep=1 how=drained\n begin o=0 g=a m=y ep=2",
            "",
        ),
        (
            "the other was lost",
            PLAIN,
            "own m=x ep=1\n begin o=0 g=a m=x ep=1\n drop m=x ep=1 how=lost\n own m=y ep=2\n begin o=0 g=a m=y ep=2",
            "",
        ),
        (
            "two turns of one member, one a zombie",
            PLAIN,
            "own m=x ep=1\n begin o=0 g=a m=x ep=1\n own m=x ep=2\n begin o=0 g=a m=x ep=2",
            "A1:4,6",
        ),
        (
            "hex is the same group",
            PLAIN,
            "begin o=0 g=a m=x ep=1\n begin o=0 g={\"hex\":\"61\"} m=y ep=1",
            "A1:3,4",
        ),
    ]);
}

#[test]
fn effect_inversion() {
    let effects = "effect o=1 g=a m=x ep=1 res=applied\n effect o=0 g=a m=x ep=1 res=applied";
    table(&[
        ("the later one first", PLAIN, effects, "A2:3,4"),
        (
            "in order",
            PLAIN,
            "effect o=0 g=a m=x ep=1 res=applied\n effect o=1 g=a m=x ep=1 res=applied\n effect o=0 g=a m=x ep=1 res=applied",
            "",
        ),
        (
            "only applied counts",
            PLAIN,
            "effect o=1 g=a m=x ep=1 res=fenced\n effect o=0 g=a m=x ep=1 res=applied",
            "",
        ),
        ("skipped before", PLAIN, &format!("skip o=0 g=a why=w\n {effects}"), ""),
        ("below a reset before", PLAIN, &format!("reset o=1\n {effects}"), ""),
        (
            "skipped between",
            PLAIN,
            "effect o=1 g=a m=x ep=1 res=applied\n skip o=0 g=a why=w\n effect o=0 g=a m=x ep=1 res=applied",
            "A2:3,5",
        ),
    ]);
}

#[test]
fn overtake() {
    table(&[
        (
            "the earlier waits to retry",
            PLAIN,
            "begin o=0 g=a m=x ep=1\n end o=0 g=a m=x ep=1 v=transient\n begin o=1 g=a m=x ep=1",
            "A3:4,5",
        ),
        ("the earlier never began", PLAIN, "begin o=1 g=a m=x ep=1", "A3:1,3"),
        (
            "the earlier is done",
            PLAIN,
            "begin o=0 g=a m=x ep=1\n end o=0 g=a m=x ep=1 v=ok\n begin o=1 g=a m=x ep=1",
            "",
        ),
        (
            "done for another subscription only",
            PLAIN,
            "skip s=other o=0 g=a why=w\n begin o=1 g=a m=x ep=1",
            "A3:1,4",
        ),
        ("parked", PLAIN, "park o=0 g=a why=w\n begin o=1 g=a m=x ep=1", ""),
        ("below a reset", PLAIN, "reset o=1\n begin o=1 g=a m=x ep=1", ""),
        ("trimmed", PLAIN, "trim o=1\n begin o=1 g=a m=x ep=1", ""),
        ("by a zombie", PLAIN, "own m=x ep=1\n own m=y ep=2\n begin o=1 g=a m=x ep=1", ""),
        (
            "run again after a reset back",
            PLAIN,
            "skip o=0 g=a why=w\n reset o=0\n begin o=1 g=a m=x ep=1",
            "",
        ),
        ("another group", PLAIN, "stored o=2 g=b\n begin o=2 g=b m=x ep=1", ""),
        (
            "the same key in another partition, by partition",
            PARTITION,
            "stored p=1 o=0 g=a\n begin p=1 o=0 g=a m=x ep=1",
            "",
        ),
        (
            "across a route",
            PLAIN,
            "route g=a p=1 re=1\n stored p=1 o=0 g=a\n barrier g=a re=1\n begin p=1 o=0 g=a m=x ep=1",
            "A3:1,6",
        ),
    ]);
}

#[test]
fn lost() {
    table(&[
        (
            "committed and never done",
            PLAIN,
            "reset s=main o=0\n skip o=0 g=a why=w\n commit o=2 done=[] m=x ep=1 res=ok\n finish",
            "A4:2,5 A5:2,5",
        ),
        (
            "committed and done",
            PLAIN,
            "skip o=0 g=a why=w\n skip o=1 g=a why=w\n commit o=2 done=[] m=x ep=1 res=ok\n finish",
            "",
        ),
        (
            "without finish there is no loss",
            PLAIN,
            "skip o=0 g=a why=w\n commit o=1 done=[] m=x ep=1 res=ok",
            "",
        ),
        ("a send nothing answers", PLAIN, "send g=a seq=2 res=ok\n finish", "A4:3"),
        ("a send answered", PLAIN, "send g=a seq=1 res=ok\n finish", ""),
        ("an unknown send may be nowhere", PLAIN, "send g=a seq=2 res=unknown\n finish", ""),
    ]);
}

#[test]
fn commits() {
    let done = "skip o=0 g=a why=w\n skip o=1 g=a why=w\n";
    let with = |rest: &str| format!("{done}{rest}");
    table(&[
        ("a commit ahead", PLAIN, "commit o=1 done=[] m=x ep=1 res=ok", "A5:1,3"),
        (
            "an unknown commit ahead",
            PLAIN,
            "commit o=0 done=[[1,2]] m=x ep=1 res=unknown",
            "A5:2,3",
        ),
        ("a refused commit ahead", PLAIN, "commit o=1 done=[] m=x ep=1 res=refused", ""),
        (
            "stored after the commit",
            PLAIN,
            &with("commit o=3 done=[] m=x ep=1 res=ok\n stored o=2 g=a"),
            "",
        ),
        ("a commit behind", PLAIN, "skip o=0 g=a why=w\n commit o=1 done=[] m=x ep=1 res=ok", ""),
        (
            "was terminal before its redrive",
            PLAIN,
            "dead o=0 g=a why=w\n redrive o=0 g=a\n commit o=1 done=[] m=x ep=1 res=ok",
            "",
        ),
        (
            "a lower next offset",
            PLAIN,
            &with("commit o=2 done=[] m=x ep=1 res=ok\n commit o=1 done=[] m=x ep=1 res=ok"),
            "A6:5,6",
        ),
        (
            "a finished range forgotten",
            PLAIN,
            &with("commit o=0 done=[[1,2]] m=x ep=1 res=ok\n commit o=0 done=[] m=x ep=1 res=ok"),
            "A6:5,6",
        ),
        (
            "a finished range grown into",
            PLAIN,
            &with("commit o=0 done=[[1,2]] m=x ep=1 res=ok\n commit o=2 done=[] m=x ep=1 res=ok"),
            "",
        ),
        (
            "a reset between",
            PLAIN,
            &with(
                "commit o=2 done=[] m=x ep=1 res=ok\n reset o=0\n commit o=1 done=[] m=x ep=1 res=ok",
            ),
            "",
        ),
        (
            "the lower one is not known",
            PLAIN,
            &with("commit o=2 done=[] m=x ep=1 res=ok\n commit o=1 done=[] m=x ep=1 res=unknown"),
            "",
        ),
    ]);
}

#[test]
fn zombie_effect() {
    let owns = "skip o=0 g=a why=w\n own m=x ep=1\n own m=y ep=2\n";
    let with = |rest: &str| format!("{owns}{rest}");
    table(&[
        ("applied", PLAIN, &with("effect o=0 g=a m=x ep=1 res=applied"), "A7:5,6"),
        ("fenced", PLAIN, &with("effect o=0 g=a m=x ep=1 res=fenced"), ""),
        ("by the owner", PLAIN, &with("effect o=0 g=a m=y ep=2 res=applied"), ""),
        ("committed", PLAIN, &with("commit o=1 done=[] m=x ep=1 res=ok"), "A7:5,6"),
        ("refused", PLAIN, &with("commit o=1 done=[] m=x ep=1 res=refused"), ""),
        ("claimed again with the same epoch", PLAIN, &with("own m=x ep=2"), "A7:5,6"),
        ("claimed with a higher epoch", PLAIN, &with("own m=x ep=3"), ""),
        ("another partition", PLAIN, &with("own p=1 m=x ep=1"), ""),
    ]);
}

#[test]
fn split_route() {
    let moved =
        "skip o=0 g=a why=w\n skip o=1 g=a why=w\n route g=a p=1 re=1\n stored p=1 o=0 g=a\n";
    let with = |rest: &str| format!("{moved}{rest}");
    table(&[
        ("stored elsewhere", PLAIN, "stored p=1 o=0 g=a", "A8:1,3"),
        ("stored elsewhere, by partition", PARTITION, "stored p=1 o=0 g=a", ""),
        ("stored where it is routed", PLAIN, moved, ""),
        ("begun before the barrier", PLAIN, &with("begin p=1 o=0 g=a m=x ep=1"), "A8:1,5,6,7"),
        (
            "begun after the barrier",
            PLAIN,
            &with("barrier g=a re=1\n begin p=1 o=0 g=a m=x ep=1"),
            "",
        ),
        (
            "the barrier of an older epoch",
            PLAIN,
            &with("barrier g=a re=0\n begin p=1 o=0 g=a m=x ep=1"),
            "A8:1,5,6,8",
        ),
        (
            "nothing was stored elsewhere",
            PLAIN,
            "route g=b p=1 re=1\n stored p=1 o=0 g=b\n begin p=1 o=0 g=b m=x ep=1",
            "",
        ),
    ]);
}

#[test]
fn send_inversion_and_phantoms() {
    let sends = "send g=b seq=0 res=ok\n send g=b seq=1 res=ok\n";
    let with = |rest: &str| format!("{sends}{rest}");
    table(&[
        (
            "stored the wrong way round",
            PLAIN,
            &with("stored o=2 g=b seq=1\n stored o=3 g=b seq=0"),
            "A9:3,4,5,6",
        ),
        (
            "stored in order, logged late",
            PLAIN,
            &with("stored o=3 g=b seq=1\n stored o=2 g=b seq=0"),
            "",
        ),
        (
            "a second copy",
            PLAIN,
            &with("stored o=2 g=b seq=0\n stored o=3 g=b seq=1\n stored o=4 g=b seq=0"),
            "",
        ),
        (
            "one is not known",
            PLAIN,
            "send g=b seq=0 res=unknown\n send g=b seq=1 res=ok\n stored o=2 g=b seq=1\n stored o=3 g=b seq=0",
            "",
        ),
        ("by partition", PARTITION, &with("stored o=2 g=b seq=1\n stored o=3 g=b seq=0"), ""),
        ("a turn of nothing", PLAIN, "begin o=7 g=b m=x ep=1", "A10:3"),
        ("stored later", PLAIN, "begin o=7 g=b m=x ep=1\n stored o=7 g=b", ""),
        ("an effect under another group", PLAIN, "effect o=0 g=b m=x ep=1 res=applied", "A10:1,3"),
        (
            "an effect under another seq",
            PLAIN,
            "effect o=0 g=a seq=9 m=x ep=1 res=applied",
            "A10:1,3",
        ),
        ("an effect without a seq", PLAIN, "effect o=0 g=a m=x ep=1 res=applied", ""),
        ("a failed send is stored", PLAIN, "send g=a seq=1 res=fail", "A10:2,3"),
        (
            "failed once, unknown once",
            PLAIN,
            "send g=a seq=1 res=fail\n send g=a seq=1 res=unknown",
            "",
        ),
        ("one offset, two records", PLAIN, "stored o=1 g=a seq=2", "A10:2,3"),
        ("one offset, twice the same", PLAIN, "stored o=1 g=a seq=1", ""),
    ]);
}

#[test]
fn duplicate_execution() {
    let most = |max_replay| Options { max_replay: Some(max_replay), ..PLAIN };
    let ok = "begin o=0 g=a m=x ep=1\n end o=0 g=a m=x ep=1 v=ok\n";
    let with = |rest: &str| format!("{ok}{rest}");
    table(&[
        ("no cause", most(5), &with(ok), "A11:5"),
        ("only counted", PLAIN, &with(ok), ""),
        ("charged to a crash", most(1), &with(&format!("crash m=y\n {ok}")), ""),
        (
            "more than the crash may cost",
            most(1),
            &with(&format!("crash m=y\n {ok}{ok}")),
            "A11:5,8",
        ),
        ("charged to a handoff", most(1), &format!("own m=x ep=0\n{ok}own m=x ep=1\n{ok}"), ""),
        ("the first own is no handoff", most(1), &with(&format!("own m=x ep=1\n{ok}")), "A11:6"),
        ("a redrive", most(0), &with(&format!("redrive o=0 g=a\n{ok}")), ""),
        ("a reset at it", most(0), &with(&format!("reset o=0\n{ok}")), ""),
        ("a reset above it", most(0), &with(&format!("reset o=1\n{ok}")), "A11:6"),
        (
            "after a transient end",
            most(0),
            "begin o=0 g=a m=x ep=1\n end o=0 g=a m=x ep=1 v=timeout\n begin o=0 g=a a=2 m=x ep=1",
            "",
        ),
    ]);
}

#[test]
fn dedup_and_cascade() {
    let dedup = Options { dedup: true, ..PLAIN };
    let cascade = Options { cascade: true, ..PLAIN };
    let applied = "effect o=0 g=a m=x ep=1 res=applied\n";
    let twice = format!("{applied}{applied}");
    let ok = "begin o=1 g=a m=x ep=1\n end o=1 g=a m=x ep=1 v=ok";
    table(&[
        ("applied twice", dedup, &twice, "A12:3,4"),
        ("applied twice, not judged", PLAIN, &twice, ""),
        ("a duplicate", dedup, &format!("{applied}effect o=0 g=a m=x ep=1 res=duplicate"), ""),
        (
            "two subscriptions",
            dedup,
            &format!("{applied}effect s=t o=0 g=a m=x ep=1 res=applied"),
            "",
        ),
        ("ended ok after a dead one", cascade, &format!("dead o=0 g=a why=w\n{ok}"), "A15:3,5"),
        ("not judged", PLAIN, &format!("dead o=0 g=a why=w\n{ok}"), ""),
        (
            "after the redrive",
            cascade,
            &format!("dead o=0 g=a why=w\n redrive o=0 g=a\n skip o=0 g=a why=w\n{ok}"),
            "",
        ),
        (
            "the dead one is later",
            cascade,
            "dead o=1 g=a why=w\n begin o=0 g=a m=x ep=1\n end o=0 g=a m=x ep=1 v=ok",
            "",
        ),
    ]);
}

#[test]
fn dead_letter_order() {
    table(&[
        (
            "a live one passes a redriven one",
            PLAIN,
            "dead o=0 g=a why=w\n redrive o=0 g=a\n begin o=1 g=a m=x ep=1",
            "A13:4,5",
        ),
        (
            "a redriven one passes a redriven one",
            PLAIN,
            "dead o=0 g=a why=w\n dead o=1 g=a why=w\n redrive o=0 g=a\n redrive o=1 g=a\n begin o=1 g=a m=x ep=1",
            "A13:5,7",
        ),
        (
            "terminal again",
            PLAIN,
            "dead o=0 g=a why=w\n redrive o=0 g=a\n dead o=0 g=a why=w\n begin o=1 g=a m=x ep=1",
            "",
        ),
        (
            "the redriven one itself",
            PLAIN,
            "dead o=0 g=a why=w\n redrive o=0 g=a\n begin o=0 g=a m=x ep=1",
            "",
        ),
        (
            "behind a parked group",
            PLAIN,
            "park o=0 g=a why=w scope=group\n begin o=1 g=a m=x ep=1",
            "A13:3,4",
        ),
        (
            "behind a parked record",
            PLAIN,
            "park o=0 g=a why=w scope=record\n begin o=1 g=a m=x ep=1",
            "",
        ),
        (
            "a zombie behind a parked group",
            PLAIN,
            "own m=x ep=1\n own m=y ep=2\n park o=0 g=a why=w scope=group\n begin o=1 g=a m=x ep=1",
            "",
        ),
        (
            "itself redriven, behind a parked group",
            PLAIN,
            "dead o=1 g=a why=w\n redrive o=1 g=a\n park o=0 g=a why=w scope=group\n begin o=1 g=a m=x ep=1",
            "",
        ),
    ]);
}

#[test]
fn silent_drop() {
    let backlog = Options { allow_backlog: true, ..PLAIN };
    table(&[
        ("left behind", PLAIN, "skip o=0 g=a why=w\n finish", "A14:2"),
        ("backlog", backlog, "skip o=0 g=a why=w\n finish", ""),
        (
            "begun is no backlog",
            backlog,
            "skip o=0 g=a why=w\n begin o=1 g=a m=x ep=1\n finish",
            "A14:2",
        ),
        (
            "below a commit is no backlog",
            backlog,
            "skip o=1 g=a why=w\n commit o=0 done=[[1,2]] m=x ep=1 res=ok\n finish",
            "A14:1",
        ),
        ("no finish", PLAIN, "skip o=0 g=a why=w", ""),
        ("nobody reads", PLAIN, "finish", ""),
        (
            "each subscription that a line names",
            PLAIN,
            "own s=t m=x ep=1\n reset o=2\n finish",
            "A14:1 A14:2",
        ),
        (
            "terminal only after finish",
            PLAIN,
            "skip o=0 g=a why=w\n finish\n skip o=1 g=a why=w",
            "A14:2",
        ),
        (
            "redriven and left",
            PLAIN,
            "skip o=1 g=a why=w\n dead o=0 g=a why=w\n redrive o=0 g=a\n finish",
            "A14:1",
        ),
        ("trimmed", PLAIN, "reset o=0\n trim o=2\n finish", ""),
        (
            "a reset back leaves what it had skipped",
            PLAIN,
            "reset o=2\n reset o=1\n finish",
            "A14:2",
        ),
    ]);
}

#[test]
fn counts() {
    let history = "stored o=0 g=a\n send g=z seq=0 res=fail\n own m=x ep=1\n begin o=0 g=a m=x ep=1
        own m=y ep=2\n begin o=0 g=a a=2 m=y ep=2\n end o=0 g=a a=2 m=y ep=2 v=ok
        begin o=0 g=a m=x ep=1\n crash m=x\n begin o=0 g=a a=3 m=y ep=2";
    let report = judge(PLAIN, history).unwrap();
    let counts = report.to_string();
    let expected =
        "events=10 groups=2 turns=4 retries=2 crashes=1 handoffs=1 replays=2 zombies=2 A1=1 ";
    assert!(counts.lines().last().unwrap().starts_with(expected), "{counts}");
    assert!(counts.ends_with(" A15=0 anomalies=1\n"), "{counts}");
}

#[test]
fn a_line_reads_as_the_format_says() {
    let history = "stored o=17 g=case-1\n stored o=18 g=case-1\n begin o=17 g=case-1 m=x ep=1
        end o=17 g=case-1 m=x ep=1 v=transient\n begin o=18 g=case-1 m=x ep=1";
    let report = judge(PLAIN, history).unwrap().to_string();
    let expected = "A3 overtake group=case-1 partition=0 offset=18 lines=4,5: \
        began while offset 17 was waiting to retry";
    assert_eq!(report.lines().next().unwrap(), expected);
}
