//! The name of a group.

use std::borrow::Borrow;
use std::fmt;

use bytes::Bytes;

/// The key of a group: any bytes, also none at all (the empty key is a key like any other).
///
/// Two records are of one group if and only if their keys are equal byte for byte, in one log.
/// Choose the entity whose state machine must not be torn apart (an order, a permit, a device), not
/// the operation and not a serial number: a key that is new for every record orders nothing.
///
/// Cloning shares the bytes. `Display` is for people: it prints UTF-8 as it is and other bytes
/// escaped, so two keys may print the same. For the key of a row or a map take
/// [`as_str`](Self::as_str) or the bytes; a map of `GroupKey`s can be asked by `&[u8]`.
///
/// ```
/// use procession_core::GroupKey;
/// # use std::collections::HashMap;
/// assert_eq!(GroupKey::from("case-7"), GroupKey::from(b"case-7".to_vec()));
/// assert_eq!(GroupKey::from("case-7").as_str(), Some("case-7"));
/// assert_eq!(GroupKey::from(vec![b'a', 0xff]).as_str(), None);
/// assert_eq!(GroupKey::from(vec![b'a', 0xff]).to_string(), r"a\xff");
/// let balances = HashMap::from([(GroupKey::from("case-7"), 3)]);
/// assert_eq!(balances.get(&b"case-7"[..]), Some(&3));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupKey(Bytes);

impl GroupKey {
    /// The bytes, as a shared buffer.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The key as text; `None` if it is not UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The bytes, taken out.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl AsRef<[u8]> for GroupKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// `Eq`, `Ord` and `Hash` of a key are those of its bytes.
impl Borrow<[u8]> for GroupKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupKey(\"{self}\")")
    }
}

impl PartialEq<str> for GroupKey {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for GroupKey {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<[u8]> for GroupKey {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

impl From<Bytes> for GroupKey {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Vec<u8>> for GroupKey {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<String> for GroupKey {
    fn from(text: String) -> Self {
        Self(text.into_bytes().into())
    }
}

/// Copies the text.
impl From<&str> for GroupKey {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

/// Copies the text.
impl From<&String> for GroupKey {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

/// Copies the bytes.
impl From<&[u8]> for GroupKey {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

/// Copies the bytes.
impl<const N: usize> From<&[u8; N]> for GroupKey {
    fn from(bytes: &[u8; N]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}
