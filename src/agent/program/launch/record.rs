//! The files in a program's folder by which agent and launcher speak. Each is written whole or not at all.

use super::proc::Process;
use crate::domain::time::Timestamp;
use crate::protocol::application::{ProgramExit, ProgramLimits};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What to start: [`Spec`].
pub const SPEC: &str = "spec.json";
/// Made by the one that may start the program, or that keeps it from being started.
pub const CLAIM: &str = "claim";
/// It runs: [`Started`].
pub const STATE: &str = "state.json";
/// It is to end: [`EndOrder`].
pub const END: &str = "end.json";
/// It is over: [`Ended`].
pub const EXIT: &str = "exit.json";
/// The folder of its output, see [`super::spool`].
pub const OUTPUT: &str = "output";
/// Its working folder.
pub const WORK: &str = "work";

/// What the launcher is to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// How the launcher starts its own second step.
    pub launcher: Vec<String>,
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// All of its environment.
    pub environment: BTreeMap<String, String>,
    /// The user to run as; none: as the agent does.
    pub user: Option<String>,
    /// What it may use.
    pub limits: ProgramLimits,
    /// Milliseconds that it may run.
    pub timeout_ms: Option<u64>,
    /// Milliseconds between asking it to end and killing it, when its time is over.
    pub grace_ms: u64,
    /// Bytes of output that may wait to be taken before the program is made to wait.
    pub backlog_bytes: u64,
}

/// A program at work.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    /// Its launcher.
    pub launcher: Process,
    /// Itself: it leads its process group.
    pub program: Process,
    /// When it began.
    pub at: Timestamp,
}

/// The order to end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EndOrder {
    /// Milliseconds between asking and killing.
    pub grace_ms: u64,
    /// Who wants it.
    pub by: String,
}

/// A program that is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub exit: ProgramExit,
    /// When.
    pub at: Timestamp,
}

/// Who has the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The caller, as of now.
    Ours,
    /// Somebody had it before.
    Theirs,
}

/// Takes the claim, if nobody has it.
///
/// # Errors
/// The file system does not let it.
pub fn claim(folder: &Path) -> io::Result<Claim> {
    match File::create_new(folder.join(CLAIM)) {
        Ok(_) => Ok(Claim::Ours),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(Claim::Theirs),
        Err(e) => Err(e),
    }
}

/// Reads a file; none if it is not there.
///
/// # Errors
/// It cannot be read or understood.
pub fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> io::Result<Option<T>> {
    match std::fs::read(folder.join(name)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes a file so that it is there whole or not at all. Only its owner may read it: what an order says may be secret.
/// After a power cut it may be gone, which is as well where the program is gone too.
///
/// # Errors
/// The file system does not take it.
pub fn write_whole<T: Serialize>(folder: &Path, name: &str, value: &T) -> io::Result<()> {
    write(folder, name, value, |_| Ok(()))
}

/// As [`write_whole`], and it is there also after a power cut, when this returns.
///
/// # Errors
/// The file system does not take it.
pub fn write_durable<T: Serialize>(folder: &Path, name: &str, value: &T) -> io::Result<()> {
    write(folder, name, value, File::sync_all)?;
    sync_dir(folder)
}

fn write<T: Serialize>(folder: &Path, name: &str, value: &T, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let draft = folder.join(format!(".{name}.{}", std::process::id()));
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    sync(&file)?;
    std::fs::rename(&draft, folder.join(name))
}

/// Makes the names in a folder durable.
///
/// # Errors
/// The file system does not let it.
pub fn sync_dir(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
