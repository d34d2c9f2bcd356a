//! Opening step by step: the folder, the lock, the metadata, the recovery, the progress.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use procession_core::{
    Durability, Error, ErrorKind, LocalMembership, LogInfo, LogUuid, Offset, Router, RoutingEpoch,
    SipRouter,
};

use crate::disk::{DiskFile, Kind, parent, read_whole, write_all};
use crate::errors::{is_full, system};
use crate::format::batch::BATCH_HEADER;
use crate::format::frame::FRAME_HEADER;
use crate::format::meta::{BadMeta, Meta};
use crate::format::segment::SegmentHeader;
use crate::front::{Front, Limits, Plan};
use crate::groups::GroupHash;
use crate::keeper::{Chore, Keeping};
use crate::open_files::OpenFiles;
use crate::progress::{Care, Desk, Filing, NAMES, removed_segments};
use crate::reader::Reading;
use crate::recover::Recovery;
use crate::report::{ProgressAhead, RecoveryReport};
use crate::segments::{Folder, LOCK, META, Segments, UNFINISHED_BACKUP};
use crate::shared::{Shared, Tail};
use crate::worker::Bell;
use crate::writer::Writer;

use super::{OpenOptions, PARTITIONS, QUIET};

impl OpenOptions {
    /// Everything but the threads.
    pub(crate) fn open_parts(self) -> Result<Parts, Error> {
        self.check(self.partitions.unwrap_or(PARTITIONS))?;
        let lock = self.enter()?;
        let mut report = RecoveryReport::default();
        let folder = Folder::new(Arc::clone(&self.disk), self.path.clone(), self.segment_bytes);
        let names =
            self.disk.list(&self.path).map_err(|e| system("open the log", &self.path, e))?;
        let (meta, router) = self.meta(&folder, &names)?;
        self.check(meta.partitions)?;
        let mut ids: Vec<u64> = names.iter().filter_map(|name| Folder::parse(name)).collect();
        ids.sort_unstable();
        let has_progress = NAMES.iter().any(|name| names.iter().any(|n| n == name));
        if ids.is_empty() && has_progress {
            return Err(self.error(ErrorKind::Corrupt).with_hint(
                "the segments are missing but the progress store is there; restore the folder from \
                 a copy",
            ));
        }
        let partitions = meta.partitions as usize;
        folder.wipe_spare().map_err(|e| system("open the log", &folder.path, e))?;
        let mut recovery = Recovery {
            folder: &folder,
            log: meta.log,
            partitions,
            routing: meta.routing,
            groups_max: self.groups_max.max(1),
            skip_corruption: self.skip_corruption,
            segment_bytes: self.segment_bytes,
            codec: self.compression.codec(),
            now: self.clock.wall().as_millis(),
            trims: removed_segments(&folder, meta.log),
        };
        let recovered = recovery.run(&ids, &mut report)?;
        folder.drop_stale_indexes(&names, recovered.segments[0].id());
        // After the first segment: a progress store without segments is how loss is noticed.
        let filing = Arc::new(Filing::default());
        let (begun, skip) = (recovered.log_number > 0, self.skip_corruption);
        let (keeping, membership) = (Arc::new(Keeping::default()), LocalMembership::new());
        let care = Care {
            log: LogUuid::from_u128(meta.log),
            rules: self.rules,
            clock: Arc::clone(&self.clock),
            membership: membership.clone(),
            keeping: Arc::clone(&keeping),
            earliest: recovered.segments[0].header.base.clone(),
        };
        let mut desk = Desk::open(&folder, meta.log, begun, skip, Arc::clone(&filing), care)?;
        desk.adopt(recovered.trims)?;
        // An offset that any progress names was delivered, and is never given again.
        let mut next = recovered.next;
        for (partition, floor) in desk.floors(meta.log, partitions)?.into_iter().enumerate() {
            let end = next[partition];
            if floor > end {
                report.progress_ahead.push(ProgressAhead {
                    partition: partition as u32,
                    end: Offset::new(end),
                    named: Offset::new(floor),
                });
                next[partition] = floor;
            }
        }
        let segments = Segments::default();
        let Some(active) = recovered.segments.last().map(Arc::clone) else {
            return Err(self.error(ErrorKind::Corrupt).with_hint("the log has no segments"));
        };
        let earliest = recovered.segments[0].header.base.clone();
        for segment in recovered.segments {
            segments.push(segment);
        }
        let plan = Plan { segment: active.id(), salt: active.salt, byte: recovered.byte };
        let limits = Limits {
            log: meta.log,
            open_count: recovered.open_count,
            round_bytes_max: self.round_bytes(partitions),
            segment_bytes: self.segment_bytes,
            segment_header: SegmentHeader::size(partitions) as u64,
        };
        let front = Front::new(
            limits,
            next.clone(),
            recovered.log_number,
            recovered.time,
            recovered.groups,
            recovered.producers,
            plan,
        );
        let tail = Tail { earliest, ends: next, version: 1, wakers: Vec::new(), over: None };
        let shared = Arc::new(Shared {
            info: Arc::new(LogInfo {
                uuid: LogUuid::from_u128(meta.log),
                name: self.name.unwrap_or_else(|| self.path.display().to_string()),
                partitions: NonZeroU32::new(meta.partitions).unwrap_or(NonZeroU32::MIN),
                routing: RoutingEpoch::new(meta.routing),
                router,
                delivers: Durability::Synced,
                sequences: true,
                rereadable: true,
                absorbs: true,
                record_bytes_max: self.record_bytes_max,
            }),
            folder,
            clock: self.clock,
            log: meta.log,
            open_count: recovered.open_count,
            durability: self.durability,
            codec: self.compression.codec(),
            sync_lag: self.sync_lag,
            quiet: QUIET,
            skip_corruption: self.skip_corruption,
            read_only: false,
            hash: GroupHash::of(meta.log),
            front: Mutex::new(front),
            bell: Bell::default(),
            tail: Mutex::new(tail),
            segments,
            files: OpenFiles::new(self.open_files_max),
            keeping,
            retains: self.rules.are_on(),
            reading: Reading::default(),
        });
        if shared.retains {
            shared.keeping.look_again();
        }
        shared.keeping.add(Chore::Spare);
        let writer = Writer::new(
            Arc::clone(&shared),
            active,
            recovered.file,
            recovered.byte,
            recovered.proven,
        );
        Ok(Parts { shared, filing, membership, report, lock, writer, desk })
    }

    pub(super) fn check(&self, partitions: u32) -> Result<(), Error> {
        let config = |hint: String| Err(self.error(ErrorKind::Config).with_hint(hint));
        if self.partitions == Some(0) {
            return config(
                "a log needs at least one partition, `partitions(0)` was asked for".into(),
            );
        }
        if self.durability > Durability::Synced {
            return config(format!(
                "a file log cannot reach the level \"{}\"; \"synced\" is its highest",
                self.durability
            ));
        }
        if self.open_files_max < 4 {
            return config(format!(
                "`open_files_max({})` is too few to read with; take at least 4",
                self.open_files_max
            ));
        }
        if self.segment_bytes > u64::from(u32::MAX) {
            return config("`segment_bytes` must be below 4 GiB".into());
        }
        let count = partitions;
        let partitions = partitions as usize;
        if SegmentHeader::size(partitions) as u64 > self.segment_bytes / 2 {
            return config(format!(
                "{count} partitions are too many for segments of {} bytes; raise `segment_bytes` or \
                 take fewer partitions",
                self.segment_bytes
            ));
        }
        let largest = self.record_bytes_max.saturating_add(FRAME_HEADER + BATCH_HEADER);
        if largest > self.round_bytes(partitions) {
            return config(format!(
                "the largest record, {} bytes, does not fit into a round of {} bytes; a round is at \
                 most `round_bytes_max`, {}, and half of `segment_bytes`, {}",
                self.record_bytes_max,
                self.round_bytes(partitions),
                self.round_bytes_max,
                self.segment_bytes
            ));
        }
        Ok(())
    }

    /// Two rounds and a mark fit into a segment.
    fn round_bytes(&self, partitions: usize) -> usize {
        let header = SegmentHeader::size(partitions) as u64;
        let half = self.segment_bytes.saturating_sub(header) / 2;
        let half = half.saturating_sub(BATCH_HEADER as u64);
        self.round_bytes_max.min(usize::try_from(half).unwrap_or(usize::MAX))
    }

    pub(super) fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, "open the log").at_path(&self.path)
    }

    /// Makes sure that the folder is there, and that nobody else is in it.
    fn enter(&self) -> Result<Arc<dyn DiskFile>, Error> {
        let fail = |e| system("open the log", &self.path, e);
        match self.disk.kind(&self.path).map_err(fail)? {
            Kind::Folder => {}
            Kind::File => {
                return Err(self
                    .error(ErrorKind::Mismatch)
                    .with_hint("it is a file; a log is a folder: choose another path"));
            }
            Kind::Missing => {
                let above = parent(&self.path);
                if self.disk.kind(&above).map_err(fail)? != Kind::Folder {
                    return Err(self.error(ErrorKind::NotFound).with_hint(format!(
                        "the folder \"{}\" does not exist; create it, or correct the path",
                        above.display()
                    )));
                }
                self.disk.create_dir(&self.path).map_err(fail)?;
                self.disk.sync_dir(&above).map_err(fail)?;
            }
        }
        self.refuse_foreign_folder()?;
        let path = self.path.join(LOCK);
        let lock = self.disk.open(&path, true).map_err(fail)?;
        if !lock.try_lock().map_err(fail)? {
            let holder = read_whole(&*lock).map_err(fail)?;
            let holder = String::from_utf8_lossy(&holder);
            let holder = holder.trim();
            return Err(self.error(ErrorKind::Locked).with_hint(format!(
                "another open log has it ({}); close that one, or end its process",
                if holder.is_empty() { "it does not say who" } else { holder }
            )));
        }
        // Only for the error of the next one who comes: not worth a sync.
        let me = whoami();
        match lock.set_size(0).and_then(|()| write_all(&*lock, me.as_bytes(), 0)) {
            Err(e) if !is_full(&e) => Err(fail(e)),
            _ => Ok(lock),
        }
    }

    /// Before anything is written into a folder: is it a log, or empty?
    fn refuse_foreign_folder(&self) -> Result<(), Error> {
        let names = self.disk.list(&self.path);
        let names = names.map_err(|e| system("open the log", &self.path, e))?;
        self.refuse_unfinished(&names)?;
        if names.iter().any(|name| name == META) {
            return Ok(());
        }
        let unfinished = [LOCK, "meta.new"];
        let segments = names.iter().any(|name| Folder::parse(name).is_some());
        match names.iter().find(|name| !unfinished.contains(&name.as_str())) {
            None => Ok(()),
            Some(_) if segments => Err(self.error(ErrorKind::Corrupt).with_hint(
                "there are segments but the file \"meta\" is missing; restore it from a copy",
            )),
            Some(name) => Err(self.error(ErrorKind::Mismatch).with_hint(format!(
                "the folder is not a log, it holds \"{name}\"; choose an empty folder or a new path"
            ))),
        }
    }

    /// A backup that was interrupted lacks records, progress, or both.
    pub(super) fn refuse_unfinished(&self, names: &[String]) -> Result<(), Error> {
        if names.iter().any(|name| name == UNFINISHED_BACKUP) {
            return Err(self.error(ErrorKind::Mismatch).with_hint(format!(
                "it is a backup that was interrupted (there is a file \"{UNFINISHED_BACKUP}\"); delete it \
                 and make another"
            )));
        }
        Ok(())
    }

    /// Reads the metadata and compares it with what was asked for, or writes it.
    pub(super) fn meta(
        &self,
        folder: &Folder,
        names: &[String],
    ) -> Result<(Meta, Arc<dyn Router>), Error> {
        let path = folder.at(META);
        if !names.iter().any(|name| name == META) {
            let router = self.router.clone().unwrap_or_else(|| Arc::new(SipRouter::new(random())));
            let log = (u128::from(random()) << 64) | u128::from(random());
            let partitions = self.partitions.unwrap_or(PARTITIONS);
            let meta = Meta { log, partitions, routing: 1, router: router.id() };
            if meta.router.name.len() > 255 {
                let hint = "the name of the router is longer than 255 bytes";
                return Err(self.error(ErrorKind::Config).with_hint(hint));
            }
            let written = folder.replace(&path, &meta.encode());
            written.map_err(|e| system("create the log", &path, e))?;
            return Ok((meta, router));
        }
        let read = || read_whole(&*self.disk.open(&path, false)?);
        let bytes = read().map_err(|e| system("open the log", &path, e))?;
        let meta = Meta::decode(&bytes).map_err(|bad| match bad {
            BadMeta::Foreign => self.error(ErrorKind::Mismatch).at_path(&path).with_hint(
                "the file does not begin like the metadata of a log; is this another program's folder?",
            ),
            BadMeta::Newer(version) => {
                self.error(ErrorKind::Version).at_path(&path).with_hint(format!(
                    "format version {version}, this build reads {}; upgrade the program",
                    crate::format::VERSION
                ))
            }
            BadMeta::Damaged => self.error(ErrorKind::Corrupt).at_path(&path).with_hint(
                "the metadata is damaged; restore the file from a copy (it never changes)",
            ),
        })?;
        if let Some(asked) = self.partitions.filter(|asked| *asked != meta.partitions) {
            return Err(self.error(ErrorKind::Mismatch).with_hint(format!(
                "the log has {} partitions, {asked} were asked for; the number cannot be changed",
                meta.partitions
            )));
        }
        let router = match &self.router {
            Some(router) => Arc::clone(router),
            None => Arc::new(SipRouter::new(meta.router.seed)),
        };
        if router.id() != meta.router {
            return Err(self.error(ErrorKind::Mismatch).with_hint(format!(
                "the log was created with the router {}, {} was asked for; groups would change \
                 their partition",
                meta.router,
                router.id()
            )));
        }
        Ok((meta, router))
    }
}

/// An open log whose workers do not run yet.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) filing: Arc<Filing>,
    pub(crate) membership: LocalMembership,
    pub(crate) report: RecoveryReport,
    pub(crate) lock: Arc<dyn DiskFile>,
    pub(crate) writer: Writer,
    pub(crate) desk: Desk,
}

/// From the randomness that `std` gives to every process.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// Who holds the lock, for the error of the next one.
fn whoami() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    format!(
        "process {}, host \"{}\", boot {}",
        std::process::id(),
        read("/proc/sys/kernel/hostname"),
        read("/proc/sys/kernel/random/boot_id")
    )
}
