//! The broker as leader or standby, with its startup steps and its ordered shutdown.

mod bind;
mod clock;
mod http;
mod lead;
mod lease;
mod meter;
mod owner;
mod standby;
mod upgrade;
mod wire;

use crate::actors::counters::Counters;
use crate::actors::supervision::log_panics;
use crate::config::broker::BrokerConfig;
use crate::domain::ids::BrokerId;
use crate::domain::leader::Reason;
use crate::domain::time::Timestamp;
use crate::store::{Leadership, Look, Member, StoreError};
use crate::telemetry::Telemetry;
use http::Listener;
use lead::Leader;
use standby::{Candidate, Standby};
use std::net::SocketAddr;

/// Maximum number of operations in the write queue, before callers must retry later.
const WRITE_QUEUE: usize = 10_000;

/// Why a broker did not start, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The database failed.
    #[error("the database {0} cannot be used: {1}")]
    Store(String, StoreError),
    /// The database file is unusable; the error is a complete sentence.
    #[error("{0}")]
    File(StoreError),
    /// Another broker is the leader, and this one must not be a standby.
    #[error("another broker has {0} open")]
    Taken(String),
    /// The listen address failed.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// Another program listens on this port.
    #[error("cannot listen on {0}: another program uses port {1} (\"ss -tanp | grep {1}\" shows which). Choose another with --listen")]
    PortInUse(SocketAddr, u16),
    /// The TLS certificate or key is invalid.
    #[error("{0}")]
    Tls(String),
    /// This broker was the leader and is no longer. After a restart it is a standby.
    #[error("this broker is no longer the leader: {0}")]
    Deposed(String),
}

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    /// The listen address.
    pub address: SocketAddr,
    /// The URL of the broker on this machine.
    pub url: String,
    config: BrokerConfig,
    door: http::Listener,
    telemetry: Telemetry,
    me: Member,
    counters: Counters,
    part: Part,
    /// The server of the standby that this broker was, which serves the sockets that came to it then.
    former: Option<http::Serving>,
}

enum Part {
    Leads(Leader),
    StandsBy(Standby),
    /// The broker has ended.
    None,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Leads(_) => "leads",
            Self::StandsBy(_) => "stands by",
            Self::None => "ended",
        })
    }
}

impl Broker {
    /// Starts a broker; call it inside an actix system. It becomes the leader if there is no other.
    ///
    /// # Errors
    /// The database or the listen address fails, or another broker leads and this one must not be a standby.
    pub async fn start(config: &BrokerConfig, telemetry: Telemetry) -> Result<Self, BootError> {
        log_panics();
        let failed = |e| match e {
            StoreError::Unusable(_) => BootError::File(e),
            e => BootError::Store(config.database.to_string(), e),
        };
        let deaf = |e| BootError::Listen(config.listen, e);
        let door = Listener::open(config).await?;
        let (address, url) = (door.address().map_err(deaf)?, door.url().map_err(deaf)?);
        let id = telemetry.instance().unwrap_or_else(BrokerId::random);
        let me = member(id, &url, advertised(config, address, door.speaks_tls()));
        let mut candidate = Candidate::new(config, me.clone()).map_err(failed)?;
        let mut broker = Self {
            address,
            url,
            config: config.clone(),
            door,
            telemetry,
            me,
            counters: Counters::default(),
            part: Part::None,
            former: None,
        };
        match candidate.look() {
            Ok(Look::Leads(leadership, reason)) => broker.lead(leadership, reason).await?,
            Ok(Look::StandsBy(_)) | Err(StoreError::Busy) if config.lease.stands_by => {
                let (me, telemetry, counters) = (broker.me.clone(), broker.telemetry.clone(), broker.counters.clone());
                broker.part = Part::StandsBy(Standby::start(config, &broker.door, me, candidate, telemetry, counters)?);
                log::info!("broker stands by address={address} database={}", config.database);
            }
            Ok(Look::StandsBy(_)) => return Err(BootError::Taken(config.database.to_string())),
            Err(error) => return Err(failed(error)),
        }
        Ok(broker)
    }

    async fn lead(&mut self, leadership: Leadership, reason: Reason) -> Result<(), BootError> {
        let (term, why) = (leadership.term, reason.text());
        let (telemetry, counters) = (self.telemetry.clone(), self.counters.clone());
        self.part = Part::Leads(Leader::start(&self.config, &self.door, self.me.clone(), leadership, telemetry, counters).await?);
        let Self { address, config, .. } = self;
        log::info!("broker leads address={address} database={} tokens={:?} term={term} because={why}", config.database, config.tokens);
        Ok(())
    }

    /// Runs as leader or standby until `stop` completes, and takes over when the leader is gone.
    ///
    /// # Errors
    /// This broker lost the leadership or cannot take over; it must end.
    pub async fn run(&mut self, stop: impl Future<Output = ()>) -> Result<(), BootError> {
        let mut stop = std::pin::pin!(stop);
        loop {
            match &mut self.part {
                Part::None => return Ok(()),
                Part::Leads(leader) => {
                    tokio::select! {
                        () = &mut stop => return Ok(()),
                        why = leader.over() => return Err(BootError::Deposed(why)),
                    }
                }
                Part::StandsBy(standby) => {
                    let won = tokio::select! {
                        () = &mut stop => return Ok(()),
                        won = standby.won() => won,
                    };
                    let (leadership, reason) = won.map_err(|e| BootError::Store(self.config.database.to_string(), e))?;
                    let Part::StandsBy(mut standby) = std::mem::replace(&mut self.part, Part::None) else { return Ok(()) };
                    standby.end_runs().await;
                    // It has already acquired the lease. If the database fails now, it ends as a leader does that loses the database: with code 75.
                    self.lead(leadership, reason).await.map_err(|error| match error {
                        BootError::Store(_, error) => BootError::Deposed(error.to_string()),
                        error => error,
                    })?;
                    if let Part::Leads(leader) = &self.part {
                        self.former = Some(standby.make_way(leader.edge.clone()));
                    }
                }
            }
        }
    }

    /// Stops the broker.
    pub async fn stop(self) {
        match self.part {
            Part::Leads(leader) => leader.stop().await,
            Part::StandsBy(standby) => standby.stop().await,
            Part::None => {}
        }
        if let Some(former) = self.former {
            former.end().await;
        }
        log::info!("broker stopped");
    }
}

/// The URL for other machines, if it differs from the listen address.
fn advertised(config: &BrokerConfig, address: SocketAddr, by_tls: bool) -> Option<String> {
    if let Some(url) = &config.lease.advertise {
        return Some(url.as_str().trim_end_matches('/').to_owned());
    }
    if !address.ip().is_unspecified() {
        return None;
    }
    let url = bind::reachable(address, by_tls);
    match &url {
        Some(url) => log::info!("address chosen for others url={url} listen={address}; --advertise sets another"),
        None => log::warn!("no address for others found listen={address}; set --advertise, or clients and other brokers cannot find it"),
    }
    url.or_else(|| Some(format!("{}://localhost:{}", if by_tls { "https" } else { "http" }, address.port())))
}

fn member(id: BrokerId, own: &str, advertised: Option<String>) -> Member {
    let url = advertised.unwrap_or_else(|| own.to_owned());
    Member { id, url, version: env!("CARGO_PKG_VERSION").to_owned(), started_at: Timestamp::now() }
}
