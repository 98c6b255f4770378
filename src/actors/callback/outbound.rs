//! What all requests to addresses that users name share, callbacks and webhooks: where they may go, by which client, and
//! how many callbacks are under way at a time.
//!
//! Names are resolved here and a request is made to the very address that was judged, so that a name which leads
//! elsewhere a moment later gains nothing. Connections are not kept: each request is judged anew, and none fails since the
//! receiver closed an old one.

use crate::domain::targets::Targets;
use awc::http::Method;
use awc::{Client, ClientRequest, Connector};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::{Host, Url};

/// Addresses of a name that are tried, one after the other.
const MOST_ADDRESSES: usize = 4;
/// For a connection, and for its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests under way at a time: each is an open file, and a broker has more to open than these. A run that finds no slot
/// is *pending* until there is one.
const SLOTS: usize = 512;

/// See the module's text.
#[derive(Debug)]
pub struct Outbound {
    /// Where requests may go.
    pub targets: Targets,
    slots: Arc<Semaphore>,
}

/// A place among the requests that are under way.
#[derive(Debug)]
pub(super) struct Slot(#[expect(dead_code, reason = "dropping it is what matters")] Option<OwnedSemaphorePermit>);

impl Default for Outbound {
    fn default() -> Self {
        Self::new(Targets::default())
    }
}

impl Outbound {
    /// To these targets.
    #[must_use]
    pub fn new(targets: Targets) -> Self {
        Self { targets, slots: Arc::new(Semaphore::new(SLOTS)) }
    }

    /// Waits for a slot; first come, first served.
    pub(super) async fn slot(&self) -> Slot {
        // It is never closed, so there is no error that could mean anything.
        Slot(Arc::clone(&self.slots).acquire_owned().await.ok())
    }
}

/// The addresses of a URL that a request may go to.
///
/// # Errors
/// None of them is permitted, or the name leads nowhere.
pub(in crate::actors) async fn addresses(targets: &Targets, url: &Url) -> Result<Vec<SocketAddr>, String> {
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Err(format!("`{url}` names no host"));
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

/// A request to this address, and to no other.
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
        // How many are under way is the business of the slots.
        .limit(0);
    Client::builder()
        .connector(connector)
        .disable_timeout()
        .disable_redirects()
        .add_default_header(("User-Agent", concat!("webloom/", env!("CARGO_PKG_VERSION"))))
        .finish()
}
