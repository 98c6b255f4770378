//! Errors of writes and reads.

use diesel::result::{DatabaseErrorKind, DeserializeFieldError};

/// A caller must distinguish three outcomes of a write: done, certainly not done, and unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The write queue is full. Nothing was done; try again later.
    #[error("the write queue is full")]
    Busy,
    /// This broker does not lead, or no longer leads; or the runs that it owned were taken away. Nothing was done, and it will not execute
    /// later writes.
    #[error("this broker does not lead, or the leader has taken its runs back")]
    NotLeading,
    /// Another owner has the run. Nothing was done; the caller must give up the run.
    #[error("the run is owned under a later epoch")]
    Stale,
    /// A conflict with stored data; the text names the column. Nothing was done.
    #[error("conflict with stored data: {0}")]
    Conflict(String),
    /// There is no such row. Nothing was done.
    #[error("not found")]
    NotFound,
    /// The file cannot be used. The text is a complete sentence for the user who named the file.
    #[error("{0}")]
    Unusable(String),
    /// The database cannot store this value. Nothing was done.
    #[error("{0}")]
    NotStorable(String),
    /// This broker ends, and has closed the store. Nothing was done.
    #[error("the store is closed, because this broker ends")]
    Closed,
    /// The server of the database cannot be reached. Nothing was done; it may be back soon.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The database reported an error. Certainly nothing was done.
    #[error("not stored: {0}")]
    Failed(String),
    /// It may be on disk or not: discard the state in memory and load the stored state.
    #[error("commit outcome unknown: {0}")]
    Unknown(String),
}

/// Error texts of SQLite and the operating system for disk problems, and their meaning.
const DISK: [(&str, &str); 7] = [
    ("database or disk is full", "the disk is full"),
    ("No space left on device", "the disk is full"),
    ("quota exceeded", "the disk quota is used up"),
    ("disk I/O error", "the disk reports an error"),
    ("Input/output error", "the disk reports an error"),
    ("readonly database", "the disk is read-only"),
    ("Read-only file system", "the disk is read-only"),
];

/// The beginning of the text of such an error.
const CLASH: &str = "another writer was in the way";

impl StoreError {
    /// The disk problem, if that is why nothing was stored.
    #[must_use]
    pub fn disk_trouble(&self) -> Option<&'static str> {
        let (Self::Failed(text) | Self::Unknown(text)) = self else { return None };
        DISK.iter().find(|(found, _)| text.contains(found)).map(|(_, meaning)| *meaning)
    }

    /// The store accepts no such writes at the moment, whoever makes them: the operation is not to blame.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Busy | Self::Unreachable(_)) || self.disk_trouble().is_some()
    }

    /// Another writer was in the way, and the database ended the transaction: it can be repeated as it is.
    pub(super) fn is_clash(&self) -> bool {
        matches!(self, Self::Failed(text) if text.starts_with(CLASH))
    }

    /// The operation itself rejected the write; the rest of its transaction is valid.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Stale | Self::Conflict(_) | Self::NotFound)
    }
}

impl From<diesel::result::Error> for StoreError {
    fn from(e: diesel::result::Error) -> Self {
        match e {
            diesel::result::Error::NotFound => Self::NotFound,
            // PostgreSQL has no texts with this character.
            diesel::result::Error::DatabaseError(_, info) if info.message().contains("\"UTF8\": 0x00") => {
                Self::NotStorable("a text contains the character U+0000, which the database cannot store".into())
            }
            // 40001, and 40P01, for which diesel has no kind. The word is in the text in most languages of PostgreSQL; in the others, the
            // operations are repeated one by one.
            diesel::result::Error::DatabaseError(kind, info)
                if matches!(kind, DatabaseErrorKind::SerializationFailure)
                    || matches!(kind, DatabaseErrorKind::Unknown) && info.message().to_lowercase().contains("deadlock") =>
            {
                Self::Failed(format!("{CLASH}: {}", info.message()))
            }
            diesel::result::Error::DeserializationError(e) => Self::Failed(match e.downcast_ref::<DeserializeFieldError>() {
                Some(DeserializeFieldError { field_name: Some(column), error, .. }) => {
                    format!("the database contains an invalid value in column `{column}`: {error}")
                }
                _ => format!("the database contains an invalid value: {e}"),
            }),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(e: std::io::Error) -> Self {
        Self::Failed(e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_an_operation_that_cannot_be_stored() {
        let full = StoreError::Failed("appending to a segment: No space left on device (os error 28)".into());
        let outages = [StoreError::Busy, StoreError::Unreachable(String::new()), full, StoreError::Unknown("disk I/O error".into())];
        assert!(outages.iter().all(StoreError::is_outage));
        let others = [StoreError::Stale, StoreError::NotStorable(String::new()), StoreError::Failed("UNIQUE constraint failed".into())];
        assert!(!others.iter().any(StoreError::is_outage));
    }
}
