//! The promises of the crate, by topic.

mod basics;
mod support;
