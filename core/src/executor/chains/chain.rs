//! The live scopes, and how a key finds its own.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use crate::executor::Hold;
use crate::types::{GroupKey, PartitionId};

use super::clock::Nanos;
use super::entries::NIL;

/// One live scope: its waiting records, and what its head is doing.
///
/// A chain without records and without an open turn is removed, unless it must remember that its
/// group is held.
#[derive(Debug)]
pub(super) struct Chain {
    key: Option<GroupKey>,
    /// Since when it is in `state`.
    pub(super) since: Nanos,
    hash: u32,
    /// The partition's place among the claims.
    pub(super) slot: u32,
    /// The last of its records, which leads to the first.
    pub(super) tail: u32,
    pub(super) len: u32,
    /// Ready: the neighbours in its queue. Backing off: when that ends, in two halves. Running or
    /// shut: `link.0` is the place of the turn. Free: `link.0` is the next free chain.
    pub(super) link: (u32, u32),
    /// Ready: its place in the order of all that became ready. Backing off: names its alarm.
    pub(super) stamp: u32,
    pub(super) state: State,
    pub(super) hold: Option<Hold>,
    /// A scope of a single record without a key, which no look-up finds.
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
    /// Its body was asked for.
    Loading,
}

impl Chain {
    pub(super) const fn is_blocked(&self) -> bool {
        matches!(self.hold, Some(Hold::Blocked))
    }

    pub(super) const fn has_open_turn(&self) -> bool {
        matches!(self.state, State::Running | State::Shut)
    }

    pub(super) const fn is_loose(&self) -> bool {
        self.loose
    }

    /// When the back-off ends.
    pub(super) const fn until(&self) -> Nanos {
        (self.link.0 as u64) << 32 | self.link.1 as u64
    }

    pub(super) const fn set_until(&mut self, at: Nanos) {
        self.link = ((at >> 32) as u32, at as u32);
    }
}

/// All chains.
#[derive(Debug)]
pub(super) struct Groups {
    chains: Vec<Chain>,
    free: u32,
    live: usize,
    table: HashTable<u32>,
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
            table: HashTable::new(),
            hasher: SipHasher13::new_with_keys(k0, k1),
        }
    }

    /// The hash of a scope. The only place where a key is hashed: once per admitted record.
    pub(super) fn hash(&self, id: PartitionId, key: Option<&GroupKey>) -> u32 {
        let key = self.hasher.hash(key.map_or(&[], |key| key.as_ref()));
        let place = u64::from(id.log.get()) << 32 | u64::from(id.partition.get());
        // The key's hash is secret, so a known offset per partition gives nothing away.
        let hash = key.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (hash ^ hash >> 32) as u32
    }

    pub(super) fn find(&self, hash: u32, slot: u32, key: Option<&GroupKey>) -> Option<u32> {
        let chains = &self.chains;
        let same = |chain: &u32| {
            let chain = &chains[*chain as usize];
            chain.hash == hash && chain.slot == slot && chain.key.as_ref() == key
        };
        self.table.find(spread(hash), same).copied()
    }

    /// A new chain that [`find`](Self::find) finds; there must be none yet.
    pub(super) fn add(&mut self, hash: u32, slot: u32, key: Option<GroupKey>, now: Nanos) -> u32 {
        let chain = self.allot(hash, slot, key, false, now);
        let chains = &self.chains;
        let rehash = |chain: &u32| spread(chains[*chain as usize].hash);
        self.table.insert_unique(spread(hash), chain, rehash);
        chain
    }

    /// A new chain for one record without a key.
    pub(super) fn add_loose(&mut self, slot: u32, now: Nanos) -> u32 {
        self.allot(0, slot, None, true, now)
    }

    pub(super) fn remove(&mut self, index: u32) {
        let chain = &mut self.chains[index as usize];
        chain.key = None;
        chain.link = (self.free, NIL);
        chain.state = State::Waiting;
        self.free = index;
        self.live -= 1;
        if !chain.loose {
            let hash = spread(chain.hash);
            if let Ok(entry) = self.table.find_entry(hash, |chain| *chain == index) {
                entry.remove();
            }
        }
    }

    pub(super) fn get(&self, chain: u32) -> &Chain {
        &self.chains[chain as usize]
    }

    pub(super) fn get_mut(&mut self, chain: u32) -> &mut Chain {
        &mut self.chains[chain as usize]
    }

    pub(super) const fn len(&self) -> usize {
        self.live
    }

    fn allot(
        &mut self,
        hash: u32,
        slot: u32,
        key: Option<GroupKey>,
        loose: bool,
        since: Nanos,
    ) -> u32 {
        let chain = Chain {
            key,
            since,
            hash,
            slot,
            tail: NIL,
            len: 0,
            link: (NIL, NIL),
            stamp: 0,
            state: State::Waiting,
            hold: None,
            loose,
        };
        self.live += 1;
        if self.free == NIL {
            self.chains.push(chain);
            return self.chains.len() as u32 - 1;
        }
        let index = self.free;
        self.free = self.chains[index as usize].link.0;
        self.chains[index as usize] = chain;
        index
    }
}

/// A table looks at the low bits and at the top seven. Thirty-two bits are enough to keep: of a
/// million keys some hundred pairs collide, which costs a comparison.
const fn spread(hash: u32) -> u64 {
    (hash as u64) << 32 | hash as u64
}
