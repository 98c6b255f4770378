//! The broker: boot in short steps, shutdown in order.

use crate::actors::callback::Outbound;
use crate::actors::desk::Desk;
use crate::actors::house::{House, Times};
use crate::actors::packages::Packages;
use crate::actors::registry::{Registry, RegistryHandle};
use crate::actors::supervision::log_panics;
use crate::config::broker::BrokerConfig;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use crate::edge::{Edge, routes};
use crate::store::{Barrier, CloseWorkers, OpenRuns, Store, StoreConfig, StoreError, UnsettledJobs};
use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer};
use std::net::SocketAddr;
use std::time::Duration;

/// Operations that may wait to be written, before callers are told to come again.
const WRITE_QUEUE: usize = 10_000;
/// Seconds that requests under way have at a shutdown.
const SHUTDOWN_SECONDS: u64 = 5;

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The database.
    #[error("the database {0} cannot be used: {1}")]
    Store(std::path::PathBuf, StoreError),
    /// The address.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// A broker that runs.
#[derive(Debug)]
pub struct Broker {
    /// Where it listens.
    pub address: SocketAddr,
    server: ServerHandle,
    registry: RegistryHandle,
    store: Store,
}

impl Broker {
    /// Starts a broker; to be called inside an actix system.
    ///
    /// # Errors
    /// The database cannot be opened, or the address not be listened on.
    pub async fn start(config: &BrokerConfig) -> Result<Self, BootError> {
        log_panics();
        let (store, open_runs, unsettled) = open_store(config).await.map_err(|e| BootError::Store(config.database.clone(), e))?;
        let house = House::new(store.clone(), times(config))
            .with_settings(config.alerts.clone(), config.keep)
            .with_outbound(Outbound::new(config.targets()))
            .with_packages(Packages::beside(&config.database));
        if !open_runs.is_empty() {
            log::info!("taking over runs that are not over: {}", open_runs.len());
        }
        let registry = Registry::start(&house, open_runs);
        for (job, run) in unsettled {
            registry.job_unsettled(job, run);
        }
        let (address, server) = listen(config, Desk::new(house)).map_err(|e| BootError::Listen(config.listen, e))?;
        log::info!("broker started address={address} database={} tokens={:?}", config.database.display(), config.tokens);
        Ok(Self { address, server, registry, store })
    }

    /// Stops: peers are told first, since an open socket would keep the server waiting; then the requests under way are
    /// answered; what was answered is on disk already.
    pub async fn stop(self) {
        if let Err(problem) = self.registry.shutdown().wait().await {
            log::warn!("the registry did not say good-bye: {problem}");
        }
        self.server.stop(true).await;
        if let Err(error) = self.store.write(Barrier).await {
            log::error!("the last writes failed: {error}");
        }
        log::info!("broker stopped");
    }
}

/// The store, the runs that are not over, and the jobs that had something to deal with when the last broker ended.
async fn open_store(config: &BrokerConfig) -> Result<(Store, Vec<Identity>, Vec<(JobId, Option<Identity>)>), StoreError> {
    let store = Store::open(&StoreConfig { database: config.database.clone(), write_queue: WRITE_QUEUE, readers: 1 })?;
    // Whoever watched when the last broker died will say so again.
    store.write(CloseWorkers { now: Timestamp::now() }).await?;
    let open_runs = store.read(OpenRuns).await?;
    let unsettled = store.read(UnsettledJobs).await?;
    Ok((store, open_runs, unsettled))
}

fn times(config: &BrokerConfig) -> Times {
    let t = config.times;
    Times {
        node_heartbeat: t.node_heartbeat,
        node_offline: t.node_offline,
        // Three may be missed before a worker is: whoever shortens the one shortens the other.
        worker_heartbeat: Times::default().worker_heartbeat.min(t.worker_offline / 3).max(10),
        worker_offline: t.worker_offline,
        grace: t.grace,
    }
}

/// Nagle's rule would hold the end of an answer back until the peer has acknowledged its beginning, and a peer that waits
/// for the end acknowledges 40 ms late.
fn send_at_once(connection: &dyn std::any::Any, _: &mut actix_web::dev::Extensions) {
    if let Some(stream) = connection.downcast_ref::<actix_web::rt::net::TcpStream>()
        && let Err(error) = stream.set_nodelay(true)
    {
        log::debug!("a connection keeps its delay: {error}");
    }
}

fn listen(config: &BrokerConfig, desk: Desk) -> std::io::Result<(SocketAddr, ServerHandle)> {
    let routes = routes(Edge { desk, tokens: config.tokens.clone(), scheduler_net: config.scheduler_net.clone() });
    let server = HttpServer::new(move || App::new().configure(routes.clone()))
        .workers(config.threads)
        .on_connect(send_at_once)
        .keep_alive(Duration::from_secs(75))
        .shutdown_timeout(SHUTDOWN_SECONDS)
        // Who closes a connection while it waits has hung up: blocks written to it would be out of reach until AckWait.
        .h1_allow_half_closed(false)
        .disable_signals()
        .bind(config.listen)?;
    let address = server.addrs().first().copied().unwrap_or(config.listen);
    let server = server.run();
    let handle = server.handle();
    actix::spawn(async move {
        if let Err(error) = server.await {
            log::error!("the server ended: {error}");
        }
    });
    Ok((address, handle))
}
