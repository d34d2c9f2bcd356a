//! What SQLite said, as the library's error: a kind for the program, a sentence for 3 a.m.

use std::borrow::Cow;
use std::path::Path;

use procession::{Error, ErrorKind};
use rusqlite::ErrorCode;

/// What can go wrong inside a job: SQLite refuses, or we do.
#[derive(Debug)]
pub(crate) enum Trouble {
    Sql(rusqlite::Error),
    Said(Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Said(error)
    }
}

impl Trouble {
    /// Says what was attempted, and on which file.
    pub(crate) fn during(self, operation: impl Into<Cow<'static, str>>, path: &Path) -> Error {
        match self {
            Self::Said(error) => error.at_path(path),
            Self::Sql(cause) => {
                let (kind, hint) = judge(&cause);
                Error::new(kind, operation)
                    .at_path(path)
                    .with_hint(format!("{hint} ({cause})"))
                    .caused_by(cause)
            }
        }
    }
}

fn judge(error: &rusqlite::Error) -> (ErrorKind, &'static str) {
    if error.to_string().contains("no such table: procession_") {
        return (
            ErrorKind::NotFound,
            "this is not the database of the store: the transaction must be on a connection to it",
        );
    }
    match error.sqlite_error().map(|error| (error.code, error.extended_code)) {
        // Not `Locked`: that would end a run at its next commit. This passes, and is tried again.
        Some((ErrorCode::DatabaseBusy, rusqlite::ffi::SQLITE_BUSY_SNAPSHOT)) => (
            ErrorKind::Unavailable,
            "others wrote since this transaction first read; begin it as IMMEDIATE",
        ),
        Some((ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _)) => (
            ErrorKind::Unavailable,
            "another connection kept the database locked for longer than the busy timeout; look \
             for a transaction that was left open",
        ),
        Some((ErrorCode::DiskFull, _)) => {
            (ErrorKind::Full, "no room for the database; free some space and it goes on")
        }
        Some((
            ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::AuthorizationForStatementDenied,
            _,
        )) => (
            ErrorKind::Denied,
            "the database, its folder or its file system is read-only; progress must be written",
        ),
        Some((ErrorCode::CannotOpen, _)) => (
            ErrorKind::NotFound,
            "the file cannot be opened; the folder above must exist and be yours",
        ),
        Some((ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _)) => (
            ErrorKind::Corrupt,
            "this is not a sound SQLite file; keep a copy, run `PRAGMA integrity_check`, restore a \
             backup",
        ),
        // A failed sync of a commit: the next one writes the same pages again.
        Some((ErrorCode::SystemIoFailure, _)) => {
            (ErrorKind::Unknown, "the disk failed; it may or may not be stored")
        }
        Some((ErrorCode::TooBig, _)) => (ErrorKind::TooLarge, "SQLite takes no value so large"),
        _ => (ErrorKind::Unsupported, "SQLite refused the statement"),
    }
}
