//! `webloom broker`

use super::remote::Failure;
use super::{say, say_error};
use crate::broker::{BootError, Broker};
use crate::config::alerts::{AlertConfig, MailConfig};
use crate::config::broker::{BrokerConfig, SchedulerNet, Times, TlsFiles};
use crate::config::keep::KeepConfig;
use crate::config::lease::{LeaseConfig, advertised};
use crate::config::tokens::Tokens;
use crate::domain::targets::Rule;
use crate::sdk::stop_signal;
use clap::Args as ClapArgs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use url::Url;

/// Of a broker that led and does not any more: its supervisor is to start it again, and then it stands by. The number of
/// `EX_TEMPFAIL` in sysexits.h.
const DEPOSED: u8 = 75;

/// Flags of `webloom broker`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Address and port to listen on; other than loopback only with a token
    #[arg(long, env = "WEBLOOM_LISTEN", default_value = "127.0.0.1:55626")]
    listen: SocketAddr,
    /// The SQLite file; results lie beside it, in a folder of its name with `-results`
    #[arg(long, env = "WEBLOOM_DATABASE", default_value = "webloom.db")]
    database: PathBuf,
    /// The certificate that it shows, and the chain from there to an authority (PEM): it then speaks TLS and nothing else
    #[arg(long, env = "WEBLOOM_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, env = "WEBLOOM_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
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
    /// Where mail for alerts is handed in: smtp://user:password@host:port, or smtps://; `?tls=required` for STARTTLS
    #[arg(long, env = "WEBLOOM_SMTP_URL", hide_env_values = true)]
    smtp_url: Option<String>,
    /// The sender of mail for alerts
    #[arg(long, env = "WEBLOOM_MAIL_FROM")]
    mail_from: Option<String>,
    /// Milliseconds in which alerts of one kind about one job are put into one message
    #[arg(long, default_value_t = AlertConfig::default().gather_ms)]
    alert_gather: u64,
    /// Ended runs of each job that are kept, the newest
    #[arg(long, default_value_t = KeepConfig::default().runs)]
    keep_runs: u32,
    /// Days for which ended runs, the ledger of fires, changes of jobs and alerts are kept
    #[arg(long, default_value_t = KeepConfig::default().age_ms as f64 / KeepConfig::DAY_MS as f64)]
    keep_days: f64,
    /// Megabytes of logs of runs that are kept, the newest
    #[arg(long, default_value_t = KeepConfig::default().log_bytes >> 20)]
    keep_logs_mb: u64,
    /// Milliseconds between two cleanings
    #[arg(long, default_value_t = KeepConfig::default().every_ms)]
    clean_every: u64,
    /// Where callbacks may go: host, host:port, *.suffix, an address or a network like 10.0.0.0/8. Given once or more, only
    /// there; else to every public address, and without tokens to this machine
    #[arg(long, env = "WEBLOOM_CALLBACK_ALLOW", value_delimiter = ',')]
    callback_allow: Vec<Rule>,
    /// Cron expression by which clients of Scheduler.NET say: do not schedule. May be repeated
    #[arg(long, env = "WEBLOOM_SCHEDULER_NET_IGNORE", value_delimiter = ';', default_values_t = SchedulerNet::default().ignored)]
    scheduler_net_ignore: Vec<String>,
    /// Time zone of the cron expressions of Scheduler.NET's clients; that of this machine unless given
    #[arg(long, env = "WEBLOOM_SCHEDULER_NET_ZONE")]
    scheduler_net_zone: Option<String>,
    /// Where clients and other brokers find this one [default: http:// or https:// and the address that it listens on]
    #[arg(long, env = "WEBLOOM_ADVERTISE", value_parser = advertised, value_name = "URL")]
    advertise: Option<Url>,
    /// Milliseconds without a sign of the leader after which a broker on the same database takes over; a leader that is killed
    /// is followed at once
    #[arg(long, env = "WEBLOOM_LEASE_MS", default_value_t = LeaseConfig::default().ttl_ms, value_parser = clap::value_parser!(u64).range(LeaseConfig::TTL_MS))]
    lease_ms: u64,
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
        let mail = MailConfig::parse(self.smtp_url.as_deref(), self.mail_from.as_deref())?;
        let alerts = AlertConfig { mail, gather_ms: self.alert_gather };
        if !(self.keep_days.is_finite() && self.keep_days >= 0.0) {
            return Err(format!("--keep-days: {} is no number of days", self.keep_days));
        }
        let keep = KeepConfig {
            runs: self.keep_runs,
            age_ms: (self.keep_days * KeepConfig::DAY_MS as f64) as u64,
            log_bytes: self.keep_logs_mb << 20,
            every_ms: self.clean_every.max(10),
            ..KeepConfig::default()
        };
        let config = BrokerConfig {
            listen: self.listen,
            database: self.database,
            tls: TlsFiles::of(self.tls_cert, self.tls_key)?,
            tokens,
            threads: self.threads.max(1),
            times,
            alerts,
            keep,
            callback_allow: self.callback_allow,
            scheduler_net: SchedulerNet {
                ignored: self.scheduler_net_ignore,
                zone: self.scheduler_net_zone.unwrap_or_else(SchedulerNet::zone_of_machine),
            },
            lease: LeaseConfig { ttl_ms: self.lease_ms, advertise: self.advertise, stands_by: true },
        };
        config.validate().map_err(|e| e.to_string())
    }
}

/// Runs a broker until it is told to end.
///
/// # Errors
/// It cannot start, or stands by and cannot take over.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let config = args.config().map_err(Failure::Refused)?;
    let refused = |error: BootError| Failure::Refused(error.to_string());
    actix_rt::System::new().block_on(async move {
        let mut broker = Broker::start(&config).await.map_err(refused)?;
        // Scripts wait for this line, and read the port in it.
        say(&format!("listening on {}", broker.url));
        match broker.run(stop_signal()).await {
            Ok(()) => {
                log::info!("told to end");
                broker.stop().await;
                Ok(ExitCode::SUCCESS)
            }
            // Nothing is finished in order: whoever took over has all of it, and peers are to leave at once.
            Err(error @ BootError::Deposed(_)) => {
                say_error(&error.to_string());
                Ok(ExitCode::from(DEPOSED))
            }
            Err(error) => Err(refused(error)),
        }
    })
}
