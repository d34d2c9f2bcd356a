//! The live scopes, and how a key finds its own.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use siphasher::sip::SipHasher13;

use crate::executor::Hold;
use crate::types::{GroupKey, PartitionId};

use super::clock::Nanos;
use super::entries::NIL;

/// One live scope: its waiting records, and what its head is doing.
///
/// A chain without records and without an open turn is removed, unless it must remember that its
/// group is held, or when its last turn began.
#[derive(Debug)]
pub(super) struct Chain {
    name: Name,
    /// Since when it is in `state`.
    pub(super) since: Nanos,
    hash: u32,
    /// The next chain of its bucket.
    beside: u32,
    /// The partition's place among the claims.
    pub(super) slot: u32,
    /// The last of its records, which leads to the first.
    pub(super) tail: u32,
    pub(super) len: u32,
    /// Ready: the neighbours in its queue. Waiting for a moment: which, in two halves. Running or
    /// shut: `link.0` is the place of the turn. Free: `link.0` is the next free chain.
    pub(super) link: (u32, u32),
    /// Ready: its place in the order of all that became ready. Waiting for a moment: names its
    /// alarm.
    pub(super) stamp: u32,
    pub(super) state: State,
    pub(super) hold: Option<Hold>,
    /// The head does not linger: it was in a turn before, or its group was to be moved away.
    pub(super) eager: bool,
    /// The scope of a single record ([`Lane::Own`](super::lane::Lane)), which no look-up finds.
    loose: bool,
}

/// What the head of a chain is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// There is none, or it is blocked, or its body has not been asked for.
    Waiting,
    /// In a ready queue: to be run, diverted or loaded.
    Ready,
    /// Its turn is open.
    Running,
    /// A turn of a fenced claim is open.
    Shut,
    /// Waits for its alarm; without one while it is blocked.
    BackingOff,
    /// The same, for more records to come, or its alarm.
    Lingering,
    /// The same, for its interval to pass; perhaps without a record.
    Paced,
    /// Its body was asked for.
    Loading,
}

impl Chain {
    const FREE: Self = Self {
        name: Name::NONE,
        since: 0,
        hash: 0,
        beside: NIL,
        slot: 0,
        tail: NIL,
        len: 0,
        link: (NIL, NIL),
        stamp: 0,
        state: State::Waiting,
        hold: None,
        eager: false,
        loose: false,
    };

    pub(super) const fn is_blocked(&self) -> bool {
        matches!(self.hold, Some(Hold::Blocked))
    }

    /// Its records are to be moved away, one by one.
    pub(super) const fn is_diverted(&self) -> bool {
        matches!(self.hold, Some(Hold::Parked | Hold::Cascading))
    }

    /// It waits for a moment, with an alarm or, while it is blocked, without.
    pub(super) const fn is_timed(&self) -> bool {
        matches!(self.state, State::BackingOff | State::Lingering | State::Paced)
    }

    pub(super) const fn has_open_turn(&self) -> bool {
        matches!(self.state, State::Running | State::Shut)
    }

    pub(super) const fn is_loose(&self) -> bool {
        self.loose
    }

    /// The moment that it waits for.
    pub(super) const fn until(&self) -> Nanos {
        (self.link.0 as u64) << 32 | self.link.1 as u64
    }

    pub(super) const fn set_until(&mut self, at: Nanos) {
        self.link = ((at >> 32) as u32, at as u32);
    }
}

/// A key, as a chain keeps it: a short one lies in the chain itself, so that a look-up need not
/// follow a pointer, and no buffer is shared for it.
#[derive(Debug)]
enum Name {
    /// So many bytes of these are the key, or it is absent.
    Short {
        bytes: [u8; SHORT],
        len: u8,
    },
    Long(Bytes),
}

const SHORT: usize = 23;
const ABSENT: u8 = u8::MAX;

impl Name {
    const NONE: Self = Self::Short { bytes: [0; SHORT], len: ABSENT };

    /// Writes the key into its place.
    #[inline]
    fn set(&mut self, key: Option<&GroupKey>) {
        if let Self::Long(_) = self {
            *self = Self::NONE;
        }
        let Self::Short { bytes, len } = self else { return };
        match key {
            None => *len = ABSENT,
            Some(key) => match bytes.get_mut(..key.as_ref().len()) {
                None => *self = Self::Long(key.as_bytes().clone()),
                Some(start) => {
                    start.copy_from_slice(key.as_ref());
                    *len = start.len() as u8;
                }
            },
        }
    }

    #[inline]
    fn is(&self, key: Option<&GroupKey>) -> bool {
        match (self, key) {
            (Self::Short { len, .. }, None) => *len == ABSENT,
            (Self::Short { bytes, len }, Some(key)) => {
                bytes.get(..usize::from(*len)).is_some_and(|name| name == key.as_ref())
            }
            (Self::Long(name), Some(key)) => name == key.as_bytes(),
            (Self::Long(_), None) => false,
        }
    }
}

/// All chains, and the table that finds them: a list through the chains of each bucket.
///
/// The lists run through the chains because most live for one record only: putting one in and
/// taking it out again is two writes beside what is touched anyway.
#[derive(Debug)]
pub(super) struct Groups {
    chains: Vec<Chain>,
    free: u32,
    live: usize,
    /// The first chain of each bucket; a power of two of them.
    buckets: Vec<u32>,
    /// How many chains the table finds.
    found: usize,
    hasher: SipHasher13,
}

impl Groups {
    pub(super) fn new(seed: Option<(u64, u64)>) -> Self {
        let (k0, k1) = seed.unwrap_or_else(|| {
            let random = RandomState::new();
            (random.hash_one(0), random.hash_one(1))
        });
        Self {
            chains: Vec::new(),
            free: NIL,
            live: 0,
            buckets: vec![NIL; 64],
            found: 0,
            hasher: SipHasher13::new_with_keys(k0, k1),
        }
    }

    /// The hash of a scope. The only place where a key is hashed: once per admitted record.
    #[inline]
    pub(super) fn hash(&self, id: PartitionId, key: Option<&GroupKey>) -> u32 {
        let key = self.hasher.hash(key.map_or(&[], |key| key.as_ref()));
        let place = u64::from(id.log.get()) << 32 | u64::from(id.partition.get());
        // The key's hash is secret, so a known offset per partition gives nothing away.
        let hash = key.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (hash ^ hash >> 32) as u32
    }

    #[inline]
    pub(super) fn find(&self, hash: u32, slot: u32, key: Option<&GroupKey>) -> Option<u32> {
        let mut index = self.buckets[self.bucket(hash)];
        while index != NIL {
            let chain = &self.chains[index as usize];
            if chain.hash == hash && chain.slot == slot && chain.name.is(key) {
                return Some(index);
            }
            index = chain.beside;
        }
        None
    }

    /// A new chain that [`find`](Self::find) finds; there must be none yet.
    pub(super) fn add(&mut self, hash: u32, slot: u32, key: Option<&GroupKey>, now: Nanos) -> u32 {
        self.found += 1;
        if self.found > self.buckets.len() / 4 * 3 {
            self.grow();
        }
        let bucket = self.bucket(hash);
        let beside = self.buckets[bucket];
        let index = self.allot(slot, now);
        let chain = &mut self.chains[index as usize];
        chain.name.set(key);
        (chain.hash, chain.beside, chain.loose) = (hash, beside, false);
        self.buckets[bucket] = index;
        index
    }

    /// A new chain for one record that is a scope of its own.
    pub(super) fn add_loose(&mut self, slot: u32, now: Nanos) -> u32 {
        let index = self.allot(slot, now);
        let chain = &mut self.chains[index as usize];
        chain.name.set(None);
        chain.loose = true;
        index
    }

    pub(super) fn remove(&mut self, index: u32) {
        let chain = &mut self.chains[index as usize];
        if let Name::Long(_) = chain.name {
            chain.name = Name::NONE;
        }
        chain.link = (self.free, NIL);
        chain.state = State::Waiting;
        let (hash, beside, loose) = (chain.hash, chain.beside, chain.loose);
        self.free = index;
        self.live -= 1;
        if !loose {
            self.found -= 1;
            let bucket = self.bucket(hash);
            let mut before = self.buckets[bucket];
            if before == index {
                self.buckets[bucket] = beside;
                return;
            }
            while self.chains[before as usize].beside != index {
                before = self.chains[before as usize].beside;
            }
            self.chains[before as usize].beside = beside;
        }
    }

    /// Thirty-two bits of hash are enough to keep: of a million keys some hundred pairs collide,
    /// which costs a comparison.
    const fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// Twice as many buckets.
    #[cold]
    fn grow(&mut self) {
        let twice = vec![NIL; self.buckets.len() * 2];
        for first in std::mem::replace(&mut self.buckets, twice) {
            let mut index = first;
            while index != NIL {
                let bucket = self.bucket(self.chains[index as usize].hash);
                let beside = std::mem::replace(&mut self.buckets[bucket], index);
                index = std::mem::replace(&mut self.chains[index as usize].beside, beside);
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, chain: u32) -> &Chain {
        &self.chains[chain as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, chain: u32) -> &mut Chain {
        &mut self.chains[chain as usize]
    }

    pub(super) const fn len(&self) -> usize {
        self.live
    }

    /// A place for a chain, with all but its name and what finds it by that.
    #[inline]
    fn allot(&mut self, slot: u32, now: Nanos) -> u32 {
        self.live += 1;
        let index = self.free;
        let Some(chain) = self.chains.get_mut(index as usize) else {
            self.chains.push(Chain { slot, since: now, ..Chain::FREE });
            return self.chains.len() as u32 - 1;
        };
        self.free = chain.link.0;
        chain.since = now;
        chain.slot = slot;
        (chain.tail, chain.len) = (NIL, 0);
        chain.hold = None;
        index
    }
}
