//! HTTP clients: one for each host of each run, with its own connections and its own cookies.
//!
//! The cache is bounded twice: by number, and by how long a client was not used.

use super::asked::header;
use super::failure::fetch_error;
use crate::domain::ids::Identity;
use crate::domain::settings::{CookieMode, DownloadSettings};
use crate::protocol::node::{FetchError, FetchErrorKind};
use crate::tls;
use lru::LruCache;
use reqwest::cookie::Jar;
use reqwest::header::{COOKIE, HeaderMap, HeaderValue, USER_AGENT};
use reqwest::{Client, Proxy, Url, redirect};
use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const MOST_SITES: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");
/// Long, since a client's cookies go with it.
const SITE_IDLE: Duration = Duration::from_secs(600);
const CONNECTION_IDLE: Duration = Duration::from_secs(30);
/// Headers of an answer; the client's own limit of 100 is below what some sites send.
const MOST_HEADERS: usize = 512;
const DEFAULT_USER_AGENT: &str = concat!("webloom/", env!("CARGO_PKG_VERSION"));

type SitesByRunAndHost = LruCache<(Identity, Box<str>), Rc<Site>>;

/// All clients of the agent.
pub struct Clients {
    sites: RefCell<SitesByRunAndHost>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { sites: RefCell::new(LruCache::sparse(MOST_SITES)) }
    }
}

impl Clients {
    /// The host of `url` as this run sees it.
    pub fn site(&self, run: Identity, settings: &DownloadSettings, url: &Url) -> Rc<Site> {
        let key = (run, Box::from(url.host_str().unwrap_or_default()));
        let mut sites = self.sites.borrow_mut();
        let site = sites.get_or_insert(key, || Rc::new(Site::new(settings, url)));
        site.last_used.set(Instant::now());
        site.clone()
    }

    /// Lets go of clients that were not used for long before `now`.
    pub fn evict_idle(&self, now: Instant) {
        let mut sites = self.sites.borrow_mut();
        while sites.peek_lru().is_some_and(|(_, site)| now.duration_since(site.last_used.get()) > SITE_IDLE) {
            sites.pop_lru();
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.sites.borrow().len()
    }
}

/// One host as one run sees it.
pub struct Site {
    /// Cookies that the site may change; `None` if the run's are fixed.
    jar: Option<Arc<Jar>>,
    /// The client, and for which address of this machine it was made.
    client: RefCell<Option<(u64, Client)>>,
    next_start: Cell<Option<Instant>>,
    last_used: Cell<Instant>,
}

impl Site {
    fn new(settings: &DownloadSettings, url: &Url) -> Self {
        let jar = (settings.cookie_mode == CookieMode::Initial).then(|| {
            let jar = Jar::default();
            if let Ok(root) = url.join("/") {
                for pair in settings.cookies.iter().flat_map(|text| text.split(';')).map(str::trim).filter(|pair| !pair.is_empty()) {
                    jar.add_cookie_str(pair, &root);
                }
            }
            Arc::new(jar)
        });
        Self { jar, client: RefCell::default(), next_start: Cell::default(), last_used: Cell::new(Instant::now()) }
    }

    /// The client. After a change of the IP address (`address` counts them) it is a new one, whose connections begin at
    /// the new address; the cookies stay.
    ///
    /// # Errors
    /// Kind *invalid*: the run's settings make no client.
    pub fn client(&self, settings: &DownloadSettings, address: u64) -> Result<Client, FetchError> {
        let mut slot = self.client.borrow_mut();
        match &*slot {
            Some((made_for, client)) if *made_for == address => Ok(client.clone()),
            _ => {
                let client = build(settings, self.jar.clone()).map_err(|why| fetch_error(FetchErrorKind::Invalid, why))?;
                *slot = Some((address, client.clone()));
                Ok(client)
            }
        }
    }

    /// Waits until `sleep_time` milliseconds have passed since the last start. The place in the row is taken at once.
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

fn build(settings: &DownloadSettings, jar: Option<Arc<Jar>>) -> Result<Client, String> {
    let most = settings.max_redirects as usize;
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls::client())
        .default_headers(default_headers(settings)?)
        .redirect(if most == 0 { redirect::Policy::none() } else { redirect::Policy::limited(most) })
        .referer(false)
        .tcp_nodelay(true)
        .pool_idle_timeout(CONNECTION_IDLE)
        // Sites send all sorts of things. What can be understood without doubt is understood.
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_max_headers(MOST_HEADERS)
        // A proxy is the job's word, not that of the environment which the agent was started in.
        .no_proxy();
    if let Some(jar) = jar {
        builder = builder.cookie_provider(jar);
    }
    if let Some(proxy) = settings.site.proxy.as_deref().filter(|proxy| !proxy.is_empty()) {
        builder = builder.proxy(Proxy::all(proxy).map_err(|e| format!("site.proxy: {}", e.without_url()))?);
    }
    builder.build().map_err(|e| format!("the settings make no HTTP client: {e}"))
}

fn default_headers(settings: &DownloadSettings) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(DEFAULT_USER_AGENT));
    for (name, value) in &settings.site.headers {
        let (name, value) = header(name, value).map_err(|why| format!("site.headers: {why}"))?;
        headers.insert(name, value);
    }
    if let Some(agent) = &settings.site.user_agent {
        let value = HeaderValue::from_bytes(agent.as_bytes()).map_err(|_| "site.userAgent cannot be sent".to_owned())?;
        headers.insert(USER_AGENT, value);
    }
    if let (CookieMode::Fixed, Some(cookies)) = (settings.cookie_mode, &settings.cookies) {
        let value = HeaderValue::from_bytes(cookies.as_bytes()).map_err(|_| "cookies cannot be sent".to_owned())?;
        headers.insert(COOKIE, value);
    }
    Ok(headers)
}
