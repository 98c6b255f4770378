//! Builds the folder that the launcher needs from an order: the unpacked package, the order's files, the environment.

use super::launch::{self, SPEC, Spec, WORK, write_whole};
use super::package::{Bounds, refusal, relative, unpack};
use crate::config::programs::ProgramSettings;
use crate::open_files;
use crate::protocol::application::{ProgramError, ProgramErrorKind, ProgramLimits, ProgramOrder};
use nix::unistd::{Uid, User};
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The variables that programs inherit from the agent; no others, because they may hold its token.
const KEPT: [&str; 3] = ["LANG", "LC_ALL", "TZ"];
const EXECUTE: u32 = 0o111;

/// The user to run as; `None`: the agent's user.
///
/// # Errors
/// The agent does not allow it.
pub fn user(order: &ProgramOrder, settings: &ProgramSettings) -> Result<Option<String>, ProgramError> {
    let is_root = Uid::effective().is_root();
    let forbidden = |message: String| Err(refusal(ProgramErrorKind::Forbidden, message));
    match &order.user {
        None if is_root && settings.users.is_empty() => forbidden(
            "this agent is root and its setting `applicationUsers` is empty: list the users that programs may run as, or `root`".to_owned(),
        ),
        None if is_root => Ok(settings.users.first().cloned().filter(|user| !is_own(user))),
        None => Ok(None),
        Some(user) if !settings.users.contains(user) => {
            forbidden(format!("programs may not run as `{user}` here: it is not among this agent's `applicationUsers`"))
        }
        Some(user) if !is_root => forbidden(format!("this agent is not root and cannot run programs as `{user}`")),
        Some(user) => Ok(Some(user.clone()).filter(|user| !is_own(user))),
    }
}

/// What to log at the start of an agent that would refuse every program that names no user, or all of a user.
#[must_use]
pub fn warnings(settings: &ProgramSettings, is_root: bool) -> Vec<String> {
    if !settings.are_allowed || !is_root {
        return Vec::new();
    }
    if settings.users.is_empty() {
        let text = "programs will be refused, because this agent is root and no users are set: set --application-users to the users that programs may run as, or to root";
        return vec![text.to_owned()];
    }
    let unknown = settings.users.iter().filter(|user| User::from_name(user).ok().flatten().is_none());
    unknown
        .map(|user| format!("programs will be refused that run as `{user}`: this machine has no such user. Check --application-users"))
        .collect()
}

/// Whether the agent itself runs as this user.
fn is_own(user: &str) -> bool {
    User::from_name(user).ok().flatten().is_some_and(|user| user.uid == Uid::effective())
}

/// Creates the working folder and the launcher's spec. Blocks.
///
/// # Errors
/// The package is bad, the program does not exist, or the disk rejects it.
pub fn prepare(order: &ProgramOrder, settings: &ProgramSettings, folder: &Path, package: Option<&Path>) -> Result<(), ProgramError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |e: io::Error| refusal(ProgramErrorKind::Spawn, format!("{what}: {e}"))
    };
    let work = folder.join(WORK);
    // Left by an earlier agent.
    if work.exists() {
        std::fs::remove_dir_all(&work).map_err(failed("working folder"))?;
    }
    match package {
        Some(path) => {
            let file = File::open(path).map_err(failed("package"))?;
            let packed = file.metadata().map_err(failed("package"))?.len();
            unpack(file, &work, Bounds::new(packed, settings.max_package_bytes))?;
        }
        None => std::fs::create_dir(&work).map_err(failed("working folder"))?,
    }
    for (name, text) in &order.files {
        let Some(path) = relative(name)? else { return Err(refusal(ProgramErrorKind::PackageUnsafe, "a file in the order has no name")) };
        write_file(&work, &path, text).map_err(failed(&format!("file `{name}`")))?;
    }
    let user = user(order, settings)?;
    let environment = environment(order, &work, user.as_deref())?;
    let program = resolve(&order.application, &work, environment.get("PATH").map_or("", String::as_str))?;
    if let Some(user) = &user {
        give_to(user, folder, &work).map_err(failed("working folder"))?;
    }
    let spec = Spec {
        launcher: settings.inner.launcher.clone(),
        program,
        arguments: order.arguments.clone(),
        environment,
        user,
        limits: least(&order.limits, &settings.limits),
        usual_open_files: open_files::usual(),
        timeout_ms: order.timeout,
        grace_ms: order.grace,
        backlog_bytes: settings.inner.backlog_bytes,
    };
    write_whole(folder, SPEC, &spec).map_err(failed("spec"))
}

/// Writes a file of the order, replacing one of the package. It follows no link of the package.
fn write_file(work: &Path, path: &Path, text: &str) -> io::Result<()> {
    let mut parent = work.to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        parent.push(part);
        match parent.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(_) => std::fs::create_dir(&parent)?,
        }
    }
    let path = work.join(path);
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    std::fs::write(path, text)
}

/// The file of the program: in the package, or on this machine.
fn resolve(application: &str, work: &Path, search: &str) -> Result<PathBuf, ProgramError> {
    let path = find(application, work, search)?;
    let mut magic = [0; 4];
    // A file that may be executed but not read is left to the system.
    let read = File::open(&path).and_then(|mut file| file.read(&mut magic));
    if read.is_ok() && !magic.starts_with(b"#!") && magic != *b"\x7fELF" {
        // Otherwise the system would run it with a shell.
        let why = format!("`{application}` is not a program: expected an executable or a script that begins with `#!`");
        return Err(refusal(ProgramErrorKind::Spawn, why));
    }
    Ok(path)
}

fn find(application: &str, work: &Path, search: &str) -> Result<PathBuf, ProgramError> {
    let missing = |why: &str| refusal(ProgramErrorKind::NotFound, format!("`{application}` {why}"));
    let path = Path::new(application);
    if path.is_absolute() {
        return if path.is_file() { Ok(path.to_owned()) } else { Err(missing("is not a program on this machine")) };
    }
    let Some(within) = relative(application).map_err(|e| refusal(ProgramErrorKind::NotFound, e.message))? else {
        return Err(missing("is not a program"));
    };
    let file = work.join(&within);
    if let Ok(meta) = file.metadata()
        && meta.is_file()
    {
        // A zip that was made on Windows has no execute permissions.
        if meta.permissions().mode() & EXECUTE == 0 {
            let _ = std::fs::set_permissions(&file, Permissions::from_mode(meta.permissions().mode() | 0o755));
        }
        return Ok(file);
    }
    if within.components().count() > 1 {
        return Err(missing("is not in the package"));
    }
    let is_program = |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & EXECUTE != 0);
    let found = std::env::split_paths(search).filter(|folder| folder.is_absolute()).map(|folder| folder.join(&within)).find(is_program);
    found.ok_or_else(|| missing("is neither in the package nor a program on this machine"))
}

fn environment(order: &ProgramOrder, work: &Path, user: Option<&str>) -> Result<BTreeMap<String, String>, ProgramError> {
    let own = |name: &str| std::env::var(name).ok();
    let mut environment = BTreeMap::new();
    environment.insert("PATH".to_owned(), own("PATH").unwrap_or_else(|| DEFAULT_PATH.to_owned()));
    environment.extend(KEPT.into_iter().filter_map(|name| Some((name.to_owned(), own(name)?))));
    let home = user.and_then(|user| User::from_name(user).ok().flatten()).map(|user| user.dir).filter(|dir| dir.is_dir());
    environment.insert("HOME".to_owned(), home.unwrap_or_else(|| work.to_owned()).display().to_string());
    if let Some(user) = user {
        environment.insert("USER".to_owned(), user.to_owned());
        environment.insert("LOGNAME".to_owned(), user.to_owned());
    }
    for (name, value) in &order.environment {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(refusal(
                ProgramErrorKind::Spawn,
                format!("`{}` is not a valid name of an environment variable", name.escape_debug()),
            ));
        }
        environment.insert(name.clone(), value.clone());
    }
    let program = &order.program;
    environment
        .extend(launch::proc::mark(program).iter().filter_map(|pair| pair.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())));
    for (name, value) in [
        ("WEBLOOM_JOB_ID", order.job_id.to_string()),
        ("WEBLOOM_INSTANCES", order.instances.to_string()),
        ("WEBLOOM_TRACE_ID", order.trace_id.clone().unwrap_or_default()),
        ("WEBLOOM_FIRE_TIME", order.fire_time.to_string()),
    ] {
        environment.insert(name.to_owned(), value);
    }
    if let (Some(trace), Some(span)) = (&order.trace_id, order.span_id) {
        // The name that OpenTelemetry gives it.
        environment.entry("TRACEPARENT".to_owned()).or_insert_with(|| format!("00-{trace}-{span}-01"));
    }
    Ok(environment)
}

fn least(asked: &ProgramLimits, most: &ProgramLimits) -> ProgramLimits {
    let least = |asked: Option<u64>, most: Option<u64>| match (asked, most) {
        (Some(asked), Some(most)) => Some(asked.min(most)),
        (asked, most) => asked.or(most),
    };
    ProgramLimits {
        memory: least(asked.memory, most.memory),
        cpu_seconds: least(asked.cpu_seconds, most.cpu_seconds),
        open_files: least(asked.open_files, most.open_files),
    }
}

fn give_to(user: &str, folder: &Path, work: &Path) -> io::Result<()> {
    let user = User::from_name(user)?.ok_or_else(|| io::Error::other(format!("there is no user `{user}`")))?;
    // The user may pass through these folders but not list them.
    for folder in [folder.parent(), Some(folder)].into_iter().flatten() {
        std::fs::set_permissions(folder, Permissions::from_mode(0o711))?;
    }
    // The files may be secret to other users.
    std::fs::set_permissions(work, Permissions::from_mode(0o700))?;
    let (uid, gid) = (Some(user.uid.as_raw()), Some(user.gid.as_raw()));
    let mut open = vec![work.to_owned()];
    while let Some(path) = open.pop() {
        lchown(&path, uid, gid)?;
        if path.symlink_metadata()?.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        }
    }
    Ok(())
}
