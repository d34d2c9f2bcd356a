//! procession: see the README.
