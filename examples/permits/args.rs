//! The command line, and the places it names.

use std::future::Future;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use procession::{Bare, Runtime};
use procession_smol::Smol;
use procession_tokio::Tokio;
use tempfile::TempDir;

use crate::BoxError;

/// Sends the events of a CSV file through a durable group queue and checks what came out.
#[derive(Debug, Parser)]
#[command(name = "permits")]
pub(crate) struct Args {
    /// Events in true order, with a header `case,activity,resource,timestamp`
    #[arg(long, value_name = "FILE.csv")]
    data: Option<PathBuf>,
    /// The column whose value is the group
    #[arg(long, value_name = "COLUMN", default_value = "case")]
    pub(crate) key: String,
    /// The folder of the log; kept, so that the next run goes on (default: a temporary one)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One line per effect is appended here (default: beside the log)
    #[arg(long, value_name = "FILE.csv")]
    out: Option<PathBuf>,
    /// Asynchronous work per event, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) work_ms: u64,
    /// How turns are taken: one at a time, as a stream, or several events of a case together
    #[arg(long, value_enum, default_value_t = Api::Handler)]
    pub(crate) api: Api,
    /// Members of the subscription, all in this process
    #[arg(long, value_name = "N", default_value = "1")]
    members: NonZeroUsize,
    /// Turns at a time, of each member
    #[arg(long, value_name = "N", default_value = "64")]
    concurrency: NonZeroUsize,
    /// Partitions of the log (default: 8 for a new one, what it has for an old one)
    #[arg(long, value_name = "N")]
    pub(crate) partitions: Option<u32>,
    /// Progress is committed this often, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) commit_ms: u64,
    /// What polls the futures
    #[arg(long, value_enum, default_value_t = RuntimeName::None)]
    pub(crate) runtime: RuntimeName,
}

impl Args {
    pub(crate) const fn concurrency(&self) -> usize {
        self.concurrency.get()
    }

    pub(crate) const fn members(&self) -> usize {
        self.members.get()
    }

    pub(crate) const fn work(&self) -> Duration {
        Duration::from_millis(self.work_ms)
    }
}

/// Where everything lies. The temporary folder, if there is one, goes with it.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) data: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) out: PathBuf,
    _temporary: Option<TempDir>,
}

impl Places {
    pub(crate) fn of(args: &Args) -> Result<Self, BoxError> {
        let data = args.data.clone().unwrap_or_else(shipped_data);
        let temporary = match &args.dir {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("permits-").tempdir()?),
        };
        let log = match (&args.dir, &temporary) {
            (Some(dir), _) => dir.clone(),
            (None, Some(temporary)) => temporary.path().join("log"),
            (None, None) => unreachable!("one of the two is there"),
        };
        let out = args.out.clone().unwrap_or_else(|| beside(&log));
        Ok(Self { data, log, out, _temporary: temporary })
    }
}

/// `DIR.csv` beside the folder `DIR`.
fn beside(log: &Path) -> PathBuf {
    let mut name = log.file_name().unwrap_or_default().to_owned();
    name.push(".csv");
    log.with_file_name(name)
}

/// The file that the project ships: from its root, or from wherever cargo runs it.
fn shipped_data() -> PathBuf {
    let path = PathBuf::from("examples/data/permits.csv");
    match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(root) if !path.exists() => Path::new(&root).join(path),
        _ => path,
    }
}

/// How the example takes its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Api {
    /// `run` with a handler of one event
    Handler,
    /// A stream of deliveries, each acknowledged
    Stream,
    /// `run` with turns of up to eight events of a case
    Batch,
}

/// Which runtime runs the example.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RuntimeName {
    /// No runtime: one future, polled by `block_on`
    None,
    /// Tokio's threads
    Tokio,
    /// Smol's executor
    Smol,
}

impl RuntimeName {
    pub(crate) fn block_on<T>(self, run: impl Future<Output = T>) -> T {
        match self {
            Self::None => futures::executor::block_on(run),
            Self::Tokio => tokio::runtime::Runtime::new().expect("tokio starts").block_on(run),
            Self::Smol => smol::block_on(run),
        }
    }

    /// The value to give to the consumer, if any. Call it inside `block_on`.
    pub(crate) fn value(self) -> Option<Arc<dyn Runtime>> {
        match self {
            Self::None => None,
            Self::Tokio => Some(Arc::new(Tokio::current())),
            Self::Smol => Some(Arc::new(Smol::new())),
        }
    }

    /// The clock and timers for the handler's own waits.
    pub(crate) fn clock(self) -> Arc<dyn Runtime> {
        self.value().unwrap_or_else(|| Arc::new(Bare))
    }
}
