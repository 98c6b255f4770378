//! How a broker shares a database with others.

use url::Url;

/// See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Milliseconds without a renewal by the leader after which another broker takes over.
    pub ttl_ms: u64,
    /// The address of this broker for clients; by default the listen address.
    pub advertise: Option<Url>,
    /// Stand by if another broker leads; otherwise that is an error.
    pub stands_by: bool,
}

impl LeaseConfig {
    /// The allowed range of [`LeaseConfig::ttl_ms`]. With a shorter time, a slow disk would look like a hanging leader.
    pub const TTL_MS: std::ops::RangeInclusive<u64> = 300..=600_000;
}

impl Default for LeaseConfig {
    /// Five seconds: three renewals, of which two may be late. A writer with a full queue (10,000 writes) needs one or two seconds;
    /// nodes and workers are lost only after ten seconds or more, so they survive a hanging leader.
    fn default() -> Self {
        Self { ttl_ms: 5_000, advertise: None, stands_by: true }
    }
}

/// Parses an address for clients.
///
/// # Errors
/// The text is not an HTTP URL.
pub fn advertised(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| e.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("expected http://host:port or https://host:port".to_owned());
    }
    let is_wildcard = match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_unspecified(),
        Some(url::Host::Ipv6(ip)) => ip.is_unspecified(),
        _ => false,
    };
    if is_wildcard {
        return Err("must be a name or an address of this machine, since other programs use it to reach this broker".to_owned());
    }
    Ok(url)
}
