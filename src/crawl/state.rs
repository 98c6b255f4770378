//! The state of a crawl: a directory with the broker's database, and a note that identifies the run.

use super::error::CrawlError;
use super::options::CrawlOptions;
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use crate::private;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::cell::Cell;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// Parent of the default state directories.
const PLACE: &str = ".webloom-crawl";
/// The file name of the note.
const NOTE: &str = "crawl.json";
/// The broker's files; removed completely when a crawl starts again.
const BROKER: &str = "broker";

/// The directory of a crawl.
#[derive(Debug)]
pub struct State {
    dir: PathBuf,
    note: Note,
    is_resumed: bool,
    /// A broker may have its job.
    has_begun: Cell<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    url: String,
    /// Chosen before the broker is called, so that a job created just before a crash is found again.
    job_id: JobId,
    /// The fire time of the run: one fire time makes one run, however often it is triggered.
    fire_time: Timestamp,
    finished: bool,
    /// Where its lines are, if they are in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

impl State {
    /// Prepares the directory: to resume its crawl, or to start again.
    ///
    /// # Errors
    /// There is nothing to resume; there is, but --resume is missing; the directory cannot be written.
    pub fn prepare(options: &CrawlOptions) -> Result<Self, CrawlError> {
        let dir = options.state.clone().unwrap_or_else(|| default_dir(&options.label()));
        let (shown, label) = (dir.display(), options.label());
        let found = read(&dir)?;
        match found {
            Some(note) if options.resume && note.url != label => {
                Err(CrawlError::State(format!("{shown} holds a crawl of {}, not of {label}", note.url)))
            }
            Some(note) if options.resume && note.finished => {
                Err(CrawlError::State(format!("the crawl in {shown} is finished: omit --resume to start it again")))
            }
            Some(Note { output: Some(output), .. }) if options.resume && output_of(options).as_ref() != Some(&output) => {
                Err(CrawlError::State(format!("the lines of the crawl in {shown} are in {output}: resume it with --output {output}")))
            }
            Some(note) if options.resume => Ok(Self { dir, note, is_resumed: true, has_begun: Cell::new(true) }),
            None if options.resume => Err(CrawlError::State(format!("there is no crawl of {label} to resume in {shown}"))),
            Some(note) if !note.finished && !options.fresh => Err(CrawlError::State(format!(
                "{shown} holds an interrupted crawl of {}: --resume continues it, --fresh starts again",
                note.url
            ))),
            found => {
                if found.is_some() {
                    remove(&dir.join(BROKER))?;
                }
                let note =
                    Note { url: label, job_id: JobId::random(), fire_time: Timestamp::now(), finished: false, output: output_of(options) };
                let state = Self { dir, note, is_resumed: false, has_begun: Cell::new(false) };
                private::make_folder(&state.dir.join(BROKER)).map_err(CrawlError::file(&state.dir))?;
                private::keep(&state.dir.join(BROKER));
                state.write()?;
                Ok(state)
            }
        }
    }

    /// The broker's database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.dir.join(BROKER).join("webloom.db")
    }

    /// The links of processed pages, for a crawl with a depth limit.
    #[must_use]
    pub fn links(&self) -> PathBuf {
        self.dir.join("links")
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The job of the crawl.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.note.job_id
    }

    /// The fire time of its run.
    #[must_use]
    pub fn fire_time(&self) -> Timestamp {
        self.note.fire_time
    }

    /// Marks the crawl as finished. The broker's files stay until the next crawl.
    ///
    /// # Errors
    /// The note cannot be written.
    pub fn finish(&mut self) -> Result<(), CrawlError> {
        self.note.finished = true;
        self.write()
    }

    /// A broker is given the job: the crawl can be resumed from now on.
    pub fn note_begin(&self) {
        self.has_begun.set(true);
    }

    /// The broker has refused the job.
    pub fn note_refusal(&self) {
        self.has_begun.set(self.is_resumed);
    }

    /// Whether a broker may have its job.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Removes the note of a crawl that could not begin, so that the next one need not say what becomes of it.
    pub fn forget_unless_begun(&self) {
        // If that fails, the next crawl asks for --resume or --fresh.
        if !self.has_begun() && fs::remove_file(self.dir.join(NOTE)).is_err() {
            log::debug!("the note of a crawl that did not begin is not removed folder={}", self.dir.display());
        }
    }

    fn write(&self) -> Result<(), CrawlError> {
        let (path, new) = (self.dir.join(NOTE), self.dir.join("crawl.json.new"));
        let text = serde_json::to_vec_pretty(&self.note).expect("a note is plain data");
        let written = private::options().write(true).create(true).truncate(true).open(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        });
        written.map_err(CrawlError::file(&path))
    }
}

fn default_dir(label: &str) -> PathBuf {
    let digest: String = Sha256::digest(label).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Path::new(PLACE).join(digest)
}

fn read(dir: &Path) -> Result<Option<Note>, CrawlError> {
    let path = dir.join(NOTE);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| CrawlError::State(format!("{}: {e}", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CrawlError::file(&path)(error)),
    }
}

/// The file of the lines of a crawl. It may be resumed from another folder.
fn output_of(options: &CrawlOptions) -> Option<String> {
    let output = options.output.as_ref()?;
    let absolute = std::path::absolute(output).unwrap_or_else(|_| output.clone());
    // The file may not be there yet.
    let folder = absolute.parent().and_then(|folder| fs::canonicalize(folder).ok());
    let whole = folder.zip(absolute.file_name()).map_or_else(|| absolute.clone(), |(folder, name)| folder.join(name));
    Some(whole.to_string_lossy().into_owned())
}

fn remove(dir: &Path) -> Result<(), CrawlError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(CrawlError::file(dir)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    #[test]
    fn a_crawl_is_begun_gone_on_with_and_finished() {
        let dir = tempfile::tempdir().expect("a directory");
        let url = Url::parse("http://a/").expect("a url");
        let with = |resume, fresh| CrawlOptions { state: Some(dir.path().join("s")), resume, fresh, ..CrawlOptions::new(url.clone()) };
        let refused = |options: &CrawlOptions| State::prepare(options).expect_err("refused").to_string();

        assert!(refused(&with(true, false)).contains("no crawl"));
        let first = State::prepare(&with(false, false)).expect("begun");
        fs::write(first.database(), "pages").expect("a database");
        assert!(refused(&with(false, false)).contains("--resume"));
        let other = CrawlOptions { starts: vec![Url::parse("http://b/").expect("a url")], ..with(true, false) };
        assert!(refused(&other).contains("not of http://b/"));

        first.forget_unless_begun();
        assert!(refused(&with(true, false)).contains("no crawl"), "its job was not given to a broker");
        let first = State::prepare(&with(false, false)).expect("begun");
        first.note_begin();
        first.forget_unless_begun();
        let mut again = State::prepare(&with(true, false)).expect("gone on with");
        assert!(again.has_begun());
        assert_eq!((again.job_id(), again.fire_time()), (first.job_id(), first.fire_time()));
        assert!(again.database().exists());
        again.finish().expect("finished");
        assert!(refused(&with(true, false)).contains("finished"));

        State::prepare(&with(false, false)).expect("anew, for the old one is finished");
        let fresh = State::prepare(&with(false, true)).expect("anew, for it was asked for");
        assert_ne!(fresh.job_id(), first.job_id());
        assert!(!fresh.database().exists());
        let to = |resume, output: &str| CrawlOptions { output: Some(output.into()), ..with(resume, !resume) };
        State::prepare(&to(false, "a.jsonl")).expect("begun");
        assert!(refused(&to(true, "b.jsonl")).contains("/a.jsonl: resume it with --output "));
        assert!(refused(&with(true, false)).contains("/a.jsonl: resume it with --output "));
        State::prepare(&to(true, "a.jsonl")).expect("gone on with");
        State::prepare(&to(true, "../webloom-none/../a.jsonl")).expect_err("another folder");
        State::prepare(&to(true, "./src/../a.jsonl")).expect("the same file");
    }
}
