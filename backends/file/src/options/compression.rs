//! Whether batches are compressed.

use crate::format::codec::Codec;

/// How the file log packs the batches that it writes. What was written before is read whatever is
/// chosen now, as long as the build has the feature for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// LZ4, with the feature `lz4`: little work, and JSON becomes about a third. A batch that does
    /// not shrink is stored as it is. A log that has such batches opens only in builds with the
    /// feature.
    #[cfg(feature = "lz4")]
    Lz4,
}

impl Compression {
    pub(crate) const fn codec(self) -> Codec {
        match self {
            Self::None => Codec::Plain,
            #[cfg(feature = "lz4")]
            Self::Lz4 => Codec::Lz4,
        }
    }
}
