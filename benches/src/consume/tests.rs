use super::*;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn parse(line: &str) -> Args {
    Cli::parse_from(line.split(' ')).args
}

/// Every contender sees every record once, whatever the options.
#[test]
fn every_contender_sees_every_record() -> Result<()> {
    for line in [
        "consume --records 3000 --groups 50 --partitions 3 --zipf 0.99",
        "consume --records 3000 --groups 50 --partitions 1 --batch 8 --cache cold",
        "consume --records 3000 --groups 50 --partitions 3 --api stream --concurrency 7",
    ] {
        let args = parse(line);
        let dir = tempfile::tempdir()?;
        let log = dir.path().join("log");
        fill(&args, &log)?;
        for run in 0..2 {
            for (name, contender) in CONTENDERS {
                let tally = contender(&Stage { args: &args, log: &log, run })?;
                check(&args, tally).with_context(|| format!("{line}: {name}"))?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_contender_that_skips_or_repeats_a_record_is_refused() {
    let args = parse("consume --records 100");
    let tally = |records| Tally {
        records,
        elapsed: Duration::from_secs(1),
        cpu: Duration::ZERO,
        read: None,
    };
    assert!(check(&args, tally(99)).is_err());
    assert!(check(&args, tally(100)).is_ok());
    assert!(check(&args, tally(101)).is_err());
}
