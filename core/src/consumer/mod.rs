//! Running a handler over a subscription.

mod drain;

pub use drain::Drain;
