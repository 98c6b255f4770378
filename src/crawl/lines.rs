//! One line of JSON for each page.
//!
//! An acknowledged page is in the file: lines are passed to the operating system before each acknowledgement, so they survive the death
//! of this process. A page is in the file once, even if it is delivered twice.

use super::error::CrawlError;
use super::summary::Counts;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::redirect::is_in;
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write};
use std::path::Path;
use url::Url;

/// Begins the key of a page that a redirect led back to; no URL begins so.
const AGAIN: &str = "again ";
/// How each line begins.
const START: &[u8] = br#"{"url":""#;

/// The data of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The requested URL.
    pub url: String,
    /// The HTTP status; 0 if there was no response.
    pub status: u16,
    /// The title of an HTML page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Number of links between it and the start; with a limit, by the shortest path known when it was processed.
    pub depth: u32,
    /// Bytes of the body, after decompression.
    pub length: u64,
    /// Number of different links on it, followed or not.
    pub links: u64,
    /// The final URL after redirects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_url: Option<String>,
    /// The target of a redirect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The URLs that redirected to this one, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirected_from: Vec<String>,
    /// Why there is no response, or no complete one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The kind of the error: dns, connect, timeout, robots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<String>,
    /// The `Content-Type` of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// When the last try began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_at: Option<Timestamp>,
    /// Duration of the last try, in milliseconds.
    #[serde(default)]
    pub duration_ms: u32,
    /// Number of tries.
    #[serde(default)]
    pub tries: u32,
    /// The page with the first link to this one; absent for a start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referrer: Option<String>,
    /// Why a sitemap could not be read, or not completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sitemap_error: Option<String>,
    /// The page must not be in an index (`X-Robots-Tag`, `<meta name="robots">`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub noindex: bool,
    /// The page's links should not be followed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nofollow: bool,
}

impl Line {
    /// What made it fail, in one word: the kind of the error, or the status.
    #[must_use]
    pub fn failure(&self) -> String {
        match (&self.error_kind, &self.error) {
            (Some(kind), _) => kind.clone(),
            (None, Some(_)) => "other".to_owned(),
            (None, None) => format!("status {}", self.status),
        }
    }

    /// Whether there is a complete response with a status below 400.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.error.is_none() && (100..400).contains(&self.status)
    }
}

/// Writes lines.
pub struct Lines {
    out: BufWriter<Box<dyn Write>>,
    written: HashSet<u64>,
    before: Option<Counts>,
}

impl Lines {
    /// Writes to any output.
    #[must_use]
    pub fn new(out: Box<dyn Write>) -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, out), written: HashSet::new(), before: None }
    }

    /// Writes to a file: a new one, or after the complete lines of an existing one.
    ///
    /// # Errors
    /// The file cannot be written, or has other content.
    pub fn to_file(path: &Path, resume: bool) -> Result<Self, CrawlError> {
        let mut options = OpenOptions::new();
        // A pipe or a device has no earlier content.
        if !resume || path.metadata().is_ok_and(|what| !what.is_file()) {
            let file = options.write(true).create(true).truncate(true).open(path).map_err(CrawlError::file(path))?;
            return Ok(Self::new(Box::new(file)));
        }
        let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(CrawlError::file(path))?;
        let (file, written, before) = read(file).map_err(CrawlError::file(path))?;
        Ok(Self { written, before: Some(before), ..Self::new(Box::new(file)) })
    }

    /// Counts of the file's content when it was opened, if it could be read.
    #[must_use]
    pub fn before(&self) -> Option<&Counts> {
        self.before.as_ref()
    }

    /// Writes a line, unless its page already has one. Returns whether it was written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, line: &Line) -> io::Result<bool> {
        let new = self.written.insert(key_of(&line.url, &line.redirected_from));
        if new {
            serde_json::to_writer(&mut self.out, line)?;
            self.out.write_all(b"\n")?;
        }
        Ok(new)
    }

    /// Passes all lines to the operating system.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The key of a page in memory.
pub(super) fn key(url: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&Fingerprint::of("GET", url, b"").0[..8]);
    u64::from_le_bytes(bytes)
}

/// The key of a response in memory. A page that a redirect led back to has two: the redirect, and the page itself.
pub(super) fn key_of(url: &str, redirected_from: &[String]) -> u64 {
    match Url::parse(url) {
        Ok(parsed) if is_in(&parsed, redirected_from) => key_again(url),
        _ => key(url),
    }
}

/// The key of a page that a redirect led back to.
pub(super) fn key_again(url: &str) -> u64 {
    key(&format!("{AGAIN}{url}"))
}

/// Reads the pages in a file, cuts off an incomplete line, and moves to the end.
fn read(file: File) -> io::Result<(File, HashSet<u64>, Counts)> {
    let (mut written, mut before, mut text, mut whole) = (HashSet::new(), Counts::default(), Vec::new(), 0);
    let mut reader = BufReader::new(file);
    loop {
        text.clear();
        let bytes = reader.read_until(b'\n', &mut text)?;
        if bytes == 0 || text.last() != Some(&b'\n') {
            if whole == 0 && !text.starts_with(START) && !START.starts_with(&text) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "line 1 is not a line of a crawl"));
            }
            break;
        }
        let line: Line = serde_json::from_slice(&text)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("line {} is not a line of a crawl: {e}", written.len() + 1)))?;
        if written.insert(key_of(&line.url, &line.redirected_from)) {
            before.count(&line);
        }
        whole += bytes as u64;
    }
    let mut file = reader.into_inner();
    file.set_len(whole)?;
    file.seek(SeekFrom::Start(whole))?;
    Ok((file, written, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(url: &str) -> Line {
        Line { url: url.into(), status: 200, ..Line::default() }
    }

    #[test]
    fn what_stands_in_the_file_is_not_written_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("out.jsonl");
        std::fs::write(&path, "old").expect("a file");
        let mut lines = Lines::to_file(&path, false).expect("a new file");
        assert!(lines.write(&line("http://a/1")).expect("written"));
        assert!(!lines.write(&line("http://a/1")).expect("known"));
        lines.flush().expect("flushed");
        drop(lines);
        let mut file = OpenOptions::new().append(true).open(&path).expect("the file");
        // Longer than the line that will replace it.
        write!(file, r#"{{"url":"http://a/2","title":"{}"#, "x".repeat(500)).expect("a line that is cut off");

        let mut lines = Lines::to_file(&path, true).expect("the same file");
        for url in ["http://a/1", "http://a/2"] {
            lines.write(&line(url)).expect("written");
        }
        lines.flush().expect("flushed");
        let text = std::fs::read_to_string(&path).expect("the file");
        let urls: Vec<String> = text.lines().map(|l| serde_json::from_str::<Line>(l).expect("whole").url).collect();
        assert_eq!(urls, ["http://a/1", "http://a/2"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_is_written_and_not_read() {
        for resume in [false, true] {
            // It returns endless zeros, and accepts no data.
            let mut lines = Lines::to_file(Path::new("/dev/full"), resume).expect("a device");
            lines.write(&line("http://a/1")).expect("kept in memory");
            assert!(lines.flush().is_err());
            let mut lines = Lines::to_file(Path::new("/dev/null"), resume).expect("a device");
            assert!(lines.write(&line("http://a/1")).expect("written"));
            lines.flush().expect("gone");
        }
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("letter.txt");
        for text in ["Dear reader,\nhello", "Dear reader", r#"[{"url":"http://a/1"}]"#] {
            std::fs::write(&path, text).expect("a file");
            assert!(Lines::to_file(&path, true).is_err());
            assert_eq!(std::fs::read_to_string(&path).expect("the file"), text);
        }
        let whole = serde_json::to_string(&line("http://a/1")).expect("a line");
        for cut in [0, 3, START.len(), whole.len()] {
            std::fs::write(&path, &whole[..cut]).expect("a file");
            assert!(Lines::to_file(&path, true).is_ok(), "{cut}");
            assert_eq!(std::fs::metadata(&path).expect("the file").len(), 0);
        }
    }
}
