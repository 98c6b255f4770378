//! Parses the setting for the database: the path of a file.

use std::path::{Path, PathBuf};

/// Prefixes that mean a remote database, or one that is not on disk.
const NO_PATHS: [&str; 7] = ["postgres:", "postgresql:", "mysql:", "sqlite:", "file:", "jdbc:", ":memory:"];

/// Parses the path of a database file.
///
/// # Errors
/// The text is a URL or another name that is not a path.
pub fn parse_database(named: &Path) -> Result<PathBuf, String> {
    let lower = named.to_string_lossy().trim().to_ascii_lowercase();
    let is_path =
        !lower.is_empty() && !lower.contains("://") && !lower.contains("dbname=") && !NO_PATHS.iter().any(|no| lower.starts_with(no));
    if is_path {
        return Ok(named.to_owned());
    }
    // A URL may contain a password, so only its scheme is shown.
    let shown = match lower.split_once("://") {
        Some((scheme, _)) => format!("a URL ({scheme}://…) is not a path"),
        None if lower.is_empty() => "an empty text is not a path".to_owned(),
        None => "this is not a path".to_owned(),
    };
    Err(format!("{shown}: expected the path of an SQLite file, such as /var/lib/webloom/webloom.db. Webloom has no other database yet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_path_is_refused_and_no_password_is_repeated() {
        for text in [
            "postgres://me:secret@db/w",
            "postgresql:///secret",
            "SQLite://secret.db",
            "sqlite:secret",
            "file:secret?mode=ro",
            ":memory:",
            "",
            "host=db dbname=secret",
        ] {
            let error = parse_database(Path::new(text)).expect_err(text);
            assert!(error.contains("expected the path of an SQLite file") && !error.contains("secret"), "{error}");
        }
        for text in ["webloom.db", "/var/lib/w.db", "./postgres", "C:\\data\\w.db", "../a b.db"] {
            assert_eq!(parse_database(Path::new(text)), Ok(PathBuf::from(text)), "{text}");
        }
    }
}
