//! The launcher: a small parent process for each program, in the same binary (`webloom launch FOLDER`).
//!
//! It outlives the agent. So an agent that restarts after a kill finds its programs running, with their output and exit codes, and no
//! program dies of a broken pipe. It starts a program at most once: only the process that creates the file `claim` may start it; an agent
//! that finds a program not started takes the claim itself to prevent a late start.
//!
//! Two steps: [`watch`] is the parent; [`exec`], its child, sets limits and user and then becomes the program. Limits and users cannot be
//! set between fork and exec without unsafe code, and the parent should not have them.

mod exec;
mod kill;
pub mod proc;
mod record;
pub mod spool;
mod text;
mod watch;

pub use kill::{ask_to_end, kill_launcher, kill_marked};
pub use record::{Claim, END, EXIT, EndOrder, Ended, SPEC, STATE, Spec, Started, WORK, claim, read, sync_dir, write_durable, write_whole};

use std::ffi::OsStr;
use std::path::Path;

/// The argument of the second step, which becomes the program.
const EXEC: &str = "exec";

/// Runs a step of the launcher for the program in this folder. Errors before the program runs are reported on standard error (to the
/// agent) or standard output (to the first step), as one line of JSON; then the exit code is 1.
#[must_use]
pub fn run(folder: &Path, step: Option<&OsStr>) -> u8 {
    if step.is_some_and(|step| step == EXEC) { exec::run(folder) } else { watch::run(folder) }
}
