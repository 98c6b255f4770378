//! Who resolves the names of sites.

use std::net::{IpAddr, SocketAddr};

/// The port of name servers.
const PORT: u16 = 53;

/// See the module documentation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NameServers {
    /// The name servers and hosts of the system's configuration. Answers are cached as long as they allow.
    #[default]
    Configured,
    /// These, and the hosts of the system's configuration. Answers are cached as long as they allow.
    Listed(Vec<SocketAddr>),
    /// The system's resolver, which knows more sources of names than DNS. Nothing is cached here.
    System,
}

impl NameServers {
    /// From the texts of a setting: none, `system`, or addresses.
    ///
    /// # Errors
    /// A text is not an address.
    pub fn of(texts: Vec<String>) -> Result<Self, String> {
        let texts: Vec<&str> = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
        match texts.as_slice() {
            [] => Ok(Self::Configured),
            ["system"] => Ok(Self::System),
            texts => texts.iter().map(|text| server(text)).collect::<Result<_, _>>().map(Self::Listed),
        }
    }
}

fn server(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    address.or_else(|_| text.parse()).map_err(|_| {
        let shown: String = text.chars().take(60).collect();
        format!("`{shown}` is not a name server: ADDRESS, ADDRESS:PORT, or `system` alone is expected")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_addresses_or_the_system() {
        let of = |texts: &[&str]| NameServers::of(texts.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(
            (of(&[]), of(&["", " "]), of(&["system"])),
            (Ok(NameServers::Configured), Ok(NameServers::Configured), Ok(NameServers::System))
        );
        let listed = ["10.0.0.1:53", "127.0.0.1:5353", "[::1]:53", "[::1]:5353"].map(|text| text.parse().expect("an address"));
        assert_eq!(of(&["10.0.0.1", "127.0.0.1:5353", "::1", "[::1]:5353"]), Ok(NameServers::Listed(listed.into())));
        for bad in [&["dns.example"][..], &["10.0.0.1", "system"], &["10.0.0.1:x"], &["10.0.0.1:99999"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
