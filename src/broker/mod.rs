//! The broker: one that leads or one that stands by, boot in short steps, shutdown in order.

mod bind;
mod clock;
mod http;
mod lead;
mod lease;
mod standby;
mod wire;

use crate::actors::supervision::log_panics;
use crate::config::broker::BrokerConfig;
use crate::domain::ids::BrokerId;
use crate::domain::leader::Reason;
use crate::domain::time::Timestamp;
use crate::store::{Leadership, Look, Member, StoreError};
use http::Listener;
use lead::Leader;
use standby::{Candidate, Standby};
use std::net::SocketAddr;

/// Operations that may wait to be written, before callers are told to come again.
const WRITE_QUEUE: usize = 10_000;

/// Why a broker did not start, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The database.
    #[error("the database {0} cannot be used: {1}")]
    Store(std::path::PathBuf, StoreError),
    /// The file of the database, in a sentence of its own.
    #[error("{0}")]
    File(StoreError),
    /// Another broker leads, and this one is not to stand by.
    #[error("another broker has {0} open")]
    Taken(std::path::PathBuf),
    /// The address.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// Another program listens there.
    #[error("cannot listen on {0}: another program uses port {1} (\"ss -tanp | grep {1}\" shows which). Choose another with --listen")]
    PortInUse(SocketAddr, u16),
    /// What it is to show those who connect.
    #[error("{0}")]
    Tls(String),
    /// It led, and does not any more. Started again, it stands by.
    #[error("this broker does not lead any more: {0}")]
    Deposed(String),
}

/// A broker that runs.
#[derive(Debug)]
pub struct Broker {
    /// Where it listens.
    pub address: SocketAddr,
    /// Under which URL it is found from this machine.
    pub url: String,
    config: BrokerConfig,
    door: http::Listener,
    me: Member,
    part: Part,
}

enum Part {
    Leads(Leader),
    StandsBy(Standby),
    /// It has ended.
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
    /// Starts a broker; to be called inside an actix system. It leads if no other does.
    ///
    /// # Errors
    /// The database cannot be opened, the address not be listened on, or another leads and this one is not to stand by.
    pub async fn start(config: &BrokerConfig) -> Result<Self, BootError> {
        log_panics();
        let failed = |e| match e {
            StoreError::Unusable(_) => BootError::File(e),
            e => BootError::Store(config.database.clone(), e),
        };
        let deaf = |e| BootError::Listen(config.listen, e);
        let door = Listener::open(config).await?;
        let (address, url) = (door.address().map_err(deaf)?, door.url().map_err(deaf)?);
        let me = member(&url, advertised(config, address, door.speaks_tls()));
        let mut candidate = Candidate::new(config, me.clone()).map_err(failed)?;
        let mut broker = Self { address, url, config: config.clone(), door, me, part: Part::None };
        match candidate.look() {
            Ok(Look::Leads(leadership, reason)) => broker.lead(leadership, reason).await?,
            Ok(Look::StandsBy(_)) | Err(StoreError::Busy) if config.lease.stands_by => {
                broker.part = Part::StandsBy(Standby::start(config, &broker.door, broker.me.clone(), candidate)?);
                log::info!("broker stands by address={address} database={}", config.database.display());
            }
            Ok(Look::StandsBy(_)) => return Err(BootError::Taken(config.database.clone())),
            Err(error) => return Err(failed(error)),
        }
        Ok(broker)
    }

    async fn lead(&mut self, leadership: Leadership, reason: Reason) -> Result<(), BootError> {
        let (term, why) = (leadership.term, reason.text());
        self.part = Part::Leads(Leader::start(&self.config, &self.door, self.me.clone(), leadership).await?);
        let Self { address, config, .. } = self;
        log::info!(
            "broker leads address={address} database={} tokens={:?} term={term} because={why}",
            config.database.display(),
            config.tokens
        );
        Ok(())
    }

    /// Leads or stands by until `stop` is ready; takes over when that is to be.
    ///
    /// # Errors
    /// It led and does not any more, or it cannot take over: it can only end.
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
                    let (leadership, reason) = won.map_err(|e| BootError::Store(self.config.database.clone(), e))?;
                    let Part::StandsBy(standby) = std::mem::replace(&mut self.part, Part::None) else { return Ok(()) };
                    self.lead(leadership, reason).await?;
                    standby.make_way();
                }
            }
        }
    }

    /// Stops.
    pub async fn stop(self) {
        match self.part {
            Part::Leads(leader) => leader.stop().await,
            Part::StandsBy(standby) => standby.stop().await,
            Part::None => {}
        }
        log::info!("broker stopped");
    }
}

/// Where others are to find it, if that is not simply where it listens.
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

fn member(own: &str, advertised: Option<String>) -> Member {
    let url = advertised.unwrap_or_else(|| own.to_owned());
    Member { id: BrokerId::random(), url, version: env!("CARGO_PKG_VERSION").to_owned(), started_at: Timestamp::now() }
}
