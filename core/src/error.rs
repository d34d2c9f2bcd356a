//! The one error of the library.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::types::{GroupKey, Offset, PartitionId};

type BoxError = Box<dyn StdError + Send + Sync>;

/// What went wrong, for programs. Match on it; the sentence is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option or argument makes no sense; nothing was started.
    Config,
    /// What is on disk (partitions, router, seed, log identity) differs from what was asked for.
    Mismatch,
    /// The named thing does not exist.
    NotFound,
    /// Somebody else holds it: another process has the log, another member the subscription.
    Locked,
    /// Written by a newer version of the format.
    Version,
    /// Bytes that were proven durable do not read back as they were written.
    Corrupt,
    /// No room: the disk or a bounded store is full. Try again when there is.
    Full,
    /// One record is over the limit; nothing was written.
    TooLarge,
    /// The offset was removed from the log by retention.
    Trimmed,
    /// The offset lies above the end of the log, or the number of a record above its producer's next.
    NotYetWritten,
    /// A newer epoch owns the partition, or the name of the producer.
    Fenced,
    /// An earlier append has stored it already, too long ago for its receipt to be remembered.
    Repeated,
    /// Nobody can say whether it happened: treat the effect as possible.
    Unknown,
    /// A write or sync failed earlier; this handle does nothing more. Reopen the log.
    Poisoned,
    /// The log, consumer or producer was closed.
    Closed,
    /// It took longer than its limit.
    Timeout,
    /// It cannot be reached, or the system refused for now. Try again.
    Unavailable,
    /// Permission denied, or the place is read-only.
    Denied,
    /// This backend or build cannot do it.
    Unsupported,
    /// A record's attempts are used up, or its failure is permanent.
    Exhausted,
    /// A delivery was dropped without a verdict too often.
    Abandoned,
}

impl ErrorKind {
    const fn describe(self) -> &'static str {
        match self {
            Self::Config => "invalid configuration",
            Self::Mismatch => "it does not match what is stored",
            Self::NotFound => "not found",
            Self::Locked => "held by somebody else",
            Self::Version => "written by a newer version",
            Self::Corrupt => "damaged bytes",
            Self::Full => "no room left",
            Self::TooLarge => "too large",
            Self::Trimmed => "removed by retention",
            Self::NotYetWritten => "not yet written",
            Self::Fenced => "a newer epoch owns it",
            Self::Repeated => "stored already, its receipt is no longer remembered",
            Self::Unknown => "the outcome is unknown",
            Self::Poisoned => "an earlier write or sync failed; reopen the log",
            Self::Closed => "closed",
            Self::Timeout => "took too long",
            Self::Unavailable => "not available now",
            Self::Denied => "permission denied",
            Self::Unsupported => "not supported",
            Self::Exhausted => "attempts exhausted",
            Self::Abandoned => "dropped without a verdict too often",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

/// Every fallible operation of the library returns this.
///
/// [`kind`](Self::kind) is for programs, `Display` for people: what was attempted, on what, and
/// what stopped it, in one line and without the cause, which is in
/// [`source`](StdError::source). Cloning is cheap, so that every waiter of a failed write gets it.
///
/// ```
/// use procession_core::{Error, ErrorKind, Offset};
/// let error = Error::new(ErrorKind::Trimmed, "read \"permits\"").at_offset(Offset::new(7));
/// assert_eq!(error.to_string(), "read \"permits\": offset 7: removed by retention");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    operation: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    group: Option<GroupKey>,
    partition: Option<PartitionId>,
    offset: Option<Offset>,
    path: Option<PathBuf>,
    source: Option<Arc<BoxError>>,
}

impl Error {
    /// An error of this kind; `operation` says what was attempted ("append to log \"permits\"").
    pub fn new(kind: ErrorKind, operation: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner {
            kind,
            operation: operation.into(),
            hint: None,
            group: None,
            partition: None,
            offset: None,
            path: None,
            source: None,
        }))
    }

    /// Says more than the kind does: what exactly is wrong, and what to do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.edit(|e| e.hint = Some(hint.into()))
    }

    /// Names the group.
    #[must_use]
    pub fn in_group(self, group: GroupKey) -> Self {
        self.edit(|e| e.group = Some(group))
    }

    /// Names the partition.
    #[must_use]
    pub fn in_partition(self, partition: PartitionId) -> Self {
        self.edit(|e| e.partition = Some(partition))
    }

    /// Names the offset.
    #[must_use]
    pub fn at_offset(self, offset: Offset) -> Self {
        self.edit(|e| e.offset = Some(offset))
    }

    /// Names the file or folder.
    #[must_use]
    pub fn at_path(self, path: impl Into<PathBuf>) -> Self {
        self.edit(|e| e.path = Some(path.into()))
    }

    /// Keeps the cause.
    #[must_use]
    pub fn caused_by(self, source: impl Into<BoxError>) -> Self {
        self.edit(|e| e.source = Some(Arc::new(source.into())))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// What went wrong, for programs.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later without anybody changing it.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Full | ErrorKind::Timeout | ErrorKind::Unavailable)
    }

    /// The group it is about.
    #[must_use]
    pub fn group(&self) -> Option<&GroupKey> {
        self.0.group.as_ref()
    }

    /// The partition it is about.
    #[must_use]
    pub fn partition(&self) -> Option<PartitionId> {
        self.0.partition
    }

    /// The offset it is about.
    #[must_use]
    pub fn offset(&self) -> Option<Offset> {
        self.0.offset
    }

    /// The file or folder it is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &*self.0;
        f.write_str(&e.operation)?;
        if let Some(path) = &e.path {
            write!(f, ": {}", path.display())?;
        }
        if let Some(group) = &e.group {
            write!(f, ": group \"{group}\"")?;
        }
        if let Some(partition) = e.partition {
            write!(f, ": partition {partition}")?;
        }
        if let Some(offset) = e.offset {
            write!(f, ": offset {offset}")?;
        }
        match &e.hint {
            Some(hint) => write!(f, ": {hint}"),
            None => write!(f, ": {}", e.kind),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `main` prints errors with Debug: make that readable, chain included.
        write!(f, "{:?}: {self}", self.0.kind)?;
        let mut source = StdError::source(self);
        while let Some(cause) = source {
            write!(f, "; caused by: {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|boxed| &**boxed as &(dyn StdError + 'static))
    }
}
