//! How the requests of a run are downloaded: read from a job's properties once, when the run begins.

use super::canonical::Canonicalisation;
use super::guards::Guards;
use super::origin::Origin;
use super::redirect::Redirects;
use super::sites::SitePolicy;
use super::task::{Strategy, TaskSettings};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use url::Url;

/// Settings sent with every block of a run to the node that downloads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DownloadSettings {
    /// Concurrent downloads within one block.
    pub thread_num: u32,
    /// A regular expression; if a body matches it, the node changes its IP address and retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_ip_pattern: Option<String>,
    /// Settings for the whole site.
    pub site: SiteSettings,
    /// A `Cookie` header: `name=value; name=value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookies: Option<String>,
    /// When the cookies are sent.
    pub cookie_mode: CookieMode,
    /// Milliseconds between the starts of two requests of this run to one host on one node; 0 for none.
    pub sleep_time: u64,
    /// Timeout of one try in milliseconds, including the body.
    pub timeout: u64,
    /// Maximum size of a body in bytes, after decompression.
    pub max_body: u64,
    /// Maximum number of redirects to follow; 0 returns the redirect itself.
    pub max_redirects: u32,
    /// Retries after the first try; `None`: the agent's own setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_download: Option<u32>,
    /// Where the run began: the origins of its first requests. `None`: an older broker, which does not send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<Vec<Origin>>"))]
    pub start_origins: Option<Arc<[Origin]>>,
}

impl Default for DownloadSettings {
    fn default() -> Self {
        Self {
            thread_num: 1,
            change_ip_pattern: None,
            site: SiteSettings::default(),
            cookies: None,
            cookie_mode: CookieMode::Initial,
            sleep_time: 0,
            timeout: 30_000,
            max_body: 16 << 20,
            max_redirects: 10,
            retry_download: None,
            start_origins: None,
        }
    }
}

/// Settings for all requests of a run to its site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SiteSettings {
    /// The `User-Agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// Default headers for each request to its hosts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Hosts that get the job's headers and cookies: `example.com`, `*.example.com`, `host:port`, `*`. None: where the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// A proxy for all requests: `http://`, `https://`, `socks5://` (the node resolves names) or `socks5h://` (the proxy does).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The character encoding of its pages, if it overrides what the pages declare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
}

/// Supported proxy schemes.
pub const PROXY_SCHEMES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

/// Checks the address of a proxy. Without a scheme it is `host:port` of an HTTP proxy. A node must never bypass a proxy that it
/// does not support: that would reveal the address that the proxy should hide.
///
/// # Errors
/// It is not an address, its scheme is not one of [`PROXY_SCHEMES`], or it has no host.
pub fn check_proxy(text: &str) -> Result<Url, String> {
    let text = text.trim();
    let expected = "http://, https://, socks5:// or socks5h:// with a host and perhaps a port is expected";
    let url = match text.split_once("://") {
        Some((scheme, _)) if !PROXY_SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)) => {
            let shown: String = scheme.chars().take(20).collect();
            return Err(format!("the scheme `{shown}` of the proxy is not supported: {expected}"));
        }
        Some(_) => Url::parse(text),
        None => Url::parse(&format!("http://{text}")),
    };
    // The text may contain a password, so it is not shown.
    let url = url.map_err(|e| format!("the address of the proxy cannot be read ({e}): {expected}"))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err(format!("the proxy has no host: {expected}"));
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(format!("the address of a proxy has no path: {expected}"));
    }
    Ok(url)
}

/// The `User-Agent` of a program that has no other: the project, and how to contact the user.
#[must_use]
pub fn user_agent(contact: Option<&str>) -> String {
    let contact = contact.map(|contact| format!(" (+{contact})")).unwrap_or_default();
    format!("webloom/{}{contact}", env!("CARGO_PKG_VERSION"))
}

/// Checks a contact for owners of sites.
///
/// # Errors
/// It is neither the URL of a page nor a mail address, or could not stand in a `User-Agent`.
pub fn check_contact(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_page = Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https" | "mailto"));
    let is_mail = text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
    let is_one_word = !text.contains([' ', '(', ')', ';', '"', '\\']) && text.bytes().all(|b| b.is_ascii_graphic());
    let expected = "a page (https://example.com/crawler) or a mail address is expected";
    if is_one_word && (is_page || is_mail) { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

/// The two cookie modes of the seeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum CookieMode {
    /// Set before the first request; then the site may change them.
    #[default]
    Initial,
    /// The same on every request, whatever the site sets.
    Fixed,
}

/// How the frontier of a run behaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSettings {
    /// Requests in a block.
    pub block_size: u32,
    /// The maximum depth of a request; deeper ones are counted and dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_limit: Option<u32>,
    /// The maximum number of requests of the run; later ones are counted and dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u64>,
    /// Maximum number of attempts of a block before its requests are given up.
    pub block_attempts: u32,
    /// Milliseconds until a block that a worker did not acknowledge is delivered again.
    pub ack_wait: u64,
    /// Milliseconds that a node may hold a block without reporting it.
    pub lease: u64,
    /// The run rejects pushes while it has this many requests without a result.
    pub max_pending: u64,
    /// The maximum number of requests to one site; later ones are counted and dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_site: Option<u64>,
    /// The run ends after it has downloaded this many bytes of bodies, decompressed. A bound, not exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Limits against URLs that look like a trap.
    pub guards: Guards,
    /// Which URLs count as the same page.
    #[serde(skip_serializing_if = "Canonicalisation::is_none")]
    pub canonicalisation: Canonicalisation,
    /// Who requests the targets of redirects.
    #[serde(default = "Redirects::of_old_run")]
    pub redirects: Redirects,
    /// How its sites are paced.
    pub sites: SitePolicy,
    /// Only nodes of this group; compared without case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_group: Option<String>,
    /// Only nodes whose operating system contains this text; compared without case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Which worker may take the run: strategy, key, group, version and tags, as for a task.
    #[serde(skip_serializing_if = "is_any_worker")]
    pub workers: Arc<TaskSettings>,
}

impl QueueSettings {
    /// Any worker, the least recently used.
    pub(super) fn any_worker() -> TaskSettings {
        TaskSettings { strategy: Strategy::LeastRecentlyUsed, ..TaskSettings::default() }
    }
}

fn is_any_worker(workers: &TaskSettings) -> bool {
    *workers == QueueSettings::any_worker()
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            block_size: 50,
            depth_limit: None,
            max_requests: None,
            max_pending: 10_000_000,
            max_per_site: None,
            max_bytes: None,
            guards: Guards::default(),
            canonicalisation: Canonicalisation::default(),
            block_attempts: 10,
            ack_wait: 300_000,
            lease: 600_000,
            redirects: Redirects::default(),
            sites: SitePolicy::default(),
            node_group: None,
            os: None,
            workers: Arc::new(Self::any_worker()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_of_a_worker_is_stored_only_if_it_is_not_the_usual_one() {
        let stored = |strategy| {
            let workers = Arc::new(TaskSettings { strategy, ..TaskSettings::default() });
            let settings = QueueSettings { workers, ..QueueSettings::default() };
            let text = serde_json::to_value(&settings).expect("JSON");
            assert_eq!(serde_json::from_value::<QueueSettings>(text.clone()).expect("read"), settings);
            text.get("workers").cloned()
        };
        assert_eq!(stored(Strategy::LeastRecentlyUsed), None);
        assert!(stored(Strategy::RoundRobin).is_some() && stored(Strategy::Sticky).is_some());
    }

    #[test]
    fn a_contact_is_a_page_or_an_address() {
        for good in ["https://example.com/bot", "mailto:a@b.c", " me@example.com "] {
            assert_eq!(check_contact(good).as_deref(), Ok(good.trim()));
        }
        for bad in ["", "me", "javascript:x", "a@b", "https://a b/", "a@b.c)", "b\u{e9}@c.d", "a@b.c\nx: y"] {
            assert!(check_contact(bad).is_err(), "{bad}");
        }
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!([user_agent(None), user_agent(Some("a@b.c"))], [format!("webloom/{version}"), format!("webloom/{version} (+a@b.c)")]);
    }

    #[test]
    fn a_proxy_that_cannot_be_spoken_to_is_refused() {
        for good in ["http://p:3128", "HTTPS://p", "socks5://u:p@10.0.0.1:1080/", "socks5h://[::1]:9050", "p.example:3128", " http://p "] {
            assert!(check_proxy(good).is_ok(), "{good}: {:?}", check_proxy(good));
        }
        for bad in [
            "gopher://x",
            "tor://127.0.0.1:9050",
            "socks://x:1",
            "socks4://x:1",
            "socks4a://x:1",
            "ftp://x",
            "file:///x",
            "socks5://",
            "http://",
            "://x",
            "",
            "socks5:x",
            "http://p:99999",
            "http://p/x",
            "http://p?x",
            "direct",
            "a b",
        ] {
            // A bare word is a host.
            assert_eq!(check_proxy(bad).is_err(), bad != "direct", "{bad}");
        }
        let secret = check_proxy("tor://me:secret7@x").expect_err("not supported");
        assert!(secret.contains("tor") && !secret.contains("secret7"), "{secret}");
    }
}
