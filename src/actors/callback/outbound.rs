//! Shared by all requests to URLs from users, which are callbacks and webhooks: the allowed targets, the HTTP client, and the
//! limit of concurrent callbacks.
//!
//! Names are resolved here, and the request goes to exactly the address that was checked, so that a later change of the name
//! cannot bypass the check. Connections are not reused: each request is checked again, and none fails because the receiver closed
//! an old connection.

use crate::domain::targets::Targets;
use awc::http::Method;
use awc::{Client, ClientRequest, Connector};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::{Host, Url};

/// Maximum number of addresses of a name that are tried, one after the other.
const MOST_ADDRESSES: usize = 4;
/// Timeout for a connection, and for its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of concurrent requests. Each uses an open file, and the broker needs files for other work. A run without a slot
/// is *pending* until one is free.
const SLOTS: usize = 512;

/// See the module documentation.
#[derive(Debug)]
pub struct Outbound {
    /// The allowed targets.
    pub targets: Targets,
    slots: Arc<Semaphore>,
}

/// A slot for one concurrent request.
#[derive(Debug)]
pub(super) struct Slot(#[expect(dead_code, reason = "dropping it is what matters")] Option<OwnedSemaphorePermit>);

impl Default for Outbound {
    fn default() -> Self {
        Self::new(Targets::default())
    }
}

impl Outbound {
    /// Requests to these targets.
    #[must_use]
    pub fn new(targets: Targets) -> Self {
        Self { targets, slots: Arc::new(Semaphore::new(SLOTS)) }
    }

    /// Waits for a slot, in the order of the calls.
    pub(super) async fn slot(&self) -> Slot {
        // The semaphore is never closed, so no error can occur.
        Slot(Arc::clone(&self.slots).acquire_owned().await.ok())
    }
}

/// The addresses of a URL that requests may use.
///
/// # Errors
/// No address is allowed, or the name cannot be resolved.
pub(in crate::actors) async fn addresses(targets: &Targets, url: &Url) -> Result<Vec<SocketAddr>, String> {
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Err(format!("`{url}` has no host"));
    };
    let name = host.to_string();
    if let Some(why) = targets.refuses(&name, port) {
        return Err(why);
    }
    let found: Vec<SocketAddr> = match host {
        Host::Ipv4(address) => vec![(IpAddr::from(address), port).into()],
        Host::Ipv6(address) => vec![(IpAddr::from(address), port).into()],
        Host::Domain(domain) => {
            let found = tokio::net::lookup_host((domain, port)).await;
            found.map_err(|e| format!("`{name}` cannot be resolved: {e}"))?.collect()
        }
    };
    let is_known = !found.is_empty();
    let permitted = found.into_iter().filter(|address| targets.permits(&name, address.ip(), port));
    let permitted: Vec<_> = permitted.take(MOST_ADDRESSES).collect();
    if is_known && permitted.is_empty() { Err(targets.because(&name)) } else { Ok(permitted) }
}

/// A request to exactly this address.
pub(in crate::actors) fn to(method: Method, url: &Url, address: SocketAddr) -> ClientRequest {
    CLIENT.with(|client| client.request(method, url.as_str())).address(address).force_close()
}

thread_local! {
    static CLIENT: Client = client();
}

fn client() -> Client {
    let mut tls = crate::tls::client();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connector = Connector::new()
        .rustls_0_23(Arc::new(tls))
        .timeout(CONNECT_TIMEOUT)
        .handshake_timeout(CONNECT_TIMEOUT)
        .conn_keep_alive(Duration::ZERO)
        // The slots limit the number of requests.
        .limit(0);
    Client::builder()
        .connector(connector)
        .disable_timeout()
        .disable_redirects()
        .add_default_header(("User-Agent", concat!("webloom/", env!("CARGO_PKG_VERSION"))))
        .finish()
}
