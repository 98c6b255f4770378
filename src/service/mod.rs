//! The service: all operations that the edge may call, in one place. It finds the actor for a call, or reads from the store.
//!
//! It has no state. For active runs it asks their actors; for others it reads the store.

mod access_tokens;
mod actors;
mod alerts;
mod attempts;
mod audit;
mod brokers;
mod failures;
mod groups;
mod hooks;
mod job_data;
mod jobs;
mod live_logs;
mod logs;
mod metrics;
mod numbers;
mod owners;
mod peers;
mod pending;
mod plans;
mod programs;
mod queue;
mod redrive;
mod results;
mod run_owners;
mod run_sites;
mod runs;
mod series;
mod settings;
mod sites;
mod steering;
mod tasks;
mod transfer;
mod why;
mod why_url;
mod workers;
mod works;

pub use crate::actors::job::TriggerOrder;
pub use crate::actors::run::PollOptions;
pub use crate::store::StoredResult;
pub use audit::{AuditFilter, AuditedCall};
pub use failures::FailureFilter;
pub use hooks::Hook;
pub use jobs::JobFilter;
pub use live_logs::LogEvent;
pub use logs::LogFilter;
pub use numbers::NumberedId;
pub use peers::NodeMeeting;
pub use pending::PendingFilter;
pub use plans::FireFilter;
pub use queue::Receipt;
pub use run_sites::RunSiteFilter;
pub use runs::RunFilter;
pub use workers::WorkerFilter;

use crate::actors::context::BrokerContext;
use crate::protocol::problem::Problem;

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct Service {
    context: BrokerContext,
}

impl Service {
    /// The service of a context.
    #[must_use]
    pub fn new(context: BrokerContext) -> Self {
        Self { context }
    }

    /// Checks that requests can be served, which means that the store can write.
    ///
    /// # Errors
    /// The store cannot write.
    pub async fn ready(&self) -> Result<(), Problem> {
        self.context.store.check_disk().await.map_err(|e| crate::actors::reply::problem_of(&e))
    }

    /// Intervals and timeouts for the peers.
    #[must_use]
    pub fn times(&self) -> crate::actors::context::Times {
        self.context.times
    }

    /// Registers a session in the actor statistics, because it is not a child of the registry.
    #[must_use]
    pub fn enter_session(&self, name: String) -> std::sync::Arc<crate::actors::supervision::Stats> {
        let stats = crate::actors::supervision::Stats::new("session", name, None);
        self.context.addresses.actor_stats.enter(&stats);
        stats
    }

    /// Removes a session from the actor statistics.
    pub fn leave_session(&self, stats: &crate::actors::supervision::Stats) {
        self.context.addresses.actor_stats.leave(stats);
    }
}
