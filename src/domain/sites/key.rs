//! Which site a URL belongs to.

use crate::domain::download_targets::is_public;
use crate::domain::origin::is_localhost;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use url::{Host, Url};

/// What a site is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum SiteBy {
    /// A host name, whatever its port.
    #[default]
    Host,
    /// The domain that somebody registered: `example.co.uk` for `www.example.co.uk` (Public Suffix List).
    Domain,
    /// The address that the host has.
    Ip,
}

impl SiteBy {
    const ALL: [Self; 3] = [Self::Host, Self::Domain, Self::Ip];

    /// The name, as it is stored and sent.
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
        found.ok_or_else(|| format!("`{}` is no kind of site: host, domain or ip is expected", text.chars().take(40).collect::<String>()))
    }
}

/// The host of a URL as sites are named by it: lower case, without a dot at its end, an IPv6 address without brackets. Empty
/// if the URL has none.
#[must_use]
pub fn host_of(url: &Url) -> String {
    match url.host() {
        Some(Host::Domain(name)) => name.trim_end_matches('.').to_ascii_lowercase(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => String::new(),
    }
}

/// The name of the site of a URL. `address` is the address that its host has, if that is known; until then a site by address
/// is its host.
///
/// Names of different kinds may be equal (`example.com` as a host and as a domain): then it is one site, and one pace.
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

/// The host in the name of a site: a site is named by a host, by an address or, where it has no pace, by an origin.
#[must_use]
pub fn host_of_name(name: &str) -> String {
    if !name.contains("://") {
        return name.to_owned();
    }
    Url::parse(name).map_or_else(|_| name.to_owned(), |url| host_of(&url))
}

/// Whether a hold of one name counts for a site: a hold of a host counts for all its origins too, and one of an origin for the
/// whole host where that is one site.
#[must_use]
pub fn is_hold_of(held: &str, site: &str) -> bool {
    held == site || host_of_name(held) == site || host_of_name(site) == held
}

/// The name of a site, read from what a person writes: a host, an address or an origin.
///
/// # Errors
/// It is none of them; what is expected.
pub fn site_name(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "a host (example.org), an address or an origin (http://example.org:8080) is expected";
    let text = text.trim();
    let wrong = |why: &str| format!("`{}` is not a site: {why}; {EXPECTED}", text.chars().take(120).collect::<String>());
    let is_plain = |url: &Url| {
        let rest = (url.path(), url.query(), url.fragment(), url.username(), url.password());
        url.has_host() && rest == ("/", None, None, "", None)
    };
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
        return Err(wrong("it has characters that no host has"));
    }
    if text.contains(':') {
        return Err(wrong("a port needs its origin"));
    }
    let url = Url::parse(&format!("http://{text}/")).ok().filter(|url| is_plain(url) && !host_of(url).is_empty());
    url.map(|url| host_of(&url)).ok_or_else(|| wrong("it is not a host"))
}

/// The registrable domain of a host name; `None` for a public suffix itself, which anybody's names may stand under, and for
/// this machine's own names. A last label that the list does not have is a suffix, as the list's own rules say.
#[cfg(any(feature = "broker", feature = "agent"))]
fn registrable(host: &str) -> Option<&str> {
    if is_localhost(host) { None } else { psl::domain_str(host) }
}

/// The SDK alone asks no site, and does without the list.
#[cfg(not(any(feature = "broker", feature = "agent")))]
fn registrable(_: &str) -> Option<&str> {
    None
}

/// An IPv4 address that is written as an IPv6 one is the same site.
fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Endings of names that the public DNS does not have (RFC 6761, RFC 6762, RFC 8375, and `internal` by ICANN's decision).
const PRIVATE_NAMES: [&str; 4] = [".test", ".local", ".home.arpa", ".internal"];

/// Whether a host is this machine or stands in a private network, as far as that is known: by an address in the URL, by a
/// name that the public DNS does not have (`localhost`, `build`, `web.internal`), or by the address that the host is known to
/// have. Such sites are not paced unless that is asked for.
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
