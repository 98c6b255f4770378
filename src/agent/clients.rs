//! HTTP clients: one for each host of each run, with its own connections and cookies.
//!
//! Hosts are forgotten when they are too many or were idle for long. Connections are closed earlier: an idle connection is an open file
//! here and at the site.

use super::content::ACCEPTED;
use super::failure::fetch_error;
use super::guard::{Guard, Place, Resolver};
use crate::config::agent::AgentConfig;
use crate::domain::download_targets::DownloadTargets;
use crate::domain::ids::Identity;
use crate::domain::origin::Began;
use crate::domain::settings::{CookieMode, DownloadSettings, user_agent};
use crate::names::Names;
use crate::protocol::node::{FetchError, FetchErrorKind};
use crate::tls;
use lru::LruCache;
use reqwest::cookie::{CookieStore as _, Jar};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue, SET_COOKIE, USER_AGENT};
use reqwest::{Client, Proxy, Url, redirect};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::time::Instant;

/// Connections that may be open, and hosts whose cookies are kept, besides those for the sites with a pace.
const MORE: usize = 1_024;
/// Clients of one host: for its ports, and for the proxies that lead to it.
const MOST_CLIENTS: usize = 16;
/// Long, because a client's cookies are lost with it.
const SITE_IDLE: Duration = Duration::from_secs(600);
const CONNECTION_IDLE: Duration = Duration::from_secs(30);
/// Cookies of a site that are kept; others are ignored. Browsers keep as many of a domain. A cookie without a path counts once for each
/// folder of the site.
const MOST_COOKIES: usize = 180;
/// Longer `Set-Cookie` headers are ignored: browsers permit 4,096 bytes for a cookie, and 1,024 for an attribute.
const MOST_COOKIE_BYTES: usize = 8_192;
/// Limit of response headers; the client's default of 100 is less than some sites send.
const MOST_HEADERS: usize = 512;
/// The same limit for HTTP/2, in bytes.
const MOST_HEADER_BYTES: u32 = 512 << 10;

type SitesByRunAndHost = LruCache<(Identity, Box<str>), Rc<Site>>;

/// All clients of the agent.
pub struct Clients {
    sites: RefCell<SitesByRunAndHost>,
    /// The sites that may have open connections.
    connected: RefCell<SitesByRunAndHost>,
    /// Upper limit of the connections that `connected` have open.
    open: Cell<usize>,
    most_open: usize,
    all: Arc<Common>,
}

/// What all clients have in common.
#[derive(Debug)]
pub struct Common {
    /// The targets that requests may go to.
    pub targets: Arc<DownloadTargets>,
    names: Arc<Names>,
    /// Headers of requests that do not set them.
    pub headers: HeaderMap,
}

/// A request that uses a connection of a site.
pub struct InUse(Rc<Site>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
    }
}

impl Clients {
    /// An empty cache, of an agent with these settings.
    #[must_use]
    pub fn new(config: &AgentConfig) -> Self {
        let max_sites = config.max_sites as usize;
        let names = Arc::new(Names::new(config.name_servers.clone()));
        let (targets, headers) = (Arc::new(config.targets.clone()), default_headers(config.contact.as_deref()));
        let sites = NonZeroUsize::new(MORE + 2 * max_sites).expect("not zero");
        Self {
            sites: RefCell::new(LruCache::sparse(sites)),
            connected: RefCell::new(LruCache::unbounded()),
            open: Cell::new(0),
            most_open: MORE + max_sites,
            all: Arc::new(Common { targets, names, headers }),
        }
    }

    /// What all clients have in common.
    pub fn common(&self) -> &Arc<Common> {
        &self.all
    }

    /// The state of the host of `url` in this run.
    pub fn site(&self, run: Identity, settings: &DownloadSettings, url: &Url) -> Rc<Site> {
        let key = (run, Box::from(url.host_str().unwrap_or_default()));
        let mut sites = self.sites.borrow_mut();
        let site = sites.get_or_insert(key, || Rc::new(Site::new(settings)));
        site.last_used.set(Instant::now());
        site.clone()
    }

    /// Records that a request to this site is about to use a connection. If too many could be open then, those of the sites that were used
    /// least recently are closed.
    #[must_use]
    pub fn connect(&self, run: Identity, url: &Url, site: &Rc<Site>) -> InUse {
        let mut connected = self.connected.borrow_mut();
        let key = (run, Box::from(url.host_str().unwrap_or_default()));
        if !connected.get(&key).is_some_and(|known| Rc::ptr_eq(known, site))
            && let Some(forgotten) = connected.put(key, site.clone())
        {
            self.open.set(self.open.get() - forgotten.disconnect());
        }
        let requests = site.requests.get() + 1;
        site.requests.set(requests);
        let more = requests.saturating_sub(site.most_requests.get());
        site.most_requests.set(site.most_requests.get() + more);
        self.open.set(self.open.get() + more);
        self.close(&mut connected, |_| self.open.get() > self.most_open);
        InUse(site.clone())
    }

    /// Closes the connections of the sites that were used least recently, as long as `goes_on` and except of those in use.
    fn close(&self, connected: &mut SitesByRunAndHost, goes_on: impl Fn(&Site) -> bool) {
        for _ in 0..connected.len() {
            if !connected.peek_lru().is_some_and(|(_, site)| goes_on(site)) {
                break;
            }
            let Some((key, site)) = connected.pop_lru() else { break };
            if site.requests.get() > 0 {
                connected.put(key, site);
            } else {
                self.open.set(self.open.get() - site.disconnect());
            }
        }
    }

    /// Drops what was idle for long before `now`.
    pub fn evict_idle(&self, now: Instant) {
        let is_idle = |site: &Site, time| now.duration_since(site.last_used.get()) > time;
        let mut connected = self.connected.borrow_mut();
        self.close(&mut connected, |site| is_idle(site, CONNECTION_IDLE));
        let mut sites = self.sites.borrow_mut();
        while sites.peek_lru().is_some_and(|(_, site)| is_idle(site, SITE_IDLE)) {
            sites.pop_lru();
        }
    }

    /// Upper limit of the open connections.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Number of cached sites.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.sites.borrow().len()
    }
}

/// The state of one host in one run.
pub struct Site {
    /// The cookies that the site may change; `None` if the run's cookies are fixed.
    jar: Option<Jar>,
    /// What identifies each of these cookies.
    cookies: RefCell<HashSet<String>>,
    /// Hosts for which the run's cookies are already in the jar.
    given: RefCell<Vec<Box<str>>>,
    clients: RefCell<Vec<(Needs, Client)>>,
    /// Requests in progress.
    requests: Cell<usize>,
    /// The most of them at once, and so the most connections that the clients have open.
    most_requests: Cell<usize>,
    /// Whether the host name has resolved to a public address.
    was_public: Arc<AtomicBool>,
    next_start: Cell<Option<Instant>>,
    last_used: Cell<Instant>,
}

/// The key of a client. Its connections go to one port of its host, so that each port is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Number of IP address changes. After a change, new connections use the new address; the cookies stay.
    pub address: u64,
    /// The target.
    pub target: Place,
    /// Whether the run began there.
    pub began: Began,
    /// The proxy, if any.
    pub proxy: Option<Url>,
}

impl Site {
    fn new(settings: &DownloadSettings) -> Self {
        Self {
            jar: (settings.cookie_mode == CookieMode::Initial).then(Jar::default),
            cookies: RefCell::default(),
            given: RefCell::default(),
            clients: RefCell::default(),
            requests: Cell::new(0),
            most_requests: Cell::new(0),
            was_public: Arc::default(),
            next_start: Cell::default(),
            last_used: Cell::new(Instant::now()),
        }
    }

    /// Upper limit of the open connections.
    #[cfg(test)]
    pub fn connections(&self) -> usize {
        self.most_requests.get()
    }

    /// Closes the idle connections. Returns how many were open at most, without those that requests use.
    fn disconnect(&self) -> usize {
        self.clients.borrow_mut().clear();
        self.most_requests.replace(0)
    }

    /// Returns the client, or builds it.
    ///
    /// # Errors
    /// Kind *invalid*: the settings of the run do not make a valid client.
    pub fn client(&self, needs: Needs, all: &Common) -> Result<Client, FetchError> {
        let mut clients = self.clients.borrow_mut();
        if let Some((_, client)) = clients.iter().find(|(known, _)| *known == needs) {
            return Ok(client.clone());
        }
        clients.retain(|(known, _)| known.address == needs.address);
        if clients.len() == MOST_CLIENTS {
            clients.remove(0);
        }
        let guard = Guard {
            names: Arc::clone(&all.names),
            targets: Arc::clone(&all.targets),
            target: needs.target.clone(),
            began: needs.began.clone(),
            was_public: self.was_public.clone(),
            proxy: needs.proxy.as_ref().map(Place::of),
        };
        let client = build(guard, needs.proxy.as_ref(), all.headers.clone()).map_err(|why| fetch_error(FetchErrorKind::Invalid, why))?;
        clients.push((needs, client.clone()));
        Ok(client)
    }

    /// Stores the cookies that a response from this URL sets.
    pub fn keep_cookies(&self, url: &Url, headers: &HeaderMap) {
        let Some(jar) = &self.jar else { return };
        let mut known = self.cookies.borrow_mut();
        let mut is_kept = |line: &HeaderValue| {
            let identity = cookie_identity(&String::from_utf8_lossy(line.as_bytes()), url);
            known.contains(&identity) || known.len() < MOST_COOKIES && known.insert(identity)
        };
        let lines = headers.get_all(SET_COOKIE).iter();
        jar.set_cookies(&mut lines.filter(|line| line.len() <= MOST_COOKIE_BYTES && is_kept(line)), url);
    }

    /// The cookies for a URL. The run's own cookies, `initial`, are sent only if the URL is `in_scope`.
    pub fn cookies(&self, url: &Url, initial: Option<&str>, in_scope: bool) -> Option<HeaderValue> {
        let jar = self.jar.as_ref()?;
        let Some(initial) = initial else { return jar.cookies(url) };
        if in_scope {
            self.give(jar, url, initial);
            return jar.cookies(url);
        }
        // Cookies ignore ports, but the scope does not.
        let value = jar.cookies(url)?;
        let text = value.to_str().ok()?;
        let others: Vec<&str> = text.split("; ").filter(|pair| !pairs(initial).any(|own| own == *pair)).collect();
        HeaderValue::from_str(&others.join("; ")).ok().filter(|value| !value.is_empty())
    }

    /// Puts the run's cookies into the jar, once per host.
    fn give(&self, jar: &Jar, url: &Url, initial: &str) {
        let host = url.host_str().unwrap_or_default();
        let mut given = self.given.borrow_mut();
        if given.iter().any(|known| **known == *host) {
            return;
        }
        given.push(host.into());
        if let Ok(root) = url.join("/") {
            pairs(initial).for_each(|pair| jar.add_cookie_str(pair, &root));
        }
    }

    /// Waits until `sleep_time` milliseconds have passed since the last start. The next start time is reserved at once.
    pub async fn turn(&self, sleep_time: u64) {
        if sleep_time == 0 {
            return;
        }
        let now = Instant::now();
        let start = self.next_start.get().map_or(now, |next| next.max(now));
        self.next_start.set(Some(start + Duration::from_millis(sleep_time)));
        tokio::time::sleep_until(start).await;
    }
}

/// What distinguishes a cookie from others (RFC 6265, section 5.3): its domain, its path and its name.
fn cookie_identity(line: &str, url: &Url) -> String {
    let mut parts = line.split(';').map(|part| part.split_once('=').map_or((part.trim(), ""), |(name, value)| (name.trim(), value.trim())));
    let (name, _) = parts.next().unwrap_or_default();
    let (mut domain, mut path) = (url.host_str().unwrap_or_default(), "");
    for (attribute, value) in parts {
        if attribute.eq_ignore_ascii_case("domain") {
            domain = value;
        } else if attribute.eq_ignore_ascii_case("path") {
            path = value;
        }
    }
    if !path.starts_with('/') {
        path = url.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    }
    format!("{domain} {path} {name}")
}

/// The cookies in the value of a `Cookie` header.
fn pairs(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim).filter(|pair| !pair.is_empty())
}

/// Default headers of every request.
#[must_use]
pub fn default_headers(contact: Option<&str>) -> HeaderMap {
    let agent = HeaderValue::from_str(&user_agent(contact)).expect("a contact is checked to be a word of ASCII characters");
    let values = [(ACCEPT, HeaderValue::from_static("*/*")), (USER_AGENT, agent), (ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED))];
    values.into_iter().collect()
}

fn build(guard: Guard, proxy: Option<&Url>, headers: HeaderMap) -> Result<Client, String> {
    let mut tls = tls::client();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .http2_max_header_list_size(MOST_HEADER_BYTES)
        .default_headers(headers)
        .dns_resolver(Resolver(Arc::new(guard)))
        // The agent follows redirects itself, hop by hop, and checks each target.
        .redirect(redirect::Policy::none())
        .referer(false)
        .tcp_nodelay(true)
        .pool_idle_timeout(CONNECTION_IDLE)
        // Sites send malformed responses; accept what can be parsed without ambiguity.
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_max_headers(MOST_HEADERS)
        // Only the job sets a proxy, not the environment of the agent.
        .no_proxy();
    if let Some(proxy) = proxy {
        builder = builder.proxy(Proxy::all(proxy.clone()).map_err(|e| format!("invalid proxy: {}", e.without_url()))?);
    }
    builder.build().map_err(|e| format!("cannot build an HTTP client from the settings: {e}"))
}
