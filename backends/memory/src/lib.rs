//! Placeholder page until the crate lands in the next commits.
