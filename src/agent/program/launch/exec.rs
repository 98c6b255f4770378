//! The second step of the launcher: sets user and limits, then becomes the program.
//!
//! Its standard input is the pipe for the program's output; its standard output reports errors to the first step. So nothing that a test
//! harness prints gets into the program's lines. All these files close when the program begins.

use super::record::{SPEC, Spec, WORK, read};
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

/// Seconds between the signal at the limit of processor time and the kill.
const CPU_GRACE: rlim_t = 5;

/// Returns only if the program could not be started.
pub fn run(folder: &Path) -> u8 {
    // A copy, because an attempt to start the program changes the first three descriptors.
    let refusal = io::stdout().as_fd().try_clone_to_owned();
    let Err(why) = become_program(folder);
    let line = serde_json::json!({ "refused": why.0, "is_missing": why.1 });
    if let Ok(refusal) = refusal {
        let _ = writeln!(File::from(refusal), "\n{line}");
    }
    1
}

/// The reason, and whether the program does not exist.
struct Refused(String, bool);

impl Refused {
    fn at(what: &str) -> impl Fn(io::Error) -> Self + '_ {
        move |e| Self(format!("{what}: {e}"), false)
    }
}

fn become_program(folder: &Path) -> Result<std::convert::Infallible, Refused> {
    let spec: Spec = read(folder, SPEC).map_err(Refused::at(SPEC))?.ok_or_else(|| Refused("the spec file is missing".to_owned(), false))?;
    let stdout = io::stdin().as_fd().try_clone_to_owned().map_err(Refused::at("output"))?;
    let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(Refused::at("output"))?;
    // Built before the limits, which may leave too few resources for it.
    let mut command = Command::new(&spec.program);
    command.args(&spec.arguments).env_clear().envs(&spec.environment).current_dir(folder.join(WORK));
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    if let Some(user) = &spec.user {
        become_user(user)?;
    }
    // After the change of user, which resets this setting: the program must not outlive its launcher.
    set_pdeathsig(Signal::SIGKILL).map_err(|e| Refused(format!("cannot set the signal for the parent's death: {e}"), false))?;
    limit(&spec)?;
    let error = command.exec();
    let is_missing = error.kind() == io::ErrorKind::NotFound && !spec.program.exists();
    Err(Refused(format!("cannot start `{}`: {error}", spec.program.display()), is_missing))
}

fn become_user(name: &str) -> Result<(), Refused> {
    let refused = |why: String| Refused(format!("user `{name}`: {why}"), false);
    let user = User::from_name(name).map_err(|e| refused(e.to_string()))?.ok_or_else(|| refused("unknown user".to_owned()))?;
    let c_name = CString::new(name).map_err(|e| refused(e.to_string()))?;
    initgroups(&c_name, user.gid)
        .or_else(|_| setgroups(&[] as &[Gid]))
        .and_then(|()| setgid(user.gid))
        .and_then(|()| setuid(user.uid))
        .map_err(|e| refused(e.to_string()))
}

fn limit(spec: &Spec) -> Result<(), Refused> {
    let limits = &spec.limits;
    let set = |resource, name: &str, soft: rlim_t, hard: rlim_t| {
        let (_, most) = getrlimit(resource).map_err(|e| Refused(format!("cannot read the limit of {name}: {e}"), false))?;
        setrlimit(resource, soft.min(most), hard.min(most)).map_err(|e| Refused(format!("cannot set the limit of {name}: {e}"), false))
    };
    set(Resource::RLIMIT_CORE, "core files", 0, 0)?;
    if let Some(files) = limits.open_files {
        set(Resource::RLIMIT_NOFILE, "open files", files, files)?;
    } else if let Some(usual) = spec.usual_open_files {
        set(Resource::RLIMIT_NOFILE, "open files", usual, rlim_t::MAX)?;
    }
    if let Some(seconds) = limits.cpu_seconds {
        set(Resource::RLIMIT_CPU, "processor time", seconds, seconds.saturating_add(CPU_GRACE))?;
    }
    if let Some(bytes) = limits.memory {
        set(Resource::RLIMIT_AS, "memory", bytes, bytes)?;
    }
    Ok(())
}
