//! Which targets an agent may send requests to. Without this check anyone who pushes requests, and any site that redirects,
//! could use the agent to reach its own machine, its network, or the metadata service of its cloud.
//!
//! Public addresses are allowed. Other addresses are allowed only if the run began there or the agent's owner allows them. A
//! target is checked twice: as written, and by each address that its name resolves to.

use super::origin::{Began, is_localhost};
use super::targets::{Place, Rule, place_of, plain};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Settings of the agent's owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DownloadTargets {
    /// Non-public targets that are allowed.
    pub allow: Vec<Rule>,
    /// Targets that are always denied.
    pub deny: Vec<Rule>,
}

impl DownloadTargets {
    /// Checks a host as written. What this check cannot decide, the check of the resolved addresses decides.
    ///
    /// # Errors
    /// The reason why requests to it are refused.
    pub fn judge_host(&self, host: &str, port: u16, began: &Began) -> Result<(), String> {
        let name = host.trim_end_matches('.');
        if let Some(address) = literal(name) {
            return self.judge(host, address, port, began);
        }
        if self.deny.iter().any(|rule| rule.is_written(name, port)) {
            return Err(denied(host, None));
        }
        if is_localhost(name) {
            // One allowed address is enough.
            let other = self.judge(host, Ipv6Addr::LOCALHOST.into(), port, began);
            return self.judge(host, Ipv4Addr::LOCALHOST.into(), port, began).or(other);
        }
        Ok(())
    }

    /// Checks an address of a host.
    ///
    /// # Errors
    /// The reason why requests to it are refused.
    pub fn judge(&self, host: &str, address: IpAddr, port: u16, began: &Began) -> Result<(), String> {
        let name = host.trim_end_matches('.');
        let address = plain(address);
        if self.deny.iter().any(|rule| rule.is_written(name, port) || rule.holds(address, port)) {
            return Err(denied(host, Some(address)));
        }
        let place = place(address);
        let is_allowed = || {
            self.allow.iter().any(|rule| match place {
                // No legitimate name resolves to such an address: the address itself must be allowed.
                Place::Special => rule.is_special() && rule.holds(address, port),
                _ => rule.is_written(name, port) || rule.holds(address, port),
            })
        };
        let began_here = || match began {
            Began::Unknown => true,
            Began::Known { by_name, addresses } => *by_name || addresses.iter().any(|known| plain(*known) == address),
        };
        if place == Place::Public || is_allowed() || place != Place::Special && began_here() {
            return Ok(());
        }
        let leads_to = leads_to(host, address);
        Err(match place {
            Place::Special => format!(
                "requests to `{host}`{leads_to} are refused: it is a link-local, metadata or other special address; \
                 the agent's owner may allow it by its address or network (--download-allow)"
            ),
            _ => format!(
                "requests to `{host}`{leads_to} are refused: it is an address of the agent's machine or of a private network, and the \
                 run did not begin there; the agent's owner may allow it (--download-allow)"
            ),
        })
    }

    /// Checks the addresses of a name and keeps the allowed ones. `was_public`: the name resolved to a public address earlier in
    /// this run. Then a non-public address is not allowed merely because the run began at this name: the owner of the name could
    /// have changed its address.
    ///
    /// # Errors
    /// The reason why none of them is allowed.
    pub fn judge_all(&self, host: &str, found: &[IpAddr], port: u16, began: &Began, was_public: bool) -> Result<Vec<IpAddr>, String> {
        let is_public = was_public || found.iter().any(|address| place(plain(*address)) == Place::Public);
        let began = match began {
            Began::Known { addresses, .. } if is_public => &Began::Known { by_name: false, addresses: addresses.clone() },
            began => began,
        };
        let mut last = Ok(());
        let targets: Vec<IpAddr> = found
            .iter()
            .copied()
            .filter(|address| self.judge(host, *address, port, began).map_err(|why| last = Err(why)).is_ok())
            .collect();
        if targets.is_empty() { last.map(|()| targets) } else { Ok(targets) }
    }
}

/// Whether an address is reachable from the public internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    place(plain(address)) == Place::Public
}

/// As for callbacks, except that the unspecified address counts as loopback: a connection to it reaches this machine.
fn place(address: IpAddr) -> Place {
    if address.is_unspecified() { Place::Loopback } else { place_of(address) }
}

fn literal(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).parse().ok()
}

fn leads_to(host: &str, address: IpAddr) -> String {
    if literal(host) == Some(address) { String::new() } else { format!(" ({address})") }
}

fn denied(host: &str, address: Option<IpAddr>) -> String {
    let leads_to = address.map_or_else(String::new, |address| leads_to(host, address));
    format!("requests to `{host}`{leads_to} are refused: the agent's owner denies it (--download-deny)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::origin::Origin;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().expect("a rule")).collect()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn began(urls: &[&str], host: &str, port: u16) -> Began {
        let origins: Vec<Origin> = urls.iter().filter_map(|url| Origin::of(&url::Url::parse(url).expect("a url"))).collect();
        Began::at(Some(&origins), &url::Url::parse(&format!("http://{host}:{port}/")).expect("a url"))
    }

    const INSIDE: &str = "127.0.0.1 127.9.9.9 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 100.64.0.1 [::1] [::] [fd00::1] [::ffff:127.0.0.1] \
                          [64:ff9b::7f00:1] [2002:7f00:1::] [::ffff:10.0.0.1] localhost x.LOCALHOST.";
    const SPECIAL: &str = "169.254.169.254 169.254.0.1 [fe80::1] [::ffff:169.254.169.254] [64:ff9b::a9fe:a9fe] [2002:a9fe:a9fe::] 224.0.0.1 \
                           255.255.255.255 [ff02::1] 100.100.100.200 168.63.129.16 [fd00:ec2::254] [fd20:ce::254]";

    #[test]
    fn what_is_not_public_is_a_target_only_where_the_run_began() {
        let usual = DownloadTargets::default();
        for host in INSIDE.split_whitespace() {
            assert!(usual.judge_host(host, 80, &Began::elsewhere()).is_err(), "{host}");
            assert!(usual.judge_host(host, 80, &Began::Unknown).is_ok(), "{host}");
            let url = url::Url::parse(&format!("http://{host}/")).expect("a url");
            let host = url.host_str().expect("a host");
            assert_eq!(usual.judge_host(host, 80, &began(&[url.as_str()], host, 80)), Ok(()));
            assert!(usual.judge_host(host, 8080, &began(&[url.as_str()], host, 8080)).is_err(), "{host}: another port is another place");
        }
        for host in SPECIAL.split_whitespace() {
            for began in [Began::elsewhere(), Began::Unknown, began(&[&format!("http://{host}/")], host, 80)] {
                assert!(usual.judge_host(host, 80, &began).is_err(), "{host}");
            }
        }
        for host in ["93.184.215.14", "[2606:2800:220:1::1]", "a.example", "[::ffff:8.8.8.8]"] {
            assert_eq!(usual.judge_host(host, 80, &Began::elsewhere()), Ok(()));
        }
        // By the name of this machine, or by its address.
        assert_eq!(
            usual.judge("other.example", address("127.0.0.1"), 8000, &began(&["http://localhost:8000/"], "other.example", 8000)),
            Ok(())
        );
    }

    #[test]
    fn the_owner_allows_and_denies() {
        let targets = DownloadTargets {
            allow: rules(&["10.0.0.0/8", "0.0.0.0/0", "wiki.corp", "*.lab.corp", "169.254.7.7", "127.0.0.1:8080"]),
            deny: rules(&["10.9.0.0/16", "*.bad.example", "8.8.8.8"]),
        };
        let ok = |host: &str, ip: &str| targets.judge(host, address(ip), 80, &Began::elsewhere()).is_ok();
        assert!(ok("x", "10.1.1.1") && ok("x", "192.168.1.1") && ok("x", "169.254.7.7"));
        assert!(!ok("x", "10.9.1.1") && !ok("x", "8.8.8.8"), "what is denied is denied");
        assert!(!ok("x", "169.254.169.254"), "a network of all addresses does not name the link's");
        assert!(ok("wiki.corp", "fd00::1") && ok("a.lab.corp", "fd00::1") && !ok("lab.corp", "fd00::1"));
        assert!(!ok("wiki.corp", "169.254.169.254"), "a name does not name an address of the link");
        let host = |host: &str| targets.judge_host(host, 80, &Began::elsewhere()).map_err(|why| why.contains("--download-deny"));
        assert_eq!((host("x.bad.example"), host("bad.example."), host("8.8.8.8")), (Err(true), Ok(()), Err(true)));
        let only_port = DownloadTargets { allow: rules(&["127.0.0.1:8080"]), deny: Vec::new() };
        assert!(only_port.judge_host("localhost", 8080, &Began::elsewhere()).is_ok());
        assert!(only_port.judge_host("localhost", 80, &Began::elsewhere()).is_err());
    }

    #[test]
    fn a_name_that_was_public_does_not_become_private() {
        let (usual, here) = (DownloadTargets::default(), began(&["http://site.example/"], "site.example", 80));
        let judge = |found: &[&str], was_public| {
            let found: Vec<IpAddr> = found.iter().map(|text| address(text)).collect();
            usual.judge_all("site.example", &found, 80, &here, was_public)
        };
        assert_eq!(judge(&["10.0.0.1"], false), Ok(vec![address("10.0.0.1")]), "an intranet");
        assert!(judge(&["10.0.0.1"], true).is_err());
        assert_eq!(judge(&["10.0.0.1", "8.8.8.8"], false), Ok(vec![address("8.8.8.8")]));
        assert!(judge(&["169.254.169.254"], false).is_err());
        assert_eq!(judge(&[], false), Ok(vec![]));
    }
}
