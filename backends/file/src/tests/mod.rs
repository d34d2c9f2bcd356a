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
mod holes;
mod kill;
mod machine;
mod open_files;
mod opening;
mod producers;
mod progress;
mod read_only;
mod reading;
mod recycling;
mod retained;
mod retention;
mod space;
mod stepping;
mod subscriptions;
mod support;
