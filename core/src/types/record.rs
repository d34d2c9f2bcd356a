//! Records: what a producer hands over, and what a log gives back.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use super::{GroupKey, Offset, RoutingEpoch, Sequence, Timestamp};
use crate::{Error, ErrorKind};

/// Key bytes (the group), payload bytes, headers and a timestamp; immutable once appended.
///
/// Both key and payload may be *absent*, which is not the same as empty: Kafka calls an absent
/// payload a tombstone, and a record with an absent key belongs to no group (see
/// [`AbsentKey`](crate::AbsentKey)). Cloning shares the buffers.
///
/// ```
/// use procession_core::Record;
/// let record = Record::new("case-7", "submitted").with_header("traceparent", "00-1-1-01");
/// assert_eq!(record.key().unwrap().as_ref(), b"case-7");
/// assert_eq!(record.headers().get("traceparent"), Some(&b"00-1-1-01"[..]));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    key: Option<GroupKey>,
    payload: Option<Bytes>,
    headers: Headers,
    timestamp: Option<Timestamp>,
}

impl Record {
    /// A record of the group `key`, without headers; its timestamp is set when it is sent.
    ///
    /// The payload is taken over without a copy: a `Vec<u8>`, a `String`, a `Bytes`, or what lives
    /// for ever. What is only borrowed is copied by the caller: `payload.to_vec()`.
    pub fn new(key: impl Into<GroupKey>, payload: impl Into<Bytes>) -> Self {
        Self::from_parts(Some(key.into()), Some(payload.into()), Headers::default(), None)
    }

    /// A record of all its parts, any of which may be absent.
    #[must_use]
    pub const fn from_parts(
        key: Option<GroupKey>,
        payload: Option<Bytes>,
        headers: Headers,
        timestamp: Option<Timestamp>,
    ) -> Self {
        Self { key, payload, headers, timestamp }
    }

    /// Moves key, payload and headers out: less work than to move the record as a whole, and what
    /// is left has nothing to drop.
    #[inline]
    pub(crate) fn take_parts(&mut self) -> (Option<GroupKey>, Option<Bytes>, Headers) {
        let headers = if self.headers.is_empty() {
            Headers::EMPTY
        } else {
            std::mem::take(&mut self.headers)
        };
        (self.key.take(), self.payload.take(), headers)
    }

    /// The same record with one header more.
    ///
    /// # Panics
    /// If the name is longer than 65,535 bytes, or the value longer than 2 GiB.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers = self.headers.with(name, Some(value.as_ref()));
        self
    }

    /// The same record, stamped by its producer.
    #[must_use]
    pub fn with_timestamp(mut self, at: impl Into<Timestamp>) -> Self {
        self.timestamp = Some(at.into());
        self
    }

    /// The group, if the record has one.
    #[must_use]
    pub const fn key(&self) -> Option<&GroupKey> {
        self.key.as_ref()
    }

    /// The payload bytes; `None` is a tombstone.
    #[must_use]
    pub const fn payload(&self) -> Option<&Bytes> {
        self.payload.as_ref()
    }

    /// The headers, in the order in which they were added.
    #[must_use]
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The producer's time. A record that was appended always has one.
    #[must_use]
    pub const fn timestamp(&self) -> Option<Timestamp> {
        self.timestamp
    }

    /// Bytes of key, payload and headers: what limits and budgets count.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.key.as_ref().map_or(0, |k| k.as_bytes().len())
            + self.payload.as_ref().map_or(0, Bytes::len)
            + self.headers.encoded.len()
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key)
            .field("payload_bytes", &self.payload.as_ref().map(Bytes::len))
            .field("headers", &self.headers)
            .field("timestamp", &self.timestamp)
            .finish()
    }
}

/// Names with optional values, in order; names may repeat. Kept encoded: cloning, writing and
/// reading a record never builds a list.
///
/// The encoding, which logs store as it is: per header `u16` length of the name, the name (UTF-8),
/// `i32` length of the value or -1 for an absent one, the value; all little-endian.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers {
    encoded: Bytes,
}

impl Headers {
    /// No headers.
    pub const EMPTY: Self = Self { encoded: Bytes::new() };

    /// The same headers and one more.
    ///
    /// # Panics
    /// If the name is longer than 65,535 bytes, or the value longer than 2 GiB.
    #[must_use]
    pub fn with(&self, name: &str, value: Option<&[u8]>) -> Self {
        let mut encoded = BytesMut::with_capacity(
            self.encoded.len() + 6 + name.len() + value.map_or(0, <[u8]>::len),
        );
        encoded.put_slice(&self.encoded);
        encoded.put_u16_le(name.len().try_into().expect("a header name of at most 65,535 bytes"));
        encoded.put_slice(name.as_bytes());
        match value {
            None => encoded.put_i32_le(-1),
            Some(value) => {
                let length = value.len().try_into().expect("a header value of at most 2 GiB");
                encoded.put_i32_le(length);
                encoded.put_slice(value);
            }
        }
        Self { encoded: encoded.freeze() }
    }

    /// Takes encoded headers, as [`encoded`](Self::encoded) gave them.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the bytes are not whole headers with UTF-8 names.
    pub fn decode(encoded: Bytes) -> Result<Self, Error> {
        let mut rest = &encoded[..];
        while !rest.is_empty() {
            let Some((_, after)) = split_header(rest) else {
                return Err(Error::new(ErrorKind::Corrupt, "decode headers"));
            };
            rest = after;
        }
        Ok(Self { encoded })
    }

    /// The encoded form.
    #[must_use]
    pub const fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    /// The value of the last header of this name; an absent value reads as `None`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().filter(|(n, _)| *n == name).last().and_then(|(_, value)| value)
    }

    /// All headers in order.
    #[must_use]
    pub fn iter(&self) -> HeadersIter<'_> {
        HeadersIter { rest: &self.encoded }
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (name, value.map(String::from_utf8_lossy))))
            .finish()
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = (&'a str, Option<&'a [u8]>);
    type IntoIter = HeadersIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Iterator over [`Headers`]: name and optional value.
#[derive(Clone, Debug)]
pub struct HeadersIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for HeadersIter<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = split_header(self.rest)?;
        self.rest = rest;
        Some(header)
    }
}

type Header<'a> = (&'a str, Option<&'a [u8]>);

fn split_header(bytes: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let name = std::str::from_utf8(name).ok()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    match i32::from_le_bytes(*length) {
        -1 => Some(((name, None), rest)),
        length => {
            let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some(((name, Some(value)), rest))
        }
    }
}

/// A record as a log gives it back, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its place in the partition.
    pub offset: Offset,
    /// Its number in the group, where the log mints one.
    pub sequence: Option<Sequence>,
    /// When the log took it, by the log's own clock, which never falls.
    pub log_time: Timestamp,
    /// The routing epoch under which its partition was chosen.
    pub routing: RoutingEpoch,
    /// The record itself.
    pub record: Record,
}

impl Stored {
    /// The group, if the record has one.
    #[must_use]
    pub const fn key(&self) -> Option<&GroupKey> {
        self.record.key()
    }

    /// The payload, empty for a tombstone (see [`Record::payload`] to tell the two apart).
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.record.payload().map_or(&[], |payload| &payload[..])
    }

    /// The headers.
    #[must_use]
    pub const fn headers(&self) -> &Headers {
        self.record.headers()
    }
}
