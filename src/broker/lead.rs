//! The broker that leads: all actors, the whole API.

use super::lease::Keeper;
use super::{BootError, WRITE_QUEUE, http};
use crate::actors::brokers::{Brokers, Role};
use crate::actors::callback::Outbound;
use crate::actors::desk::Desk;
use crate::actors::house::{House, Times};
use crate::actors::packages::Packages;
use crate::actors::registry::{Registry, RegistryHandle};
use crate::config::broker::BrokerConfig;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::store::{CloseWorkers, Leadership, Member, OpenRuns, ReleaseLease, Store, StoreConfig, StoreError, UnsettledJobs};
use actix_web::dev::ServerHandle;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Leader {
    me: Member,
    server: ServerHandle,
    registry: RegistryHandle,
    store: Store,
    /// Ends with the reason why it does not lead any more.
    keeper: JoinHandle<String>,
}

/// What was left open when the last leader ended: runs, and jobs that had something to deal with.
type LeftOpen = (Vec<Identity>, Vec<(JobId, Option<Identity>)>);

impl Leader {
    pub(super) async fn start(config: &BrokerConfig, door: &http::Door, me: Member, leadership: Leadership) -> Result<Self, BootError> {
        let failed = |e| BootError::Store(config.database.clone(), e);
        let store = Store::lead(&store_config(config), leadership.clone()).map_err(failed)?;
        let role = Role::Leader { term: leadership.term };
        let keeper = Keeper { store: store.clone(), me: me.clone(), leadership, ttl_ms: config.lease.ttl_ms };
        let keeper = actix::spawn(keeper.keep());
        let (open_runs, unsettled) = left_open(&store).await.map_err(failed)?;
        let house = house(config, store.clone(), Brokers::new(me.clone(), role));
        if !open_runs.is_empty() {
            log::info!("taking over runs that are not over: {}", open_runs.len());
        }
        let registry = Registry::start(&house, open_runs);
        for (job, run) in unsettled {
            registry.job_unsettled(job, run);
        }
        let server = http::serve(config, door, edge(config, Desk::new(house))).map_err(|e| BootError::Listen(config.listen, e))?;
        Ok(Self { me, server, registry, store, keeper })
    }

    /// Ready when it does not lead any more; says why.
    pub(super) async fn over(&mut self) -> String {
        (&mut self.keeper).await.unwrap_or_else(|_| "whoever keeps the lease panicked".to_owned())
    }

    /// Stops: peers are told first, since an open socket would keep the server waiting; then the requests under way are
    /// answered; what was answered is on disk already. The last write says that others may take over at once.
    pub(super) async fn stop(self) {
        if let Err(problem) = self.registry.shutdown().wait().await {
            log::warn!("the registry did not say good-bye: {problem}");
        }
        self.server.stop(true).await;
        self.keeper.abort();
        match self.store.write(ReleaseLease(self.me)).await {
            Ok(()) => {}
            Err(error) => log::error!("the last writes failed: {error}"),
        }
        self.store.close().await;
    }
}

pub(super) fn store_config(config: &BrokerConfig) -> StoreConfig {
    StoreConfig { database: config.database.clone(), write_queue: WRITE_QUEUE, readers: 1 }
}

pub(super) fn house(config: &BrokerConfig, store: Store, brokers: Brokers) -> House {
    House::new(store, times(config), Arc::new(brokers))
        .with_settings(config.alerts.clone(), config.keep)
        .with_outbound(Outbound::new(config.targets()))
        .with_packages(Packages::beside(&config.database))
        .with_lease(config.lease.ttl_ms)
}

pub(super) fn edge(config: &BrokerConfig, desk: Desk) -> Edge {
    Edge { desk, tokens: config.tokens.clone(), scheduler_net: config.scheduler_net.clone() }
}

async fn left_open(store: &Store) -> Result<LeftOpen, StoreError> {
    // Whoever watched when the last broker died will say so again.
    store.write(CloseWorkers { now: Timestamp::now() }).await?;
    Ok((store.read(OpenRuns).await?, store.read(UnsettledJobs).await?))
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
