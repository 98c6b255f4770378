//! Fetches a package into a file.

use super::refusal;
use crate::config::addresses::Addresses;
use crate::config::agent::AgentConfig;
use crate::config::programs::HostPattern;
use crate::private;
use crate::protocol::application::{ProgramError, ProgramErrorKind};
use crate::tls;
use reqwest::header::{ETAG, IF_NONE_MATCH};
use reqwest::{Client, StatusCode, Url, redirect};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A server that sends nothing for this long counts as gone.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const MOST_REDIRECTS: usize = 10;
/// Total number of tries, for errors that may pass.
const TRIES: u32 = 3;

/// The result of a fetch.
pub enum Fetched {
    /// The file was fetched.
    New {
        /// Its SHA-256, 64 hexadecimal digits.
        sha256: String,
        /// The server's ETag.
        etag: Option<String>,
    },
    /// The server confirmed that the cached file is current.
    Unchanged,
}

/// Fetches packages, only from allowed hosts.
pub struct Fetcher {
    client: Result<Client, String>,
    /// The client for the broker's own packages: it follows no redirects, because it sends the token.
    own: Result<Client, String>,
    brokers: Addresses,
    token: Option<String>,
    hosts: Vec<HostPattern>,
    most_bytes: u64,
    wait: Duration,
}

impl Fetcher {
    pub fn new(config: &AgentConfig) -> Self {
        let (brokers, hosts) = (config.broker.clone(), config.programs.package_hosts.clone());
        let redirects = {
            let (brokers, hosts) = (brokers.clone(), hosts.clone());
            redirect::Policy::custom(move |attempt| {
                if attempt.previous().len() > MOST_REDIRECTS {
                    attempt.error("too many redirects")
                } else if is_allowed(attempt.url(), &brokers, &hosts) {
                    attempt.follow()
                } else {
                    attempt.error(NotAllowed)
                }
            })
        };
        Self {
            client: client(redirects),
            own: client(redirect::Policy::none()),
            brokers,
            token: config.token.clone(),
            hosts,
            most_bytes: config.programs.max_package_bytes,
            wait: config.waits.retry,
        }
    }

    /// The URL of a package; a path refers to the broker.
    ///
    /// # Errors
    /// It is not a URL, or its host is not allowed.
    pub fn address(&self, text: &str) -> Result<Url, ProgramError> {
        if let Some(path) = text.strip_prefix('/') {
            let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
            // A standby has the same packages.
            let mut url = self.brokers.current().1.clone();
            url.set_path(&format!("{}{path}", url.path()));
            url.set_query(query);
            return Ok(url);
        }
        let url = Url::parse(text).map_err(|e| refusal(ProgramErrorKind::PackageFetch, format!("`{text}` is not a valid URL: {e}")))?;
        if is_allowed(&url, &self.brokers, &self.hosts) { Ok(url) } else { Err(not_allowed(&url)) }
    }

    /// Fetches into a new file. `known` is the ETag of the cached file.
    ///
    /// # Errors
    /// It cannot be fetched; the kind gives the reason.
    pub async fn fetch(&self, url: &Url, known: Option<&str>, into: &Path) -> Result<Fetched, ProgramError> {
        let mut wait = self.wait;
        for _ in 1..TRIES {
            match self.attempt(url, known, into).await {
                Err(Failure { error, is_passing: true }) => {
                    log::info!("package not fetched, retrying host={} reason={}", host(url), error.message);
                    tokio::time::sleep(wait).await;
                    wait *= 4;
                }
                Err(Failure { error, .. }) => return Err(error),
                Ok(fetched) => return Ok(fetched),
            }
        }
        self.attempt(url, known, into).await.map_err(|failure| failure.error)
    }

    async fn attempt(&self, url: &Url, known: Option<&str>, into: &Path) -> Result<Fetched, Failure> {
        let fatal = |kind, message: String| Failure { error: refusal(kind, message), is_passing: false };
        let passing = |message: String| Failure { error: refusal(ProgramErrorKind::PackageFetch, message), is_passing: true };
        let is_own = is_own(url, &self.brokers);
        let client = if is_own { &self.own } else { &self.client };
        let client = client.as_ref().map_err(|why| fatal(ProgramErrorKind::PackageFetch, why.clone()))?;
        let mut request = client.get(url.clone());
        if let Some(token) = self.token.as_ref().filter(|_| is_own) {
            request = request.header("Token", token);
        }
        if let Some(etag) = known {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let mut response = request.send().await.map_err(|e| {
            if is_not_allowed(&e) {
                fatal(
                    ProgramErrorKind::Forbidden,
                    format!("the package's URL redirects to a host that this agent does not allow: {}", host(url)),
                )
            } else {
                passing(format!("{}: {}", host(url), reason(e)))
            }
        })?;
        match response.status() {
            StatusCode::NOT_MODIFIED if known.is_some() => return Ok(Fetched::Unchanged),
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                return Err(fatal(ProgramErrorKind::PackageNotFound, format!("{} has no such package", host(url))));
            }
            status if status == StatusCode::OK => {}
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(passing(format!("{} answered {status}", host(url))));
            }
            status => return Err(fatal(ProgramErrorKind::PackageFetch, format!("{} answered {status}", host(url)))),
        }
        let too_large = || {
            fatal(
                ProgramErrorKind::PackageTooLarge,
                format!("the package is larger than the {} bytes that this agent allows", self.most_bytes),
            )
        };
        if response.content_length().is_some_and(|length| length > self.most_bytes) {
            return Err(too_large());
        }
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let disk = |e: std::io::Error| fatal(ProgramErrorKind::PackageFetch, format!("cannot write the package: {e}"));
        let file = private::options().write(true).create(true).truncate(true).open(into).map_err(disk)?;
        let mut file = File::from_std(file);
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        while let Some(piece) = response.chunk().await.map_err(|e| passing(format!("{}: {}", host(url), reason(e))))? {
            bytes += piece.len() as u64;
            if bytes > self.most_bytes {
                return Err(too_large());
            }
            hash.update(&piece);
            file.write_all(&piece).await.map_err(disk)?;
        }
        // `write_all` returns before the disk has the bytes, and `sync_all` does not report that the last of them failed.
        file.flush().await.map_err(disk)?;
        file.sync_all().await.map_err(disk)?;
        let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Fetched::New { sha256, etag })
    }
}

struct Failure {
    error: ProgramError,
    /// Whether another try may help.
    is_passing: bool,
}

/// A redirect to a host that is not allowed.
#[derive(Debug, thiserror::Error)]
#[error("that host is not allowed")]
struct NotAllowed;

fn is_not_allowed(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<NotAllowed>() {
            return true;
        }
        next = error.source();
    }
    false
}

fn is_own(url: &Url, brokers: &Addresses) -> bool {
    brokers.all().any(|broker| url.origin() == broker.origin())
}

fn is_allowed(url: &Url, brokers: &Addresses, hosts: &[HostPattern]) -> bool {
    matches!(url.scheme(), "http" | "https") && (is_own(url, brokers) || hosts.iter().any(|host| host.fits(url)))
}

fn not_allowed(url: &Url) -> ProgramError {
    let message = match url.scheme() {
        "http" | "https" => format!("packages of `{}` are not allowed by this agent's setting `packageHosts`", host(url)),
        other => format!("packages must use http or https, not `{other}`"),
    };
    refusal(ProgramErrorKind::Forbidden, message)
}

/// The host of a URL, for messages: the parts after it may be secret.
fn host(url: &Url) -> &str {
    url.host_str().unwrap_or("?")
}

fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let cause = std::iter::successors(std::error::Error::source(&error), |error| error.source()).last().map(ToString::to_string);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

fn client(redirects: redirect::Policy) -> Result<Client, String> {
    Client::builder()
        .tls_backend_preconfigured(tls::client())
        .redirect(redirects)
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .user_agent(concat!("webloom/", env!("CARGO_PKG_VERSION")))
        // No transfer decoding: the hash of a tar.gz is of the packed bytes.
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .no_proxy()
        .build()
        .map_err(|e| format!("no HTTP client: {e}"))
}
