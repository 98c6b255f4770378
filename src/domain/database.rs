//! Where a database is: in a file, or at a PostgreSQL server.

use std::fmt;
use std::path::{Path, PathBuf};
use url::Url;

/// Prefixes of URLs of PostgreSQL.
const SERVER: [&str; 2] = ["postgres://", "postgresql://"];
/// Prefixes that mean another database, or one that is not on disk.
const NO_PATHS: [&str; 7] = ["postgres:", "postgresql:", "mysql:", "sqlite:", "file:", "jdbc:", ":memory:"];

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseAddress {
    /// An SQLite file.
    File(PathBuf),
    /// A database of a PostgreSQL server.
    Server(ServerUrl),
}

impl DatabaseAddress {
    /// Reads the setting: the path of a file, or a URL `postgres://user:password@host:port/name?sslmode=verify-full`.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &Path) -> Result<Self, String> {
        let named = text.to_string_lossy();
        let lower = named.trim().to_ascii_lowercase();
        if SERVER.iter().any(|scheme| lower.starts_with(scheme)) {
            return ServerUrl::parse(named.trim()).map(Self::Server);
        }
        let is_path =
            !lower.is_empty() && !lower.contains("://") && !lower.contains("dbname=") && !NO_PATHS.iter().any(|no| lower.starts_with(no));
        if is_path {
            return Ok(Self::File(text.to_owned()));
        }
        // A URL may contain a password, so only its scheme is shown.
        let shown = match lower.split_once("://") {
            Some((scheme, _)) => format!("a URL ({scheme}://…) is not a path"),
            None if lower.is_empty() => "an empty text is not a path".to_owned(),
            None => "this is not a path".to_owned(),
        };
        Err(format!(
            "{shown}: expected the path of an SQLite file, such as /var/lib/webloom/webloom.db, or postgres://user:password@host/database"
        ))
    }

    /// The same place, whatever the working directory.
    ///
    /// # Errors
    /// There is no working directory.
    pub fn absolute(&self) -> std::io::Result<Self> {
        match self {
            Self::File(path) => std::path::absolute(path).map(Self::File),
            Self::Server(url) => Ok(Self::Server(url.clone())),
        }
    }

    /// The file, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Server(_) => None,
        }
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(url) => url.fmt(f),
        }
    }
}

impl<P: Into<PathBuf>> From<P> for DatabaseAddress {
    fn from(path: P) -> Self {
        Self::File(path.into())
    }
}

/// How a connection is protected, as libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    /// No TLS.
    Disable,
    /// TLS if the server offers it; the certificate is not verified.
    Prefer,
    /// TLS; the certificate is not verified.
    Require,
    /// TLS; the certificate must be of a known authority, for this host.
    VerifyFull,
}

/// The URL of a PostgreSQL database. Its texts never contain the password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    url: Url,
    ssl: SslMode,
    root: Option<PathBuf>,
}

impl ServerUrl {
    fn parse(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text).map_err(|e| format!("this is not a URL of PostgreSQL ({e})"))?;
        let (mut ssl, mut root) = (SslMode::Prefer, None);
        let mut by_system = false;
        for (key, value) in url.query_pairs() {
            match &*key {
                "sslmode" => {
                    ssl = match &*value {
                        "disable" => SslMode::Disable,
                        "allow" | "prefer" => SslMode::Prefer,
                        "require" => SslMode::Require,
                        "verify-ca" | "verify-full" => SslMode::VerifyFull,
                        _ => return Err("sslmode must be disable, prefer, require, verify-ca or verify-full".to_owned()),
                    }
                }
                "sslrootcert" if value == "system" => by_system = true,
                "sslrootcert" => root = Some(PathBuf::from(value.as_ref())),
                _ => {}
            }
        }
        // The others stay as they are written.
        let is_other = |part: &&str| !part.starts_with("sslmode=") && !part.starts_with("sslrootcert=");
        let others: Vec<&str> = url.query().unwrap_or_default().split('&').filter(is_other).filter(|part| !part.is_empty()).collect();
        let others = (!others.is_empty()).then(|| others.join("&"));
        if by_system || (root.is_some() && ssl == SslMode::Require) {
            // As libpq: an authority is given to be used.
            ssl = SslMode::VerifyFull;
        }
        url.set_query(others.as_deref());
        if url.path().trim_matches('/').is_empty() {
            return Err("the URL must name a database: postgres://user:password@host/database".to_owned());
        }
        Ok(Self { url, ssl, root })
    }

    /// The URL without the settings of TLS.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// How the connection is protected.
    #[must_use]
    pub fn ssl(&self) -> SslMode {
        self.ssl
    }

    /// A file with the authorities that sign the server's certificate, if it is not one of the usual ones.
    #[must_use]
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if !self.url.username().is_empty() {
            write!(f, "{}@", self.url.username())?;
        }
        f.write_str(self.url.host_str().unwrap_or_default())?;
        if let Some(port) = self.url.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.url.path())
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_database_is_refused_and_no_password_is_repeated() {
        for text in [
            "mysql://me:secret@db/w",
            "SQLite://secret.db",
            "sqlite:secret",
            "file:secret?mode=ro",
            ":memory:",
            "",
            "host=db dbname=secret",
        ] {
            let error = DatabaseAddress::parse(Path::new(text)).expect_err(text);
            assert!(error.contains("expected the path of an SQLite file") && !error.contains("secret"), "{error}");
        }
        for text in
            ["postgres://me:secret@db", "postgres://me:secret@db/", "postgres://me:secret@db/w?sslmode=maybe", "postgres://me:secret@:x/w"]
        {
            let error = DatabaseAddress::parse(Path::new(text)).expect_err(text);
            assert!(!error.contains("secret"), "{error}");
        }
        for text in ["webloom.db", "/var/lib/w.db", "./postgres", "C:\\data\\w.db", "../a b.db"] {
            assert_eq!(DatabaseAddress::parse(Path::new(text)), Ok(DatabaseAddress::File(text.into())), "{text}");
        }
    }

    #[test]
    fn the_url_of_a_server_is_read_and_shown_without_its_password() {
        let server = |text: &str| match DatabaseAddress::parse(Path::new(text)) {
            Ok(DatabaseAddress::Server(url)) => url,
            other => panic!("{text}: {other:?}"),
        };
        let url = server("postgres://me:secret@db.example:5433/w?sslmode=verify-full&connect_timeout=3&sslrootcert=/etc/ca.pem");
        assert_eq!((url.ssl(), url.root()), (SslMode::VerifyFull, Some(Path::new("/etc/ca.pem"))));
        assert_eq!(url.url(), "postgres://me:secret@db.example:5433/w?connect_timeout=3");
        assert_eq!(format!("{url} {url:?}"), "postgres://me@db.example:5433/w postgres://me@db.example:5433/w");
        assert_eq!(server("postgresql://db/w").ssl(), SslMode::Prefer);
        assert_eq!(server("postgres://db/w?sslmode=require&sslrootcert=ca.pem").ssl(), SslMode::VerifyFull);
        assert_eq!(server("postgres://db/w?sslmode=require").ssl(), SslMode::Require);
        assert_eq!(server("postgres://db/w?sslrootcert=system").ssl(), SslMode::VerifyFull);
        let options = server("postgres://db/w?options=-c%20search_path%3Dw&sslmode=disable");
        assert_eq!((options.url(), options.ssl()), ("postgres://db/w?options=-c%20search_path%3Dw", SslMode::Disable));
    }
}
