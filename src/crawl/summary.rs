//! The results of a crawl.

use super::lines::Line;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use tokio::sync::Notify;

/// Counts of written pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Successful pages.
    pub pages: u64,
    /// Failed pages.
    pub failed: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Pages with a response of any status.
    pub answered: u64,
    /// The error of the first failed page.
    pub first_failure: Option<String>,
    /// Failed pages by kind ([`Line::failure`]): their number, and the first of them. A page that should be a sitemap and is none counts
    /// here under `sitemap`, besides as a page.
    pub failures: BTreeMap<String, (u64, String)>,
}

impl Counts {
    /// Counts a page.
    pub fn count(&mut self, line: &Line) {
        self.bytes += line.length;
        self.answered += u64::from(line.status > 0);
        if line.is_success() {
            self.pages += 1;
            if let Some(error) = &line.sitemap_error {
                self.failures.entry("sitemap".to_owned()).or_insert_with(|| (0, format!("{}: {error}", line.url))).0 += 1;
            }
            return;
        }
        self.failed += 1;
        let url = &line.url;
        let text = || match &line.error {
            Some(error) => format!("{url}: {error}"),
            None => format!("{url} responded with status {}", line.status),
        };
        self.first_failure.get_or_insert_with(text);
        self.failures.entry(line.failure()).or_insert_with(|| (0, text())).0 += 1;
    }

    /// The failures of both, each with the first example.
    #[must_use]
    pub fn failures_with(mut self, later: Self) -> BTreeMap<String, (u64, String)> {
        for (kind, (count, first)) in later.failures {
            self.failures.entry(kind).or_insert((0, first)).0 += count;
        }
        self.failures
    }
}

/// Counts during the crawl.
#[derive(Debug, Default)]
pub struct Tally {
    /// Counts of this process.
    pub now: RefCell<Counts>,
    /// Signals that the run has ended.
    pub ended: Notify,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every page that was found has been requested.
    Finished,
    /// It was interrupted, and can be resumed.
    Interrupted,
    /// The broker ended it.
    Failed(String),
}

/// The results of a crawl.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// How it ended.
    pub outcome: Outcome,
    /// Successful pages of the whole crawl.
    pub pages: u64,
    /// Failed pages of the whole crawl.
    pub failed: u64,
    /// Requests that were not made yet.
    pub left: u64,
    /// Bytes of the pages of the whole crawl; after a resume without a file of lines, only those since then.
    pub bytes: u64,
    /// Pages since this process began, including failed ones; fewer than all after a resume.
    pub now: u64,
    /// It continues a crawl that was interrupted.
    pub is_resumed: bool,
    /// Seconds since this process began.
    pub seconds: f64,
    /// The error of the first failed page.
    pub first_failure: Option<String>,
    /// Failed pages by kind: their number, and the first of them.
    pub failures: BTreeMap<String, (u64, String)>,
    /// What is left of an interrupted crawl, and where. Empty: it had not begun.
    pub kept: String,
}

impl Summary {
    /// Pages per second, including failed ones.
    #[must_use]
    pub fn pages_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.now as f64 / self.seconds } else { 0.0 }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (megabytes, rate) = (self.bytes as f64 / 1e6, self.pages_per_second());
        let pages = if self.pages == 1 { "page" } else { "pages" };
        write!(f, "{} {pages}, {} failed, {megabytes:.1} MB", self.pages, self.failed)?;
        if self.is_resumed && self.now < self.pages + self.failed {
            write!(f, " in all; {} of them since the crawl was resumed,", self.now)?;
        }
        write!(f, " in {:.1} s, {rate:.0} pages/s", self.seconds)?;
        for (kind, (count, first)) in &self.failures {
            write!(f, "\n{count} failed with {kind}, the first: {first}")?;
        }
        match &self.outcome {
            Outcome::Finished => Ok(()),
            Outcome::Interrupted if self.kept.is_empty() => f.write_str("\ninterrupted before it began"),
            Outcome::Interrupted => {
                let Self { left, kept, .. } = self;
                write!(f, "\ninterrupted, {left} left; kept: {kept}; continue with the same command and --resume")
            }
            // The error itself follows as the last line of the program.
            Outcome::Failed(_) => write!(f, "\nended early, {} left", self.left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_crawl_says_what_all_of_it_found() {
        let mut summary = Summary {
            outcome: Outcome::Finished,
            pages: 528,
            failed: 1,
            left: 0,
            bytes: 12_340_000,
            now: 441,
            is_resumed: true,
            seconds: 11.0,
            first_failure: None,
            failures: BTreeMap::new(),
            kept: String::new(),
        };
        assert_eq!(
            summary.to_string(),
            "528 pages, 1 failed, 12.3 MB in all; 441 of them since the crawl was resumed, in 11.0 s, 40 pages/s"
        );
        summary.now = 529;
        assert_eq!(summary.to_string(), "528 pages, 1 failed, 12.3 MB in 11.0 s, 48 pages/s");
        (summary.outcome, summary.left, summary.kept) = (Outcome::Interrupted, 7, "529 lines in a.jsonl".into());
        let last = "interrupted, 7 left; kept: 529 lines in a.jsonl; continue with the same command and --resume";
        assert_eq!(summary.to_string().lines().last(), Some(last));
    }

    #[test]
    fn failures_are_listed_by_kind_with_an_example() {
        let line = |url: &str, status, kind: Option<&str>| Line {
            url: url.into(),
            status,
            error: kind.map(|_| "no such host".into()),
            error_kind: kind.map(str::to_owned),
            ..Line::default()
        };
        let (mut before, mut now) = (Counts::default(), Counts::default());
        before.count(&line("http://a/1", 404, None));
        for line in [line("http://a/2", 404, None), line("http://b/", 0, Some("dns")), line("http://a/", 200, None)] {
            now.count(&line);
        }
        assert_eq!((now.pages, now.failed, now.answered), (1, 2, 2));
        let expected = [
            ("dns".to_owned(), (1, "http://b/: no such host".to_owned())),
            ("status 404".to_owned(), (2, "http://a/1 responded with status 404".to_owned())),
        ];
        assert_eq!(before.failures_with(now), BTreeMap::from(expected));
        let mut broken = Counts::default();
        broken.count(&Line { sitemap_error: Some("not a sitemap".into()), ..line("http://a/s", 200, None) });
        let named = [("sitemap".to_owned(), (1, "http://a/s: not a sitemap".to_owned()))];
        assert_eq!((broken.pages, broken.failed, broken.failures), (1, 0, BTreeMap::from(named)));
    }
}
