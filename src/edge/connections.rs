//! How many connections may be open: all together, and from one address. An idle connection costs little, but it holds an open file.

use crate::config::connections::ConnectionLimits;
use crate::domain::attempts::network;
use crate::protocol::exposition::Exposition;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time between two log lines about refused connections.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Which limit a refused connection would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// That of all connections.
    All,
    /// That of its address.
    Address,
}

/// The open connections.
#[derive(Debug, Default)]
pub struct Connections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    limits: ConnectionLimits,
    open: usize,
    by_address: HashMap<IpAddr, usize>,
    refused_by_all: u64,
    refused_by_address: u64,
    last_line: Option<Instant>,
}

impl Connections {
    /// None are open yet.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        Self(Mutex::new(State { limits, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection; [`Self::close`] it at its end.
    pub(super) fn open(&self, address: Option<IpAddr>) -> Result<(), Refused> {
        let address = address.map(network);
        let mut state = self.state();
        let of_address = address.map_or(0, |address| state.by_address.get(&address).copied().unwrap_or(0));
        let most_of_address = address.map_or(usize::MAX, |address| state.limits.of(address));
        let (refused, open, limit) = match () {
            () if state.open >= state.limits.all => (Refused::All, state.open, state.limits.all),
            () if of_address >= most_of_address => (Refused::Address, of_address, most_of_address),
            () => {
                state.open += 1;
                if let Some(address) = address {
                    *state.by_address.entry(address).or_default() += 1;
                }
                return Ok(());
            }
        };
        match refused {
            Refused::All => state.refused_by_all += 1,
            Refused::Address => state.refused_by_address += 1,
        }
        if state.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
            state.last_line = Some(Instant::now());
            let (peer, limit_of) = (address.map_or_else(String::new, |address| address.to_string()), refused.name());
            log::warn!("connection refused peer={peer} limit_of={limit_of} open={open} limit={limit}");
        }
        Err(refused)
    }

    /// Ends a connection.
    pub(super) fn close(&self, address: Option<IpAddr>) {
        let mut state = self.state();
        state.open = state.open.saturating_sub(1);
        let Some(address) = address.map(network) else { return };
        let Some(open) = state.by_address.get_mut(&address) else { return };
        *open -= 1;
        if *open == 0 {
            state.by_address.remove(&address);
        }
    }

    /// Writes the counters as Prometheus metrics.
    pub(super) fn write(&self, page: &mut Exposition) {
        let (open, all, address) = {
            let state = self.state();
            (state.open, state.refused_by_all, state.refused_by_address)
        };
        page.metric("webloom_connections", "gauge", "Open connections, HTTP and WebSocket.");
        page.sample("webloom_connections", &[], open as f64);
        const REFUSED: &str = "webloom_refused_connections_total";
        page.metric(REFUSED, "counter", "Connections that were refused because too many were open: of all peers, or of one address.");
        for (refused, count) in [(Refused::All, all), (Refused::Address, address)] {
            page.sample(REFUSED, &[("limit", refused.name())], count as f64);
        }
    }
}

impl Refused {
    /// The name of the limit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Address => "address",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_all_together_have_limits() {
        let address = |text: &str| Some(text.parse().expect("an address"));
        let connections = Connections::new(ConnectionLimits { all: 4, of_address: Some(2) });
        assert_eq!(connections.open(address("10.0.0.1")), Ok(()));
        assert_eq!(connections.open(address("::ffff:10.0.0.1")), Ok(()));
        assert_eq!(connections.open(address("10.0.0.1")), Err(Refused::Address));
        assert_eq!(connections.open(address("2001:db8::1")), Ok(()));
        assert_eq!(connections.open(address("2001:db8::ff:1")), Ok(()), "the same network");
        assert_eq!(connections.open(address("2001:db8::2")), Err(Refused::All));
        connections.close(address("10.0.0.1"));
        assert_eq!(connections.open(address("2001:db8::2")), Err(Refused::Address));
        assert_eq!(connections.open(address("127.0.0.1")), Ok(()));
        let state = connections.state();
        assert_eq!((state.open, state.refused_by_all, state.refused_by_address), (4, 1, 2));
    }
}
