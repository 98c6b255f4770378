//! The files in a program's folder by which agent and launcher communicate. Each is written atomically.

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

/// The program to start: [`Spec`].
pub const SPEC: &str = "spec.json";
/// Created by the process that may start the program, or that prevents its start.
pub const CLAIM: &str = "claim";
/// The program runs: [`Started`].
pub const STATE: &str = "state.json";
/// The program should end: [`EndOrder`].
pub const END: &str = "end.json";
/// The program has ended: [`Ended`].
pub const EXIT: &str = "exit.json";
/// The folder of its output, see [`super::spool`].
pub const OUTPUT: &str = "output";
/// Its working directory.
pub const WORK: &str = "work";

/// What the launcher should start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The command by which the launcher starts its second step.
    pub launcher: Vec<String>,
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its complete environment.
    pub environment: BTreeMap<String, String>,
    /// The user to run as; `None`: the agent's user.
    pub user: Option<String>,
    /// Its resource limits.
    pub limits: ProgramLimits,
    /// The limit of open files that applies unless `limits` has one; the agent has raised its own.
    #[serde(default)]
    pub usual_open_files: Option<u64>,
    /// Maximum run time, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Milliseconds between the stop request and the kill after the timeout.
    pub grace_ms: u64,
    /// Limit of output that is not yet acknowledged, in bytes; beyond it the program has to wait.
    pub backlog_bytes: u64,
}

/// A running program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    /// Its launcher.
    pub launcher: Process,
    /// The program; it leads its process group.
    pub program: Process,
    /// When it began.
    pub at: Timestamp,
}

/// The order to end a program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EndOrder {
    /// Milliseconds between the stop request and the kill.
    pub grace_ms: u64,
    /// Why the program should end.
    pub by: String,
}

/// A program that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// How it ended.
    pub exit: ProgramExit,
    /// When it ended.
    pub at: Timestamp,
}

/// The owner of the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The caller, from now on.
    Ours,
    /// Another process.
    Theirs,
}

/// Takes the claim, if it is free.
///
/// # Errors
/// The file system rejects it.
pub fn claim(folder: &Path) -> io::Result<Claim> {
    match File::create_new(folder.join(CLAIM)) {
        Ok(_) => Ok(Claim::Ours),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(Claim::Theirs),
        Err(e) => Err(e),
    }
}

/// Reads a file; `None` if it does not exist.
///
/// # Errors
/// It cannot be read or parsed.
pub fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> io::Result<Option<T>> {
    match std::fs::read(folder.join(name)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes a file atomically. Only its owner may read it: an order may contain secrets. After a power cut it may be missing, which is fine
/// where the program is gone too.
///
/// # Errors
/// The file system rejects it.
pub fn write_whole<T: Serialize>(folder: &Path, name: &str, value: &T) -> io::Result<()> {
    write(folder, name, value, |_| Ok(()))
}

/// Like [`write_whole`], but the file also survives a power cut once this returns.
///
/// # Errors
/// The file system rejects it.
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

/// Makes the directory entries of a folder durable.
///
/// # Errors
/// The file system rejects it.
pub fn sync_dir(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
