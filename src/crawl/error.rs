//! Errors that stop a crawl.

use std::path::{Path, PathBuf};

/// Why a crawl cannot begin or continue.
#[derive(Debug, thiserror::Error)]
pub enum CrawlError {
    /// A file error.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The state directory does not match the options.
    #[error("{0}")]
    State(String),
    /// The output does not match the options.
    #[error("{0}")]
    Output(String),
    /// There is no start URL.
    #[error("{0}")]
    Starts(String),
    /// The broker cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// An error of the broker.
    #[error(transparent)]
    Broker(#[from] crate::sdk::Error),
}

impl CrawlError {
    pub(super) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
