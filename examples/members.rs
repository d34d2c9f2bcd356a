//! Several members of one subscription in a process: they share the partitions, each keeps a cache of
//! the accounts it owns, and members come and go while the work goes on.
//!
//! The cache is filled when a partition comes and emptied when it goes (`on_assigned`, `on_revoked`):
//! no two members ever hold the same account, so a cached balance is never stale.
//!
//! `cargo run --example members -- --members 4`

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use futures::future::try_join_all;
use procession::{BoxError, Consumer, FileLog, GroupKey, Handle, PartitionId, Record, Turn};
use procession_tokio::Tokio;

/// Members that join one after the other, and leave in the same order.
#[derive(Debug, Parser)]
struct Args {
    /// How many
    #[arg(long, default_value = "4")]
    members: NonZeroUsize,
    /// Accounts
    #[arg(long, default_value_t = 200)]
    accounts: usize,
    /// Bookings of each
    #[arg(long, default_value_t = 20)]
    bookings: usize,
}

/// Balances of the accounts that a member owns, by partition.
type Cache = Arc<Mutex<HashMap<PartitionId, HashMap<String, i64>>>>;
/// What is durable: the balances as a database would have them, and the bookings in them.
type Database = Arc<Mutex<HashMap<String, (i64, u64)>>>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args = Args::parse();
    let folder = tempfile::tempdir()?;
    let log = FileLog::open(folder.path().join("bookings.log")).partitions(16).await?;
    produce(&log, &args).await?;
    let database = Database::default();

    let members: Vec<(Consumer, Cache)> =
        (0..args.members.get()).map(|_| member(&log)).collect::<Result<_, _>>()?;
    let handles: Vec<Handle> = members.iter().map(|(member, _)| member.handle()).collect();
    ctrlc::set_handler({
        let handles = handles.clone();
        move || handles.iter().for_each(|handle| handle.request_shutdown())
    })?;
    let runs = members.into_iter().enumerate().map(|(number, (member, cache))| {
        let database = Arc::clone(&database);
        async move {
            tokio::time::sleep(Duration::from_millis(100 * number as u64)).await;
            member.run(move |turn| book(Arc::clone(&cache), Arc::clone(&database), turn)).await
        }
    });
    let (runs, shares) = futures::join!(try_join_all(runs), come_and_go(&handles, &args));
    let turns: Vec<u64> = runs?.iter().map(|summary| summary.turns_done).collect();

    println!("partitions of each member, every 50 ms:");
    for (tick, share) in shares.iter().enumerate() {
        println!("{:>6} ms  {share:?}", tick * 50);
    }
    println!("turns of each member: {turns:?}");
    let database = database.lock().expect("no handler panicked");
    let (booked, expected) = (args.accounts * args.bookings, args.bookings as u64);
    let right = database.values().filter(|(_, bookings)| *bookings == expected).count();
    println!("bookings={booked} accounts={} right={right}", args.accounts);
    if right != args.accounts {
        return Err("a booking was lost or repeated".into());
    }
    Ok(())
}

async fn produce(log: &FileLog, args: &Args) -> Result<(), BoxError> {
    let producer = log.producer();
    let sends: Vec<_> = (0..args.accounts * args.bookings)
        .map(|n| producer.send(Record::new(format!("account-{}", n % args.accounts), "5")))
        .collect();
    for sending in sends {
        sending.await?;
    }
    Ok(())
}

fn member(log: &FileLog) -> Result<(Consumer, Cache), BoxError> {
    let cache = Cache::default();
    let (fill, empty) = (Arc::clone(&cache), Arc::clone(&cache));
    let consumer = log
        .subscribe("balances")
        .runtime(Tokio::current())
        .concurrency(32)
        .on_assigned(move |claims| {
            let mut cache = fill.lock().expect("no handler panicked");
            // A real one would load the balances here; each account is loaded at first use instead.
            cache.extend(claims.iter().map(|claim| (claim.partition, HashMap::new())));
        })
        .on_revoked(move |claims| {
            let mut cache = empty.lock().expect("no handler panicked");
            cache.retain(|partition, _| claims.iter().all(|claim| claim.partition != *partition));
        })
        .build()?;
    Ok((consumer, cache))
}

async fn book(cache: Cache, database: Database, turn: Turn) -> Result<(), BoxError> {
    tokio::time::sleep(Duration::from_millis(2)).await;
    let account =
        turn.group().and_then(GroupKey::as_str).ok_or("a booking of no account")?.to_owned();
    let amount: i64 = std::str::from_utf8(turn.payload())?.parse()?;
    let mut cache = cache.lock().map_err(|_| "a handler panicked")?;
    let mut database = database.lock().map_err(|_| "a handler panicked")?;
    let owned = cache.get_mut(&turn.partition()).ok_or("a turn of a partition that is not ours")?;
    let (stored, bookings) = database.entry(account.clone()).or_default();
    let cached = owned.entry(account).or_insert(*stored);
    if cached != stored {
        return Err("the cached balance is stale".into());
    }
    *cached += amount;
    (*stored, *bookings) = (*cached, *bookings + 1);
    Ok(())
}

/// Lets the members leave in the order in which they came, but for the last, which ends the work.
async fn come_and_go(handles: &[Handle], args: &Args) -> Vec<Vec<usize>> {
    let all = (args.accounts * args.bookings) as u64;
    let mut shares = Vec::new();
    let done = || handles.iter().map(|handle| handle.counts().records_done).sum::<u64>();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    while done() < all && shares.len() < 1200 {
        ticks.tick().await;
        shares.push(handles.iter().map(|handle| handle.partitions().len()).collect());
        let leaves = shares.len().checked_sub(handles.len() * 2).map(|tick| tick / 2);
        if let Some(leaver) = leaves.filter(|leaver| leaver + 1 < handles.len()) {
            handles[leaver].request_shutdown();
        }
    }
    for handle in handles {
        handle.shutdown().await;
    }
    shares
}
