//! Ending all of a program, with whatever it has started.

use super::proc;
use crate::protocol::application::ProgramRef;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Time for killed processes to be gone.
const GONE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Kills all living descendants of a process. Says how many there were.
pub fn kill_descendants(ancestor: i32) -> usize {
    let found = proc::descendants(ancestor);
    for &pid in &found {
        // One that went by itself meanwhile is as good.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    found.len()
}

/// Kills all processes that carry a program's mark, for when its launcher is gone and no tree is left. Blocks until
/// they are gone, or for some seconds.
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
