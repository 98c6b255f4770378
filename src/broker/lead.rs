//! The leading broker: all actors and the whole API.

use super::lease::LeaseRenewer;
use super::meter::Meter;
use super::{BootError, WRITE_QUEUE, http};
use crate::actors::before::Before;
use crate::actors::brokers::{Brokers, Role};
use crate::actors::budget::Budget;
use crate::actors::callback::Outbound;
use crate::actors::context::{BrokerContext, Times};
use crate::actors::counters::Counters;
use crate::actors::packages::Packages;
use crate::actors::registry::{Registry, RegistryHandle};
use crate::config::broker::BrokerConfig;
use crate::domain::ids::{Identity, JobId};
use crate::domain::sites::SiteState;
use crate::domain::time::Timestamp;
use crate::edge::forward::Standbys;
use crate::edge::live::Live;
use crate::edge::standby::Successor;
use crate::edge::traffic::Traffic;
use crate::edge::{Edge, Executors, Guard, OwnRuns, Owners};
use crate::names::Names;
use crate::service::Service;
use crate::store::{
    CloseWorkers, CountNodes, EnsureLinkSecret, KeepSite, Leadership, LoadSites, Member, OpenRuns, OwnedBlockRuns, ReleaseLease, Store,
    StoreConfig, StoreError, UnsettledJobs,
};
use crate::telemetry::Telemetry;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Leader {
    me: Member,
    pub(super) edge: Edge,
    server: http::Serving,
    registry: RegistryHandle,
    store: Store,
    /// Ends with the reason why this broker is no longer the leader.
    keeper: JoinHandle<String>,
    meter: Box<Meter>,
}

/// Watched answers stay in memory for long, so they have a budget of their own: this part of what data of connections may take.
const LIVE_PART: usize = 8;

/// State that the previous leader left: active runs, jobs with unprocessed ends, and the connected peers.
type LeftOpen = (Vec<Identity>, Vec<(JobId, Option<Identity>)>, Before);

impl Leader {
    pub(super) async fn start(
        config: &BrokerConfig,
        door: &http::Listener,
        me: Member,
        leadership: Leadership,
        telemetry: Telemetry,
        counters: Counters,
    ) -> Result<Self, BootError> {
        let failed = |e| BootError::Store(config.database.to_string(), e);
        let store = Store::lead(&store_config(config), leadership.clone()).map_err(failed)?;
        let role = Role::Leader { term: leadership.term };
        let (is_cut_off, mut cut_off) = watch::channel(false);
        let context = context(config, store.clone(), Brokers::new(me.clone(), role)).with_counters(counters);
        let context = context.with_predecessor(Timestamp::steady().plus_ms(leadership.predecessor_answers_ms as i64));
        let (ttl_ms, brokers) = (config.lease.ttl_ms, Arc::clone(&context.brokers));
        if store.is_remote() {
            // Until the first renewal it is not known whether there are others.
            brokers.renewed(Some(Timestamp::steady().plus_ms(ttl_ms as i64)));
        }
        let keeper = LeaseRenewer {
            store: store.clone(),
            me: me.clone(),
            leadership,
            ttl_ms,
            brokers,
            is_cut_off,
            is_doubt_logged: Cell::default(),
        };
        let keeper = actix::spawn(keeper.keep());
        let (open_runs, unsettled, before) = left_open(&store).await.map_err(failed)?;
        let secret = store.write(EnsureLinkSecret(uuid::Uuid::new_v4().to_string())).await.map_err(failed)?;
        let context = context.with_before(before).with_telemetry(telemetry.clone()).with_link_secret(secret);
        let sites = store.read(LoadSites).await.map_err(failed)?;
        load_sites(&context, sites).await.map_err(failed)?;
        let elsewhere = store.read(OwnedBlockRuns).await.map_err(failed)?;
        for (identity, owner) in &elsewhere {
            context.enter_elsewhere(*owner, *identity);
        }
        if !open_runs.is_empty() || !elsewhere.is_empty() {
            // Nodes may still have turns from the previous broker, and may continue them for this time.
            // So may those of brokers that own runs, until these have connected or lost their runs.
            let of_owners = Timestamp::steady().plus_ms(if elsewhere.is_empty() { 0 } else { config.lease.ttl_ms as i64 });
            let until = context.predecessor_until.max(of_owners).plus_ms(context.sites.right_ms as i64);
            context.sites.board().quiet(Timestamp::steady(), until);
            log::info!("taking over active runs: {} elsewhere={}", open_runs.len(), elsewhere.len());
        }
        let registry = Registry::start(&context, open_runs);
        let (dispatcher, dispatch_is_paused) = (context.dispatcher.clone(), Arc::clone(&context.dispatch_is_paused));
        actix::spawn(async move {
            while cut_off.changed().await.is_ok() {
                dispatch_is_paused.store(*cut_off.borrow_and_update(), Relaxed);
                dispatcher.pause_changed();
            }
        });
        for (job, run) in unsettled {
            registry.job_unsettled(job, run);
        }
        let edge = edge(config, door, Service::new(context));
        edge.load_tokens().await.map_err(|problem| failed(StoreError::Failed(problem.detail)))?;
        let meter = Box::new(Meter::start(edge.clone(), telemetry));
        let server = http::serve(config, door, edge.clone()).map_err(|e| BootError::Listen(config.listen, e))?;
        Ok(Self { me, edge, server, registry, store, keeper, meter })
    }

    /// Completes when this broker is no longer the leader, with the reason.
    pub(super) async fn over(&mut self) -> String {
        (&mut self.keeper).await.unwrap_or_else(|_| "the lease renewer panicked".to_owned())
    }

    /// Stops the broker: answers waiting calls and notifies peers, then waits for active calls. All answered data is already on
    /// disk. The last write lets other brokers take over at once, so that clients that read slowly do not delay them.
    pub(super) async fn stop(self) {
        let begin = Instant::now();
        let ms = || begin.elapsed().as_millis();
        self.server.begin_end().await;
        if let Err(problem) = self.registry.shutdown().wait().await {
            log::warn!("registry shutdown failed: {problem}");
        }
        let peers_ms = ms();
        self.server.calls_over().await;
        let calls_ms = ms();
        self.meter.end().await;
        self.keeper.abort();
        match self.store.write(ReleaseLease(self.me)).await {
            Ok(()) => {}
            Err(error) => log::error!("the last writes failed: {error}"),
        }
        let released_ms = ms();
        self.store.close().await;
        let closed_ms = ms();
        self.server.end().await;
        let (store_ms, sent_ms) = (closed_ms - released_ms, ms() - closed_ms);
        log::info!(
            "leader stopped peers_ms={peers_ms} calls_ms={} released_ms={released_ms} store_ms={store_ms} sent_ms={sent_ms}",
            calls_ms - peers_ms
        );
    }
}

/// Loads the state of the sites. Expired holds are deleted, because no request can have been sent to their sites since.
async fn load_sites(context: &BrokerContext, sites: Vec<(Arc<str>, SiteState, Option<Arc<str>>)>) -> Result<(), StoreError> {
    let now = Timestamp::steady();
    let (over, known): (Vec<_>, Vec<_>) = sites.into_iter().partition(|(_, state, _)| state.is_forgettable(now));
    context.sites.board().load(known, now);
    for (name, ..) in over {
        context.store.write(KeepSite { name, state: None, held_by: None, now: Timestamp::now() }).await?;
    }
    Ok(())
}

pub(super) fn store_config(config: &BrokerConfig) -> StoreConfig {
    StoreConfig { database: config.database.clone(), write_queue: WRITE_QUEUE, readers: 1, accept_lost_data: config.accept_lost_data }
}

pub(super) fn context(config: &BrokerConfig, store: Store, brokers: Brokers) -> BrokerContext {
    BrokerContext::new(store, times(config), Arc::new(brokers))
        .with_settings(config.alerts.clone(), config.keep)
        .with_outbound(Outbound::new(config.targets()))
        .with_sites(config.site_rules.clone(), Names::new(config.name_servers.clone()))
        .with_packages(Packages::of(&config.database))
        .with_lease(config.lease.ttl_ms)
}

pub(super) fn edge(config: &BrokerConfig, door: &http::Listener, service: Service) -> Edge {
    Edge {
        service,
        tokens: config.tokens.clone(),
        guard: Guard::default(),
        owners: Owners::default(),
        scheduler_net: config.scheduler_net.clone(),
        budget: Budget::new(config.in_flight_bytes),
        ids_per_token: config.ids_per_token,
        traffic: Traffic::new(door.connections()),
        live: Live::new(config.in_flight_bytes / LIVE_PART),
        standbys: Standbys::default(),
        executors: Executors::default(),
        own_runs: OwnRuns::default(),
        link_secret: Arc::default(),
        successor: Successor::default(),
        is_tls: config.tls.is_some(),
    }
}

async fn left_open(store: &Store) -> Result<LeftOpen, StoreError> {
    // Workers that watched when the previous broker crashed will register again.
    let names = store.write(CloseWorkers { now: Timestamp::now() }).await?.into_iter().collect();
    let before = Before { names, nodes: store.read(CountNodes).await? };
    Ok((store.read(OpenRuns).await?, store.read(UnsettledJobs).await?, before))
}

fn times(config: &BrokerConfig) -> Times {
    let t = config.times;
    Times {
        node_heartbeat: t.node_heartbeat,
        node_offline: t.node_offline,
        // A worker is lost only after three missed heartbeats, so a shorter timeout needs a shorter interval.
        worker_heartbeat: Times::default().worker_heartbeat.min(t.worker_offline / 3).max(10),
        worker_offline: t.worker_offline,
        grace: t.grace,
    }
}
