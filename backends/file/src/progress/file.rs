//! The two files, and which one counts.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use procession_core::{Error, ErrorKind, Key};

use super::format::{self, FILE_HEADER, FileHeader, Frame, Said};
use crate::disk::{DiskFile, read_whole, write_all, zero_fill};
use crate::errors::system;
use crate::format::Salt;
use crate::segments::Folder;
use crate::trims::Trims;

pub(crate) const NAMES: [&str; 2] = ["progress.a", "progress.b"];
/// Both files are preallocated to at least this.
const FILE_BYTES_MIN: usize = if cfg!(test) { 16 << 10 } else { 1 << 20 };

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) epoch: u64,
    /// `None` once forgotten: only the epoch stays, as a floor.
    pub(super) progress: Option<Bytes>,
    /// Wall time in ms of the claim or commit that said this; 0 if an older version wrote it.
    pub(super) moved: i64,
}

pub(super) type Entries = HashMap<Key, Known>;

/// What counts of everything that was ever written.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) entries: Entries,
    /// The segments that retention removed.
    pub(super) trims: Trims,
}

/// The segments that retention removed, before anything is repaired. What is wrong with the files
/// is for [`Files::open`] to say.
pub(crate) fn removed_segments(folder: &Folder, log: u128) -> Trims {
    let read = |name: &str| {
        let file = folder.disk.open(&folder.at(name), false).ok()?;
        let bytes = read_whole(&*file).ok()?;
        match format::decode_header(&bytes, log) {
            FileHeader::Good { generation, version } => Some((generation, version, bytes)),
            _ => None,
        }
    };
    let newest = NAMES.into_iter().filter_map(read).max_by_key(|(generation, ..)| *generation);
    let Some((generation, version, bytes)) = newest else { return Trims::default() };
    let mut contents = Contents::default();
    // Damage is stepped over here.
    let _ = load(&bytes, Salt::of(log, generation, 0), version, &mut contents, true);
    contents.trims
}

#[derive(Debug)]
pub(crate) struct Files {
    log: u128,
    files: [Arc<dyn DiskFile>; 2],
    paths: [PathBuf; 2],
    active: usize,
    generation: u64,
    byte: usize,
    size: usize,
}

const OPERATION: &str = "open the progress store";

impl Files {
    /// Reads the store of a log, or begins one unless the log has `begun` already; always goes on in a fresh generation, so that
    /// nothing unproven and nothing stale is ever built upon.
    pub(super) fn open(
        folder: &Folder,
        log: u128,
        begun: bool,
        skip_corruption: bool,
    ) -> Result<(Self, Contents), Error> {
        let paths = NAMES.map(|name| folder.at(name));
        let open = |at: usize| {
            let file = folder.disk.open(&paths[at], true);
            file.map_err(|e| system(OPERATION, &paths[at], e))
        };
        let files = [open(0)?, open(1)?];
        let mut bytes = Vec::new();
        for (file, path) in files.iter().zip(&paths) {
            bytes.push(read_whole(&**file).map_err(|e| system(OPERATION, path, e))?);
        }
        let mut found: Option<(u64, u16, usize)> = None;
        let mut damaged = None;
        for at in 0..2 {
            let error = |kind| Error::new(kind, OPERATION).at_path(&paths[at]);
            match format::decode_header(&bytes[at], log) {
                FileHeader::Good { generation, version } => {
                    if found.is_none_or(|(newest, ..)| generation > newest) {
                        found = Some((generation, version, at));
                    }
                }
                FileHeader::Blank => {}
                FileHeader::Damaged => damaged = Some(at),
                FileHeader::Newer(version) => {
                    return Err(error(ErrorKind::Version).with_hint(format!(
                        "format version {version}, this build reads {}; upgrade the program",
                        format::VERSION
                    )));
                }
                FileHeader::Foreign(other) => {
                    return Err(error(ErrorKind::Mismatch).with_hint(format!(
                        "it belongs to log {other:032x}, this is log {log:032x}; put the right \
                         file back"
                    )));
                }
            }
        }
        let mut contents = Contents::default();
        match (found, damaged) {
            (Some((generation, version, at)), _) => {
                let salt = Salt::of(log, generation, 0);
                let loaded = load(&bytes[at], salt, version, &mut contents, skip_corruption);
                loaded.map_err(|byte| {
                    Error::new(ErrorKind::Corrupt, OPERATION).at_path(&paths[at]).with_hint(format!(
                        "the bytes at {byte} were proven durable and do not read back as they were \
                         written; restore the file from a copy, or open with \
                         `skip_corruption(true)` to lose what they said: records may be delivered \
                         again"
                    ))
                })?;
            }
            (None, Some(at)) if !skip_corruption => {
                return Err(Error::new(ErrorKind::Corrupt, OPERATION)
                    .at_path(&paths[at])
                    .with_hint(
                        "the header is damaged; restore the file from a copy, or open with \
                     `skip_corruption(true)` to begin without any progress",
                    ));
            }
            // One of the two is always whole, from before the first record on.
            (None, None) if begun && !skip_corruption => {
                return Err(Error::new(ErrorKind::Corrupt, OPERATION)
                    .at_path(&folder.path)
                    .with_hint(
                        "the log has records, but both files of the progress store are missing or \
                         wiped; restore them from a copy, or open with `skip_corruption(true)` to \
                         begin without any progress",
                    ));
            }
            _ => {}
        }
        let (generation, active) = found.map_or((0, 1), |(generation, _, at)| (generation, at));
        let size = bytes[active].len();
        let mut this = Self { log, files, paths, active, generation, byte: size, size };
        this.compact(&contents, 0)
            .map_err(|e| system(OPERATION, &this.paths[1 - this.active], e))?;
        // The one that is now the other needs its room too, for the next compaction.
        this.preallocate(1 - this.active, FILE_BYTES_MIN)
            .and_then(|()| folder.disk.sync_dir(&folder.path))
            .map_err(|e| system(OPERATION, &this.paths[1 - this.active], e))?;
        Ok((this, contents))
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.paths[self.active]
    }

    /// Makes room for frames of `bytes`, by compaction if need be. `contents` is what counts.
    ///
    /// # Errors
    /// If the live entries outgrow the files and the disk is full: nothing has changed then.
    pub(super) fn room(&mut self, contents: &Contents, bytes: usize) -> io::Result<()> {
        if self.byte + bytes <= self.size { Ok(()) } else { self.compact(contents, bytes) }
    }

    /// Appends frames and syncs them, all with one sync.
    pub(super) fn append<'a>(
        &mut self,
        frames: impl Iterator<Item = (&'a Key, &'a Known)>,
        trims: Option<&Trims>,
    ) -> io::Result<()> {
        let mut out = Vec::new();
        for (key, known) in frames {
            encode(&mut out, self.salt(), self.byte, self.byte, key, known);
        }
        if let Some(trims) = trims {
            encode_trims(&mut out, self.salt(), self.byte, self.byte, trims);
        }
        self.write(&out)
    }

    /// Says that everything is durable, for the next open.
    pub(super) fn close(&mut self, contents: &Contents) -> io::Result<()> {
        self.room(contents, 64)?;
        let mut out = Vec::new();
        format::encode(&mut out, self.salt(), self.byte, self.byte, &Said::Mark);
        self.write(&out)
    }

    /// A file that holds this and was closed in order, for a copy of the log.
    pub(super) fn image(&self, contents: &Contents) -> Vec<u8> {
        let (generation, mut out) = (1, Vec::new());
        let salt = Salt::of(self.log, generation, 0);
        for (key, known) in &contents.entries {
            encode(&mut out, salt, FILE_HEADER, FILE_HEADER, key, known);
        }
        if !contents.trims.is_empty() {
            encode_trims(&mut out, salt, FILE_HEADER, FILE_HEADER, &contents.trims);
        }
        let end = FILE_HEADER + out.len();
        format::encode(&mut out, salt, FILE_HEADER, end, &Said::Mark);
        let mut file = format::encode_header(self.log, generation);
        file.resize(FILE_HEADER, 0);
        file.extend_from_slice(&out);
        file
    }

    /// Bytes of the frame of this entry.
    pub(super) fn length(key: &Key, known: &Known) -> usize {
        let mut out = Vec::new();
        encode(&mut out, Salt(0), 0, 0, key, known);
        out.len()
    }

    /// Bytes of the frame of removed segments.
    pub(super) fn trims_length(trims: &Trims) -> usize {
        let mut out = Vec::new();
        encode_trims(&mut out, Salt(0), 0, 0, trims);
        out.len()
    }

    fn write(&mut self, out: &[u8]) -> io::Result<()> {
        write_all(&*self.files[self.active], out, self.byte as u64)?;
        self.files[self.active].sync()?;
        self.byte += out.len();
        Ok(())
    }

    fn salt(&self) -> Salt {
        Salt::of(self.log, self.generation, 0)
    }

    fn preallocate(&self, at: usize, size: usize) -> io::Result<()> {
        if self.files[at].size()? < size as u64 {
            zero_fill(&*self.files[at], size as u64)?;
        }
        Ok(())
    }

    /// Writes what counts into the other file, and makes that one the store.
    fn compact(&mut self, contents: &Contents, room: usize) -> io::Result<()> {
        let (other, generation) = (1 - self.active, self.generation + 1);
        let salt = Salt::of(self.log, generation, 0);
        let mut out = Vec::new();
        for (key, known) in &contents.entries {
            encode(&mut out, salt, FILE_HEADER, FILE_HEADER, key, known);
        }
        if !contents.trims.is_empty() {
            encode_trims(&mut out, salt, FILE_HEADER, FILE_HEADER, &contents.trims);
        }
        let end = FILE_HEADER + out.len();
        // Twice what is needed, so that compactions stay rare however many keys there are.
        let size = FILE_BYTES_MIN.max((2 * (end + room)).next_multiple_of(FILE_HEADER));
        let file = &*self.files[other];
        // Blank until its contents are durable.
        if file.size()? > 0 {
            write_all(file, &[0; 64], 0)?;
        }
        self.preallocate(other, size)?;
        write_all(file, &out, FILE_HEADER as u64)?;
        file.sync()?;
        write_all(file, &format::encode_header(self.log, generation), 0)?;
        file.sync()?;
        let old = std::mem::replace(&mut self.active, other);
        (self.generation, self.byte) = (generation, end);
        self.size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
        // A damaged header must not bring the old generation back.
        if self.files[old].size()? > 0 {
            write_all(&*self.files[old], &[0; 64], 0)?;
            self.files[old].sync()?;
        }
        Ok(())
    }
}

/// Appends the frame of an entry to `out`, the first byte of which will lie at `start`.
fn encode(out: &mut Vec<u8>, salt: Salt, start: usize, synced: usize, key: &Key, known: &Known) {
    let frame = Frame {
        subscription: &key.subscription,
        log: key.log,
        partition: key.partition,
        epoch: known.epoch,
        progress: known.progress.as_deref(),
        moved: known.moved,
    };
    let at = start + out.len();
    format::encode(out, salt, at, synced, &Said::Entry(frame));
}

fn encode_trims(out: &mut Vec<u8>, salt: Salt, start: usize, synced: usize, trims: &Trims) {
    let at = start + out.len();
    format::encode(out, salt, at, synced, &Said::Trims(&trims.encode()));
}

/// Reads all frames; the position of proven bytes that are damaged is an error unless skipped.
fn load(
    file: &[u8],
    salt: Salt,
    version: u16,
    contents: &mut Contents,
    skip: bool,
) -> Result<(), usize> {
    let mut at = FILE_HEADER;
    loop {
        while let Some(found) = format::decode(file, salt, at, version) {
            match found.said {
                Said::Mark => {}
                Said::Trims(bytes) => contents.trims = Trims::decode(bytes).ok_or(at)?,
                Said::Entry(frame) => {
                    let key = Key {
                        subscription: frame.subscription.into(),
                        log: frame.log,
                        partition: frame.partition,
                    };
                    let progress = frame.progress.map(Bytes::copy_from_slice);
                    let (epoch, moved) = (frame.epoch, frame.moved);
                    contents.entries.insert(key, Known { epoch, progress, moved });
                }
            }
            at += found.length;
        }
        // The end, a torn tail, or damage: a later frame that was written when this was durable
        // tells. A later frame that was not tells nothing, pages land in any order.
        let mut next = at + 1;
        let proof = loop {
            let Some(found) = format::search(file, salt, next, version) else { return Ok(()) };
            if format::decode(file, salt, found, version).is_some_and(|found| found.synced > at) {
                break found;
            }
            next = found + 1;
        };
        if !skip {
            return Err(at);
        }
        at = proof;
    }
}
