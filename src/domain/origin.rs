//! Where requests go, and which targets belong to the job.

use super::settings::DownloadSettings;
use super::targets::Rule;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use url::{Host, Url};

/// Maximum number of start origins that are kept per run. Origins beyond this number do not count as the run's own.
pub const MOST_ORIGINS: usize = 256;

/// Scheme, host and port of a URL (RFC 6454).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    is_https: bool,
    host: Host<String>,
    port: u16,
}

/// The index of the byte after `://`. Only the broker's own schemes need to be fast.
pub(super) fn authority_of(url: &str) -> usize {
    if url.starts_with("http://") {
        "http://".len()
    } else if url.starts_with("https://") {
        "https://".len()
    } else {
        url.find("://").map_or(0, |at| at + 3)
    }
}

impl Origin {
    /// The origin of an `http` or `https` URL.
    #[must_use]
    pub fn of(url: &Url) -> Option<Self> {
        let is_https = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        Some(Self { is_https, host: url.host()?.to_owned(), port: url.port_or_known_default()? })
    }

    /// The text before the path of a canonical URL, with a user and a password if it has them: another spelling of its origin.
    #[must_use]
    pub fn text_of(canonical_url: &str) -> &str {
        let authority = authority_of(canonical_url);
        // A search for a single byte beats `str::find` on a text as short as a host.
        let end = canonical_url.bytes().skip(authority).position(|byte| byte == b'/').map_or(canonical_url.len(), |at| authority + at);
        &canonical_url[..end]
    }

    /// Whether data for this origin may also go to the other: it is the same origin, or the same host at the default TLS port, where most
    /// sites redirect from the default HTTP port.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let is_upgrade = !self.is_https && self.port == 80 && other.is_https && other.port == 443;
        self.host == other.host && (self.is_https == other.is_https && self.port == other.port || is_upgrade)
    }

    fn is_at(&self, url: &Url, port: u16) -> bool {
        self.has_port(port) && url.host().is_some_and(|host| host == self.host)
    }

    /// HTTP and HTTPS at their default ports count as one place.
    fn has_port(&self, port: u16) -> bool {
        self.port == port || matches!((self.port, port), (80, 443) | (443, 80))
    }

    /// The addresses that are known from the host text alone.
    fn addresses(&self) -> Vec<IpAddr> {
        match &self.host {
            Host::Ipv4(address) => vec![(*address).into()],
            Host::Ipv6(address) => vec![(*address).into()],
            Host::Domain(name) if is_localhost(name) => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            Host::Domain(_) => Vec::new(),
        }
    }
}

/// Whether a name means this machine (RFC 6761, section 6.3).
#[must_use]
pub fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual) = if self.is_https { ("https", 443) } else { ("http", 80) };
        if self.port == usual { write!(f, "{scheme}://{}", self.host) } else { write!(f, "{scheme}://{}:{}", self.host, self.port) }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let url = Url::parse(&text).map_err(D::Error::custom)?;
        Self::of(&url).ok_or_else(|| D::Error::custom("expected the origin of an http or https URL"))
    }
}

#[cfg(feature = "broker")]
impl schemars::JsonSchema for Origin {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Origin".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^https?://" })
    }
}

/// Whether the run began at the target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Began {
    /// The broker is an older version that does not report where the run began.
    Unknown,
    /// Taken from the first requests of the run.
    Known {
        /// They contain this host and port.
        by_name: bool,
        /// Addresses that they contain with this port.
        addresses: Vec<IpAddr>,
    },
}

impl Began {
    /// For a request without a run: only the owner's settings apply.
    #[must_use]
    pub const fn elsewhere() -> Self {
        Self::Known { by_name: false, addresses: Vec::new() }
    }

    /// For the host and port of a URL.
    #[must_use]
    pub fn at(origins: Option<&[Origin]>, url: &Url) -> Self {
        let Some(origins) = origins else { return Self::Unknown };
        let port = url.port_or_known_default().unwrap_or_default();
        let by_name = origins.iter().any(|origin| origin.is_at(url, port));
        let addresses = origins.iter().filter(|origin| origin.has_port(port)).flat_map(Origin::addresses).collect();
        Self::Known { by_name, addresses }
    }
}

/// The targets that the cookies and headers of a job are sent to.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// The targets that the job lists.
    listed: Option<Vec<HostPattern>>,
    /// Without a list: where the run began; `None` if unknown.
    origins: Option<Arc<[Origin]>>,
}

#[derive(Debug, Clone)]
enum HostPattern {
    All,
    Like(Rule),
}

fn patterns(hosts: &[String]) -> Result<Vec<HostPattern>, String> {
    let pattern = |text: &String| match text.trim() {
        "*" => Ok(HostPattern::All),
        text => text.parse().map(HostPattern::Like).map_err(|_| {
            format!("`{}` is not a host: expected example.com, *.example.com, host:port or *", text.chars().take(80).collect::<String>())
        }),
    };
    hosts.iter().map(pattern).collect()
}

/// Checks a list of hosts (`Site.hosts`).
///
/// # Errors
/// One of them is not a host.
pub fn check_hosts(hosts: &[String]) -> Result<(), String> {
    if hosts.len() > MOST_ORIGINS {
        return Err(format!("must be at most {MOST_ORIGINS} hosts"));
    }
    patterns(hosts).map(drop)
}

impl Scope {
    /// The scope of a job's settings.
    ///
    /// # Errors
    /// A listed host is invalid.
    pub fn of(settings: &DownloadSettings) -> Result<Self, String> {
        let listed = settings.site.hosts.as_deref().map(patterns).transpose()?;
        Ok(Self { listed, origins: settings.start_origins.clone() })
    }

    /// Whether they are sent to `target` if the request was for `asked`.
    #[must_use]
    pub fn holds(&self, target: &Origin, asked: &Origin) -> bool {
        if let Some(listed) = &self.listed {
            let host = target.host.to_string();
            return listed.iter().any(|pattern| match pattern {
                HostPattern::All => true,
                HostPattern::Like(rule) => rule.is_written(&host, target.port),
            });
        }
        match &self.origins {
            Some(origins) => origins.iter().any(|origin| origin.covers(target)),
            // The behaviour before brokers sent the start of a run, except for redirects.
            None => asked.covers(target),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        Origin::of(&Url::parse(text).expect("a url")).expect("an origin")
    }

    #[test]
    fn an_origin_goes_there_and_back() {
        for text in ["http://a.example", "https://a.example:80", "http://127.0.0.1:8000", "http://[::1]:1"] {
            assert_eq!(origin(text).to_string(), text);
            assert_eq!(serde_json::from_value::<Origin>(serde_json::json!(text)).expect("an origin"), origin(text));
        }
        for (url, text) in [("http://u:p@a/x/y", "http://u:p@a"), ("http://a:1/", "http://a:1"), ("http://a/?q=http://b/", "http://a")] {
            assert_eq!(Origin::text_of(url), text);
            assert_eq!(origin(text), origin(url));
        }
    }

    #[test]
    fn what_is_meant_for_one_origin_goes_to_no_other() {
        let covers = |a: &str, b: &str| origin(a).covers(&origin(b));
        assert!(covers("http://a/", "http://A/x") && covers("http://a/", "https://a/"));
        for other in ["http://b/", "http://a:81/", "https://a:80/", "http://sub.a/"] {
            assert!(!covers("http://a/", other), "{other}");
        }
        assert!(!covers("https://a/", "http://a/"), "not in clear what was meant to be hidden");
        assert!(!covers("http://127.0.0.1/", "http://127.0.0.2/"));
    }

    #[test]
    fn the_scope_is_where_the_run_began_unless_the_job_lists_hosts() {
        let mut settings = DownloadSettings { start_origins: Some([origin("http://a/")].into()), ..DownloadSettings::default() };
        let holds = |settings: &DownloadSettings, target: &str| {
            Scope::of(settings).expect("a scope").holds(&origin(target), &origin("http://elsewhere/"))
        };
        assert!(holds(&settings, "http://a/x") && holds(&settings, "https://a/"));
        assert!(!holds(&settings, "http://elsewhere/") && !holds(&settings, "http://a:8080/"));
        settings.site.hosts = Some(["*.b.example", "c:81"].map(str::to_owned).to_vec());
        assert!(holds(&settings, "http://x.b.example:9/") && holds(&settings, "http://c:81/"));
        assert!(!holds(&settings, "http://a/") && !holds(&settings, "http://c/") && !holds(&settings, "http://b.example/"));
        settings.site.hosts = Some(vec!["*".to_owned()]);
        assert!(holds(&settings, "http://anywhere/"));
        settings.site.hosts = Some(Vec::new());
        assert!(!holds(&settings, "http://a/"), "an empty list lists nothing");
        settings = DownloadSettings::default();
        assert!(holds(&settings, "http://elsewhere/y") && !holds(&settings, "http://a/"));
        assert!(check_hosts(&["http://x/".to_owned()]).is_err() && check_hosts(&["a".to_owned()]).is_ok());
    }

    #[test]
    fn a_run_began_at_a_name_or_at_its_address() {
        let origins = [origin("http://localhost:8000/"), origin("http://10.0.0.1/"), origin("https://intranet/")];
        let url = |host: &str, port: u16| Url::parse(&format!("http://{host}:{port}/")).expect("a url");
        let at = |host: &str, port| match Began::at(Some(&origins), &url(host, port)) {
            Began::Known { by_name, addresses } => (by_name, addresses.iter().map(ToString::to_string).collect::<Vec<_>>()),
            Began::Unknown => panic!("it is known"),
        };
        assert_eq!(at("localhost", 8000), (true, vec!["127.0.0.1".to_owned(), "::1".to_owned()]));
        assert_eq!(at("other", 8000), (false, vec!["127.0.0.1".to_owned(), "::1".to_owned()]));
        assert_eq!(at("localhost", 8001), (false, vec![]));
        assert_eq!(at("intranet", 80), (true, vec!["10.0.0.1".to_owned()]));
        assert_eq!(Began::at(None, &url("x", 1)), Began::Unknown);
    }
}
