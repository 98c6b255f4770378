//! The results of a crawl.

use super::lines::Line;
use std::cell::RefCell;
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
    /// The error of the first failed page.
    pub first_failure: Option<String>,
}

impl Counts {
    /// Counts a page.
    pub fn count(&mut self, line: &Line) {
        self.bytes += line.length;
        if line.is_success() {
            self.pages += 1;
            return;
        }
        self.failed += 1;
        if self.first_failure.is_none() {
            let url = &line.url;
            self.first_failure = Some(match &line.error {
                Some(error) => format!("{url}: {error}"),
                None => format!("{url} responded with status {}", line.status),
            });
        }
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
    /// Seconds since this process began.
    pub seconds: f64,
    /// The error of the first failed page.
    pub first_failure: Option<String>,
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
        write!(f, "{} pages, {} failed, {megabytes:.1} MB", self.pages, self.failed)?;
        if self.now < self.pages + self.failed {
            write!(f, " in all; {} of them since the crawl was resumed,", self.now)?;
        }
        write!(f, " in {:.1} s, {rate:.0} pages/s", self.seconds)?;
        match &self.outcome {
            Outcome::Finished => Ok(()),
            Outcome::Interrupted => write!(f, "\ninterrupted, {} left: continue with the same command and --resume", self.left),
            Outcome::Failed(reason) => write!(f, "\nended early, {} left: {reason}", self.left),
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
            seconds: 11.0,
            first_failure: None,
        };
        assert_eq!(
            summary.to_string(),
            "528 pages, 1 failed, 12.3 MB in all; 441 of them since the crawl was resumed, in 11.0 s, 40 pages/s"
        );
        summary.now = 529;
        assert_eq!(summary.to_string(), "528 pages, 1 failed, 12.3 MB in 11.0 s, 48 pages/s");
    }
}
