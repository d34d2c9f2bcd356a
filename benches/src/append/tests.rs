use super::*;
use crate::filled;

/// A run of a tenth of a second for each: it confirms records, and syncs at least once for as
/// many records as can be unanswered at one time.
#[test]
fn every_contender_confirms_and_syncs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for contender in contenders() {
        let args = Args {
            payload: 64,
            producers: 2,
            in_flight: 8,
            partitions: 1,
            durability: Durability::Synced,
            groups: 10,
            zipf: 0.0,
            seed: 1,
            seconds: 0.1,
            runs: 1,
            contenders: None,
            round_bytes: None,
            round_records: None,
            dir: folder.path().into(),
        };
        let own = filled::folder(&args.dir, contender.name())?;
        let bar = Bar::new(1);
        let stage = Stage::new(&args, own.path(), first_round(&args), &bar);
        let tally = contender.run(&stage)?;
        assert!(tally.records > 0, "{}", contender.name());
        assert_eq!(tally.latency.len(), tally.records, "{}", contender.name());
        if let Some(syncs) = tally.counted.syncs {
            assert!(syncs * 16 >= tally.records, "{} synced {syncs} times", contender.name());
        }
    }
    Ok(())
}

#[test]
fn a_round_is_everything_in_flight_unless_told_otherwise() -> Result<()> {
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }
    let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.args);

    let args = parse("append --payload 100 --producers 4 --in-flight 8")?;
    assert_eq!(first_round(&args), Round { bytes: 3_200, records: 32.0 });
    let args = parse("append --round-bytes 500 --round-records 2.5")?;
    assert_eq!(first_round(&args), Round { bytes: 500, records: 2.5 });
    assert!(parse("append --round-bytes 500").is_err());
    Ok(())
}
