//! What can keep a crawl from going on.

use std::path::{Path, PathBuf};

/// Why a crawl cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum CrawlError {
    /// A file.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What is wrong.
        source: std::io::Error,
    },
    /// The state directory does not fit what is asked for.
    #[error("{0}")]
    State(String),
    /// The output does not fit what is asked for.
    #[error("{0}")]
    Output(String),
    /// There is no place to begin at.
    #[error("{0}")]
    Starts(String),
    /// The broker.
    #[error(transparent)]
    Broker(#[from] crate::sdk::Error),
}

impl CrawlError {
    pub(super) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
