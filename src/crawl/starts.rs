//! The starts of a crawl: URLs from the command line, a file, or standard input.

use super::error::CrawlError;
use super::options::CrawlOptions;
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::str::FromStr;
use url::Url;

/// A URL of the command line, or `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// This page.
    Url(Url),
    /// The pages listed on standard input.
    Stdin,
}

impl FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" { Ok(Self::Stdin) } else { start_url(text).map(Self::Url) }
    }
}

/// A URL of http or https. `example.com` is accepted too, as people type it.
pub(super) fn start_url(text: &str) -> Result<Url, String> {
    if ["/", "./", "../", "~/"].iter().any(|begin| text.starts_with(begin)) {
        return Err(format!(
            "`{text}` is a path: a URL is expected, for example http://localhost:8000/; --urls-file reads URLs from a file"
        ));
    }
    let is_whole = text.contains("://");
    let url = crate::protocol::push::check_url(&if is_whole { text.to_owned() } else { format!("http://{text}") });
    let why = match &url {
        Err(problem) if is_whole => return Err(problem.detail.clone()),
        Err(problem) => problem.detail.rsplit(" is not a valid URL: ").next().unwrap_or_default(),
        // mailto:me@example.com
        Ok(url) if !is_whole && !url.username().is_empty() => "a URL with a user name begins with http:// or https://",
        Ok(url) => return Ok(url.clone()),
    };
    let shown: String = text.chars().take(100).collect();
    Err(format!("`{shown}` is not a URL: http://example.com/ or example.com is expected ({why})"))
}

impl CrawlOptions {
    /// Reads the files with starts, and merges all starts without duplicates.
    ///
    /// # Errors
    /// A file cannot be read, a line of it is not a URL, or there is no start at all.
    pub fn read_starts(&mut self) -> Result<(), CrawlError> {
        let mut starts: Vec<Url> = Vec::new();
        let mut from_stdin = false;
        for start in &self.urls {
            match start {
                Start::Url(url) => starts.push(url.clone()),
                Start::Stdin => from_stdin = true,
            }
        }
        if let Some(path) = self.urls_file.as_deref().filter(|path| *path != Path::new("-")) {
            let file = File::open(path).map_err(CrawlError::file(path))?;
            read(BufReader::new(file), &path.display().to_string(), &mut starts)?;
        }
        if from_stdin || self.urls_file.as_deref() == Some(Path::new("-")) {
            read(io::stdin().lock(), "the standard input", &mut starts)?;
        }
        let mut known = HashSet::new();
        starts.retain(|url| known.insert(url.as_str().to_owned()));
        if starts.is_empty() && self.sitemap.is_empty() {
            return Err(CrawlError::Starts("there is no URL to begin at: the list is empty".to_owned()));
        }
        self.starts = starts;
        Ok(())
    }

    /// All first requests: pages and sitemaps.
    pub fn begins_at(&self) -> impl Iterator<Item = &Url> {
        self.starts.iter().chain(&self.sitemap)
    }

    /// A short label of the crawl: its start, or the first of many with a number computed from all.
    #[must_use]
    pub fn label(&self) -> String {
        let mut all = self.begins_at();
        let first = all.next().map(Url::to_string).unwrap_or_default();
        let more = all.count();
        if more == 0 && self.sitemap.is_empty() {
            return first;
        }
        let mut sha = Sha256::new();
        for url in self.begins_at() {
            sha.update(url.as_str());
            sha.update(b"\n");
        }
        let digest: String = sha.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        if more == 0 { format!("{first} ({digest})") } else { format!("{first} and {more} more ({digest})") }
    }
}

/// One URL on each line; empty lines and lines that begin with `#` are skipped.
fn read(lines: impl BufRead, name: &str, starts: &mut Vec<Url>) -> Result<(), CrawlError> {
    for (number, line) in lines.lines().enumerate() {
        let wrong = |why: String| CrawlError::Starts(format!("{name}, line {}: {why}", number + 1));
        let line = line.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => wrong("it is not UTF-8 text".to_owned()),
            _ => CrawlError::file(Path::new(name))(error),
        })?;
        let line = line.trim_start_matches('\u{feff}').trim();
        if !line.is_empty() && !line.starts_with('#') {
            starts.push(start_url(line).map_err(wrong)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_come_from_arguments_and_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("urls");
        std::fs::write(&path, "\u{feff}b.example\r\n\n# no\n  http://a/x#y  \nhttp://a/\n").expect("a file");
        let mut options = CrawlOptions::new(Url::parse("http://a/").expect("a url"));
        options.read_starts().expect("one");
        assert_eq!(options.label(), "http://a/");
        options.urls_file = Some(path.clone());
        options.read_starts().expect("three");
        let starts: Vec<&str> = options.starts.iter().map(Url::as_str).collect();
        assert_eq!(starts, ["http://a/", "http://b.example/", "http://a/x"]);
        let label = options.label();
        assert!(label.starts_with("http://a/ and 2 more ("), "{label}");
        options.starts.pop();
        assert_ne!(options.label(), label);

        std::fs::write(&path, "http://a/\nftp://b/\n").expect("a file");
        let error = options.read_starts().expect_err("a bad line").to_string();
        assert!(error.contains("line 2") && error.contains("ftp"), "{error}");
        assert!(start_url("/etc/urls").is_err_and(|why| why.contains("is a path")) && start_url("a.example/x").is_ok());
        std::fs::write(&path, b"http://a/\nhttp://b/\xe4\n").expect("a file");
        let error = options.read_starts().expect_err("not UTF-8").to_string();
        assert!(error.ends_with("urls, line 2: it is not UTF-8 text"), "{error}");
        for (wrong, why) in [
            ("", "empty host"),
            ("x y", "invalid international domain name"),
            ("a.example:99999", "invalid port number"),
            ("javascript:alert(1)", "invalid port number"),
            ("mailto:me@a.example", "a URL with a user name begins with http:// or https://"),
            ("me:secret@a.example", "a URL with a user name begins with http:// or https://"),
        ] {
            assert_eq!(start_url(wrong), Err(format!("`{wrong}` is not a URL: http://example.com/ or example.com is expected ({why})")));
        }
        assert!(start_url(&format!("a.example/{}", "x".repeat(10_000))).is_err_and(|why| why.contains("(must be at most ")));
        assert!(start_url("http://me:secret@a.example/").is_ok());
        std::fs::write(&path, "\n#\n").expect("a file");
        options.urls.clear();
        assert!(options.read_starts().expect_err("empty").to_string().contains("empty"));
        options.sitemap = vec![Url::parse("http://a/s.xml").expect("a url")];
        options.read_starts().expect("a sitemap is enough");
        options.urls_file = Some(dir.path().join("none"));
        assert!(options.read_starts().is_err());
    }
}
