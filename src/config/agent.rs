//! The settings of an agent, under the names that the seeds give them.
//!
//! They come in layers: flags over the environment over a file over the defaults. A layer says only what it knows;
//! [`AgentLayer::over`] puts one on another, [`AgentLayer::validate`] checks the whole.

use super::addresses::Addresses;
use super::programs::{AtStop, ProgramLayer, ProgramSettings};
use crate::domain::download_targets::DownloadTargets;
use crate::domain::ids::NodeId;
use crate::domain::node::is_name;
use crate::domain::targets::Rule;
use crate::protocol::application::ProgramLimits;
use crate::protocol::token::own;
use serde::Deserialize;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The broker of an agent that is told of none.
const DEFAULT_BROKER: &str = "http://localhost:55626/";
/// Characters of a group or a node type, as the broker stores them.
const MOST_NAME: usize = 50;

/// One layer of settings. In a file its members are in camel case; an unknown one is an error that names it.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentLayer {
    /// Blocks at once.
    pub max_process_count: Option<u32>,
    /// Sites with a pace of their own at once, besides these blocks.
    pub max_sites: Option<u32>,
    /// Requests under way at once, to all sites with a pace.
    pub max_connections: Option<u32>,
    /// MB of memory for large bodies.
    pub memory_mb: Option<u32>,
    /// Where the broker is: an `http` or `https` address, or several with commas between them.
    pub broker: Option<String>,
    /// What the broker knows its agents by.
    pub token: Option<String>,
    /// Seconds between two heartbeats, at most; the broker may ask for more of them.
    pub heartbeat: Option<u64>,
    /// Tries of a download after the first, unless the job says otherwise.
    pub retry_download: Option<u32>,
    /// The group that the node belongs to.
    pub group: Option<String>,
    /// Console or Web.
    pub node_type: Option<String>,
    /// What people call the node; the host's name unless said.
    pub name: Option<String>,
    /// The node's id; without one it is kept in the file `node-id` in the data directory.
    pub node_id: Option<String>,
    /// Where the agent keeps what it must not forget.
    pub data_dir: Option<PathBuf>,
    /// Program and arguments that give this machine another IP address. Run without a shell.
    pub change_ip_command: Option<Vec<String>>,
    /// The address to be known by, where the broker cannot see it.
    pub ip: Option<String>,
    /// Private, loopback and link-local places that downloads may go to.
    pub download_allow: Option<Vec<String>>,
    /// Places that downloads may not go to.
    pub download_deny: Option<Vec<String>>,
    /// Whether the broker may start programs here.
    pub applications: Option<bool>,
    /// Hosts, besides the broker, that packages of programs may come from.
    pub package_hosts: Option<Vec<String>>,
    /// Users that programs may run as, if the agent is root.
    pub application_users: Option<Vec<String>>,
    /// Most bytes of a package.
    pub max_package_bytes: Option<u64>,
    /// Most bytes of all kept packages.
    pub cache_bytes: Option<u64>,
    /// Programs at once; as many as blocks unless said.
    pub max_programs: Option<u32>,
    /// Upper bounds of what each program may use.
    pub program_limits: Option<ProgramLimits>,
    /// What becomes of programs when the agent is told to end.
    pub programs_at_stop: Option<AtStop>,
}

impl AgentLayer {
    fn programs(&mut self) -> ProgramLayer {
        ProgramLayer {
            applications: self.applications.take(),
            package_hosts: self.package_hosts.take(),
            application_users: self.application_users.take(),
            max_package_bytes: self.max_package_bytes.take(),
            cache_bytes: self.cache_bytes.take(),
            max_programs: self.max_programs.take(),
            program_limits: self.program_limits.take(),
            programs_at_stop: self.programs_at_stop.take(),
        }
    }

    /// What this layer says, and where it says nothing, what `below` says.
    #[must_use]
    pub fn over(mut self, mut below: Self) -> Self {
        let programs = self.programs().over(below.programs());
        Self {
            max_process_count: self.max_process_count.or(below.max_process_count),
            max_sites: self.max_sites.or(below.max_sites),
            max_connections: self.max_connections.or(below.max_connections),
            memory_mb: self.memory_mb.or(below.memory_mb),
            broker: self.broker.or(below.broker),
            token: self.token.or(below.token),
            heartbeat: self.heartbeat.or(below.heartbeat),
            retry_download: self.retry_download.or(below.retry_download),
            group: self.group.or(below.group),
            node_type: self.node_type.or(below.node_type),
            name: self.name.or(below.name),
            node_id: self.node_id.or(below.node_id),
            data_dir: self.data_dir.or(below.data_dir),
            change_ip_command: self.change_ip_command.or(below.change_ip_command),
            ip: self.ip.or(below.ip),
            download_allow: self.download_allow.or(below.download_allow),
            download_deny: self.download_deny.or(below.download_deny),
            applications: programs.applications,
            package_hosts: programs.package_hosts,
            application_users: programs.application_users,
            max_package_bytes: programs.max_package_bytes,
            cache_bytes: programs.cache_bytes,
            max_programs: programs.max_programs,
            program_limits: programs.program_limits,
            programs_at_stop: programs.programs_at_stop,
        }
    }

    /// Checks all settings and fills in the defaults.
    ///
    /// # Errors
    /// A line for each setting that is wrong, its name first.
    pub fn validate(mut self) -> Result<AgentConfig, Vec<String>> {
        let mut wrong = Vec::new();
        let defaults = AgentConfig::default();
        let broker = broker(self.broker.as_deref().unwrap_or(DEFAULT_BROKER), &mut wrong);
        let max_process_count = within("maxProcessCount", self.max_process_count, 1..=1_000, defaults.max_process_count, &mut wrong);
        let max_sites = within("maxSites", self.max_sites, 1..=100_000, defaults.max_sites, &mut wrong);
        let max_connections = within("maxConnections", self.max_connections, 1..=65_536, defaults.max_connections, &mut wrong);
        let memory_mb = within("memoryMb", self.memory_mb, 1..=1_048_576, defaults.memory_mb, &mut wrong);
        let programs = self.programs().validate(max_process_count, &mut wrong);
        let heartbeat = within("heartbeat", self.heartbeat, 1..=3_600, defaults.heartbeat.as_secs(), &mut wrong);
        let retry_download = within("retryDownload", self.retry_download, 0..=20, defaults.retry_download, &mut wrong);
        let group = name("group", self.group, defaults.group.clone(), &mut wrong);
        let node_type = name("nodeType", self.node_type, defaults.node_type.clone(), &mut wrong);
        if self.name.as_deref().is_some_and(|name| !is_name(name)) {
            wrong.push(format!("name: 1 to {} characters are expected, none of them a control character", crate::domain::node::MOST_NAME));
        }
        let node_id = parsed("nodeId", self.node_id.as_deref(), &mut wrong);
        let ip: Option<IpAddr> = parsed("ip", self.ip.as_deref(), &mut wrong);
        let targets = DownloadTargets {
            allow: rules("downloadAllow", self.download_allow, &mut wrong),
            deny: rules("downloadDeny", self.download_deny, &mut wrong),
        };
        let token = self.token.filter(|token| !token.is_empty());
        let token = token.map(|text| match own(&text, &["agent", "admin"]) {
            (Some(role @ ("readonly" | "worker")), _) => {
                wrong.push(format!("token: it is of role {role}; an agent needs one of role agent"));
                String::new()
            }
            (_, token) => token.to_owned(),
        });
        if token.as_ref().is_some_and(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
            wrong.push("token: only visible ASCII characters, without blanks, can be sent in a header".to_owned());
        }
        if self.change_ip_command.as_ref().is_some_and(|command| command.first().is_some_and(String::is_empty)) {
            wrong.push("changeIpCommand: the first element is to be a program".to_owned());
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
        wrong.push(format!("{key}: {value} is not from {} to {}", range.start(), range.end()));
    }
    value
}

fn name(key: &str, value: Option<String>, default: String, wrong: &mut Vec<String>) -> String {
    let value = value.unwrap_or(default);
    if value.is_empty() || value.chars().count() > MOST_NAME || value.chars().any(char::is_control) {
        wrong.push(format!("{key}: 1 to {MOST_NAME} characters are expected"));
    }
    value
}

fn parsed<T: std::str::FromStr<Err: fmt::Display>>(key: &str, text: Option<&str>, wrong: &mut Vec<String>) -> Option<T> {
    text?.parse().map_err(|e| wrong.push(format!("{key}: {e}"))).ok()
}

fn rules(key: &str, texts: Option<Vec<String>>, wrong: &mut Vec<String>) -> Vec<Rule> {
    texts.unwrap_or_default().iter().filter_map(|text| parsed(key, Some(text), wrong)).collect()
}

/// Checked settings. [`AgentConfig::default`] is what `crawl` begins with: a node that is new each time.
#[derive(Clone)]
pub struct AgentConfig {
    /// Where the broker is, or the brokers of which one leads.
    pub broker: Addresses,
    /// What the broker knows its agents by.
    pub token: Option<String>,
    /// Blocks at once.
    pub max_process_count: u32,
    /// Sites with a pace of their own at once.
    pub max_sites: u32,
    /// Requests under way at once, to all sites with a pace.
    pub max_connections: u32,
    /// MB of memory for large bodies.
    pub memory_mb: u32,
    /// The longest time between two heartbeats.
    pub heartbeat: Duration,
    /// Tries of a download after the first, unless the job says otherwise.
    pub retry_download: u32,
    /// The group that the node belongs to.
    pub group: String,
    /// Console or Web.
    pub node_type: String,
    /// What people call the node; none: the host's name.
    pub name: Option<String>,
    /// The node's id.
    pub node_id: Option<NodeId>,
    /// Where to keep the id if none is given; without either the id is a new one.
    pub data_dir: Option<PathBuf>,
    /// Program and arguments that give this machine another IP address; empty: there is no such program.
    pub change_ip_command: Vec<String>,
    /// The address to be known by.
    pub ip: Option<IpAddr>,
    /// Where downloads may go to.
    pub targets: DownloadTargets,
    /// What the broker may run here.
    pub programs: ProgramSettings,
    /// How long the agent waits for this and that. Not for users; tests shorten it.
    #[doc(hidden)]
    pub waits: Waits,
}

/// Waiting times that no user needs to set.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// Before the second try of a download; doubled for each further one.
    pub retry: Duration,
    /// Before the second try to reach the broker, by socket or with a report; doubled for each further one.
    pub reconnect: Duration,
    /// The longest wait between two tries to reach the broker.
    pub reconnect_most: Duration,
    /// What blocks at work are given when the agent stops.
    pub drain: Duration,
    /// What the program that changes the IP address is given.
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
            programs: ProgramSettings::default(),
            waits: Waits::default(),
        }
    }
}

impl fmt::Debug for AgentConfig {
    /// Without the token, which must not get into a log.
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

    fn layer(json: &str) -> AgentLayer {
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"))
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
    fn an_upper_layer_wins_where_it_speaks() {
        let file = layer(r#"{"maxProcessCount":7,"group":"file","retryDownload":1,"changeIpCommand":["redial","-x"]}"#);
        let env = layer(r#"{"group":"env","heartbeat":9}"#);
        let flags = layer(r#"{"heartbeat":2}"#);
        let config = flags.over(env.over(file)).validate().expect("valid");
        assert_eq!((config.max_process_count, config.heartbeat.as_secs(), config.retry_download), (7, 2, 1));
        assert_eq!(config.group, "env");
        assert_eq!(config.change_ip_command, ["redial", "-x"]);
    }

    #[test]
    fn an_unknown_key_and_a_wrong_type_are_named() {
        for (json, key) in [(r#"{"maxProcesCount":7}"#, "maxProcesCount"), (r#"{"heartbeat":"often"}"#, "often")] {
            let error = serde_json::from_str::<AgentLayer>(json).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(key), "{json}: {error}");
        }
    }

    #[test]
    fn every_bad_setting_is_named_at_once() {
        let bad = layer(
            r#"{"maxProcessCount":0,"maxSites":0,"maxConnections":0,"memoryMb":0,"broker":"ftp://x/","token":"a b","heartbeat":0,"retryDownload":99,"group":"","nodeType":"",
                "nodeId":"7","name":"a\tb","changeIpCommand":[""],"ip":"here",
                "downloadAllow":["10.0.0.0/8","a b"],"downloadDeny":["10.0.0.0/99"]}"#,
        );
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
            "downloadAllow",
            "downloadDeny",
        ] {
            assert!(wrong.iter().any(|line| line.starts_with(&format!("{key}: "))), "{key} is not in {wrong:?}");
        }
        assert_eq!(wrong.len(), 16);
    }

    #[test]
    fn a_brokers_address_ends_in_a_slash_and_the_token_stays_out_of_logs() {
        let config = layer(r#"{"broker":"https://h/loom?x=1","token":"secret7"}"#).validate().expect("valid");
        let of_a_worker = layer(r#"{"token":"worker:secret7"}"#).validate().expect_err("the wrong role");
        assert_eq!(of_a_worker, ["token: it is of role worker; an agent needs one of role agent"]);
        assert_eq!(config.broker.to_string(), "https://h/loom/");
        assert!(!format!("{config:?}").contains("secret7"));
    }
}
