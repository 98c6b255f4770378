//! The second step: sets user and limits, then becomes the program.
//!
//! Its standard input is the program's output, its standard output tells the first step what went wrong: whatever a test
//! harness around it may print thus never gets into the program's lines. All of them close when the program begins.

use super::record::{SPEC, Spec, WORK, read};
use crate::protocol::application::ProgramLimits;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, User, initgroups, setgid, setgroups, setuid};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seconds from the signal that says that the processor time is up to the one that cannot be caught.
const CPU_GRACE: rlim_t = 5;

/// Returns only if the program could not be started.
pub fn run(folder: &Path) -> u8 {
    // A copy: an attempt to begin the program leaves nothing of the first three as it was.
    let refusal = io::stdout().as_fd().try_clone_to_owned();
    let Err(why) = become_program(folder);
    let line = serde_json::json!({ "refused": why.0, "is_missing": why.1 });
    if let Ok(refusal) = refusal {
        let _ = writeln!(File::from(refusal), "\n{line}");
    }
    1
}

/// Why, and whether there is no such program.
struct Refused(String, bool);

impl Refused {
    fn at(what: &str) -> impl Fn(io::Error) -> Self + '_ {
        move |e| Self(format!("{what}: {e}"), false)
    }
}

fn become_program(folder: &Path) -> Result<std::convert::Infallible, Refused> {
    let spec: Spec = read(folder, SPEC).map_err(Refused::at(SPEC))?.ok_or_else(|| Refused("there is no spec".to_owned(), false))?;
    let stdout = io::stdin().as_fd().try_clone_to_owned().map_err(Refused::at("output"))?;
    let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(Refused::at("output"))?;
    // Made before the limits, which may leave little room for anything.
    let mut command = Command::new(&spec.program);
    command.args(&spec.arguments).env_clear().envs(&spec.environment).current_dir(folder.join(WORK));
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    if let Some(user) = &spec.user {
        become_user(user)?;
    }
    // After the change of user, which forgets it: the program does not outlive its launcher.
    set_pdeathsig(Signal::SIGKILL).map_err(|e| Refused(format!("parent's death: {e}"), false))?;
    limit(&spec.limits)?;
    let error = command.exec();
    let is_missing = error.kind() == io::ErrorKind::NotFound && !spec.program.exists();
    Err(Refused(format!("`{}` does not start: {error}", spec.program.display()), is_missing))
}

fn become_user(name: &str) -> Result<(), Refused> {
    let refused = |why: String| Refused(format!("user `{name}`: {why}"), false);
    let user = User::from_name(name).map_err(|e| refused(e.to_string()))?.ok_or_else(|| refused("there is none".to_owned()))?;
    let c_name = CString::new(name).map_err(|e| refused(e.to_string()))?;
    initgroups(&c_name, user.gid)
        .or_else(|_| setgroups(&[] as &[Gid]))
        .and_then(|()| setgid(user.gid))
        .and_then(|()| setuid(user.uid))
        .map_err(|e| refused(e.to_string()))
}

fn limit(limits: &ProgramLimits) -> Result<(), Refused> {
    let set = |resource, name: &str, soft: rlim_t, hard: rlim_t| {
        let (_, most) = getrlimit(resource).map_err(|e| Refused(format!("limit of {name}: {e}"), false))?;
        setrlimit(resource, soft.min(most), hard.min(most)).map_err(|e| Refused(format!("limit of {name}: {e}"), false))
    };
    set(Resource::RLIMIT_CORE, "core files", 0, 0)?;
    if let Some(files) = limits.open_files {
        set(Resource::RLIMIT_NOFILE, "open files", files, files)?;
    }
    if let Some(seconds) = limits.cpu_seconds {
        set(Resource::RLIMIT_CPU, "processor time", seconds, seconds.saturating_add(CPU_GRACE))?;
    }
    if let Some(bytes) = limits.memory {
        set(Resource::RLIMIT_AS, "memory", bytes, bytes)?;
    }
    Ok(())
}
