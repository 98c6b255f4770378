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
    fn loopback_has_no_limit_of_its_own_unless_the_operator_sets_one() {
        let limits = ConnectionLimits::default();
        assert_eq!(limits.of("127.0.0.1".parse().expect("an address")), usize::MAX);
        assert_eq!(limits.of("10.0.0.1".parse().expect("an address")), ConnectionLimits::OF_ADDRESS);
        let limits = ConnectionLimits { of_address: Some(7), ..limits };
        assert_eq!(limits.of("::1".parse().expect("an address")), 7);
    }
}
