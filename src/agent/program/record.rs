//! The stored record of a program, from before its start until the broker has acknowledged its end: it prevents a second start and a lost
//! report.

use super::launch::{self, read, write_durable};
use crate::domain::ids::Identity;
use crate::domain::time::Timestamp;
use crate::protocol::application::{ProgramOrder, ProgramRef, ProgramReport};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const FOLDER: &str = "programs";
const FILE: &str = "program.json";
/// Records that no broker has acknowledged for this long are deleted.
const MOST_AGE_MS: i64 = 7 * 86_400_000;

/// The progress of a program, as far as it must survive a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Certainly not started.
    Accepted,
    /// Perhaps started.
    Launching,
}

/// The record.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The order.
    pub order: ProgramOrder,
    /// The progress.
    pub phase: Phase,
    /// The boot id of the machine when it was written: no process survives a reboot.
    pub boot: String,
    /// The final report, once it has ended.
    pub last: Option<ProgramReport>,
}

impl Record {
    /// A record for a new order.
    #[must_use]
    pub fn new(order: ProgramOrder) -> Self {
        Self { order, phase: Phase::Accepted, boot: launch::proc::boot_id(), last: None }
    }

    /// Writes the record; it is durable when this returns.
    ///
    /// # Errors
    /// The file system rejects it.
    pub async fn write(&self, folder: &Path) -> io::Result<()> {
        let (record, folder) = (self.clone(), folder.to_owned());
        // On a blocking thread: a disk may be slow.
        let written = tokio::task::spawn_blocking(move || write_durable(&folder, FILE, &record)).await;
        written.unwrap_or_else(|e| Err(io::Error::other(e)))
    }
}

/// The folder of all programs.
#[must_use]
pub fn home(data_dir: &Path) -> PathBuf {
    data_dir.join(FOLDER)
}

/// The folder of one program.
#[must_use]
pub fn folder(home: &Path, program: &ProgramRef) -> PathBuf {
    home.join(format!("{}-{}-{}", program.identity, program.instance, program.attempt))
}

/// Whether a folder name has the form that [`folder`] makes.
fn is_ours(name: &str) -> bool {
    let mut parts = name.splitn(3, '-');
    let mut next = || parts.next().unwrap_or_default();
    next().parse::<Identity>().is_ok() && next().parse::<u32>().is_ok() && next().parse::<u32>().is_ok()
}

/// Loads all records of earlier agents. Folders without a record belong to orders that were never accepted; they are deleted, and so are
/// programs that ended long ago.
#[must_use]
pub fn load(home: &Path) -> Vec<Record> {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(home).into_iter().flatten().flatten() {
        let path = entry.path();
        // By default the data directory is the working directory: leave other files in it alone.
        if !entry.file_name().to_str().is_some_and(is_ours) {
            continue;
        }
        match read::<Record>(&path, FILE) {
            Ok(Some(record)) if record.last.as_ref().is_none_or(|last| Timestamp::now().since_ms(last.at) < MOST_AGE_MS) => {
                records.push(record);
            }
            Ok(_) => drop(std::fs::remove_dir_all(&path)),
            // Kept for inspection.
            Err(error) => log::error!("cannot read the record of a program folder={} error={error}", path.display()),
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_agents_is_left_alone() {
        let home = tempfile::tempdir().expect("a folder");
        let of = ProgramRef { identity: Identity::random(), instance: 0, attempt: 1 };
        for path in [folder(home.path(), &of), home.path().join("mine"), home.path().join(of.identity.to_string())] {
            std::fs::create_dir(path).expect("made");
        }
        assert!(load(home.path()).is_empty());
        assert!(!folder(home.path(), &of).exists() && home.path().join("mine").exists());
        assert_eq!(home.path().read_dir().expect("there").count(), 2);
    }
}
