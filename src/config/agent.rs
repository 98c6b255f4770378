//! The settings of an agent, under the names of the seeds.
//!
//! An [`AgentLayer`] contains only the values that the command line, the environment or the file set; [`AgentLayer::validate`] checks them
//! and fills in the defaults.

use super::addresses::Addresses;
use super::programs::{ProgramLayer, ProgramSettings};
use crate::domain::download_targets::DownloadTargets;
use crate::domain::ids::NodeId;
use crate::domain::name_servers::NameServers;
use crate::domain::node::is_name;
use crate::domain::settings::check_contact;
use crate::domain::targets::Rule;
use crate::protocol::token::own;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The broker address if none is set.
const DEFAULT_BROKER: &str = "http://localhost:55626/";
/// Maximum characters of a group or a node type, as in the broker's tables.
const MOST_NAME: usize = 50;

/// The settings that are set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AgentLayer {
    /// Maximum number of concurrent blocks.
    pub max_process_count: Option<u32>,
    /// Maximum number of concurrent sites with a pace, in addition to these blocks.
    pub max_sites: Option<u32>,
    /// Maximum number of concurrent requests to all sites with a pace.
    pub max_connections: Option<u32>,
    /// Memory for large bodies, in MB.
    pub memory_mb: Option<u32>,
    /// The broker address: an `http` or `https` URL, or several separated by commas.
    pub broker: Option<String>,
    /// The token that authenticates the agent.
    pub token: Option<String>,
    /// Maximum seconds between two heartbeats; the broker may request more frequent ones.
    pub heartbeat: Option<u64>,
    /// Default retries of a download; the job may override it.
    pub retry_download: Option<u32>,
    /// The group of the node.
    pub group: Option<String>,
    /// Console or Web.
    pub node_type: Option<String>,
    /// The displayed name of the node; default: the host name.
    pub name: Option<String>,
    /// The node's id; by default the file `node-id` in the data directory stores it.
    pub node_id: Option<String>,
    /// The directory for persistent data of the agent.
    pub data_dir: Option<PathBuf>,
    /// Program and arguments that change the machine's IP address. Run without a shell.
    pub change_ip_command: Option<Vec<String>>,
    /// The reported IP address, if the broker cannot see it.
    pub ip: Option<String>,
    /// A page or mail address for owners of sites, in the `User-Agent` of jobs without their own.
    pub contact: Option<String>,
    /// `system`, or addresses of name servers; none: those of the system's configuration.
    pub name_servers: Option<Vec<String>>,
    /// Private, loopback and link-local targets that downloads may use.
    pub download_allow: Option<Vec<String>>,
    /// Targets that downloads may not use.
    pub download_deny: Option<Vec<String>>,
    /// What the broker may run on this machine.
    pub programs: ProgramLayer,
}

impl AgentLayer {
    /// Checks all settings and fills in the defaults.
    ///
    /// # Errors
    /// One line for each invalid setting, beginning with its name.
    pub fn validate(self) -> Result<AgentConfig, Vec<String>> {
        let mut wrong = Vec::new();
        let defaults = AgentConfig::default();
        let broker = broker(self.broker.as_deref().unwrap_or(DEFAULT_BROKER), &mut wrong);
        let max_process_count = within("maxProcessCount", self.max_process_count, 1..=1_000, defaults.max_process_count, &mut wrong);
        let max_sites = within("maxSites", self.max_sites, 1..=100_000, defaults.max_sites, &mut wrong);
        let max_connections = within("maxConnections", self.max_connections, 1..=65_536, defaults.max_connections, &mut wrong);
        let memory_mb = within("memoryMb", self.memory_mb, 1..=1_048_576, defaults.memory_mb, &mut wrong);
        let programs = self.programs.validate(max_process_count, &mut wrong);
        let heartbeat = within("heartbeat", self.heartbeat, 1..=3_600, defaults.heartbeat.as_secs(), &mut wrong);
        let retry_download = within("retryDownload", self.retry_download, 0..=20, defaults.retry_download, &mut wrong);
        let group = name("group", self.group, defaults.group.clone(), &mut wrong);
        let node_type = name("nodeType", self.node_type, defaults.node_type.clone(), &mut wrong);
        if self.name.as_deref().is_some_and(|name| !is_name(name)) {
            wrong.push(format!("name: must be 1 to {} characters without control characters", crate::domain::node::MOST_NAME));
        }
        let node_id = parsed("nodeId", self.node_id.as_deref(), &mut wrong);
        let ip: Option<IpAddr> = parsed("ip", self.ip.as_deref(), &mut wrong);
        let targets = DownloadTargets {
            allow: rules("downloadAllow", self.download_allow, &mut wrong),
            deny: rules("downloadDeny", self.download_deny, &mut wrong),
        };
        let contact = self.contact.and_then(|text| check_contact(&text).map_err(|why| wrong.push(format!("contact: {why}"))).ok());
        let name_servers = NameServers::of(self.name_servers.unwrap_or_default()).unwrap_or_else(|why| {
            wrong.push(format!("nameServers: {why}"));
            NameServers::default()
        });
        let token = self.token.filter(|token| !token.is_empty());
        let token = token.map(|text| match own(&text, &["agent", "admin"]) {
            (Some(role @ ("readonly" | "worker" | "operator" | "editor")), _) => {
                wrong.push(format!("token: it has the role {role}; an agent needs a token of role agent"));
                String::new()
            }
            (_, token) => token.to_owned(),
        });
        if token.as_ref().is_some_and(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
            wrong.push("token: must contain only visible ASCII characters, without blanks".to_owned());
        }
        if self.change_ip_command.as_ref().is_some_and(|command| command.first().is_some_and(String::is_empty)) {
            wrong.push("changeIpCommand: the first element must be a program".to_owned());
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(AgentConfig {
            broker,
            token,
            max_process_count,
            max_sites,
            max_connections,
            memory_mb,
            heartbeat: Duration::from_secs(heartbeat),
            retry_download,
            group,
            node_type,
            name: self.name,
            node_id,
            data_dir: Some(self.data_dir.unwrap_or_else(|| PathBuf::from("."))),
            change_ip_command: self.change_ip_command.unwrap_or_default(),
            ip,
            targets,
            contact,
            name_servers,
            programs,
            ..defaults
        })
    }
}

fn broker(text: &str, wrong: &mut Vec<String>) -> Addresses {
    text.parse().unwrap_or_else(|why: String| {
        wrong.push(format!("broker: {why}"));
        AgentConfig::default().broker
    })
}

fn within<T: PartialOrd + fmt::Display>(key: &str, value: Option<T>, range: RangeInclusive<T>, default: T, wrong: &mut Vec<String>) -> T {
    let value = value.unwrap_or(default);
    if !range.contains(&value) {
        wrong.push(format!("{key}: must be {} to {}, not {value}", range.start(), range.end()));
    }
    value
}

fn name(key: &str, value: Option<String>, default: String, wrong: &mut Vec<String>) -> String {
    let value = value.unwrap_or(default);
    if value.is_empty() || value.chars().count() > MOST_NAME || value.chars().any(char::is_control) {
        wrong.push(format!("{key}: must be 1 to {MOST_NAME} characters"));
    }
    value
}

fn parsed<T: std::str::FromStr<Err: fmt::Display>>(key: &str, text: Option<&str>, wrong: &mut Vec<String>) -> Option<T> {
    text?.parse().map_err(|e| wrong.push(format!("{key}: {e}"))).ok()
}

fn rules(key: &str, texts: Option<Vec<String>>, wrong: &mut Vec<String>) -> Vec<Rule> {
    texts.unwrap_or_default().iter().filter_map(|text| parsed(key, Some(text), wrong)).collect()
}

/// Checked settings. `crawl` starts with [`AgentConfig::default`]: a node with a new id each time.
#[derive(Clone)]
pub struct AgentConfig {
    /// The address of the broker, or of several brokers of which one leads.
    pub broker: Addresses,
    /// The token that authenticates the agent.
    pub token: Option<String>,
    /// Maximum number of concurrent blocks.
    pub max_process_count: u32,
    /// Maximum number of concurrent sites with a pace.
    pub max_sites: u32,
    /// Maximum number of concurrent requests to all sites with a pace.
    pub max_connections: u32,
    /// Memory for large bodies, in MB.
    pub memory_mb: u32,
    /// Maximum time between two heartbeats.
    pub heartbeat: Duration,
    /// Default retries of a download; the job may override it.
    pub retry_download: u32,
    /// The group of the node.
    pub group: String,
    /// Console or Web.
    pub node_type: String,
    /// The displayed name of the node; `None`: the host name.
    pub name: Option<String>,
    /// The node's id.
    pub node_id: Option<NodeId>,
    /// The directory that stores the id if none is set; without both the id is random.
    pub data_dir: Option<PathBuf>,
    /// Program and arguments that change the machine's IP address; empty: not available.
    pub change_ip_command: Vec<String>,
    /// The reported IP address.
    pub ip: Option<IpAddr>,
    /// How owners of sites can contact the agent's owner.
    pub contact: Option<String>,
    /// Who resolves the names of sites.
    pub name_servers: NameServers,
    /// Allowed targets of downloads.
    pub targets: DownloadTargets,
    /// What the broker may run on this machine.
    pub programs: ProgramSettings,
    /// Waiting times of the agent. Not for users; tests shorten them.
    #[doc(hidden)]
    pub waits: Waits,
}

/// Waiting times that no user needs to set.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// Before the first retry of a download; doubled for each further one.
    pub retry: Duration,
    /// Before the first retry to reach the broker, by socket or with a report; doubled for each further one.
    pub reconnect: Duration,
    /// Maximum wait between two tries to reach the broker.
    pub reconnect_most: Duration,
    /// Time for running blocks to finish when the agent stops.
    pub drain: Duration,
    /// Time limit of the program that changes the IP address.
    pub change_ip: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            retry: Duration::from_millis(300),
            reconnect: Duration::from_millis(100),
            reconnect_most: Duration::from_secs(5),
            drain: Duration::from_secs(5),
            change_ip: Duration::from_secs(120),
        }
    }
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            broker: DEFAULT_BROKER.parse().expect("the default is a URL"),
            token: None,
            max_process_count: 5,
            max_sites: 512,
            max_connections: 256,
            memory_mb: 256,
            heartbeat: Duration::from_secs(5),
            retry_download: 3,
            group: "default".to_owned(),
            node_type: "Console".to_owned(),
            name: None,
            node_id: None,
            data_dir: None,
            change_ip_command: Vec::new(),
            ip: None,
            targets: DownloadTargets::default(),
            contact: None,
            name_servers: NameServers::default(),
            programs: ProgramSettings::default(),
            waits: Waits::default(),
        }
    }
}

impl fmt::Debug for AgentConfig {
    /// Omits the token, which must not get into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentConfig")
            .field("broker", &self.broker)
            .field("has_token", &self.token.is_some())
            .field("max_process_count", &self.max_process_count)
            .field("max_sites", &self.max_sites)
            .field("max_connections", &self.max_connections)
            .field("memory_mb", &self.memory_mb)
            .field("heartbeat", &self.heartbeat)
            .field("retry_download", &self.retry_download)
            .field("group", &self.group)
            .field("node_type", &self.node_type)
            .field("name", &self.name)
            .field("node_id", &self.node_id)
            .field("data_dir", &self.data_dir)
            .field("programs", &self.programs)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn list(texts: &[&str]) -> Option<Vec<String>> {
        Some(texts.iter().map(|text| (*text).to_owned()).collect())
    }

    #[test]
    fn nothing_said_gives_the_seeds_defaults() {
        let config = AgentLayer::default().validate().expect("defaults");
        assert_eq!((config.max_process_count, config.heartbeat.as_secs(), config.retry_download), (5, 5, 3));
        assert_eq!(config.broker.to_string(), DEFAULT_BROKER);
        assert_eq!((config.group.as_str(), config.node_type.as_str()), ("default", "Console"));
        assert_eq!(config.data_dir, Some(PathBuf::from(".")));
    }

    #[test]
    fn every_bad_setting_is_named_at_once() {
        let bad = AgentLayer {
            max_process_count: Some(0),
            max_sites: Some(0),
            max_connections: Some(0),
            memory_mb: Some(0),
            broker: some("ftp://x/"),
            token: some("a b"),
            heartbeat: Some(0),
            retry_download: Some(99),
            group: some(""),
            node_type: some(""),
            node_id: some("7"),
            name: some("a\tb"),
            change_ip_command: list(&[""]),
            ip: some("here"),
            contact: some("me"),
            name_servers: list(&["10.0.0.1", "dns.example"]),
            download_allow: list(&["10.0.0.0/8", "a b"]),
            download_deny: list(&["10.0.0.0/99"]),
            ..AgentLayer::default()
        };
        let wrong = bad.validate().expect_err("all of it is wrong");
        for key in [
            "maxProcessCount",
            "maxSites",
            "maxConnections",
            "memoryMb",
            "broker",
            "token",
            "heartbeat",
            "retryDownload",
            "group",
            "nodeType",
            "name",
            "nodeId",
            "changeIpCommand",
            "ip",
            "contact",
            "nameServers",
            "downloadAllow",
            "downloadDeny",
        ] {
            assert!(wrong.iter().any(|line| line.starts_with(&format!("{key}: "))), "{key} is not in {wrong:?}");
        }
        assert_eq!(wrong.len(), 18);
    }

    #[test]
    fn a_brokers_address_ends_in_a_slash_and_the_token_stays_out_of_logs() {
        let layer = |broker, token: &str| AgentLayer { broker, token: some(token), ..AgentLayer::default() };
        let config = layer(some("https://h/loom?x=1"), "secret7").validate().expect("valid");
        let of_a_worker = layer(None, "worker:secret7").validate().expect_err("the wrong role");
        assert_eq!(of_a_worker, ["token: it has the role worker; an agent needs a token of role agent"]);
        assert_eq!(config.broker.to_string(), "https://h/loom/");
        assert!(!format!("{config:?}").contains("secret7"));
    }
}
