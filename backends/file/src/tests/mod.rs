//! The promises of the crate, by topic.

mod appending;
mod backup;
mod basics;
#[cfg(feature = "lz4")]
mod compression;
mod crash;
mod damage;
mod faults;
mod fixture;
mod history;
mod kill;
mod machine;
mod opening;
mod producers;
mod progress;
mod read_only;
mod reading;
mod stepping;
mod support;
