//! Packages of programs: fetched, kept for the next start, unpacked.
//!
//! What is kept is the file as it came, by its SHA-256 or, where none is given, by its address with the server's ETag. Each
//! program gets an unpacked copy of its own: one that writes into its folder changes nobody else's.

mod cache;
mod entries;
mod fetch;
mod tar;
mod unpack;
mod zip;

pub use cache::Packages;
pub use entries::{Bounds, relative};
pub use unpack::unpack;

use crate::protocol::application::{ProgramError, ProgramErrorKind};

/// A reason why a program does not start.
pub fn refusal(kind: ProgramErrorKind, message: impl Into<String>) -> ProgramError {
    ProgramError { kind, message: message.into() }
}
