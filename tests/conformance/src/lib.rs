//! What every backend and executor of procession must show: one named test per check.
//!
//! The trait pages of `procession-core` list the checks by name under "For implementors". One line
//! in a backend's own tests turns all of them into `#[test]`s, so that none can be forgotten:
//!
//! - [`log_suite!`] for a [`Log`](procession_core::Log), from a [`LogFactory`]
//! - [`store_suite!`] for an [`OffsetStore`](procession_core::OffsetStore), from a [`StoreFactory`]
//! - [`executor_suite!`] for a [`GroupExecutor`](procession_core::GroupExecutor), from a closure
//!
//! Each check is also a plain public function in [`log`], [`store`] or [`executor`]. A failing one
//! says what it saw and which sentence of the contract that breaks.
//!
//! What a backend cannot do, it declares: in its `LogInfo`, by answering `None` in its factory, or
//! on its [`Subject`]. The check then prints a line "declared: …" instead of passing in silence.
//!
//! The checks need no runtime, no fixed ports and no sleeps: they run on a bare
//! `futures::executor::block_on`, and wait for what must happen only as long as [`patience`] says.

mod patience;
mod random;
mod suite;

pub mod executor;
pub mod log;
pub mod store;

pub use executor::{ExecutorSetup, Knob, Subject};
pub use log::{LogFactory, LogSetup};
pub use patience::{patience, set_patience};
pub use store::StoreFactory;

/// What the macros need; not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use futures::executor::block_on;
}

/// Says loudly that a capability is absent, so that a check that shows nothing is seen.
pub(crate) fn declared(check: &str, what: &str) {
    eprintln!("\n    *** {check}: declared: {what}; nothing is shown of that ***\n");
}
