//! Which site a URL belongs to.

use crate::domain::download_targets::is_public;
use crate::domain::origin::is_localhost;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use url::{Host, Url};

/// How requests are grouped into sites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum SiteBy {
    /// By host name, for all ports.
    #[default]
    Host,
    /// By registrable domain: `example.co.uk` for `www.example.co.uk` (Public Suffix List).
    Domain,
    /// By the IP address of the host.
    Ip,
}

impl SiteBy {
    const ALL: [Self; 3] = [Self::Host, Self::Domain, Self::Ip];

    /// The name as stored and sent.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Domain => "domain",
            Self::Ip => "ip",
        }
    }
}

impl FromStr for SiteBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|by| by.name().eq_ignore_ascii_case(text.trim()));
        found.ok_or_else(|| format!("unknown kind of site `{}`: expected host, domain or ip", text.chars().take(40).collect::<String>()))
    }
}

/// The host of a URL in the form used in site names: lower case, without a trailing dot, an IPv6 address without brackets. Empty
/// if the URL has no host.
#[must_use]
pub fn host_of(url: &Url) -> String {
    match url.host() {
        Some(Host::Domain(name)) => name.trim_end_matches('.').to_ascii_lowercase(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => String::new(),
    }
}

/// The name of the site of a URL. `address` is the address of its host, if known; until then a site by address uses the host name.
///
/// Names of different kinds may be equal (`example.com` as a host and as a domain): then they share one site and one pace.
#[must_use]
pub fn site_key(url: &Url, by: SiteBy, address: Option<IpAddr>) -> String {
    let host = host_of(url);
    match (by, url.host()) {
        (SiteBy::Domain, Some(Host::Domain(_))) => match registrable(&host) {
            Some(domain) => domain.to_owned(),
            None => host,
        },
        (SiteBy::Ip, Some(Host::Domain(_))) => address.map_or(host, |address| canonical(address).to_string()),
        _ => host,
    }
}

/// The host in the name of a site. A site name is a host, an address or, for a site without a pace, an origin.
#[must_use]
pub fn host_of_name(name: &str) -> String {
    if !name.contains("://") {
        return name.to_owned();
    }
    Url::parse(name).map_or_else(|_| name.to_owned(), |url| host_of(&url))
}

/// Whether a hold of one name applies to a site: a hold of a host applies to all its origins too, and a hold of an origin applies
/// to the whole host if the host is one site.
#[must_use]
pub fn is_hold_of(held: &str, site: &str) -> bool {
    held == site || host_of_name(held) == site || host_of_name(site) == held
}

/// The longest name in the DNS, and its longest part (RFC 1035).
const MOST_HOST: usize = 253;
const MOST_LABEL: usize = 63;

/// Parses the name of a site from user input: a host, an address or an origin.
///
/// # Errors
/// The text is none of them; the error describes the expected form.
pub fn site_name(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "a host (example.org), an address or an origin (http://example.org:8080) is expected";
    let text = text.trim();
    let wrong = |why: &str| format!("`{}` is not a site: {why}; {EXPECTED}", text.chars().take(120).collect::<String>());
    let is_plain = |url: &Url| {
        let rest = (url.path(), url.query(), url.fragment(), url.username(), url.password());
        url.has_host() && rest == ("/", None, None, "", None)
    };
    if text.is_empty() {
        return Err(wrong("it is empty"));
    }
    if text.contains("://") {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| wrong("it is not a URL of http or https"))?;
        return if is_plain(&url) {
            Ok(url.origin().ascii_serialization())
        } else {
            Err(wrong("nothing may follow the host and the port"))
        };
    }
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = address.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if text.contains(['/', '?', '#', '@', '*', '\\']) || text.chars().any(char::is_whitespace) {
        return Err(wrong("it contains characters that are not allowed in a host"));
    }
    if text.contains(':') {
        return Err(wrong("a port is allowed in an origin only"));
    }
    let url = Url::parse(&format!("http://{text}/")).ok().filter(|url| is_plain(url) && !host_of(url).is_empty());
    let host = url.map(|url| host_of(&url)).ok_or_else(|| wrong("it is not a host"))?;
    let is_host = host.len() <= MOST_HOST && host.split('.').all(|label| (1..=MOST_LABEL).contains(&label.len()));
    if is_host { Ok(host) } else { Err(wrong("a host has at most 253 characters, and 1 to 63 between two dots")) }
}

/// The registrable domain of a host name; `None` for a public suffix itself, under which anyone may register names, and for this
/// machine's own names. An unlisted last label counts as a suffix, following the rules of the list.
#[cfg(any(feature = "broker", feature = "agent"))]
fn registrable(host: &str) -> Option<&str> {
    if is_localhost(host) { None } else { psl::domain_str(host) }
}

/// The SDK alone requests no sites and does not need the list.
#[cfg(not(any(feature = "broker", feature = "agent")))]
fn registrable(_: &str) -> Option<&str> {
    None
}

/// An IPv4 address written as an IPv6 address is the same site.
fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Suffixes that do not exist in the public DNS (RFC 6761, RFC 6762, RFC 8375, and `internal` by ICANN's decision).
const PRIVATE_NAMES: [&str; 4] = [".test", ".local", ".home.arpa", ".internal"];

/// Whether a host is this machine or in a private network, as far as known: by an address in the URL, by a name that does not exist in the
/// public DNS (`localhost`, `build`, `web.internal`), or by the known address of the host. Such sites have no pace unless a rule sets one.
#[must_use]
pub fn is_private(url: &Url, address: Option<IpAddr>) -> bool {
    let known: IpAddr = match url.host() {
        Some(Host::Ipv4(v4)) => v4.into(),
        Some(Host::Ipv6(v6)) => v6.into(),
        Some(Host::Domain(name)) if is_localhost(name) || is_private_name(name) => return true,
        Some(Host::Domain(_)) => match address {
            Some(address) => address,
            None => return false,
        },
        None => return false,
    };
    known == IpAddr::from(Ipv4Addr::UNSPECIFIED) || known == IpAddr::from(Ipv6Addr::UNSPECIFIED) || !is_public(known)
}

fn is_private_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    !name.contains('.') || PRIVATE_NAMES.iter().any(|ending| name.ends_with(ending))
}
