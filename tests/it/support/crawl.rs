//! `webloom crawl` as a process, against a broker of its own or another's, and the lines that it writes.

use super::process::{Process, WEBLOOM};
use super::until;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A crawl in a folder.
pub struct Crawl {
    pub process: Process,
    folder: PathBuf,
    args: Vec<String>,
}

impl Crawl {
    /// Begins a crawl of this page.
    pub fn start(url: &str, folder: &Path, args: &[&str]) -> Self {
        let mut all: Vec<String> = vec!["crawl".into(), url.into(), "--quiet".into()];
        all.extend(["--state".into(), folder.join("state").display().to_string()]);
        all.extend(["--output".into(), folder.join("pages.jsonl").display().to_string()]);
        all.extend(args.iter().map(|a| (*a).to_owned()));
        Self { process: spawn(&all, folder), folder: folder.to_owned(), args: all }
    }

    /// Goes on with it, after it has ended somehow.
    pub fn resume(&mut self) {
        let mut args = self.args.clone();
        args.push("--resume".into());
        self.process = spawn(&args, &self.folder);
    }

    /// The lines that it has written so far; one that is not whole yet does not count.
    pub fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("pages.jsonl")).unwrap_or_default();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect()
    }

    /// The number of these lines, without parsing them: a test that waits for more lines calls this often.
    pub fn count(&self) -> usize {
        std::fs::read(self.folder.join("pages.jsonl")).map_or(0, |text| memchr::memchr_iter(b'\n', &text).count())
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.process.0.try_wait().expect("its state can be asked for")
    }

    /// Waits for its end: how it ended.
    pub async fn over(&mut self) -> std::process::ExitStatus {
        until("the end of the crawl", || {
            let ended = self.ended();
            async move { ended }
        })
        .await
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It failed: the message has the errors that it printed.
    pub async fn succeeds(&mut self) {
        let status = self.over().await;
        assert!(status.success(), "{status}: {}", std::fs::read_to_string(errors(&self.folder)).unwrap_or_default());
    }
}

/// The file of what a crawl prints to its standard error.
fn errors(folder: &Path) -> PathBuf {
    folder.join("crawl.err")
}

fn spawn(args: &[String], folder: &Path) -> Process {
    let errors = File::options().create(true).append(true).open(errors(folder)).expect("a file");
    let mut command = Command::new(WEBLOOM);
    Process(command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().expect("the crawl starts"))
}

/// The addresses in some lines, sorted, repeated ones repeated.
pub fn urls(lines: &[Value]) -> Vec<String> {
    let mut urls: Vec<String> = lines.iter().map(|line| line["url"].as_str().expect("a url").to_owned()).collect();
    urls.sort();
    urls
}
