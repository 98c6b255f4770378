//! The limit of open files of this process. Each connection is an open file, and the usual limit of 1,024 is less than a broker with many
//! nodes or an agent with many sites needs.

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use std::sync::OnceLock;

/// The limit before [`raise`].
static USUAL: OnceLock<rlim_t> = OnceLock::new();

/// Raises the limit as far as the system permits without more rights.
pub fn raise() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let _ = USUAL.set(soft);
    if soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        log::warn!("open files not raised limit={soft} reason={error}");
    }
}

/// The limit for the programs that this process starts, if it raised its own: a program that uses `select` must not get more.
pub fn usual() -> Option<rlim_t> {
    USUAL.get().copied()
}
