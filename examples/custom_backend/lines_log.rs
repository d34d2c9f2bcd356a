//! The log: one text file a partition, and in memory where each line begins.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::SystemTime;

use async_trait::async_trait;
use procession::{
    Appending, Batch, Budget, Chunk, Durability, Error, ErrorKind, Log, LogInfo, LogUuid, Offset,
    Outcome, Position, Receipt, Record, RoutingEpoch, SipRouter, Stored, Timestamp, Version, Want,
};

use crate::line;

/// Declares what it cannot do: it mints no sequences, and delivers what survives the process, not
/// a power cut.
#[derive(Clone)]
pub(crate) struct LinesLog {
    info: Arc<LogInfo>,
    files: Arc<Mutex<Files>>,
}

struct Files {
    partitions: Vec<Lines>,
    version: u64,
    last_time: Timestamp,
    waiting: Vec<Waker>,
    /// After a failed sync nobody knows what the disk holds: nothing more is written.
    poisoned: bool,
}

struct Lines {
    file: File,
    /// Where each line begins, with its log time; offsets are line numbers.
    starts: Vec<(u64, Timestamp)>,
    end: u64,
}

impl LinesLog {
    pub(crate) fn open(
        folder: &Path,
        partitions: u32,
        record_bytes_max: usize,
    ) -> Result<Self, Error> {
        let open = || Error::new(ErrorKind::Unavailable, "open a lines log").at_path(folder);
        let count = NonZeroU32::new(partitions)
            .ok_or_else(|| Error::new(ErrorKind::Config, "open a lines log with 0 partitions"))?;
        let partitions = (0..partitions)
            .map(|p| Lines::open(&folder.join(format!("{p}.tsv"))))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| open().caused_by(error))?;
        let times = partitions.iter().filter_map(|lines| lines.starts.last());
        let last_time = times.map(|(_, time)| *time).max().unwrap_or_default();
        let info = LogInfo {
            // A log of your own draws this at random when it is made, and keeps it in a file.
            uuid: LogUuid::from_u128(0x006c_696e_6573_5f6c_6f67),
            name: folder.display().to_string(),
            partitions: count,
            routing: RoutingEpoch::new(1),
            router: Arc::new(SipRouter::new(0)),
            delivers: Durability::Flushed,
            sequences: false,
            rereadable: true,
            absorbs: false,
            record_bytes_max,
        };
        let files =
            Files { partitions, version: 1, last_time, waiting: Vec::new(), poisoned: false };
        Ok(Self { info: Arc::new(info), files: Arc::new(Mutex::new(files)) })
    }

    fn files(&self) -> std::sync::MutexGuard<'_, Files> {
        self.files.lock().expect("nothing panics while it holds the files")
    }

    fn refuse(&self, kind: ErrorKind, record: Record) -> Outcome {
        Outcome::Refused(record, Error::new(kind, format!("append to \"{}\"", self.info.name)))
    }
}

impl Lines {
    /// Reads the file once; a last line that a crash tore is cut off.
    fn open(path: &Path) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let (mut starts, mut end, mut text) = (Vec::new(), 0, String::new());
        let mut reader = BufReader::new(&file);
        while reader.read_line(&mut text)? > 0 && text.ends_with('\n') {
            starts.push((end, line::read(&text)?.log_time));
            end += text.len() as u64;
            text.clear();
        }
        file.set_len(end)?;
        Ok(Self { file, starts, end })
    }

    fn read(&self, offset: usize) -> Result<Stored, Error> {
        let start = self.starts[offset].0;
        let end = self.starts.get(offset + 1).map_or(self.end, |(next, _)| *next);
        let mut bytes = vec![0; (end - start) as usize];
        let failed = || Error::new(ErrorKind::Unavailable, "read a line of the log");
        self.file.read_exact_at(&mut bytes, start).map_err(|e| failed().caused_by(e))?;
        line::read(std::str::from_utf8(&bytes).map_err(|e| failed().caused_by(e))?)
    }
}

#[async_trait]
impl Log for LinesLog {
    fn info(&self) -> Arc<LogInfo> {
        Arc::clone(&self.info)
    }

    fn append(&self, batch: Batch) -> Appending {
        let level = batch.durability.unwrap_or(Durability::Flushed).max(Durability::Flushed);
        let mut outcomes = Vec::with_capacity(batch.records.len());
        let mut guard = self.files();
        let files = &mut *guard;
        // A clock that was set back must not be seen in the log.
        files.last_time = files.last_time.max(SystemTime::now().into());
        let log_time = files.last_time;
        for (partition, record) in batch.records {
            if files.poisoned {
                outcomes.push(self.refuse(ErrorKind::Poisoned, record));
                continue;
            }
            if record.size_bytes() > self.info.record_bytes_max {
                outcomes.push(self.refuse(ErrorKind::TooLarge, record));
                continue;
            }
            if level > Durability::Synced || batch.stamp.is_some() {
                outcomes.push(self.refuse(ErrorKind::Unsupported, record));
                continue;
            }
            let Some(lines) = files.partitions.get_mut(partition.get() as usize) else {
                outcomes.push(self.refuse(ErrorKind::NotFound, record));
                continue;
            };
            let offset = Offset::new(lines.starts.len() as u64);
            let line = line::write(&record, offset, log_time);
            let failed = |kind, error: std::io::Error| {
                Error::new(kind, format!("append to \"{}\"", self.info.name)).caused_by(error)
            };
            if let Err(error) = lines.file.write_all(line.as_bytes()) {
                // Cut what was written of it, so that the next line begins where this one did.
                files.poisoned = lines.file.set_len(lines.end).is_err();
                outcomes.push(Outcome::Refused(record, failed(ErrorKind::Full, error)));
                continue;
            }
            if level == Durability::Synced
                && let Err(error) = lines.file.sync_data()
            {
                files.poisoned = true;
                outcomes.push(Outcome::Unknown(failed(ErrorKind::Poisoned, error)));
                continue;
            }
            lines.starts.push((lines.end, log_time));
            lines.end += line.len() as u64;
            let receipt = Receipt::new(partition, offset, None, level);
            outcomes.push(Outcome::Stored(receipt));
        }
        files.version += 1;
        let waiting = std::mem::take(&mut files.waiting);
        drop(guard);
        // Outside the lock: both may come straight back here.
        waiting.into_iter().for_each(Waker::wake);
        drop(batch.permit);
        Appending::ready(outcomes.into_iter().collect::<procession::OneOrMany<_>>())
    }

    async fn read(&self, wants: &[Want], max: Budget) -> Result<Vec<Chunk>, Error> {
        let files = self.files();
        let mut left = max;
        let mut chunks = Vec::new();
        for want in wants {
            let at = |kind| {
                Error::new(kind, format!("read \"{}\"", self.info.name)).at_offset(want.from)
            };
            let lines = files.partitions.get(want.partition.get() as usize);
            let lines = lines.ok_or_else(|| at(ErrorKind::NotFound))?;
            let (mut next, end) = (want.from.get() as usize, lines.starts.len());
            if next > end {
                return Err(at(ErrorKind::NotYetWritten));
            }
            let mut room = want.max;
            let mut records = Vec::new();
            while next < end {
                let stored = lines.read(next)?;
                let size = Budget::new(1, stored.record.size_bytes() as u64);
                let first = records.is_empty() && chunks.is_empty();
                let fits = |room: Budget| size.records <= room.records && size.bytes <= room.bytes;
                if !(first || fits(room) && fits(left)) {
                    break;
                }
                (room, left) = (room.minus(size), left.minus(size));
                records.push(stored);
                next += 1;
            }
            if !records.is_empty() {
                let (partition, next) = (want.partition, Offset::new(next as u64));
                chunks.push(Chunk { partition, records, next });
            }
        }
        Ok(chunks)
    }

    async fn ends(&self, at: Position) -> Result<Vec<Offset>, Error> {
        let files = self.files();
        let end = |lines: &Lines| match at {
            Position::Earliest => 0,
            Position::Time(time) => lines.starts.partition_point(|(_, taken)| *taken < time),
            _ => lines.starts.len(),
        };
        Ok(files.partitions.iter().map(|lines| Offset::new(end(lines) as u64)).collect())
    }

    async fn changed(&self, seen: Version) -> Result<Version, Error> {
        std::future::poll_fn(|cx| {
            let mut files = self.files();
            if Version(files.version) > seen {
                return Poll::Ready(Ok(Version(files.version)));
            }
            if !files.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                files.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
