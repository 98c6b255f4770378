//! Holds every connection to the targets that the agent's owner and the run permit: names are resolved here, and only
//! addresses that were judged are connected to. So a name that is changed after the first look gains nothing.

use super::failure::fetch_error;
use crate::domain::download_targets::{DownloadTargets, is_public};
use crate::domain::origin::Began;
use crate::protocol::node::{FetchError, FetchErrorKind};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why no connection was made: the target is none.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A refusal as the outcome of a request.
#[must_use]
pub fn refused(why: impl Into<String>) -> FetchError {
    fetch_error(FetchErrorKind::Refused, why)
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// As a URL has it.
    pub host: String,
    /// The URL's, or the usual one of its scheme.
    pub port: u16,
}

impl Place {
    /// Where a URL leads.
    #[must_use]
    pub fn of(url: &Url) -> Self {
        let port = url.port_or_known_default().unwrap_or(if url.scheme().starts_with("socks") { 1_080 } else { 80 });
        Self { host: url.host_str().unwrap_or_default().to_owned(), port }
    }
}

/// Resolves names for the connections of one client, which go to one host and port, or to a proxy.
#[derive(Debug)]
pub struct Guard {
    /// What the owner has set.
    pub targets: Arc<DownloadTargets>,
    /// The host, and whether the run began there.
    pub target: Place,
    /// See [`Guard::target`].
    pub began: Began,
    /// Whether the host has led to a public address in this run.
    pub was_public: Arc<AtomicBool>,
    /// A proxy is no place that a run begins at: only the owner's settings permit one that is not public.
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

/// What reqwest asks.
#[derive(Debug, Clone)]
pub struct Resolver(pub Arc<Guard>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.0.clone();
        Box::pin(async move {
            let name = name.as_str();
            let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
            let found: Vec<IpAddr> = tokio::net::lookup_host((bare, 0)).await?.map(|address| address.ip()).collect();
            let targets = guard.judge(name, &found).map_err(Refused)?;
            let addresses: Addrs = Box::new(targets.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(addresses)
        })
    }
}
