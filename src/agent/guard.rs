//! Restricts every connection to the targets that the agent's owner and the run permit: names are resolved here, and the agent connects
//! only to addresses that were checked. So changing the name's address after the check has no effect.

use super::failure::fetch_error;
use crate::domain::download_targets::{DownloadTargets, is_public};
use crate::domain::origin::Began;
use crate::names::Names;
use crate::protocol::node::{FetchError, FetchErrorKind};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why no connection was made: the target is not permitted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A rejection as the outcome of a request.
#[must_use]
pub fn refused(why: impl Into<String>) -> FetchError {
    fetch_error(FetchErrorKind::Refused, why)
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The host, as in a URL.
    pub host: String,
    /// The URL's port, or the default one of its scheme.
    pub port: u16,
}

impl Place {
    /// The target of a URL.
    #[must_use]
    pub fn of(url: &Url) -> Self {
        let port = url.port_or_known_default().unwrap_or(if url.scheme().starts_with("socks") { 1_080 } else { 80 });
        Self { host: url.host_str().unwrap_or_default().to_owned(), port }
    }
}

/// Resolves names for the connections of one client, which go to one host and port, or to a proxy.
#[derive(Debug)]
pub struct Guard {
    /// Resolves names.
    pub names: Arc<Names>,
    /// The targets that the owner permits.
    pub targets: Arc<DownloadTargets>,
    /// The host.
    pub target: Place,
    /// Whether the run began at the host.
    pub began: Began,
    /// Whether the host name has resolved to a public address in this run.
    pub was_public: Arc<AtomicBool>,
    /// The proxy. A run never begins at a proxy: only the owner's settings permit one with a private address.
    pub proxy: Option<Place>,
}

impl Guard {
    fn judge(&self, name: &str, found: &[IpAddr]) -> Result<Vec<IpAddr>, String> {
        match &self.proxy {
            Some(proxy) if proxy.host == name => self.targets.judge_all(name, found, proxy.port, &Began::elsewhere(), false),
            _ => {
                let was_public = self.was_public.load(Ordering::Relaxed);
                let judged = self.targets.judge_all(name, found, self.target.port, &self.began, was_public);
                if found.iter().any(|address| is_public(*address)) {
                    self.was_public.store(true, Ordering::Relaxed);
                }
                judged
            }
        }
    }
}

/// The resolver for reqwest.
#[derive(Debug, Clone)]
pub struct Resolver(pub Arc<Guard>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.0.clone();
        Box::pin(async move {
            let name = name.as_str();
            let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
            let found = guard.names.lookup(bare).await?;
            let targets = guard.judge(name, &found).map_err(Refused)?;
            let addresses: Addrs = Box::new(targets.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(addresses)
        })
    }
}
