//! `webloom broker`

use super::failure::Failure;
use super::telemetry::TelemetryArgs;
use super::{say, say_error};
use crate::broker::{BootError, Broker};
use crate::config::alerts::{AlertConfig, MailConfig};
use crate::config::broker::{BrokerConfig, IDS_PER_TOKEN, IN_FLIGHT_BYTES, LEAST_IN_FLIGHT_BYTES, SchedulerNet, Times, TlsFiles};
use crate::config::connections::ConnectionLimits;
use crate::config::keep::KeepConfig;
use crate::config::lease::{LeaseConfig, advertised};
use crate::config::tokens::Tokens;
use crate::domain::database::DatabaseAddress;
use crate::domain::name_servers::NameServers;
use crate::domain::sites::SiteRules;
use crate::domain::targets::Rule;
use crate::open_files;
use crate::private;
use crate::sdk::stop_signal;
use crate::telemetry::Telemetry;
use clap::Args as ClapArgs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use url::Url;

/// Exit code of a broker that lost the leadership: its supervisor should restart it, and then it is a standby. The number of
/// `EX_TEMPFAIL` in sysexits.h.
const DEPOSED: u8 = 75;

/// Flags of `webloom broker`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Address or host name, and port, to listen on; other than loopback only with a token
    #[arg(long, env = "WEBLOOM_LISTEN", default_value = "127.0.0.1:55626", value_parser = listen)]
    listen: SocketAddr,
    /// An SQLite file, with results beside it in a folder with its name and `-results`; or a PostgreSQL database, with all in it:
    /// postgres://user:password@host/database?sslmode=verify-full
    #[arg(long, env = "WEBLOOM_DATABASE", default_value = "webloom.db", hide_env_values = true)]
    database: PathBuf,
    /// Start even if files beside the database show that part of it was lost: an empty database beside results or packages, or a missing
    /// -wal file
    #[arg(long)]
    accept_lost_data: bool,
    /// The server certificate, and the chain from it to an authority (PEM): the broker then accepts only TLS
    #[arg(long, env = "WEBLOOM_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, env = "WEBLOOM_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// A token, `role:text` with role admin, editor, operator, readonly, agent or worker; a text without a colon is an admin's. May be repeated.
    /// At least 16 characters, unless the broker listens on loopback only
    #[arg(long = "token", env = "WEBLOOM_TOKEN", value_delimiter = ',', hide_env_values = true)]
    tokens: Vec<String>,
    /// A file with more tokens, one `role:text` a line; `#` begins a comment. It is read again on SIGHUP
    #[arg(long, env = "WEBLOOM_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Reject nodes whose `sign` has no time, as agents before this version send it: a copied one would be valid forever
    #[arg(long, env = "WEBLOOM_REQUIRE_SIGN_TIME")]
    require_sign_time: bool,
    /// Threads that serve HTTP
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Megabytes of memory for the data of connected clients: incoming bodies and frames, and unsent responses and frames. All clients
    /// with one token get three quarters of it
    #[arg(long, env = "WEBLOOM_IN_FLIGHT_MB", default_value_t = IN_FLIGHT_BYTES >> 20, value_parser = in_flight_mb)]
    in_flight_mb: usize,
    /// Connections that may be open at a time, HTTP and WebSocket together
    #[arg(long, env = "WEBLOOM_MAX_CONNECTIONS", default_value_t = ConnectionLimits::ALL, value_parser = at_least_one)]
    max_connections: usize,
    /// Connections that may be open at a time from one address, or one IPv6 /64 network; not more than --max-connections [default: 5000,
    /// and no limit for loopback]
    #[arg(long, env = "WEBLOOM_MAX_CONNECTIONS_PER_ADDRESS", value_parser = at_least_one)]
    max_connections_per_address: Option<usize>,
    /// Ids of nodes and workers that one token may own
    #[arg(long, env = "WEBLOOM_IDS_PER_TOKEN", default_value_t = IDS_PER_TOKEN, value_parser = at_least_one)]
    ids_per_token: usize,
    /// Milliseconds between heartbeats of a node
    #[arg(long, default_value_t = Times::default().node_heartbeat)]
    node_heartbeat: u64,
    /// Milliseconds of silence after which a node is lost
    #[arg(long, default_value_t = Times::default().node_offline)]
    node_offline: u64,
    /// Milliseconds of silence after which a worker is lost
    #[arg(long, default_value_t = Times::default().worker_offline)]
    worker_offline: u64,
    /// Milliseconds in which a peer whose connection broke may come back without losing its work
    #[arg(long, default_value_t = Times::default().grace)]
    grace: u64,
    /// The mail server for alerts: smtp://user:password@host:port, or smtps://; `?tls=required` for STARTTLS
    #[arg(long, env = "WEBLOOM_SMTP_URL", hide_env_values = true)]
    smtp_url: Option<String>,
    /// The sender of mail for alerts
    #[arg(long, env = "WEBLOOM_MAIL_FROM")]
    mail_from: Option<String>,
    /// Milliseconds in which alerts of one kind about one job are combined into one message
    #[arg(long, default_value_t = AlertConfig::default().gather_ms)]
    alert_gather: u64,
    /// How many of the newest ended runs of each job are kept
    #[arg(long, default_value_t = KeepConfig::default().runs)]
    keep_runs: u32,
    /// Days for which ended runs, the ledger of fires, changes of jobs and alerts are kept
    #[arg(long, default_value_t = KeepConfig::default().age_ms as f64 / KeepConfig::DAY_MS as f64, allow_negative_numbers = true)]
    keep_days: f64,
    /// Megabytes of run logs that are kept, the newest
    #[arg(long, default_value_t = KeepConfig::default().log_bytes >> 20)]
    keep_logs_mb: u64,
    /// Milliseconds between cleanups
    #[arg(long, default_value_t = KeepConfig::default().every_ms)]
    clean_every: u64,
    /// Where callbacks may go: host, host:port, *.suffix, an address or a network like 10.0.0.0/8. Given once or more, only there;
    /// otherwise to every public address, and without tokens also to this machine
    #[arg(long, env = "WEBLOOM_CALLBACK_ALLOW", value_delimiter = ',')]
    callback_allow: Vec<Rule>,
    /// Limits for the sites whose host matches, for all jobs: `PATTERN delay=MS connections=N`, one limit or both. PATTERN is host,
    /// host:port, *.suffix, an address, a network or `*`. The slowest of all rules that match, the job and robots.txt wins. May be
    /// repeated; in the environment a comma or a line break separates rules
    #[arg(long = "site", env = "WEBLOOM_SITE", value_name = "RULE")]
    sites: Vec<SiteRules>,
    /// Resolve the names of sites that jobs count by address (SiteBy=ip) with these DNS servers (ADDRESS or ADDRESS:PORT), or `system` for
    /// the system's resolver [default: those of the system]
    #[arg(long, env = "WEBLOOM_NAME_SERVERS", value_name = "SERVER", value_delimiter = ',')]
    name_servers: Vec<String>,
    /// Cron expression with which clients of Scheduler.NET mean: do not schedule. May be repeated
    #[arg(long, env = "WEBLOOM_SCHEDULER_NET_IGNORE", value_delimiter = ';', default_values_t = SchedulerNet::default().ignored)]
    scheduler_net_ignore: Vec<String>,
    /// Time zone of the cron expressions of Scheduler.NET's clients [default: this machine's]
    #[arg(long, env = "WEBLOOM_SCHEDULER_NET_ZONE")]
    scheduler_net_zone: Option<String>,
    /// The URL at which clients and other brokers reach this one [default: http:// or https:// and the address that it listens on; for
    /// 0.0.0.0 and [::] the address of this machine in its network, or with TLS its name]
    #[arg(long, env = "WEBLOOM_ADVERTISE", value_parser = advertised, value_name = "URL")]
    advertise: Option<Url>,
    /// Milliseconds without a sign of life of the leader after which another broker on the same database takes over; it replaces a killed
    /// leader at once
    #[arg(long, env = "WEBLOOM_LEASE_MS", default_value_t = LeaseConfig::default().ttl_ms, value_parser = clap::value_parser!(u64).range(LeaseConfig::TTL_MS))]
    lease_ms: u64,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

impl Args {
    /// Whether log lines are sent as well.
    pub fn sends_logs(&self) -> bool {
        self.telemetry.is_on()
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "a whole number from 1 is expected".to_owned())
}

fn in_flight_mb(text: &str) -> Result<usize, String> {
    let least = LEAST_IN_FLIGHT_BYTES >> 20;
    let megabytes = text.parse().ok().filter(|mb| (least..=1 << 20).contains(mb));
    megabytes.ok_or_else(|| format!("{least} to {} megabytes are expected", 1 << 20))
}

/// The address to listen on: an address, or a name that this machine has. An IPv4 address is preferred.
fn listen(text: &str) -> Result<SocketAddr, String> {
    const EXPECTED: &str = "an IP address or a host name, and a port, are expected, for example 127.0.0.1:55626";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if text.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
        return Err(EXPECTED.to_owned());
    }
    let found: Vec<SocketAddr> = text.to_socket_addrs().map_err(|e| format!("{e}; {EXPECTED}"))?.collect();
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    address.copied().ok_or_else(|| format!("the name has no address; {EXPECTED}"))
}

impl Args {
    fn config(self) -> Result<BrokerConfig, String> {
        let times = Times {
            node_heartbeat: self.node_heartbeat,
            node_offline: self.node_offline,
            worker_offline: self.worker_offline,
            grace: self.grace,
        };
        let mut tokens = Tokens::read(self.tokens, self.token_file)?;
        tokens.needs_sign_time = self.require_sign_time;
        let mail = MailConfig::parse(self.smtp_url.as_deref(), self.mail_from.as_deref())?;
        let alerts = AlertConfig { mail, gather_ms: self.alert_gather };
        if !(self.keep_days.is_finite() && self.keep_days >= 0.0) {
            return Err(format!("--keep-days: a number of days from 0 is expected, not {}", self.keep_days));
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
            // Not by clap, which would print the whole value, including the password of a URL.
            database: DatabaseAddress::parse(&self.database).map_err(|e| format!("--database: {e}"))?,
            accept_lost_data: self.accept_lost_data,
            tls: TlsFiles::of(self.tls_cert, self.tls_key)?,
            tokens,
            threads: self.threads.into(),
            in_flight_bytes: self.in_flight_mb << 20,
            connections: ConnectionLimits::new(self.max_connections, self.max_connections_per_address)?,
            ids_per_token: self.ids_per_token,
            times,
            alerts,
            keep,
            callback_allow: self.callback_allow,
            name_servers: NameServers::of(self.name_servers).map_err(|why| format!("--name-servers: {why}"))?,
            site_rules: self.sites.into_iter().flat_map(|rules| rules.0).collect(),
            scheduler_net: SchedulerNet {
                ignored: self.scheduler_net_ignore,
                zone: self.scheduler_net_zone.unwrap_or_else(SchedulerNet::zone_of_machine),
            },
            lease: LeaseConfig { ttl_ms: self.lease_ms, advertise: self.advertise, stands_by: true },
        };
        config.validate().map_err(|e| e.to_string())
    }
}

/// Runs a broker until it is stopped.
///
/// # Errors
/// It cannot start, or it is a standby and cannot take over.
pub fn run(mut args: Args) -> Result<ExitCode, Failure> {
    let telemetry = std::mem::take(&mut args.telemetry);
    let config = args.config().map_err(Failure::Refused)?;
    let telemetry = telemetry.start("webloom-broker").map_err(Failure::Refused)?;
    let ended = serve(&config, telemetry.clone());
    telemetry.stop();
    ended
}

fn serve(config: &BrokerConfig, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    private::hide_process();
    open_files::raise();
    let refused = |error: BootError| Failure::Refused(error.to_string());
    actix_rt::System::new().block_on(async move {
        if let Some(file) = config.tokens.file() {
            private::warn_if_open("token file", file);
            actix_rt::spawn(reload_tokens(config.clone()));
        }
        let mut broker = Broker::start(config, telemetry).await.map_err(refused)?;
        // Scripts wait for this line, and read the port in it.
        say(&format!("listening on {}", broker.url));
        match broker.run(stop_signal()).await {
            Ok(()) => {
                log::info!("stop requested");
                broker.stop().await;
                Ok(ExitCode::SUCCESS)
            }
            // No orderly shutdown: the new leader has everything, and peers should leave at once.
            Err(error @ BootError::Deposed(_)) => {
                say_error(&error.to_string());
                Ok(ExitCode::from(DEPOSED))
            }
            Err(error) => Err(refused(error)),
        }
    })
}

/// Reloads the token file at each SIGHUP.
async fn reload_tokens(config: BrokerConfig) {
    use actix_rt::signal::unix::{SignalKind, signal};
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    while hangup.recv().await.is_some() {
        if let Some(file) = config.tokens.file() {
            private::warn_if_open("token file", file);
        }
        match config.tokens.reload(config.least_token()) {
            Ok(()) => log::info!("tokens reloaded tokens={:?}", config.tokens),
            Err(why) => log::error!("tokens not reloaded, keeping the old ones: {why}"),
        }
    }
}
