//! Judges the order of a recorded run.
//!
//! A history is one JSON object a line: what producers sent, what the log stored, which turns
//! began and ended, what sinks applied, what was committed. [`Checker`] reads it line by line and
//! says which of fifteen promises it breaks, and with which lines it shows that. It knows nothing
//! of the system that wrote the history.
//!
//! ```
//! use procession_ordercheck::{Checker, Options};
//!
//! let mut checker = Checker::new(Options::default());
//! checker.line(r#"{"t":1,"e":"stored","o":0,"g":"a","seq":0}"#)?;
//! checker.line(r#"{"t":2,"e":"stored","o":1,"g":"a","seq":1}"#)?;
//! checker.line(r#"{"t":3,"e":"begin","o":1,"g":"a","m":"m1","ep":1}"#)?;
//! let report = checker.finish();
//! assert_eq!(report.count(3), 1, "offset 1 overtook offset 0");
//! # Ok::<(), procession_ordercheck::Malformed>(())
//! ```
//!
//! Memory grows with the live groups, the open offsets and some bytes for each stored record.

mod check;
mod event;
pub mod explain;
mod parse;
mod ranges;
mod report;

pub use check::{Checker, Options};
pub use event::{Applied, Committed, Event, Group, Owner, Parting, Place, Sent, Verdict};
pub use parse::{Malformed, hex, parse};
pub use report::{Anomaly, Counts, Report};
