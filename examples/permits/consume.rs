//! The second half: every event handled in the order of its case, cases side by side.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use procession::{FileLog, Handle, Runtime, Summary, Turn};

use crate::BoxError;
use crate::append::progress_bar;
use crate::args::Args;
use crate::data::{Data, line};
use crate::output::Output;

/// What the consume phase came to.
#[derive(Debug)]
pub(crate) struct Consumed {
    pub(crate) summary: Summary,
    pub(crate) interrupted: bool,
    pub(crate) turns: u64,
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
    let mut consumer = log
        .subscribe("permits")
        .concurrency(args.concurrency())
        .commit_every(Duration::from_millis(args.commit_ms))
        .until_end();
    if let Some(runtime) = args.runtime.value() {
        consumer = consumer.runtime(runtime);
    }
    let consumer = consumer.build()?;
    let handle = consumer.handle();
    let interrupted = shut_down_on_ctrl_c(&handle)?;
    let bar = progress_bar("consume", data.rows.len() as u64);
    let busy = Arc::new(Busy::default());
    let announced = Arc::new(AtomicBool::new(false));
    let work = Work {
        clock: args.runtime.clock(),
        work: args.work(),
        out: out.writer()?,
        busy: Arc::clone(&busy),
    };
    let work = Arc::new(work);
    let started = Instant::now();
    let summary = consumer
        .run({
            let bar = bar.clone();
            move |turn| {
                let (work, bar) = (Arc::clone(&work), bar.clone());
                if !announced.load(Ordering::Relaxed) && handle.counts().commits > 0 {
                    // A kill from here on finds progress on the disk.
                    announced.store(true, Ordering::Relaxed);
                    eprintln!("first commit");
                }
                async move {
                    work.handle(turn).await?;
                    bar.inc(1);
                    Ok::<_, BoxError>(())
                }
            }
        })
        .await?;
    let elapsed = started.elapsed();
    bar.finish_and_clear();
    let busy = busy.lock().expect("no handler panics while it holds it");
    Ok(Consumed {
        summary,
        interrupted: interrupted.load(Ordering::SeqCst),
        turns: busy.values().map(|(turns, _)| turns).sum(),
        elapsed,
        busy: busy.values().map(|(_, time)| *time).sum(),
        longest_case: busy.values().map(|(_, time)| *time).max().unwrap_or_default(),
    })
}

struct Work {
    clock: Arc<dyn Runtime>,
    work: Duration,
    out: crate::output::Writer,
    busy: Arc<Busy>,
}

impl Work {
    async fn handle(&self, turn: Turn) -> Result<(), BoxError> {
        let started = Instant::now();
        if !self.work.is_zero() {
            let mut timer = self.clock.timer();
            let until = self.clock.now() + self.work;
            poll_fn(|cx| timer.poll_at(until, cx)).await;
        }
        let stored = turn.record();
        let case = turn.group().ok_or("a record without a case")?.to_string();
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
}

fn shut_down_on_ctrl_c(handle: &Handle) -> Result<Arc<AtomicBool>, BoxError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (handle, flag) = (handle.clone(), Arc::clone(&interrupted));
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("draining; press Ctrl-C again to stop at once");
        drop(handle.shutdown());
    })?;
    Ok(interrupted)
}
