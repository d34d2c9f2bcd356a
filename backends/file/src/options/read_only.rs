//! Opening a log for reading only.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use procession_core::{Durability, Error, ErrorKind, LogInfo, LogUuid, RoutingEpoch};

use super::{OpenOptions, QUIET, on_a_thread, start};
use crate::disk::{Disk, Kind, ReadOnlyDisk, TimedWatch, Watch};
use crate::errors::system;
use crate::file_reader::FileReader;
use crate::format::Salt;
use crate::front::{Front, Limits, Plan, State};
use crate::groups::{GroupHash, Groups};
use crate::open_files::OpenFiles;
use crate::producers::Producers;
use crate::reader::{Follower, Reader, Reading};
use crate::segments::{Folder, META, Segments};
use crate::shared::{Shared, Tail};
use crate::worker::Bell;

/// How to open a log for reading only; made by [`OpenOptions::read_only`]. Await it, or call
/// [`open_blocking`](Self::open_blocking).
#[must_use = "nothing is opened until the options are awaited"]
pub struct ReadOnlyOptions(OpenOptions);

impl OpenOptions {
    /// Opens for reading only: without the lock, beside a writer or without one, also where nothing
    /// can be written. Of the options only `partitions`, `router`, `name`, `skip_corruption`,
    /// `open_files_max` and `disk` matter.
    pub const fn read_only(self) -> ReadOnlyOptions {
        ReadOnlyOptions(self)
    }
}

impl ReadOnlyOptions {
    /// Opens the log on this thread, which blocks while the last segment is read.
    ///
    /// # Errors
    /// - [`NotFound`](ErrorKind::NotFound): there is no log, or it has no segments yet
    /// - [`Mismatch`](ErrorKind::Mismatch): the path is not a log, or a log with other partitions or
    ///   another router
    /// - [`Denied`](ErrorKind::Denied): no permission to read
    /// - [`Version`](ErrorKind::Version), [`Unsupported`](ErrorKind::Unsupported): this build cannot
    ///   read it
    /// - [`Corrupt`](ErrorKind::Corrupt): bytes that were proven durable do not read back
    pub fn open_blocking(self) -> Result<FileReader, Error> {
        let disk = Arc::clone(&self.0.disk);
        let (shared, follower) = self.open_parts()?;
        // After the first look the next one comes at once: nothing is missed in between.
        let watch: Arc<dyn Watch> = match disk.watch(&shared.folder.path) {
            Ok(watch) => watch,
            Err(_) => Arc::new(TimedWatch::default()),
        };
        let reader = Reader::new(Arc::clone(&shared));
        let read = start::spawn("read", reader, &shared, |shared| &shared.reading.bell);
        let read = read.map_err(|e| {
            Error::new(ErrorKind::Unavailable, "start to read the log")
                .at_path(&shared.folder.path)
                .with_hint(format!("the system refused a thread ({e})"))
                .caused_by(e)
        })?;
        FileReader::start(shared, watch, follower, read)
    }

    /// Everything but the threads.
    pub(crate) fn open_parts(self) -> Result<(Arc<Shared>, Follower), Error> {
        let Self(mut options) = self;
        options.disk = Arc::new(ReadOnlyDisk(options.disk));
        let disk: Arc<dyn Disk> = Arc::clone(&options.disk);
        let fail = |e| system("open the log", &options.path, e);
        let names = match disk.kind(&options.path).map_err(fail)? {
            Kind::Folder => disk.list(&options.path).map_err(fail)?,
            Kind::Missing => {
                return Err(options
                    .error(ErrorKind::NotFound)
                    .with_hint("there is nothing at this path; correct it, or create the log"));
            }
            Kind::File => {
                return Err(options
                    .error(ErrorKind::Mismatch)
                    .with_hint("it is a file; a log is a folder: choose another path"));
            }
        };
        options.refuse_unfinished(&names)?;
        if !names.iter().any(|name| name == META) {
            return Err(options.error(ErrorKind::NotFound).with_hint(
                "the folder holds no log (there is no file \"meta\"); correct the path",
            ));
        }
        let segment_bytes = options.segment_bytes;
        let folder = Folder::new(disk, options.path.clone(), segment_bytes);
        let (meta, router) = options.meta(&folder, &names)?;
        let partitions = meta.partitions as usize;
        let name = options.name.clone().unwrap_or_else(|| options.path.display().to_string());
        let info = LogInfo {
            uuid: LogUuid::from_u128(meta.log),
            name: name.clone(),
            partitions: NonZeroU32::new(meta.partitions).unwrap_or(NonZeroU32::MIN),
            routing: RoutingEpoch::new(meta.routing),
            router,
            delivers: Durability::Synced,
            sequences: true,
            rereadable: true,
            absorbs: false,
            record_bytes_max: options.record_bytes_max,
        };
        // Nothing is ever appended: all of this stays as it is.
        let limits = Limits {
            log: meta.log,
            open_count: 0,
            round_bytes_max: 0,
            segment_bytes,
            segment_header: 0,
        };
        let plan = Plan { segment: 0, salt: Salt::of(meta.log, 0, 0), byte: 0 };
        let groups = Groups::new(1, 0, Vec::new(), false);
        let producers = Producers::new(segment_bytes);
        let next = vec![0; partitions];
        let mut front = Front::new(limits, next.clone(), 0, 0, groups, producers, plan);
        front.state = State::Dead(
            Error::new(ErrorKind::Unsupported, format!("append to log \"{name}\""))
                .with_hint("it is open for reading only; open it without `read_only`"),
        );
        let tail =
            Tail { earliest: next.clone(), ends: next, version: 0, wakers: Vec::new(), over: None };
        let shared = Arc::new(Shared {
            info: Arc::new(info),
            folder,
            clock: options.clock,
            log: meta.log,
            open_count: 0,
            durability: Durability::Synced,
            codec: options.compression.codec(),
            sync_lag: options.sync_lag,
            quiet: QUIET,
            skip_corruption: options.skip_corruption,
            read_only: true,
            hash: GroupHash::of(meta.log),
            front: Mutex::new(front),
            bell: Bell::default(),
            tail: Mutex::new(tail),
            segments: Segments::default(),
            files: OpenFiles::new(options.open_files_max),
            keeping: Arc::default(),
            retains: false,
            reading: Reading::default(),
        });
        let follower = Follower::open(Arc::clone(&shared))?;
        Ok((shared, follower))
    }
}

impl IntoFuture for ReadOnlyOptions {
    type Output = Result<FileReader, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Opens the log on a thread of its own.
    fn into_future(self) -> Self::IntoFuture {
        let path = self.0.path.clone();
        Box::pin(on_a_thread("open the log", path, move || self.open_blocking()))
    }
}

impl fmt::Debug for ReadOnlyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadOnlyOptions").field(&self.0).finish()
    }
}
