//! Packages of programs: fetched, and cached for the next start.
//!
//! The cache holds the file as received, by its SHA-256 or, without one, by its address with the server's ETag. Each program gets its own
//! unpacked copy: writing into its folder affects no other program.

mod cache;
mod fetch;

pub use crate::package::{Bounds, refusal, relative, unpack};
pub use cache::Packages;
