//! `webloom agent`

use crate::agent;
use crate::config::agent::AgentLayer;
use crate::sdk::stop_signal;
use clap::Args as ClapArgs;
use std::path::{Path, PathBuf};

/// Flags of `webloom agent`; each may also stand in the file, under the name that the seeds give it.
#[derive(ClapArgs)]
pub struct Args {
    /// A TOML file with these settings: maxProcessCount, broker, token, heartbeat, retryDownload, group, nodeType, …
    #[arg(long, env = "WEBLOOM_AGENT_CONFIG")]
    config: Option<PathBuf>,
    /// Where the broker is [default: http://localhost:55626/]
    #[arg(long, env = "WEBLOOM_BROKER")]
    broker: Option<String>,
    /// What the broker knows its agents by
    #[arg(long, env = "WEBLOOM_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Blocks at once [default: 5]
    #[arg(long, env = "WEBLOOM_MAX_PROCESS_COUNT")]
    max_process_count: Option<u32>,
    /// Seconds between two heartbeats [default: 5]
    #[arg(long, env = "WEBLOOM_HEARTBEAT")]
    heartbeat: Option<u64>,
    /// Tries of a download after the first [default: 3]
    #[arg(long, env = "WEBLOOM_RETRY_DOWNLOAD")]
    retry_download: Option<u32>,
    /// The group that this node belongs to [default: default]
    #[arg(long, env = "WEBLOOM_GROUP")]
    group: Option<String>,
    /// Console or Web [default: Console]
    #[arg(long, env = "WEBLOOM_NODE_TYPE")]
    node_type: Option<String>,
    /// This node's id [default: kept in the file node-id in the data directory]
    #[arg(long, env = "WEBLOOM_NODE_ID")]
    node_id: Option<String>,
    /// Where the agent keeps what it must not forget [default: the working directory]
    #[arg(long, env = "WEBLOOM_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The program that gives this machine another IP address, and its arguments, divided by blanks; run without a shell
    #[arg(long, env = "WEBLOOM_CHANGE_IP_COMMAND", value_delimiter = ' ')]
    change_ip_command: Option<Vec<String>>,
    /// The address to be known by, where the broker cannot see it
    #[arg(long, env = "WEBLOOM_IP")]
    ip: Option<String>,
}

impl std::fmt::Debug for Args {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the token.
        f.debug_struct("Args").field("config", &self.config).field("broker", &self.broker).finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<AgentLayer, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Runs an agent until it is told to end.
///
/// # Errors
/// A setting is wrong, or the broker does not want it.
pub fn run(args: Args) -> Result<(), String> {
    let file = args.config.as_deref().map(read).transpose()?.unwrap_or_default();
    let flags = AgentLayer {
        max_process_count: args.max_process_count,
        broker: args.broker,
        token: args.token,
        heartbeat: args.heartbeat,
        retry_download: args.retry_download,
        group: args.group,
        node_type: args.node_type,
        node_id: args.node_id,
        data_dir: args.data_dir,
        change_ip_command: args.change_ip_command,
        ip: args.ip,
    };
    let config = flags.over(file).validate().map_err(|wrong| wrong.join("\n         "))?;
    actix_rt::System::new().block_on(agent::run(config, stop_signal())).map_err(|e| e.to_string())
}
