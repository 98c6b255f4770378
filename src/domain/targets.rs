//! Which targets the broker may send requests to for a job. Without this check anyone who may create a job could use the broker
//! to reach what is behind it: its own machine, its network, the metadata service of its cloud.
//!
//! A name is checked twice: as written, and by the address that is really connected to, so changing the address of a name after
//! the first check does not help an attacker.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// One entry of the list: `host`, `host:port`, `*.suffix`, an address, or a network in CIDR form; each with an optional port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    what: What,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// Exactly this name.
    Name(String),
    /// Every name that ends with this suffix, which begins with a dot.
    Suffix(String),
    /// Every address with this prefix of the given number of bits.
    Network(IpAddr, u8),
}

/// The whole list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    rules: Vec<Rule>,
    /// This machine is allowed without being listed.
    loopback: bool,
}

/// The text is not an entry of the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a target: expected host, host:port, *.suffix, an address or a network like 10.0.0.0/8")]
pub struct InvalidRule(pub String);

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let text = text.trim().to_ascii_lowercase();
        let wrong = || InvalidRule(text.clone());
        let whole = |what| Ok(Self { what, port: None });
        if let Some((address, bits)) = text.split_once('/') {
            let (address, bits): (IpAddr, u8) = (bare(address).parse().map_err(|_| wrong())?, bits.parse().map_err(|_| wrong())?);
            let most = if address.is_ipv4() { 32 } else { 128 };
            return if bits <= most { whole(What::Network(address, bits)) } else { Err(wrong()) };
        }
        if let Ok(address) = bare(&text).parse::<IpAddr>() {
            return whole(one(address));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().map_err(|_| wrong())?)),
            None => (text.as_str(), None),
        };
        if let Ok(address) = bare(name).parse::<IpAddr>() {
            return Ok(Self { what: one(address), port });
        }
        let (suffix, name) = name.strip_prefix('*').map_or((false, name), |rest| (true, rest));
        let name = &*as_in_url(name).ok_or_else(wrong)?;
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        match (suffix, is_name) {
            (true, true) if name.starts_with('.') && name.len() > 1 => Ok(Self { what: What::Suffix(name.to_owned()), port }),
            (false, true) => Ok(Self { what: What::Name(name.trim_end_matches('.').to_owned()), port }),
            _ => Err(wrong()),
        }
    }
}

/// A name as a URL has it: in Punycode.
fn as_in_url(name: &str) -> Option<Cow<'_, str>> {
    if name.is_ascii() {
        return Some(name.into());
    }
    let (dot, name) = name.strip_prefix('.').map_or(("", name), |name| (".", name));
    match url::Host::parse(name).ok()? {
        url::Host::Domain(name) => Some(format!("{dot}{name}").into()),
        _ => None,
    }
}

fn one(address: IpAddr) -> What {
    What::Network(address, if address.is_ipv4() { 32 } else { 128 })
}

/// An IPv6 address without its brackets.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// The kind of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Public,
    Loopback,
    /// A private network, reachable from inside only.
    Private,
    /// Link-local, or useless as a target: metadata services are here.
    Special,
}

impl Targets {
    /// A list of these entries; `loopback`: this machine is allowed without being listed.
    #[must_use]
    pub fn new(rules: Vec<Rule>, loopback: bool) -> Self {
        Self { rules, loopback }
    }

    /// Why a request to this host, as written, is refused whatever its address is; `None` if the address decides.
    #[must_use]
    pub fn refuses(&self, host: &str, port: u16) -> Option<String> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if let Ok(address) = bare(&host).parse::<IpAddr>() {
            return (!self.permits(&host, address, port)).then(|| self.because(&host));
        }
        if host == "localhost" || host.ends_with(".localhost") {
            let leads_to = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
            return (!leads_to.iter().any(|address| self.permits(&host, *address, port))).then(|| self.because(&host));
        }
        // The name may resolve to a listed network.
        let may = self.rules.is_empty() || self.rules.iter().any(|rule| matches!(rule.what, What::Network(..)) || rule.names(&host, port));
        (!may).then(|| self.because(&host))
    }

    /// Whether a connection to this address for this host is allowed.
    #[must_use]
    pub fn permits(&self, host: &str, address: IpAddr, port: u16) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = plain(address);
        let place = place_of(address);
        let listed = self.rules.iter().any(|rule| match &rule.what {
            What::Network(..) => rule.holds(address, port),
            // Listing a name allows any address for it, except special ones, where no legitimate names point.
            What::Name(_) => rule.names(&host, port) && place != Place::Special,
            // Other parties may create names under a suffix.
            What::Suffix(_) => rule.names(&host, port) && place == Place::Public,
        });
        listed || self.rules.is_empty() && place == Place::Public || self.loopback && place == Place::Loopback
    }

    /// The error text for a refused host.
    #[must_use]
    pub fn because(&self, host: &str) -> String {
        let rule = if self.rules.is_empty() {
            "the broker's settings must list addresses of this machine and of private networks"
        } else {
            "the broker's settings do not list it"
        };
        format!("requests to `{host}` are refused: {rule} (--callback-allow)")
    }
}

impl Rule {
    /// Whether the rule matches a host as written.
    #[must_use]
    pub fn is_written(&self, host: &str, port: u16) -> bool {
        match bare(host).parse::<IpAddr>() {
            Ok(address) => self.holds(plain(address), port),
            Err(_) => self.names(&host.trim_end_matches('.').to_ascii_lowercase(), port),
        }
    }

    /// Whether the rule covers special addresses only, and so allows them deliberately.
    pub(super) fn is_special(&self) -> bool {
        let What::Network(network, bits) = self.what else { return false };
        let last: IpAddr = match network {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() | u32::MAX.checked_shr(bits.into()).unwrap_or(0)).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() | u128::MAX.checked_shr(bits.into()).unwrap_or(0)).into(),
        };
        bits >= 8 && [network, last].into_iter().all(|address| place_of(address) == Place::Special)
    }

    fn names(&self, host: &str, port: u16) -> bool {
        let is = match &self.what {
            What::Name(name) => host == name,
            What::Suffix(suffix) => host.ends_with(suffix.as_str()),
            What::Network(..) => false,
        };
        is && self.port.is_none_or(|only| only == port)
    }

    pub(super) fn holds(&self, address: IpAddr, port: u16) -> bool {
        let What::Network(network, bits) = self.what else { return false };
        let is = match (network, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0,
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0,
            _ => false,
        };
        is && self.port.is_none_or(|only| only == port)
    }
}

/// The embedded IPv4 address of an IPv6 address, if the network routes to it: mapped (RFC 4291), NAT64 (RFC 6052), 6to4 (RFC 3056).
pub(super) fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let s = v6.segments();
    let inner = |a: u16, b: u16| IpAddr::V4(Ipv4Addr::from_bits(u32::from(a) << 16 | u32::from(b)));
    match s {
        [0, 0, 0, 0, 0, 0xffff, a, b] | [0x64, 0xff9b, 0, 0, 0, 0, a, b] => inner(a, b),
        [0x2002, a, b, ..] => inner(a, b),
        _ => address,
    }
}

/// Follows the IANA registries of special-purpose addresses (RFC 6890).
pub(super) fn place_of(address: IpAddr) -> Place {
    match address {
        IpAddr::V4(v4) => place_of_v4(v4),
        IpAddr::V6(v6) => place_of_v6(v6),
    }
}

fn place_of_v4(v4: Ipv4Addr) -> Place {
    let [a, b, c, d] = v4.octets();
    match (a, b, c) {
        // Cloud metadata services outside link-local addresses (Alibaba, Azure).
        (100, 100, 100) if d == 200 => Place::Special,
        (168, 63, 129) if d == 16 => Place::Special,
        (127, ..) => Place::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) | (198, 18..=19, _) => Place::Private,
        (0 | 224..=255, ..) | (169, 254, _) | (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113) => Place::Special,
        _ => Place::Public,
    }
}

fn place_of_v6(v6: Ipv6Addr) -> Place {
    let s = v6.segments();
    match s {
        [0, 0, 0, 0, 0, 0, 0, 1] => Place::Loopback,
        // Cloud metadata services (Amazon, Google).
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => Place::Special,
        [a, ..] if a & 0xfe00 == 0xfc00 => Place::Private,
        // Global unicast, without documentation addresses and tunnelled IPv4.
        [a, b, ..] if a & 0xe000 == 0x2000 && (a, b) != (0x2001, 0xdb8) && (a, b) != (0x2001, 0) => Place::Public,
        _ => Place::Special,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(rules: &[&str], loopback: bool) -> Targets {
        Targets::new(rules.iter().map(|rule| rule.parse().expect("a rule")).collect(), loopback)
    }

    fn permits(targets: &Targets, host: &str, address: &str) -> bool {
        targets.permits(host, address.parse().expect("an address"), 80)
    }

    #[test]
    fn without_a_list_only_what_is_public_is_a_target() {
        let usual = targets(&[], false);
        for public in ["93.184.215.14", "2606:2800:220:1::1", "172.32.0.1", "100.128.0.1", "::ffff:8.8.8.8"] {
            assert!(permits(&usual, "a.example", public), "{public}");
        }
        let inside = "127.0.0.1 127.9.9.9 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 \
                      255.255.255.255 224.0.0.1 ::1 :: fe80::1 fd00::1 fc00::1 ff02::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 \
                      64:ff9b::7f00:1 2002:7f00:1:: 2002:a9fe:a9fe:: fec0::1 2001:db8::1 64:ff9b:1::1 192.0.0.192";
        for inside in inside.split_whitespace() {
            assert!(!permits(&usual, "a.example", inside), "{inside}");
            assert!(usual.refuses(inside, 80).is_some(), "{inside}");
        }
        assert!(usual.refuses("localhost", 80).is_some() && usual.refuses("x.LOCALHOST.", 80).is_some());
        assert!(usual.refuses("[::1]", 80).is_some());
        assert_eq!(usual.refuses("a.example", 80), None);
    }

    #[test]
    fn a_list_is_the_whole_list() {
        let list = targets(&["hooks.example", "*.apps.example:8443", "10.2.0.0/16", "[fd00::5]:9000"], false);
        assert!(permits(&list, "HOOKS.example.", "93.184.215.14"));
        assert!(permits(&list, "hooks.example", "192.168.0.9"), "its names are the operator's own");
        assert!(!permits(&list, "hooks.example", "169.254.169.254"), "but not the link's");
        assert!(!permits(&list, "other.example", "93.184.215.14"));
        assert!(permits(&list, "other.example", "10.2.255.1") && !permits(&list, "other.example", "10.3.0.1"));
        assert!(list.permits("a.apps.example", "8.8.8.8".parse().expect("an address"), 8443));
        assert!(!list.permits("a.apps.example", "8.8.8.8".parse().expect("an address"), 443));
        assert!(!list.permits("a.apps.example", "10.9.9.9".parse().expect("an address"), 8443), "who may make such names?");
        assert!(!list.permits("xapps.example", "8.8.8.8".parse().expect("an address"), 8443));
        assert!(list.permits("x", "fd00::5".parse().expect("an address"), 9000));
        assert!(!list.permits("x", "fd00::5".parse().expect("an address"), 9001));
        assert_eq!(list.refuses("other.example", 80), None, "it may lead to 10.2.0.0/16");
        assert!(targets(&["hooks.example"], false).refuses("other.example", 80).is_some());
    }

    #[test]
    fn the_machine_itself_may_be_a_target() {
        let open = targets(&[], true);
        assert!(permits(&open, "localhost", "127.0.0.1") && permits(&open, "::1", "::1") && open.refuses("localhost", 1).is_none());
        assert!(!permits(&open, "x", "10.0.0.1") && !permits(&open, "x", "169.254.169.254"));
        assert_eq!(targets(&["::1"], false).refuses("localhost", 1), None);
        let named = targets(&["127.0.0.1:8080", "0.0.0.0/0"], false);
        assert!(permits(&named, "x", "10.0.0.1"), "who lists everything gets it");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for bad in ["", "*", "*.", "*x.example", "10.0.0.0/33", "a b", "host:many", "http://x/", "host:99999", "1::1/129"] {
            assert!(bad.parse::<Rule>().is_err(), "{bad}");
        }
        for (text, host) in [("Bücher.example", "xn--bcher-kva.example"), ("*.bücher.example:80", "a.xn--bcher-kva.example")] {
            assert!(text.parse::<Rule>().is_ok_and(|rule| rule.is_written(host, 80)), "{text}");
        }
    }
}
