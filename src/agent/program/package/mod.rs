//! Packages of programs on their way to a program: fetched, and kept for the next start.
//!
//! What is kept is the file as it came, by its SHA-256 or, where none is given, by its address with the server's ETag. Each
//! program gets an unpacked copy of its own: one that writes into its folder changes nobody else's.

mod cache;
mod fetch;

pub use crate::package::{Bounds, refusal, relative, unpack};
pub use cache::Packages;
