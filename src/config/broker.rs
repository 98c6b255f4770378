//! The broker's settings.

use super::alerts::AlertConfig;
use super::connections::ConnectionLimits;
use super::keep::KeepConfig;
use super::lease::LeaseConfig;
use super::tokens::{LEAST, Tokens};
use crate::domain::database::DatabaseAddress;
use crate::domain::name_servers::NameServers;
use crate::domain::sites::SiteRule;
use crate::domain::targets::{Rule, Targets};
use crate::domain::zone::Zone;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The default of [`BrokerConfig::in_flight_bytes`].
pub const IN_FLIGHT_BYTES: usize = 1 << 30;
/// The minimum: the largest body of most calls must fit into the share of one token.
pub const LEAST_IN_FLIGHT_BYTES: usize = 64 << 20;

/// The default of [`BrokerConfig::ids_per_token`].
pub const IDS_PER_TOKEN: usize = 20_000;

/// Checked settings of a broker.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// The SQLite file.
    pub database: DatabaseAddress,
    /// Start even if files beside the database show that data was lost.
    pub accept_lost_data: bool,
    /// Accept TLS connections only.
    pub tls: Option<TlsFiles>,
    /// The tokens and their roles.
    pub tokens: Tokens,
    /// Number of HTTP threads.
    pub threads: usize,
    /// Maximum bytes held at once for all clients: incoming bodies and frames, and unsent responses and frames.
    pub in_flight_bytes: usize,
    /// How many connections may be open.
    pub connections: ConnectionLimits,
    /// How many ids of nodes and workers one token may own.
    pub ids_per_token: usize,
    /// Timeouts of the actors.
    pub times: Times,
    /// How alerts are sent.
    pub alerts: AlertConfig,
    /// How much history is kept.
    pub keep: KeepConfig,
    /// Allowed targets of callbacks; empty: every public address.
    pub callback_allow: Vec<Rule>,
    /// The operator's limits for sites, for the runs of all jobs.
    pub site_rules: Vec<SiteRule>,
    /// Who resolves the names of sites that are counted by address.
    pub name_servers: NameServers,
    /// How jobs of Scheduler.NET clients are interpreted.
    pub scheduler_net: SchedulerNet,
    /// How it shares the database with other brokers.
    pub lease: LeaseConfig,
}

/// The TLS files of a broker, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, and the intermediate certificates of its chain.
    pub certificate: PathBuf,
    /// The matching private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Combines the two settings, which require each other.
    ///
    /// # Errors
    /// One is missing.
    pub fn of(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<Self>, String> {
        match (certificate, key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(Self { certificate, key })),
            (Some(_), None) => Err("--tls-cert needs --tls-key: a certificate needs its key".to_owned()),
            (None, Some(_)) => Err("--tls-key needs --tls-cert: a key needs its certificate".to_owned()),
        }
    }
}

/// How jobs of Scheduler.NET clients are interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerNet {
    /// Cron expressions that mean *do not schedule*.
    pub ignored: Vec<String>,
    /// The IANA name of the time zone of their cron expressions.
    pub zone: String,
}

impl Default for SchedulerNet {
    fn default() -> Self {
        // The value that older clients send.
        Self { ignored: vec!["* * * * 2999".to_owned()], zone: "UTC".to_owned() }
    }
}

impl SchedulerNet {
    /// The zone of this machine, from `TZ` or `/etc/localtime`; UTC if neither is set. Scheduler.NET uses the machine's zone.
    #[must_use]
    pub fn zone_of_machine() -> String {
        let by_link = || {
            let link = std::fs::read_link("/etc/localtime").ok()?;
            Some(link.to_str()?.split_once("zoneinfo/")?.1.to_owned())
        };
        let name = std::env::var("TZ").ok().map(|name| name.trim_start_matches(':').to_owned()).filter(|name| !name.is_empty());
        name.or_else(by_link).filter(|name| Zone::named(name).is_ok()).unwrap_or_else(|| "UTC".to_owned())
    }
}

/// In milliseconds; converted to `actors::context::Times`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Time between two heartbeats of a node.
    pub node_heartbeat: u64,
    /// Time without a message after which a node is lost.
    pub node_offline: u64,
    /// Time without a message after which a worker is lost.
    pub worker_offline: u64,
    /// Time for a peer with a closed socket to reconnect and keep its state.
    pub grace: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { node_heartbeat: 5_000, node_offline: 30_000, worker_offline: 10_000, grace: 3_000 }
    }
}

/// Settings that conflict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBrokerConfig {
    /// It listens on the network without a token.
    #[error(
        "listening on {0} without a token would let anybody on the network run this broker: give --token (or set WEBLOOM_TOKEN), or listen on 127.0.0.1"
    )]
    OpenWithoutToken(IpAddr),
    /// It listens on the network with a short token.
    #[error("listening on {0}: {1}")]
    WeakToken(IpAddr, String),
    /// A time that does not work.
    #[error("{0}")]
    Times(String),
    /// An unknown time zone.
    #[error("--scheduler-net-zone: {0}")]
    Zone(String),
}

impl BrokerConfig {
    /// Checks conditions that involve several settings.
    ///
    /// # Errors
    /// The settings conflict.
    pub fn validate(self) -> Result<Self, InvalidBrokerConfig> {
        if !self.listen.ip().is_loopback() && self.tokens.is_open() {
            return Err(InvalidBrokerConfig::OpenWithoutToken(self.listen.ip()));
        }
        self.tokens.check_length(self.least_token()).map_err(|why| InvalidBrokerConfig::WeakToken(self.listen.ip(), why))?;
        let Times { node_heartbeat, node_offline, .. } = self.times;
        if node_heartbeat == 0 || node_offline <= node_heartbeat {
            let text = format!(
                "the heartbeat interval ({node_heartbeat} ms) must be shorter than the time after which a node is lost ({node_offline} ms)"
            );
            return Err(InvalidBrokerConfig::Times(text));
        }
        Zone::named(&self.scheduler_net.zone).map_err(|e| InvalidBrokerConfig::Zone(e.to_string()))?;
        Ok(self)
    }

    /// The minimum number of characters of a token.
    #[must_use]
    pub fn least_token(&self) -> usize {
        if self.listen.ip().is_loopback() { 0 } else { LEAST }
    }

    /// Allowed targets of callbacks. A broker without tokens is a trial on a machine that its user can access anyway, so it allows
    /// loopback.
    #[must_use]
    pub fn targets(&self) -> Targets {
        Targets::new(self.callback_allow.clone(), self.tokens.is_open() && self.callback_allow.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, tokens: &[&str]) -> BrokerConfig {
        BrokerConfig {
            listen: listen.parse().expect("an address"),
            database: "x".into(),
            accept_lost_data: false,
            tls: None,
            tokens: Tokens::parse(tokens).expect("tokens"),
            threads: 1,
            in_flight_bytes: IN_FLIGHT_BYTES,
            connections: ConnectionLimits::default(),
            ids_per_token: IDS_PER_TOKEN,
            times: Times::default(),
            alerts: AlertConfig::default(),
            keep: KeepConfig::default(),
            callback_allow: Vec::new(),
            site_rules: Vec::new(),
            name_servers: NameServers::default(),
            scheduler_net: SchedulerNet::default(),
            lease: LeaseConfig::default(),
        }
    }

    #[test]
    fn beyond_loopback_a_token_is_needed() {
        for loopback in ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1"] {
            assert!(config(loopback, &[]).validate().is_ok(), "{loopback}");
            assert!(config(loopback, &["agent:1234"]).validate().is_ok(), "{loopback}");
        }
        for open in ["0.0.0.0:1", "192.168.1.1:1", "[::]:1"] {
            assert!(config(open, &[]).validate().is_err(), "{open}");
            assert!(config(open, &["a-token-of-20-letters"]).validate().is_ok(), "{open}");
            assert!(config(open, &["a-token-of-20-letters", "agent:short"]).validate().is_err(), "{open}");
        }
    }
}
