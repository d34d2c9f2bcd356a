//! The store keeps the contract, and what it adds to it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod conformance;
mod faults;
mod kill;
mod marks;
mod runs;
mod support;
