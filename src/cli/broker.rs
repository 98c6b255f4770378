//! `webloom broker`

use super::say;
use crate::broker::Broker;
use crate::config::broker::{BrokerConfig, Times};
use crate::config::tokens::Tokens;
use crate::sdk::stop_signal;
use clap::Args as ClapArgs;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Flags of `webloom broker`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Address and port to listen on; other than loopback only with a token
    #[arg(long, env = "WEBLOOM_LISTEN", default_value = "127.0.0.1:55626")]
    listen: SocketAddr,
    /// The SQLite file; results lie beside it, in a folder of its name with `-results`
    #[arg(long, env = "WEBLOOM_DATABASE", default_value = "webloom.db")]
    database: PathBuf,
    /// A token, `role:text` with role admin, readonly, agent or worker; without a role it is an admin's. May be repeated
    #[arg(long = "token", env = "WEBLOOM_TOKEN", value_delimiter = ',', hide_env_values = true)]
    tokens: Vec<String>,
    /// Threads that serve HTTP
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Milliseconds between two heartbeats of a node
    #[arg(long, default_value_t = Times::default().node_heartbeat)]
    node_heartbeat: u64,
    /// Milliseconds of silence after which a node is lost
    #[arg(long, default_value_t = Times::default().node_offline)]
    node_offline: u64,
    /// Milliseconds of silence after which a worker is lost
    #[arg(long, default_value_t = Times::default().worker_offline)]
    worker_offline: u64,
    /// Milliseconds in which a peer whose connection broke may come back and finds everything as it was
    #[arg(long, default_value_t = Times::default().grace)]
    grace: u64,
}

impl Args {
    fn config(self) -> Result<BrokerConfig, String> {
        let times = Times {
            node_heartbeat: self.node_heartbeat,
            node_offline: self.node_offline,
            worker_offline: self.worker_offline,
            grace: self.grace,
        };
        let tokens = Tokens::parse(&self.tokens)?;
        let config = BrokerConfig { listen: self.listen, database: self.database, tokens, threads: self.threads.max(1), times };
        config.validate().map_err(|e| e.to_string())
    }
}

/// Runs a broker until it is told to end.
///
/// # Errors
/// It cannot start.
pub fn run(args: Args) -> Result<(), String> {
    let config = args.config()?;
    actix_rt::System::new().block_on(async move {
        let broker = Broker::start(&config).await.map_err(|e| e.to_string())?;
        // Scripts wait for this line, and read the port in it.
        say(&format!("listening on http://{}", broker.address));
        stop_signal().await;
        log::info!("told to end");
        broker.stop().await;
        Ok(())
    })
}
