//! Kills a program and all processes that it started.

use super::proc::{self, Process};
use crate::protocol::application::ProgramRef;
use nix::sys::signal::{Signal, kill, killpg};
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

/// Sends the stop request to a program and its process group, if it is running.
pub fn ask_to_end(program: Process) {
    if program.is_alive() {
        let _ = killpg(Pid::from_raw(program.pid), Signal::SIGTERM);
    }
}

/// Kills a launcher, if it is running. Its program dies with it.
pub fn kill_launcher(launcher: Process) {
    if launcher.is_alive() {
        let _ = kill(Pid::from_raw(launcher.pid), Signal::SIGKILL);
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
