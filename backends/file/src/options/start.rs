//! The threads of an open log.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use procession_core::{Error, ErrorKind};

use crate::keeper::Keeper;
use crate::log::FileLog;
use crate::reader::Reader;
use crate::worker::{Bell, Worker, run};

use super::enter::Parts;

/// How long a worker looks out before it sleeps: less than waking it would cost others.
const WATCHFUL: Duration = Duration::from_micros(30);

impl Parts {
    pub(super) fn start(self) -> Result<FileLog, Error> {
        let Self { shared, filing, membership, report, lock, writer, desk } = self;
        let reader = Reader::new(Arc::clone(&shared));
        let keeper = Keeper::new(Arc::clone(&shared), Arc::clone(&filing));
        let (s, f) = (&shared, &filing);
        let begun = [
            spawn("write", writer, s, |s| &s.bell),
            spawn("read", reader, s, |s| &s.reading.bell),
            spawn("keep", keeper, s, |s| &s.keeping.bell),
            spawn("progress", desk, f, |f| &f.bell),
        ];
        let mut threads = Vec::new();
        let mut failed = None;
        for thread in begun {
            match thread {
                Ok(thread) => threads.push(thread),
                Err(e) => failed = Some(e),
            }
        }
        let path = shared.folder.path.clone();
        let log = FileLog::start(shared, filing, membership, report, threads, lock);
        match failed {
            // Dropping the log ends the threads that did start.
            Some(e) => Err(Error::new(ErrorKind::Unavailable, "start the threads of the log")
                .at_path(path)
                .with_hint(format!("the system refused ({e})"))
                .caused_by(e)),
            None => Ok(log),
        }
    }
}

pub(super) fn spawn<S: Send + Sync + 'static>(
    name: &str,
    worker: impl Worker + 'static,
    shared: &Arc<S>,
    bell: fn(&S) -> &Bell,
) -> std::io::Result<thread::JoinHandle<()>> {
    let shared = Arc::clone(shared);
    thread::Builder::new()
        .name(format!("procession-{name}"))
        .spawn(move || run(worker, bell(&shared), WATCHFUL))
}
