//! What came of a crawl.

use std::cell::Cell;
use std::fmt;
use tokio::sync::Notify;

/// Counts while the crawl goes on.
#[derive(Debug, Default)]
pub struct Tally {
    /// Pages that were answered well.
    pub pages: Cell<u64>,
    /// Pages that were not.
    pub failed: Cell<u64>,
    /// Bytes of their bodies.
    pub bytes: Cell<u64>,
    /// Told when the run is over.
    pub ended: Notify,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every page that was found has been asked for.
    Finished,
    /// It was interrupted, and can be gone on with.
    Interrupted,
    /// The broker ended it.
    Failed(String),
}

/// What came of a crawl, since this program began with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// How it ended.
    pub outcome: Outcome,
    /// Pages that were answered well.
    pub pages: u64,
    /// Pages that were not.
    pub failed: u64,
    /// Requests that were not asked for yet.
    pub left: u64,
    /// Bytes of the pages.
    pub bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

impl Summary {
    /// Pages a second, failed ones too.
    #[must_use]
    pub fn pages_per_second(&self) -> f64 {
        if self.seconds > 0.0 { (self.pages + self.failed) as f64 / self.seconds } else { 0.0 }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (megabytes, rate) = (self.bytes as f64 / 1e6, self.pages_per_second());
        write!(f, "{} pages, {} failed, {megabytes:.1} MB in {:.1} s, {rate:.0} pages/s", self.pages, self.failed, self.seconds)?;
        match &self.outcome {
            Outcome::Finished => Ok(()),
            Outcome::Interrupted => write!(f, "\ninterrupted, {} left: the same command with --resume goes on", self.left),
            Outcome::Failed(reason) => write!(f, "\nended early, {} left: {reason}", self.left),
        }
    }
}
