//! The launcher: a small parent of its own for each program, in the same binary (`webloom launch FOLDER`).
//!
//! It outlives the agent. So an agent that was killed finds its programs at work, their output and their exit codes, and
//! no program dies of a broken pipe. It starts a program at most once: whoever makes the file `claim` may; an agent that
//! finds a program that was not started takes the claim away from it.
//!
//! Two steps: [`watch`] is the parent; [`exec`], its child, sets limits and user and then becomes the program. Limits
//! and users cannot be set between fork and exec without unsafe code, and the parent shall not have them.

mod exec;
mod kill;
pub mod proc;
mod record;
pub mod spool;
mod text;
mod watch;

pub use kill::kill_marked;
pub use record::{Claim, END, EXIT, EndOrder, Ended, SPEC, STATE, Spec, Started, WORK, claim, read, sync_dir, write_durable, write_whole};

use std::ffi::OsStr;
use std::path::Path;

/// The second argument of the step that becomes the program.
const EXEC: &str = "exec";

/// Runs a step of the launcher for the program whose folder this is. What goes wrong before the program runs is told on
/// standard error (to the agent) or standard output (to the first step), as one line of JSON; then the code is 1.
#[must_use]
pub fn run(folder: &Path, step: Option<&OsStr>) -> u8 {
    if step.is_some_and(|step| step == EXEC) { exec::run(folder) } else { watch::run(folder) }
}
