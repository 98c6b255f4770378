//! What the actors of one broker share: the store, the settings, and the directory of who lives where.

use super::dispatcher::DispatcherHandle;
use super::followers::Followers;
use super::job::JobHandle;
use super::lateness::Lateness;
use super::node::NodeHandle;
use super::registry::RegistryHandle;
use super::reply::problem_of;
use super::run::RunHandle;
use super::scheduler::SchedulerHandle;
use super::supervision::Census;
use super::worker::WorkerHandle;
use crate::domain::ids::{Identity, JobId, NodeId, WorkerId};
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::problem::Problem;
use crate::store::{GetRun, Store};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use tokio::sync::Notify;

/// Times that the actors go by, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Between two heartbeats of a node.
    pub node_heartbeat: u64,
    /// Silence after which a node is lost.
    pub node_offline: u64,
    /// Between two heartbeats of a worker.
    pub worker_heartbeat: u64,
    /// Silence after which a worker is lost.
    pub worker_offline: u64,
    /// A peer whose socket closed may come back within this time and finds everything as it was.
    pub grace: u64,
    /// Node statuses older than this are forgotten.
    pub node_status_kept: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            node_heartbeat: 5_000,
            node_offline: 30_000,
            worker_heartbeat: 3_000,
            worker_offline: 10_000,
            grace: 3_000,
            node_status_kept: 7 * 86_400_000,
        }
    }
}

/// A map that many read and the registry writes.
#[derive(Debug)]
pub struct Shelf<K, V>(RwLock<HashMap<K, V>>);

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash + Copy, V: Clone> Shelf<K, V> {
    /// The one of this key.
    #[must_use]
    pub fn get(&self, key: K) -> Option<V> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Puts one in.
    pub fn put(&self, key: K, value: V) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }

    /// Takes one out.
    pub fn remove(&self, key: K) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<(K, V)> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().map(|(k, v)| (*k, v.clone())).collect()
    }
}

/// Who lives where. The registry writes it; a message may still come too late.
#[derive(Debug, Default)]
pub struct Directory {
    /// Runs that are not over.
    pub runs: Shelf<Identity, RunHandle>,
    /// Runs that are not over and whose actor is being built, for the first time or anew.
    pub building: Shelf<Identity, ()>,
    /// Nodes that are there, or were a moment ago.
    pub nodes: Shelf<NodeId, NodeHandle>,
    /// Workers that are there, or were a moment ago.
    pub workers: Shelf<WorkerId, WorkerHandle>,
    /// Jobs that have something to do.
    pub jobs: Shelf<JobId, JobHandle>,
    dispatcher: RwLock<Option<DispatcherHandle>>,
    scheduler: RwLock<Option<SchedulerHandle>>,
    /// Everybody, for those who look on.
    pub census: Census,
}

impl Directory {
    /// Says who the dispatcher is.
    pub fn set_dispatcher(&self, handle: DispatcherHandle) {
        *self.dispatcher.write().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }

    /// The dispatcher, if it lives.
    #[must_use]
    pub fn dispatcher(&self) -> Option<DispatcherHandle> {
        self.dispatcher.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says who the scheduler is.
    pub fn set_scheduler(&self, handle: SchedulerHandle) {
        *self.scheduler.write().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }

    /// The scheduler, if it lives.
    #[must_use]
    pub fn scheduler(&self) -> Option<SchedulerHandle> {
        self.scheduler.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Numbers that somebody may want to see.
#[derive(Debug, Default)]
pub struct Counts {
    planned_jobs: AtomicU64,
}

impl Counts {
    /// So many jobs stand in the agenda.
    pub fn planned_jobs(&self, count: usize) {
        self.planned_jobs.store(count as u64, Relaxed);
    }

    /// Jobs in the agenda.
    #[must_use]
    pub fn agenda(&self) -> u64 {
        self.planned_jobs.load(Relaxed)
    }
}

/// What the actors of one broker share.
#[derive(Clone)]
pub struct House {
    /// The store.
    pub store: Store,
    /// Who lives where.
    pub directory: Arc<Directory>,
    /// Times that the actors go by.
    pub times: Times,
    /// When the broker started.
    pub since: Timestamp,
    /// How late fires are.
    pub lateness: Arc<Lateness>,
    /// Numbers that somebody may want to see.
    pub counts: Arc<Counts>,
    /// Rings when there is an event that somebody may want to hear of.
    pub alarms: Arc<Notify>,
    /// Who waits for more of the logs of runs, and how much these hold.
    pub followers: Arc<Followers>,
    registry: Arc<OnceLock<RegistryHandle>>,
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("house")
    }
}

impl House {
    /// A house in which nobody lives yet.
    #[must_use]
    pub fn new(store: Store, times: Times) -> Self {
        Self {
            store,
            directory: Arc::default(),
            times,
            since: Timestamp::now(),
            lateness: Arc::default(),
            counts: Arc::default(),
            alarms: Arc::default(),
            followers: Arc::default(),
            registry: Arc::default(),
        }
    }

    /// The registry moves in, first and once.
    pub fn set_registry(&self, handle: RegistryHandle) {
        // A second registry in one house would be a bug at the boot; the first one stays.
        let _ = self.registry.set(handle);
    }

    /// The registry.
    #[must_use]
    pub fn registry(&self) -> &RegistryHandle {
        self.registry.get().expect("the registry moves in before anybody asks for it")
    }

    /// The dispatcher, if it lives.
    #[must_use]
    pub fn dispatcher(&self) -> Option<DispatcherHandle> {
        self.directory.dispatcher()
    }

    /// The scheduler, if it lives.
    #[must_use]
    pub fn scheduler(&self) -> Option<SchedulerHandle> {
        self.directory.scheduler()
    }

    /// There is an event that somebody may want to hear of.
    pub fn alarm(&self) {
        self.alarms.notify_one();
    }

    /// The actor of a run that is not over.
    ///
    /// # Errors
    /// There is none, it is over, or its actor is being built.
    pub async fn run_at_work(&self, identity: Identity) -> Result<RunHandle, Problem> {
        if let Some(handle) = self.directory.runs.get(identity) {
            return Ok(handle);
        }
        if self.directory.building.get(identity).is_some() {
            return Err(Problem::busy("the run's actor is being built"));
        }
        let run = self.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        match run {
            None => Err(Problem::not_found(format!("there is no run {identity}"))),
            Some(run) if run.state.is_final() => {
                Err(Problem::conflict("run-over", format!("run {identity} is over: {}", run.state.name())))
            }
            // It waits for its turn, and nobody has needed its actor.
            Some(run) if run.is_queued() => self.registry().start_run(identity).wait().await,
            Some(_) => Err(Problem::busy("the run's actor is being built")),
        }
    }

    /// Ends a run.
    ///
    /// # Errors
    /// There is none, or it is over.
    pub async fn stop_run(&self, identity: Identity, reason: String) -> Result<RunOutput, Problem> {
        self.run_at_work(identity).await?.stop(reason).wait().await
    }
}
