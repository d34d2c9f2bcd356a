//! The second half: every event handled in the order of its case, cases side by side.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use futures::future::try_join_all;
use indicatif::ProgressBar;
use procession::{
    Consumer, ConsumerBuilder, Failure, FileLog, GroupKey, Handle, Runtime, Stored, Turn,
};

use crate::BoxError;
use crate::append::progress_bar;
use crate::args::{Api, Args};
use crate::data::{Data, line};
use crate::output::Output;

/// Events that a turn has at most with `--api batch`, and how long it waits for them.
const BATCH: (u32, Duration) = (8, Duration::from_millis(5));

/// What the consume phase came to.
#[derive(Debug)]
pub(crate) struct Consumed {
    /// Turns that could not be ended when the members were.
    pub(crate) open: usize,
    pub(crate) interrupted: bool,
    pub(crate) events: u64,
    /// From the call of `run` to its return.
    pub(crate) elapsed: Duration,
    /// All turns, one after the other.
    pub(crate) busy: Duration,
    /// All turns of the case that took longest.
    pub(crate) longest_case: Duration,
}

/// Measured time per case.
type Busy = Mutex<HashMap<String, (u64, Duration)>>;

pub(crate) async fn run(
    args: &Args,
    log: &FileLog,
    data: &Data,
    out: &Output,
) -> Result<Consumed, BoxError> {
    let members: Vec<Consumer> =
        (0..args.members()).map(|_| member(args, log).build()).collect::<Result<_, _>>()?;
    let handles: Vec<Handle> = members.iter().map(Consumer::handle).collect();
    let interrupted = shut_down_on_ctrl_c(&handles)?;
    let bar = progress_bar("consume", data.rows.len() as u64);
    let busy = Arc::new(Busy::default());
    let work = Arc::new(Work {
        clock: args.runtime.clock(),
        work: args.work(),
        out: out.writer()?,
        busy: Arc::clone(&busy),
        announced: AtomicBool::new(false),
        handles,
        bar: bar.clone(),
    });
    let started = Instant::now();
    let runs = members.into_iter().map(|member| run_member(args, member, Arc::clone(&work)));
    try_join_all(runs).await?;
    let elapsed = started.elapsed();
    bar.finish_and_clear();
    let busy = busy.lock().expect("no handler panics while it holds it");
    Ok(Consumed {
        open: work.handles.iter().map(|handle| handle.counts().turns_open).sum(),
        interrupted: interrupted.load(Ordering::SeqCst),
        events: busy.values().map(|(events, _)| events).sum(),
        elapsed,
        busy: busy.values().map(|(_, time)| *time).sum(),
        longest_case: busy.values().map(|(_, time)| *time).max().unwrap_or_default(),
    })
}

fn member(args: &Args, log: &FileLog) -> ConsumerBuilder {
    let mut consumer = log
        .subscribe("permits")
        .concurrency(args.concurrency())
        .commit_every(Duration::from_millis(args.commit_ms))
        .until_end();
    if args.api == Api::Batch {
        consumer = consumer.batch(BATCH.0, BATCH.1);
    }
    match args.runtime.value() {
        Some(runtime) => consumer.runtime(runtime),
        None => consumer,
    }
}

async fn run_member(args: &Args, member: Consumer, work: Arc<Work>) -> Result<(), BoxError> {
    if args.api == Api::Stream {
        let deliveries = member.stream().map_err(BoxError::from);
        return deliveries
            .try_for_each_concurrent(args.concurrency(), |delivery| async {
                let result = work.handle(&delivery).await;
                Ok(delivery.finish(result)?)
            })
            .await;
    }
    let run = member.run(move |turn| {
        let work = Arc::clone(&work);
        async move { work.handle(&turn).await }
    });
    run.await?;
    Ok(())
}

struct Work {
    clock: Arc<dyn Runtime>,
    work: Duration,
    out: crate::output::Writer,
    busy: Arc<Busy>,
    announced: AtomicBool,
    handles: Vec<Handle>,
    bar: ProgressBar,
}

impl Work {
    /// Every event of the turn, in order; says how many are done if one fails.
    async fn handle(&self, turn: &Turn) -> Result<(), Failure> {
        self.announce();
        for (done, stored) in turn.records().iter().enumerate() {
            let failed = |error| Failure::transient(error).after_first(done as u32);
            self.handle_one(turn, stored).await.map_err(failed)?;
            self.bar.inc(1);
        }
        Ok(())
    }

    async fn handle_one(&self, turn: &Turn, stored: &Stored) -> Result<(), BoxError> {
        let started = Instant::now();
        if !self.work.is_zero() {
            let mut timer = self.clock.timer();
            let until = self.clock.now() + self.work;
            poll_fn(|cx| timer.poll_at(until, cx)).await;
        }
        let case =
            turn.group().and_then(GroupKey::as_str).ok_or("a record without a case")?.to_owned();
        let index = stored.sequence.ok_or("a record without a sequence")?;
        let payload = stored.record.payload().ok_or("a record without an event")?;
        let mut event = csv::ReaderBuilder::new().has_headers(false).from_reader(&payload[..]);
        let event = event.records().next().ok_or("a record with an empty event")??;
        let index = index.to_string();
        self.out.append(line([&*case, &*index].into_iter().chain(&event)))?;
        let mut busy = self.busy.lock().map_err(|_| "a handler panicked")?;
        let of_case = busy.entry(case).or_default();
        of_case.0 += 1;
        of_case.1 += started.elapsed();
        Ok(())
    }

    /// Says once that there is progress on the disk: a kill from here on finds it.
    fn announce(&self) {
        let committed = || self.handles.iter().any(|handle| handle.counts().commits > 0);
        if !self.announced.load(Ordering::Relaxed) && committed() {
            self.announced.store(true, Ordering::Relaxed);
            eprintln!("first commit");
        }
    }
}

fn shut_down_on_ctrl_c(handles: &[Handle]) -> Result<Arc<AtomicBool>, BoxError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (handles, flag) = (handles.to_vec(), Arc::clone(&interrupted));
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("draining; press Ctrl-C again to stop at once");
        handles.iter().for_each(|handle| handle.request_shutdown());
    })?;
    Ok(interrupted)
}
