//! The index of a sealed segment: a cache next to it, rebuilt by a scan when it is lost.
//!
//! ```text
//!  0          8      10     12       16         32           40       44       48       52      56
//!  +----------+------+------+--------+----------+------------+--------+--------+--------+-------+
//!  | PRCNINDX | vers.| 0    | end    | log UUID | segment id | filter | spots  | groups | crc   |
//!  +----------+------+------+--------+----------+------------+--------+--------+--------+-------+
//!  filter: bits by group hash | crc · spots: partition, batch, frame (u32), offset (u64) | crc
//!  groups: 44 bytes each, by hash:
//!  +--------+----------+--------+-----------+--------+---------+---------+-----+
//!  | hash   | sequence | offset | partition | key at | key len | key crc | crc |
//!  +--------+----------+--------+-----------+--------+---------+---------+-----+
//!  keys
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, read_full, write_all};
use crate::format::{VERSION, array, put, u16_at, u32_at, u64_at};
use crate::groups::{GroupLast, Lookup};

const MAGIC: [u8; 8] = *b"PRCNINDX";
const HEAD: usize = 56;
const SLOT: usize = 44;
const SPOT: usize = 20;
/// A partition gets a spot every so many bytes of the stream.
const SPACING: u32 = if cfg!(test) { 512 } else { 64 * 1024 };

/// Where reading may begin: sparse, by partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spots(Vec<Vec<Spot>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) offset: u64,
    /// Where the batch header of the frame begins.
    pub(crate) batch: u32,
    /// Where the frame begins.
    pub(crate) frame: u32,
}

impl Spots {
    pub(crate) fn new(partitions: usize) -> Self {
        Self(vec![Vec::new(); partitions])
    }

    /// Remembers a frame if the partition's last spot is far enough behind.
    pub(crate) fn add(&mut self, partition: u32, spot: Spot) {
        let spots = &mut self.0[partition as usize];
        if spots.last().is_none_or(|last| spot.frame >= last.frame.saturating_add(SPACING)) {
            spots.push(spot);
        }
    }

    /// The last spot at or before an offset.
    pub(crate) fn before(&self, partition: u32, offset: u64) -> Option<Spot> {
        let spots = self.0.get(partition as usize)?;
        let at = spots.partition_point(|spot| spot.offset <= offset);
        // Nothing at or before it: the partition's first frame, if it has one.
        spots.get(at.saturating_sub(1)).copied()
    }
}

/// A small filter: "certainly not in this segment", or "perhaps".
#[derive(Clone, Debug)]
struct Filter(Vec<u8>);

impl Filter {
    fn of(groups: &[GroupLast]) -> Self {
        // Ten bits a group and four probes: about one false answer in a hundred.
        let mut filter = Self(vec![0; (groups.len() * 10).div_ceil(8).max(1)]);
        for group in groups {
            for bit in Self::bits(group.hash, filter.0.len()) {
                filter.0[bit / 8] |= 1 << (bit % 8);
            }
        }
        filter
    }

    fn may_have(&self, hash: u64) -> bool {
        Self::bits(hash, self.0.len()).all(|bit| self.0[bit / 8] & (1 << (bit % 8)) != 0)
    }

    fn bits(hash: u64, bytes: usize) -> impl Iterator<Item = usize> {
        let step = hash.rotate_left(32) | 1;
        let bits = bytes as u64 * 8;
        (0..4_u64).map(move |i| (hash.wrapping_add(step.wrapping_mul(i)) % bits) as usize)
    }
}

/// The groups of a sealed segment, on disk behind a filter in memory.
#[derive(Debug)]
pub(crate) struct GroupsFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    filter: Filter,
    count: u64,
    slots_at: u64,
}

/// Writes the index of a segment. Synced before it gets its name: only its head is checked when a
/// log opens, so a half-written one must not be found.
pub(crate) fn write(
    disk: &dyn Disk,
    path: &Path,
    log: u128,
    segment: u64,
    end: u64,
    spots: &Spots,
    groups: &mut Vec<GroupLast>,
) -> io::Result<()> {
    groups.sort_unstable_by(|a, b| a.hash.cmp(&b.hash).then_with(|| a.key.cmp(&b.key)));
    groups.dedup_by(|a, b| a.hash == b.hash && a.partition == b.partition && a.key == b.key);
    let filter = Filter::of(groups);
    let spot_count: usize = spots.0.iter().map(Vec::len).sum();
    let mut out = vec![0; HEAD];
    put(&mut out, 0, &MAGIC);
    put(&mut out, 8, &VERSION.to_le_bytes());
    put(&mut out, 12, &(end as u32).to_le_bytes());
    put(&mut out, 16, &log.to_le_bytes());
    put(&mut out, 32, &segment.to_le_bytes());
    put(&mut out, 40, &(filter.0.len() as u32).to_le_bytes());
    put(&mut out, 44, &(spot_count as u32).to_le_bytes());
    put(&mut out, 48, &(groups.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c(&out[..52]);
    put(&mut out, 52, &crc.to_le_bytes());
    section(&mut out, &filter.0);
    let mut encoded = Vec::with_capacity(spot_count * SPOT);
    for (partition, spots) in spots.0.iter().enumerate() {
        for spot in spots {
            encoded.extend_from_slice(&(partition as u32).to_le_bytes());
            encoded.extend_from_slice(&spot.batch.to_le_bytes());
            encoded.extend_from_slice(&spot.frame.to_le_bytes());
            encoded.extend_from_slice(&spot.offset.to_le_bytes());
        }
    }
    section(&mut out, &encoded);
    let mut keys = Vec::new();
    for group in &*groups {
        let at = out.len();
        out.extend_from_slice(&group.hash.to_le_bytes());
        out.extend_from_slice(&group.sequence.to_le_bytes());
        out.extend_from_slice(&group.offset.to_le_bytes());
        out.extend_from_slice(&group.partition.to_le_bytes());
        out.extend_from_slice(&(keys.len() as u32).to_le_bytes());
        out.extend_from_slice(&(group.key.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32c::crc32c(&group.key).to_le_bytes());
        let crc = crc32c::crc32c(&out[at..]);
        out.extend_from_slice(&crc.to_le_bytes());
        keys.extend_from_slice(&group.key);
    }
    out.extend_from_slice(&keys);
    let unfinished = path.with_extension("idx.new");
    let written = disk.open(&unfinished, true).and_then(|file| {
        file.set_size(0)?;
        write_all(&*file, &out, 0)?;
        file.sync()
    });
    if let Err(e) = written {
        // Give the room back that it took in vain; the cause matters more than this.
        let _ = disk.unlink(&unfinished);
        return Err(e);
    }
    disk.rename(&unfinished, path)
}

/// The groups of a sealed segment in memory, while the disk has no room for its index.
#[derive(Debug)]
pub(crate) struct GroupsList(Vec<GroupLast>);

impl GroupsList {
    /// `groups` as [`write`] leaves them: by hash.
    pub(crate) const fn new(groups: Vec<GroupLast>) -> Self {
        Self(groups)
    }
}

impl Lookup for GroupsList {
    fn find(&self, hash: u64, partition: u32, key: &[u8]) -> io::Result<Option<(u64, u64)>> {
        let from = self.0.partition_point(|group| group.hash < hash);
        let same = self.0[from..].iter().take_while(|group| group.hash == hash);
        let mut same = same.filter(|group| group.partition == partition && *group.key == *key);
        Ok(same.next().map(|group| (group.sequence, group.offset)))
    }
}

fn section(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
}

/// Reads the index of a segment; `None` if it is missing, damaged, or of something else.
pub(crate) fn read(
    disk: &Arc<dyn Disk>,
    path: &Path,
    log: u128,
    segment: u64,
    end: u64,
    partitions: usize,
) -> io::Result<Option<(Spots, GroupsFile)>> {
    read_index(disk, path, log, segment, Some(end), partitions)
}

/// The groups of a segment that was removed.
pub(crate) fn read_orphan(
    disk: &Arc<dyn Disk>,
    path: &Path,
    log: u128,
    segment: u64,
    partitions: usize,
) -> io::Result<Option<GroupsFile>> {
    let read = read_index(disk, path, log, segment, None, partitions)?;
    Ok(read.map(|(_, groups)| groups))
}

fn read_index(
    disk: &Arc<dyn Disk>,
    path: &Path,
    log: u128,
    segment: u64,
    end: Option<u64>,
    partitions: usize,
) -> io::Result<Option<(Spots, GroupsFile)>> {
    let file = match disk.open(path, false) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut head = [0; HEAD];
    if read_full(&*file, &mut head, 0)? < HEAD {
        return Ok(None);
    }
    let sound = head[..8] == MAGIC
        && u16_at(&head, 8) == VERSION
        && crc32c::crc32c(&head[..52]) == u32_at(&head, 52)
        && end.is_none_or(|end| u64::from(u32_at(&head, 12)) == end)
        && u128::from_le_bytes(array(&head, 16)) == log
        && u64_at(&head, 32) == segment;
    if !sound {
        return Ok(None);
    }
    let (filter_len, spot_count) = (u32_at(&head, 40) as usize, u32_at(&head, 44) as usize);
    let spots_at = HEAD + filter_len + 4;
    let slots_at = (spots_at + spot_count * SPOT + 4) as u64;
    if file.size()? < slots_at {
        return Ok(None);
    }
    let Some(filter) = read_section(&*file, HEAD, filter_len)? else { return Ok(None) };
    let Some(encoded) = read_section(&*file, spots_at, spot_count * SPOT)? else {
        return Ok(None);
    };
    let mut spots = Spots::new(partitions);
    for spot in encoded.chunks_exact(SPOT) {
        let Some(list) = spots.0.get_mut(u32_at(spot, 0) as usize) else { return Ok(None) };
        list.push(Spot {
            batch: u32_at(spot, 4),
            frame: u32_at(spot, 8),
            offset: u64_at(spot, 12),
        });
    }
    let count = u64::from(u32_at(&head, 48));
    let filter = Filter(filter);
    Ok(Some((
        spots,
        GroupsFile { disk: Arc::clone(disk), path: path.into(), filter, count, slots_at },
    )))
}

fn read_section(file: &dyn DiskFile, at: usize, len: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; len + 4];
    if read_full(file, &mut bytes, at as u64)? < bytes.len() {
        return Ok(None);
    }
    let crc = u32_at(&bytes, len);
    bytes.truncate(len);
    Ok((crc32c::crc32c(&bytes) == crc).then_some(bytes))
}

impl GroupsFile {
    fn slot(&self, file: &dyn DiskFile, at: u64) -> io::Result<[u8; SLOT]> {
        let mut slot = [0; SLOT];
        if read_full(file, &mut slot, self.slots_at + at * SLOT as u64)? < SLOT {
            return Err(self.damaged());
        }
        if crc32c::crc32c(&slot[..SLOT - 4]) != u32_at(&slot, SLOT - 4) {
            return Err(self.damaged());
        }
        Ok(slot)
    }

    /// A damaged index must not be believed: without it the next open makes another.
    fn damaged(&self) -> io::Error {
        // If it cannot be removed it is found damaged again.
        let _ = self.disk.unlink(&self.path);
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{} is damaged and was removed; reopen the log to rebuild it",
                self.path.display()
            ),
        )
    }
}

impl Lookup for GroupsFile {
    fn find(&self, hash: u64, partition: u32, key: &[u8]) -> io::Result<Option<(u64, u64)>> {
        if !self.filter.may_have(hash) {
            return Ok(None);
        }
        let file = match self.disk.open(&self.path, false) {
            Ok(file) => file,
            // An earlier look-up found it damaged.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(self.damaged()),
            Err(e) => return Err(e),
        };
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = u64::midpoint(low, high);
            if u64_at(&self.slot(&*file, middle)?, 0) < hash {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let keys_at = self.slots_at + self.count * SLOT as u64;
        let mut found = vec![0; key.len()];
        for at in low..self.count {
            let slot = self.slot(&*file, at)?;
            if u64_at(&slot, 0) != hash {
                break;
            }
            if u32_at(&slot, 24) != partition || u32_at(&slot, 32) as usize != key.len() {
                continue;
            }
            let key_at = keys_at + u64::from(u32_at(&slot, 28));
            if read_full(&*file, &mut found, key_at)? < found.len() {
                return Err(self.damaged());
            }
            if crc32c::crc32c(&found) != u32_at(&slot, 36) {
                return Err(self.damaged());
            }
            if found == key {
                return Ok(Some((u64_at(&slot, 8), u64_at(&slot, 16))));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;
    use crate::groups::GroupHash;

    #[test]
    fn finds_every_group_and_nothing_else() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let hash = GroupHash::of(7);
        let mut groups: Vec<_> = (0..1000_u64)
            .map(|i| {
                let key = format!("case-{i}").into_bytes().into_boxed_slice();
                let (partition, sequence, offset) = ((i % 3) as u32, i, i * 2);
                GroupLast { hash: hash.hash(partition, &key), partition, key, sequence, offset }
            })
            .collect();
        let path = Path::new("/1.idx");
        write(&*disk, path, 7, 1, 5000, &Spots::new(3), &mut groups).unwrap();
        let list = GroupsList::new(groups.clone());
        let (_, file) = read(&disk, path, 7, 1, 5000, 3).unwrap().unwrap();
        for group in &groups {
            for lookup in [&file as &dyn Lookup, &list] {
                let found = lookup.find(group.hash, group.partition, &group.key).unwrap();
                assert_eq!(found, Some((group.sequence, group.offset)));
            }
        }
        for i in 1000..2000 {
            let key = format!("case-{i}");
            for lookup in [&file as &dyn Lookup, &list] {
                let found = lookup.find(hash.hash(0, key.as_bytes()), 0, key.as_bytes());
                assert_eq!(found.unwrap(), None);
            }
        }
    }

    #[test]
    fn a_damaged_or_foreign_index_is_no_index() {
        let memory = MemoryDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let path = Path::new("/1.idx");
        write(&*disk, path, 7, 1, 5000, &Spots::new(3), &mut Vec::new()).unwrap();
        assert!(read(&disk, path, 8, 1, 5000, 3).unwrap().is_none());
        assert!(read(&disk, path, 7, 2, 5000, 3).unwrap().is_none());
        let good = memory.bytes(path);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            memory.put(path, &bad);
            // Two bytes are reserved and outside every meaning, but not outside the checksum.
            assert!(read(&disk, path, 7, 1, 5000, 3).unwrap().is_none(), "byte {at}");
        }
    }
}
