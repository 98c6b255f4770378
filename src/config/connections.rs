//! How many connections a broker accepts.

use std::net::IpAddr;

/// The limits of open connections, HTTP and WebSocket together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections of all peers.
    pub all: usize,
    /// Connections of one address. `None`: [`Self::OF_ADDRESS`], and no limit for loopback, where a proxy may stand for many peers.
    pub of_address: Option<usize>,
}

impl ConnectionLimits {
    /// The default of [`Self::all`].
    pub const ALL: usize = 40_000;
    /// The limit of one address, unless the operator sets another.
    pub const OF_ADDRESS: usize = 5_000;

    /// Limits that the operator sets.
    ///
    /// # Errors
    /// One address may have more connections than all together.
    pub fn new(all: usize, of_address: Option<usize>) -> Result<Self, String> {
        match of_address.filter(|limit| *limit > all) {
            Some(limit) => Err(format!(
                "--max-connections-per-address is {limit} and --max-connections is {all}: the limit of one address must not be higher than \
                 that of all. Lower the first or raise the second"
            )),
            None => Ok(Self { all, of_address }),
        }
    }

    /// The limit of one address.
    #[must_use]
    pub fn of(&self, address: IpAddr) -> usize {
        self.of_address.unwrap_or(if address.is_loopback() { usize::MAX } else { Self::OF_ADDRESS })
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { all: Self::ALL, of_address: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_no_higher_limit_than_all() {
        for of_address in [None, Some(1), Some(12)] {
            assert_eq!(ConnectionLimits::new(12, of_address), Ok(ConnectionLimits { all: 12, of_address }));
        }
        let why = ConnectionLimits::new(12, Some(13)).expect_err("it is higher");
        assert!(why.contains("--max-connections-per-address is 13 and --max-connections is 12"), "{why}");
    }

    #[test]
    fn loopback_has_no_limit_of_its_own_unless_the_operator_sets_one() {
        let limits = ConnectionLimits::default();
        assert_eq!(limits.of("127.0.0.1".parse().expect("an address")), usize::MAX);
        assert_eq!(limits.of("10.0.0.1".parse().expect("an address")), ConnectionLimits::OF_ADDRESS);
        let limits = ConnectionLimits { of_address: Some(7), ..limits };
        assert_eq!(limits.of("::1".parse().expect("an address")), 7);
    }
}
