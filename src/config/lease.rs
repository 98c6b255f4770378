//! How a broker shares a database with others.

use url::Url;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Milliseconds without a sign of the leader after which others take over.
    pub ttl_ms: u64,
    /// Where clients find this broker; else where it listens.
    pub advertise: Option<Url>,
    /// It stands by if another leads; else that is an error.
    pub stands_by: bool,
}

impl LeaseConfig {
    /// What is taken for [`LeaseConfig::ttl_ms`]. Under the least, a slow disk would pass for a leader that hangs.
    pub const TTL_MS: std::ops::RangeInclusive<u64> = 300..=600_000;
}

impl Default for LeaseConfig {
    /// Five seconds: three renewals, of which two may be late. A writer that is as far behind as it may be (10,000 writes) needs
    /// one or two of them; nodes and workers are lost only after ten and more, so they outlast a leader that hangs.
    fn default() -> Self {
        Self { ttl_ms: 5_000, advertise: None, stands_by: true }
    }
}

/// Reads an address for clients.
///
/// # Errors
/// It is none of HTTP.
pub fn advertised(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| e.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("http://host:port or https://host:port is expected".to_owned());
    }
    let is_wildcard = match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_unspecified(),
        Some(url::Host::Ipv6(ip)) => ip.is_unspecified(),
        _ => false,
    };
    if is_wildcard {
        return Err("it is the address that others find this broker at: a name or an address of this machine is expected".to_owned());
    }
    Ok(url)
}
