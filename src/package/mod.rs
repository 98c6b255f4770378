//! The files that programs come in: a zip or a tar.gz. The agent unpacks them; the broker and the command line read them by the
//! same rules before they take one.
//!
//! Promises: an entry never leads out of its folder, and no more is unpacked than is allowed, whatever sizes the file states.

mod directory;
mod entries;
mod tar;
mod unpack;
mod zip;

pub use entries::{Bounds, relative};
pub use unpack::{check, unpack};

use crate::protocol::application::{ProgramError, ProgramErrorKind};

/// A reason why a program does not start.
pub fn refusal(kind: ProgramErrorKind, message: impl Into<String>) -> ProgramError {
    ProgramError { kind, message: message.into() }
}
