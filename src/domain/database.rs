//! Where a database is: in a file, or at a PostgreSQL server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
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

/// How long the answer to a statement may take, unless the URL has another value.
const ANSWER: Duration = Duration::from_secs(30);

/// The URL of a PostgreSQL database. Its texts never contain the password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// One for each server, in their order.
    servers: Vec<Url>,
    ssl: SslMode,
    root: Option<PathBuf>,
    answer: Duration,
}

/// Settings of the URL that are not passed on.
const OWN: [&str; 4] = ["sslmode", "sslrootcert", "target_session_attrs", "answer_timeout"];

impl ServerUrl {
    fn parse(text: &str) -> Result<Self, String> {
        let mut servers = one_for_each_server(text)?;
        let (mut ssl, mut root, mut answer) = (SslMode::Prefer, None, ANSWER);
        let mut by_system = false;
        let settings = servers.first().cloned();
        for (key, value) in settings.iter().flat_map(Url::query_pairs) {
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
                // A broker needs a server that accepts writes, whichever of these is given.
                "target_session_attrs" if ["any", "read-write", "primary"].contains(&&*value) => {}
                "target_session_attrs" => {
                    return Err(
                        "target_session_attrs must be read-write, primary or any: a broker needs a server that accepts writes".to_owned()
                    );
                }
                "answer_timeout" => {
                    let seconds = value.parse().ok().filter(|seconds| (1..=3_600).contains(seconds));
                    answer = Duration::from_secs(seconds.ok_or("answer_timeout must be a number of seconds from 1 to 3600")?);
                }
                _ => {}
            }
        }
        // The others stay as they are written.
        let is_other = |part: &&str| !part.is_empty() && !OWN.contains(&part.split('=').next().unwrap_or_default());
        let all = settings.as_ref().and_then(Url::query).unwrap_or_default();
        let others: Vec<&str> = all.split('&').filter(is_other).collect();
        let others = (!others.is_empty()).then(|| others.join("&"));
        if by_system || (root.is_some() && ssl == SslMode::Require) {
            // As libpq: an authority is given to be used.
            ssl = SslMode::VerifyFull;
        }
        for server in &mut servers {
            server.set_query(others.as_deref());
            if server.path().trim_matches('/').is_empty() {
                return Err("the URL must name a database: postgres://user:password@host/database".to_owned());
            }
        }
        Ok(Self { servers, ssl, root, answer })
    }

    /// Host with port, and the URL without the settings of this program, of each server; the first is to be tried first.
    pub fn servers(&self) -> impl Iterator<Item = (String, &str)> {
        self.servers.iter().map(|server| (host_of(server), server.as_str()))
    }

    /// How long the answer to a statement may take.
    #[must_use]
    pub fn answer_limit(&self) -> Duration {
        self.answer
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

/// `postgres://user@host1:port1,host2:port2/name` names several servers of one cluster, as for libpq.
fn one_for_each_server(text: &str) -> Result<Vec<Url>, String> {
    let bad = |e: url::ParseError| format!("this is not a URL of PostgreSQL ({e})");
    let Some((scheme, rest)) = text.split_once("://") else { return Err(bad(url::ParseError::RelativeUrlWithoutBase)) };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, hosts) = authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1));
    hosts.split(',').map(|host| Url::parse(&format!("{scheme}://{login}{host}{tail}")).map_err(bad)).collect()
}

fn host_of(server: &Url) -> String {
    let port = server.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", server.host_str().unwrap_or_default())
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.servers.first() else { return Ok(()) };
        let login = if first.username().is_empty() { String::new() } else { format!("{}@", first.username()) };
        let hosts: Vec<String> = self.servers.iter().map(host_of).collect();
        write!(f, "postgres://{login}{}{}", hosts.join(","), first.path())
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
        for text in [
            "postgres://me:secret@db",
            "postgres://me:secret@db/",
            "postgres://me:secret@db/w?sslmode=maybe",
            "postgres://me:secret@:x/w",
            "postgres://me:secret@a,b:x/w",
            "postgres://me:secret@db/w?answer_timeout=0",
            "postgres://me:secret@db/w?target_session_attrs=standby",
        ] {
            let error = DatabaseAddress::parse(Path::new(text)).expect_err(text);
            assert!(!error.contains("secret"), "{error}");
        }
        for text in ["webloom.db", "/var/lib/w.db", "./postgres", "C:\\data\\w.db", "../a b.db"] {
            assert_eq!(DatabaseAddress::parse(Path::new(text)), Ok(DatabaseAddress::File(text.into())), "{text}");
        }
    }

    fn only(url: &ServerUrl) -> &str {
        let servers: Vec<_> = url.servers().collect();
        assert_eq!(servers.len(), 1);
        servers[0].1
    }

    #[test]
    fn the_url_of_a_server_is_read_and_shown_without_its_password() {
        let server = |text: &str| match DatabaseAddress::parse(Path::new(text)) {
            Ok(DatabaseAddress::Server(url)) => url,
            other => panic!("{text}: {other:?}"),
        };
        let url = server("postgres://me:secret@db.example:5433/w?sslmode=verify-full&connect_timeout=3&sslrootcert=/etc/ca.pem");
        assert_eq!((url.ssl(), url.root()), (SslMode::VerifyFull, Some(Path::new("/etc/ca.pem"))));
        assert_eq!(only(&url), "postgres://me:secret@db.example:5433/w?connect_timeout=3");
        assert_eq!(format!("{url} {url:?}"), "postgres://me@db.example:5433/w postgres://me@db.example:5433/w");
        assert_eq!(url.answer_limit(), Duration::from_secs(30));
        assert_eq!(server("postgres://db/w?answer_timeout=7").answer_limit(), Duration::from_secs(7));
        let several =
            server("postgres://me:p%2Cq@a,b:5433,[::1]:5434/w?target_session_attrs=read-write&answer_timeout=7&connect_timeout=3");
        let servers: Vec<_> = several.servers().collect();
        let each = [("a", "a"), ("b:5433", "b:5433"), ("[::1]:5434", "[::1]:5434")]
            .map(|(host, at)| (host.to_owned(), format!("postgres://me:p%2Cq@{at}/w?connect_timeout=3")));
        assert_eq!(servers, each.iter().map(|(host, url)| (host.clone(), url.as_str())).collect::<Vec<_>>());
        assert_eq!(several.to_string(), "postgres://me@a,b:5433,[::1]:5434/w");
        assert_eq!(server("postgresql://db/w").ssl(), SslMode::Prefer);
        assert_eq!(server("postgres://db/w?sslmode=require&sslrootcert=ca.pem").ssl(), SslMode::VerifyFull);
        assert_eq!(server("postgres://db/w?sslmode=require").ssl(), SslMode::Require);
        assert_eq!(server("postgres://db/w?sslrootcert=system").ssl(), SslMode::VerifyFull);
        let options = server("postgres://db/w?options=-c%20search_path%3Dw&sslmode=disable");
        assert_eq!((only(&options), options.ssl()), ("postgres://db/w?options=-c%20search_path%3Dw", SslMode::Disable));
    }
}
