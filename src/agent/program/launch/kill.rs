//! Kills a program and all processes that it started.

use super::proc;
use crate::protocol::application::ProgramRef;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Time for killed processes to disappear.
const GONE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Kills the living descendants of a process, as one look at `/proc` shows them.
pub fn kill_descendants(ancestor: i32) {
    for pid in proc::descendants(ancestor) {
        // It may have ended in the meantime.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Kills all processes that carry a program's mark, for when its launcher is gone and with it the process tree. Blocks until they have
/// ended, or for some seconds.
pub fn kill_marked(program: &ProgramRef) {
    let (mark, deadline) = (proc::mark(program), Instant::now() + GONE);
    loop {
        let found = proc::marked(&mark);
        if found.is_empty() || Instant::now() > deadline {
            return;
        }
        for pid in found {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(PAUSE);
    }
}
