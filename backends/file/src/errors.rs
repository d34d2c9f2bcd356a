//! Errors of the system, with what a person needs to know.

use std::io;
use std::path::Path;

use procession_core::{Error, ErrorKind};

/// What the system refused to do with a file.
pub(crate) fn system(operation: impl Into<String>, path: &Path, cause: io::Error) -> Error {
    use io::ErrorKind as Io;
    let (kind, hint) = match cause.kind() {
        Io::StorageFull | Io::QuotaExceeded => {
            (ErrorKind::Full, "the disk is full; free some space and try again")
        }
        Io::PermissionDenied | Io::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "no permission to write here, or the file system is read-only")
        }
        Io::NotFound => (ErrorKind::NotFound, "it does not exist"),
        Io::InvalidData => (ErrorKind::Corrupt, "damaged bytes"),
        _ => (ErrorKind::Unavailable, "the system refused"),
    };
    Error::new(kind, operation.into())
        .at_path(path)
        .with_hint(format!("{hint} ({cause})"))
        .caused_by(cause)
}

/// A write or sync failed: the handle is dead, whatever the cause.
pub(crate) fn poisoned(operation: impl Into<String>, path: &Path, cause: io::Error) -> Error {
    Error::new(ErrorKind::Poisoned, operation.into())
        .at_path(path)
        .with_hint(format!(
            "{cause}; what was in flight may or may not be stored, and this handle does nothing \
             more: reopen the log"
        ))
        .caused_by(cause)
}

/// Whether nothing was written because there is no room.
pub(crate) fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
