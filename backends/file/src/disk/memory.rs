//! A disk in memory that loses power and fails on request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, Kind, parent};

/// A disk in memory, for tests and simulations.
///
/// Bytes that were written but not synced are kept or lost page by page at a [`crash`](Self::crash),
/// in no order; entries of a folder that was not synced survive as a prefix of what was done. A
/// failed sync leaves its pages readable, clean and *not* durable, as Linux does. Clones are the
/// same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<World>>);

/// An operation that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOp {
    /// `write_at`.
    Write,
    /// `write_at`, after half of its bytes.
    TornWrite,
    /// `sync` of a file.
    Sync,
    /// `sync_dir`.
    SyncDir,
    /// `rename`.
    Rename,
    /// `unlink`.
    Unlink,
    /// `open` with `create`.
    Create,
    /// `read_at`.
    Read,
}

/// One failure to come.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What fails.
    pub op: FaultOp,
    /// Only on paths that contain this.
    pub path: String,
    /// How many of these succeed before.
    pub after: u64,
    /// As what it fails.
    pub kind: io::ErrorKind,
    /// Whether it fails from then on, or once.
    pub stays: bool,
}

#[derive(Default)]
struct World {
    nodes: HashMap<u64, Node>,
    names: BTreeMap<PathBuf, Entry>,
    durable: BTreeMap<PathBuf, Entry>,
    pending: Vec<Change>,
    faults: Vec<Fault>,
    /// Bytes by which files may still grow.
    space: Option<u64>,
    /// Operations that change something, so far; the power goes when it reaches `power_off_at`.
    changes: u64,
    power_off_at: Option<u64>,
    next_node: u64,
    /// Handles of an earlier boot fail.
    boot: u64,
}

#[derive(Default)]
struct Node {
    data: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    locked: bool,
}

#[derive(Clone, Copy)]
enum Entry {
    Folder,
    File(u64),
}

enum Change {
    Put(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

const PAGE: usize = 512;

impl MemoryDisk {
    /// An empty disk with the root folder `/`.
    #[must_use]
    pub fn new() -> Self {
        let disk = Self::default();
        {
            let mut world = disk.world();
            world.names.insert("/".into(), Entry::Folder);
            world.durable.insert("/".into(), Entry::Folder);
        }
        disk
    }

    /// Makes one operation fail later.
    pub fn fail(&self, fault: Fault) {
        self.world().faults.push(fault);
    }

    /// No more faults, and no limit of space or power.
    pub fn heal(&self) {
        let mut world = self.world();
        world.faults.clear();
        world.space = None;
        world.power_off_at = None;
    }

    /// From now on files may grow by this many bytes in total.
    pub fn space_left(&self, bytes: Option<u64>) {
        self.world().space = bytes;
    }

    /// The power goes after this many more changes: everything fails until [`crash`](Self::crash).
    pub fn power_off_after(&self, changes: u64) {
        let mut world = self.world();
        world.power_off_at = Some(world.changes + changes);
    }

    /// How many operations have changed something.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.world().changes
    }

    /// Loses the power and comes back: old handles are dead, unsynced pages and entries are kept or
    /// lost as `seed` says.
    pub fn crash(&self, seed: u64) {
        let mut world = self.world();
        let mut state = seed | 1;
        let mut coin = move || {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
        };
        world.boot += 1;
        world.faults.clear();
        world.space = None;
        world.power_off_at = None;
        let pending = std::mem::take(&mut world.pending);
        let keep = coin() as usize % (pending.len() + 1);
        for change in pending.into_iter().take(keep) {
            apply(&mut world.durable, change);
        }
        world.names = world.durable.clone();
        for node in world.nodes.values_mut() {
            node.locked = false;
            let mut data = node.durable.clone();
            for page in std::mem::take(&mut node.dirty) {
                if coin() % 2 == 0 {
                    let (from, to) = (page * PAGE, ((page + 1) * PAGE).min(node.data.len()));
                    if from < to {
                        if data.len() < to {
                            data.resize(to, 0);
                        }
                        data[from..to].copy_from_slice(&node.data[from..to]);
                    }
                }
            }
            node.durable.clone_from(&data);
            node.data = data;
        }
    }

    /// A copy of a file's bytes, as a running process reads them.
    ///
    /// # Panics
    /// If there is no such file.
    #[must_use]
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        let world = self.world();
        let Some(Entry::File(id)) = world.names.get(path) else {
            panic!("no file {}", path.display());
        };
        world.nodes[id].data.clone()
    }

    /// Replaces a file's bytes, durably; makes its folder if there is none.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut world = self.world();
        let folder = parent(path);
        world.names.insert(folder.clone(), Entry::Folder);
        world.durable.insert(folder, Entry::Folder);
        world.next_node += 1;
        let id = world.next_node;
        let node = Node { data: bytes.to_vec(), durable: bytes.to_vec(), ..Node::default() };
        world.nodes.insert(id, node);
        world.names.insert(path.into(), Entry::File(id));
        world.durable.insert(path.into(), Entry::File(id));
    }

    /// The paths of all files.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let world = self.world();
        let file = |(p, e): (&PathBuf, &Entry)| matches!(e, Entry::File(_)).then(|| p.clone());
        world.names.iter().filter_map(file).collect()
    }

    /// All files with their bytes, at one moment.
    #[cfg(test)]
    pub(crate) fn image(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let world = self.world();
        let bytes = |(path, entry): (&PathBuf, &Entry)| match entry {
            Entry::File(id) => Some((path.clone(), world.nodes[id].data.clone())),
            Entry::Folder => None,
        };
        world.names.iter().filter_map(bytes).collect()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    fn check(&mut self, op: FaultOp, path: &Path) -> io::Result<()> {
        if op != FaultOp::Read {
            if self.power_off_at.is_some_and(|at| self.changes >= at) {
                return Err(io::Error::other("the power is off"));
            }
            self.changes += 1;
        }
        self.fault(op, path)
    }

    fn fault(&mut self, op: FaultOp, path: &Path) -> io::Result<()> {
        let text = path.to_string_lossy();
        let mut hit = None;
        for (i, fault) in self.faults.iter_mut().enumerate() {
            if fault.op == op && text.contains(&fault.path) {
                if fault.after == 0 {
                    hit = Some(i);
                    break;
                }
                fault.after -= 1;
            }
        }
        let Some(i) = hit else { return Ok(()) };
        let kind = self.faults[i].kind;
        if !self.faults[i].stays {
            self.faults.remove(i);
        }
        Err(io::Error::new(kind, "injected"))
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.names, change.clone_paths());
        self.pending.push(change);
    }
}

impl Change {
    fn clone_paths(&self) -> Self {
        match self {
            Self::Put(path, entry) => Self::Put(path.clone(), *entry),
            Self::Remove(path) => Self::Remove(path.clone()),
            Self::Rename(from, to) => Self::Rename(from.clone(), to.clone()),
        }
    }

    fn folder(&self) -> PathBuf {
        match self {
            Self::Put(path, _) | Self::Remove(path) | Self::Rename(_, path) => parent(path),
        }
    }
}

fn apply(names: &mut BTreeMap<PathBuf, Entry>, change: Change) {
    match change {
        Change::Put(path, entry) => {
            names.insert(path, entry);
        }
        Change::Remove(path) => {
            names.remove(&path);
        }
        Change::Rename(from, to) => {
            if let Some(entry) = names.remove(&from) {
                names.insert(to, entry);
            }
        }
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut world = self.world();
        let node = match world.names.get(path) {
            Some(Entry::File(id)) => *id,
            Some(Entry::Folder) => return Err(io::ErrorKind::IsADirectory.into()),
            None if !create => return Err(io::ErrorKind::NotFound.into()),
            None => {
                world.check(FaultOp::Create, path)?;
                if !matches!(world.names.get(&parent(path)), Some(Entry::Folder)) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                world.next_node += 1;
                let id = world.next_node;
                world.nodes.insert(id, Node::default());
                world.change(Change::Put(path.into(), Entry::File(id)));
                id
            }
        };
        let boot = world.boot;
        let owns_lock = Mutex::new(false);
        Ok(Arc::new(MemoryFile { disk: self.clone(), node, boot, path: path.into(), owns_lock }))
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        Ok(match self.world().names.get(path) {
            None => Kind::Missing,
            Some(Entry::File(_)) => Kind::File,
            Some(Entry::Folder) => Kind::Folder,
        })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.check(FaultOp::Create, path)?;
        if !matches!(world.names.get(&parent(path)), Some(Entry::Folder)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if world.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        world.change(Change::Put(path.into(), Entry::Folder));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let world = self.world();
        let inside = world.names.keys().filter(|p| p.parent() == Some(path));
        Ok(inside.filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.check(FaultOp::Rename, to)?;
        if !world.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.change(Change::Rename(from.into(), to.into()));
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        if !world.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.check(FaultOp::Unlink, path)?;
        let freed = match world.names.get(path) {
            Some(Entry::File(id)) => world.nodes[id].data.len() as u64,
            _ => 0,
        };
        if let Some(space) = &mut world.space {
            *space += freed;
        }
        world.change(Change::Remove(path.into()));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.check(FaultOp::SyncDir, path)?;
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            std::mem::take(&mut world.pending).into_iter().partition(|c| c.folder() == path);
        world.pending = elsewhere;
        for change in here {
            apply(&mut world.durable, change);
        }
        Ok(())
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    node: u64,
    boot: u64,
    path: PathBuf,
    owns_lock: Mutex<bool>,
}

impl MemoryFile {
    fn with<T>(
        &self,
        op: Option<FaultOp>,
        f: impl FnOnce(&mut World, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut world = self.disk.world();
        if world.boot != self.boot {
            return Err(io::Error::other("a file of before the crash"));
        }
        if let Some(op) = op {
            world.check(op, &self.path)?;
        }
        f(&mut world, self.node)
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.with(Some(FaultOp::Read), |world, id| {
            let data = &world.nodes[&id].data;
            let from = (at as usize).min(data.len());
            let n = buf.len().min(data.len() - from);
            buf[..n].copy_from_slice(&data[from..from + n]);
            Ok(n)
        })
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        self.with(Some(FaultOp::Write), |world, id| {
            let torn = world.fault(FaultOp::TornWrite, &self.path).err();
            let World { nodes, space, .. } = world;
            let node = nodes.get_mut(&id).ok_or(io::ErrorKind::NotFound)?;
            let at = at as usize;
            let mut n = if torn.is_some() { buf.len() / 2 } else { buf.len() };
            let growth = (at + n).saturating_sub(node.data.len());
            if let Some(space) = space {
                let granted = growth.min(*space as usize);
                *space -= granted as u64;
                n -= growth - granted;
                if n == 0 && !buf.is_empty() {
                    return Err(io::ErrorKind::StorageFull.into());
                }
            }
            if node.data.len() < at + n {
                node.data.resize(at + n, 0);
            }
            node.data[at..at + n].copy_from_slice(&buf[..n]);
            if n > 0 {
                node.dirty.extend(at / PAGE..=(at + n - 1) / PAGE);
            }
            torn.map_or(Ok(n), Err)
        })
    }

    fn sync(&self) -> io::Result<()> {
        let failed = self.with(Some(FaultOp::Sync), |_, _| Ok(()));
        let boot = self.disk.world().boot;
        if boot != self.boot {
            return failed;
        }
        self.with(None, |world, id| {
            let off = world.power_off_at.is_some_and(|at| world.changes >= at);
            let node = world.nodes.get_mut(&id).ok_or(io::ErrorKind::NotFound)?;
            if failed.is_ok() {
                let Node { data, durable, dirty, .. } = node;
                durable.resize(data.len(), 0);
                for page in dirty.iter() {
                    let (from, to) = (page * PAGE, ((page + 1) * PAGE).min(data.len()));
                    if from < to {
                        durable[from..to].copy_from_slice(&data[from..to]);
                    }
                }
            }
            // Even after a failure the pages count as clean: a second sync proves nothing.
            if !off || failed.is_ok() {
                node.dirty.clear();
            }
            failed
        })
    }

    fn size(&self) -> io::Result<u64> {
        self.with(None, |world, id| Ok(world.nodes[&id].data.len() as u64))
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.with(Some(FaultOp::Write), |world, id| {
            let node = world.nodes.get_mut(&id).ok_or(io::ErrorKind::NotFound)?;
            node.data.resize(size as usize, 0);
            Ok(())
        })
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.with(None, |world, id| {
            let node = world.nodes.get_mut(&id).ok_or(io::ErrorKind::NotFound)?;
            if node.locked {
                return Ok(false);
            }
            node.locked = true;
            *self.owns_lock.lock().unwrap_or_else(PoisonError::into_inner) = true;
            Ok(true)
        })
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if *self.owns_lock.lock().unwrap_or_else(PoisonError::into_inner) {
            let mut world = self.disk.world();
            if world.boot == self.boot
                && let Some(node) = world.nodes.get_mut(&self.node)
            {
                node.locked = false;
            }
        }
    }
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDisk").finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryFile({})", self.path.display())
    }
}
