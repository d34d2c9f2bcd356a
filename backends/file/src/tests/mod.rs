//! The promises of the crate, by topic.

mod appending;
mod basics;
mod crash;
mod damage;
mod faults;
mod fixture;
mod holes;
mod kill;
mod machine;
mod open_files;
mod opening;
mod progress;
mod reading;
mod recycling;
mod retained;
mod retention;
mod space;
mod stepping;
mod subscriptions;
mod support;
