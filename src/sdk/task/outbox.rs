//! Stores last reports on disk until the broker has them, so that a worker that dies after its work is done reports it after a restart.
//!
//! A file holds one report and is written atomically. Its name is the attempt's, so storing a report twice makes one file. The folder
//! also stores the worker's id: the broker accepts a report only from the worker that got the attempt.

use crate::domain::ids::WorkerId;
use crate::protocol::task::{TaskRef, TaskReport, TaskState};
use crate::sdk::error::Error;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
const ID: &str = "worker-id";
const DRAFT: &str = "draft";
const REPORT: &str = "json";
/// Files that could not be parsed are kept under this ending, for inspection.
const DAMAGED: &str = "damaged";

/// See the module documentation.
pub(crate) struct Outbox {
    folder: PathBuf,
    _lock: File,
}

/// The content of an outbox when it is opened.
pub(crate) struct Kept {
    /// The worker's id in the previous process.
    pub(crate) id: Option<WorkerId>,
    /// The undelivered reports.
    pub(crate) reports: Vec<TaskReport>,
}

/// Readable only for the user of this process: results may hold secrets.
fn options() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

impl Outbox {
    /// Opens the outbox in a folder, which is created if necessary, for this worker alone.
    ///
    /// # Errors
    /// [`Error::Outbox`]: the folder cannot be used, or another worker uses it.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Kept), Error> {
        let failed = |reason: String| Error::Outbox { folder: folder.to_owned(), reason };
        let broken = |e: io::Error| failed(e.to_string());
        make_folder(folder).map_err(broken)?;
        let lock = options().create(true).truncate(false).write(true).open(folder.join(LOCK)).map_err(broken)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(failed("another worker uses it: give each worker its own folder".to_owned())),
            Err(TryLockError::Error(e)) => return Err(broken(e)),
        }
        let outbox = Self { folder: folder.to_owned(), _lock: lock };
        let id = match fs::read_to_string(folder.join(ID)) {
            Ok(text) => Some(text.trim().parse().map_err(|e| failed(format!("its file {ID} does not contain a worker id: {e}")))?),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(broken(e)),
        };
        let reports = outbox.read().map_err(broken)?;
        Ok((outbox, Kept { id, reports }))
    }

    fn read(&self) -> io::Result<Vec<TaskReport>> {
        let mut reports = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            match path.extension().and_then(|ending| ending.to_str()) {
                // An incomplete file from a crash: its report was never promised.
                Some(DRAFT) => fs::remove_file(&path)?,
                Some(REPORT) => match serde_json::from_slice(&fs::read(&path)?) {
                    Ok(report) => reports.push(report),
                    Err(error) => {
                        log::error!("cannot read a report in the outbox path={} error={error}", path.display());
                        fs::rename(&path, path.with_extension(DAMAGED))?;
                    }
                },
                _ => {}
            }
        }
        Ok(reports)
    }

    /// Stores the id of the worker.
    ///
    /// # Errors
    /// [`Error::Outbox`].
    pub(crate) fn keep_id(&self, id: WorkerId) -> Result<(), Error> {
        self.write(ID, id.to_string().as_bytes()).map_err(|e| Error::Outbox { folder: self.folder.clone(), reason: e.to_string() })
    }

    /// Stores a report until it is acknowledged. If the disk fails, the report is still sent, only without that promise.
    pub(crate) fn keep(&self, report: &TaskReport) {
        // A rejected task was not run: the broker finds another worker anyway.
        if report.state == TaskState::Refused {
            return;
        }
        let task = report.task();
        let kept = serde_json::to_vec(report).map_err(io::Error::from).and_then(|json| self.write(&name(task), &json));
        if let Err(error) = kept {
            log::error!("cannot store a report in the outbox run_id={} attempt={} error={error}", task.identity, task.attempt);
        }
    }

    /// Deletes an acknowledged report.
    pub(crate) fn forget(&self, task: TaskRef) {
        match fs::remove_file(self.folder.join(name(task))) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                log::warn!("cannot delete a report from the outbox run_id={} attempt={} error={error}", task.identity, task.attempt);
            }
            // If the machine crashes before the folder is on disk, the report is sent again and rejected.
            _ => {}
        }
    }

    /// Writes atomically, even if the machine crashes.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let draft = self.folder.join(format!("{name}.{DRAFT}"));
        let mut file = options().create(true).truncate(true).write(true).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, self.folder.join(name))?;
        File::open(&self.folder)?.sync_all()
    }
}

fn name(task: TaskRef) -> String {
    format!("{}-{}-{}.{REPORT}", task.identity, task.instance, task.attempt)
}

#[cfg(all(test, feature = "broker"))]
mod tests {
    use super::super::context::report;
    use super::*;
    use crate::domain::ids::Identity;

    fn success() -> TaskReport {
        let task = TaskRef { identity: Identity::random(), instance: 0, attempt: 1 };
        TaskReport { result: serde_json::value::to_raw_value(&"x").ok(), ..report(task, TaskState::Success) }
    }

    #[test]
    fn what_is_kept_is_there_until_it_is_settled() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("a/b");
        let (kept, id) = (success(), WorkerId::random());
        let (outbox, before) = Outbox::open(&folder).expect("opened");
        assert!(before.id.is_none() && before.reports.is_empty());
        outbox.keep_id(id).expect("kept");
        outbox.keep(&kept);
        outbox.keep(&kept);
        outbox.keep(&report(success().task(), TaskState::Refused));
        assert!(matches!(Outbox::open(&folder), Err(Error::Outbox { .. })), "one worker a folder");
        drop(outbox);
        // Files of a crash during a write, and of a damaged disk.
        fs::write(folder.join("x-0-1.json.draft"), "{").expect("written");
        fs::write(folder.join("y-0-1.json"), "{").expect("written");
        let (outbox, after) = Outbox::open(&folder).expect("opened");
        assert_eq!((after.id, after.reports.len()), (Some(id), 1));
        assert_eq!((after.reports[0].task(), after.reports[0].result.as_ref().expect("it").get()), (kept.task(), "\"x\""));
        assert!(!folder.join("x-0-1.json.draft").exists() && folder.join("y-0-1.damaged").exists());
        outbox.forget(kept.task());
        outbox.forget(kept.task());
        drop(outbox);
        assert!(Outbox::open(&folder).expect("opened").1.reports.is_empty());
        fs::write(folder.join(ID), "nonsense").expect("written");
        assert!(Outbox::open(&folder).is_err_and(|error| error.to_string().contains("worker-id")));
    }
}
