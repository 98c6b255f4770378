//! The broker's settings.

use super::alerts::AlertConfig;
use super::keep::KeepConfig;
use super::lease::LeaseConfig;
use super::tokens::{LEAST, Tokens};
use crate::domain::sites::SiteRule;
use crate::domain::targets::{Rule, Targets};
use crate::domain::zone::Zone;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// [`BrokerConfig::in_flight_bytes`], unless said.
pub const IN_FLIGHT_BYTES: usize = 1 << 30;
/// The least that can be said: the largest body of most calls fits into the share of one token.
pub const LEAST_IN_FLIGHT_BYTES: usize = 64 << 20;

/// Checked settings of a broker.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The SQLite file.
    pub database: PathBuf,
    /// It starts though files beside the database show that something of it was lost.
    pub accept_lost_data: bool,
    /// It speaks TLS and nothing else.
    pub tls: Option<TlsFiles>,
    /// Who may do what.
    pub tokens: Tokens,
    /// Threads that serve HTTP.
    pub threads: usize,
    /// Bytes that are held at once for those who are connected: bodies and frames that come in, answers and frames that are not sent.
    pub in_flight_bytes: usize,
    /// Times that the actors go by.
    pub times: Times,
    /// How word of events leaves the broker.
    pub alerts: AlertConfig,
    /// How much of the past is kept.
    pub keep: KeepConfig,
    /// Where callbacks may go; nothing: to every public address.
    pub callback_allow: Vec<Rule>,
    /// The operator's limits for sites, which hold for the runs of all jobs.
    pub site_rules: Vec<SiteRule>,
    /// How jobs of Scheduler.NET's clients are understood.
    pub scheduler_net: SchedulerNet,
    /// How it shares the database with other brokers.
    pub lease: LeaseConfig,
}

/// What a broker shows to those who connect, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, and those that lead from there to an authority.
    pub certificate: PathBuf,
    /// The key that goes with it.
    pub key: PathBuf,
}

impl TlsFiles {
    /// From the two settings, which go together.
    ///
    /// # Errors
    /// One is missing.
    pub fn of(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<Self>, String> {
        match (certificate, key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(Self { certificate, key })),
            (Some(_), None) => Err("--tls-cert needs --tls-key: a certificate is of no use without its key".to_owned()),
            (None, Some(_)) => Err("--tls-key needs --tls-cert: a key is of no use without its certificate".to_owned()),
        }
    }
}

/// How jobs of Scheduler.NET's clients are understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerNet {
    /// Cron expressions that mean *do not schedule*.
    pub ignored: Vec<String>,
    /// The IANA name of the zone that their cron expressions are meant in.
    pub zone: String,
}

impl Default for SchedulerNet {
    fn default() -> Self {
        // The value that its older clients sent.
        Self { ignored: vec!["* * * * 2999".to_owned()], zone: "UTC".to_owned() }
    }
}

impl SchedulerNet {
    /// The zone of this machine, as `TZ` or `/etc/localtime` names it; UTC if neither does. Scheduler.NET goes by it.
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

/// Milliseconds; see `actors::house::Times`, which they become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Between two heartbeats of a node.
    pub node_heartbeat: u64,
    /// Silence after which a node is lost.
    pub node_offline: u64,
    /// Silence after which a worker is lost.
    pub worker_offline: u64,
    /// A peer whose socket closed may come back within this time and finds everything as it was.
    pub grace: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { node_heartbeat: 5_000, node_offline: 30_000, worker_offline: 10_000, grace: 3_000 }
    }
}

/// Settings that do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBrokerConfig {
    /// Open to the network and without a token: refused.
    #[error(
        "listening on {0} without a token would let anybody on the network run this broker: give --token (or set WEBLOOM_TOKEN), or listen on 127.0.0.1"
    )]
    OpenWithoutToken(IpAddr),
    /// Open to the network and with a token that is short.
    #[error("listening on {0}: {1}")]
    WeakToken(IpAddr, String),
    /// A time that cannot work.
    #[error("{0}")]
    Times(String),
    /// A time zone that is none.
    #[error("--scheduler-net-zone: {0}")]
    Zone(String),
}

impl BrokerConfig {
    /// Checks what single settings cannot show.
    ///
    /// # Errors
    /// They do not go together.
    pub fn validate(self) -> Result<Self, InvalidBrokerConfig> {
        if !self.listen.ip().is_loopback() && self.tokens.is_open() {
            return Err(InvalidBrokerConfig::OpenWithoutToken(self.listen.ip()));
        }
        self.tokens.check_length(self.least_token()).map_err(|why| InvalidBrokerConfig::WeakToken(self.listen.ip(), why))?;
        let Times { node_heartbeat, node_offline, .. } = self.times;
        if node_heartbeat == 0 || node_offline <= node_heartbeat {
            let text = format!(
                "a node that beats every {node_heartbeat} ms cannot be lost after {node_offline} ms: heartbeat < offline is expected"
            );
            return Err(InvalidBrokerConfig::Times(text));
        }
        Zone::named(&self.scheduler_net.zone).map_err(|e| InvalidBrokerConfig::Zone(e.to_string()))?;
        Ok(self)
    }

    /// Characters that a token must have at least.
    #[must_use]
    pub fn least_token(&self) -> usize {
        if self.listen.ip().is_loopback() { 0 } else { LEAST }
    }

    /// Where callbacks may go. A broker without tokens is one that somebody tries out: this machine is open to him anyway.
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
            times: Times::default(),
            alerts: AlertConfig::default(),
            keep: KeepConfig::default(),
            callback_allow: Vec::new(),
            site_rules: Vec::new(),
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
