//! The metadata of a log: what must never change behind its back.
//!
//! ```text
//!  0          8      10     12       16         32       36         44       48
//!  +----------+------+------+--------+----------+--------+----------+--------+
//!  | PRCNMETA | vers.| 0    | partit.| log UUID | routing| seed     | name n |
//!  +----------+------+------+--------+----------+--------+----------+--------+
//!  48  n bytes: the router's name, then the crc of all before it
//! ```

use procession_core::RouterId;

use super::{VERSION, array, put, u16_at, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"PRCNMETA";
const FIXED: usize = 48;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) log: u128,
    pub(crate) partitions: u32,
    pub(crate) routing: u32,
    pub(crate) router: RouterId,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadMeta {
    /// It does not begin like one.
    Foreign,
    Newer(u16),
    Damaged,
}

impl Meta {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let name = self.router.name.as_bytes();
        let mut out = vec![0; FIXED];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 12, &self.partitions.to_le_bytes());
        put(&mut out, 16, &self.log.to_le_bytes());
        put(&mut out, 32, &self.routing.to_le_bytes());
        put(&mut out, 36, &self.router.seed.to_le_bytes());
        put(&mut out, 44, &(name.len() as u32).to_le_bytes());
        out.extend_from_slice(name);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadMeta> {
        if bytes.len() < 10 || bytes[..8] != MAGIC {
            return Err(BadMeta::Foreign);
        }
        let version = u16_at(bytes, 8);
        if version > VERSION {
            return Err(BadMeta::Newer(version));
        }
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(BadMeta::Damaged);
        };
        let sound = body.len() >= FIXED
            && crc32c::crc32c(body) == u32::from_le_bytes(*crc)
            && body.len() - FIXED == u32_at(body, 44) as usize
            && u32_at(body, 12) > 0;
        if !sound {
            return Err(BadMeta::Damaged);
        }
        let name = std::str::from_utf8(&body[FIXED..]).map_err(|_| BadMeta::Damaged)?;
        Ok(Self {
            log: u128::from_le_bytes(array(body, 16)),
            partitions: u32_at(body, 12),
            routing: u32_at(body, 32),
            router: RouterId { name: name.to_owned(), seed: u64_at(body, 36) },
        })
    }
}
