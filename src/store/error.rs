//! What may become of a write or a read that was not done.

/// Three answers matter to whoever asked for a write: done, certainly not done, and nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Too much waits to be written. Nothing was done; try again later.
    #[error("too many writes wait")]
    Busy,
    /// This broker does not lead, or not any more. Nothing was done, and nothing it asks for will be.
    #[error("this broker does not lead")]
    NotLeading,
    /// The run has another owner. Nothing was done; whoever asked is to let go of the run.
    #[error("the run is owned under a later epoch")]
    Stale,
    /// It does not go with what is stored; the text names the column. Nothing was done.
    #[error("in conflict with what is stored: {0}")]
    Conflict(String),
    /// There is no such row. Nothing was done.
    #[error("not found")]
    NotFound,
    /// The file is none that can be used. A whole sentence for the person who named it.
    #[error("{0}")]
    Unusable(String),
    /// The database would not. Certainly nothing was done.
    #[error("not stored: {0}")]
    Failed(String),
    /// It may be on disk or not: forget what is in memory and load what is stored.
    #[error("stored or not, nobody knows: {0}")]
    Unknown(String),
}

/// What the texts of SQLite and of the system say when the disk is at fault, and what that means.
const DISK: [(&str, &str); 7] = [
    ("database or disk is full", "the disk is full"),
    ("No space left on device", "the disk is full"),
    ("quota exceeded", "the disk quota is used up"),
    ("disk I/O error", "the disk reports an error"),
    ("Input/output error", "the disk reports an error"),
    ("readonly database", "the disk is read-only"),
    ("Read-only file system", "the disk is read-only"),
];

impl StoreError {
    /// What is wrong with the disk, if that is why nothing was stored.
    #[must_use]
    pub fn disk_trouble(&self) -> Option<&'static str> {
        let (Self::Failed(text) | Self::Unknown(text)) = self else { return None };
        DISK.iter().find(|(found, _)| text.contains(found)).map(|(_, meaning)| *meaning)
    }

    /// An operation decided itself that it must not be done; what else is in its transaction stays good.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Stale | Self::Conflict(_) | Self::NotFound)
    }
}

impl From<diesel::result::Error> for StoreError {
    fn from(e: diesel::result::Error) -> Self {
        match e {
            diesel::result::Error::NotFound => Self::NotFound,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(e: std::io::Error) -> Self {
        Self::Failed(e.to_string())
    }
}
