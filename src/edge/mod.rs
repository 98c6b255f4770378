//! HTTP and WebSocket: turns requests into messages, and results into JSON; nothing more.
//!
//! It calls the [`Service`] and never touches the store. Every error leaves as problem details (RFC 9457).

mod access;
mod answer;
mod attempts;
mod audit;
pub mod auth;
mod body;
mod compat;
pub mod connections;
mod error;
pub mod forward;
mod http;
mod intake;
pub mod live;
mod masks;
mod of_run;
pub mod openapi;
mod owners;
pub mod route;
mod schemas;
mod scope;
pub mod shell;
pub mod standby;
pub mod traffic;
mod ws;

pub use attempts::Guard;
pub use of_run::{Executors, OwnRuns};
pub use owners::Owners;

use crate::actors::budget::Budget;
use crate::config::broker::SchedulerNet;
use crate::config::tokens::Tokens;
use crate::protocol::exposition::Exposition;
use crate::protocol::problem::Problem;
use crate::service::Service;
use actix_web::web::{self, ServiceConfig};
use route::{Part, Resource, tagged};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use traffic::Traffic;

/// The pause before the stored tokens are read again after a failure.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);

/// Shared state of all handlers.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The service that forwards calls to the actors.
    pub service: Service,
    /// The tokens and their roles.
    pub tokens: Tokens,
    /// Counts rejected callers.
    pub guard: Guard,
    /// The owner token of each id.
    pub owners: Owners,
    /// How to interpret jobs of Scheduler.NET's clients.
    pub scheduler_net: SchedulerNet,
    /// How many ids of nodes and workers one token may own.
    pub ids_per_token: usize,
    /// The memory budget for data of connected clients.
    pub budget: Budget,
    /// Open calls and connections.
    pub traffic: Traffic,
    /// The answers that windows watch.
    pub live: live::Live,
    /// The addresses of the standbys, whose word on the origin of a call counts.
    pub standbys: forward::Standbys,
    /// The other brokers that execute runs, as they were known a moment ago.
    pub executors: Executors,
    /// The runs that this broker executes for the leader.
    pub own_runs: OwnRuns,
    /// The secret of the brokers, once it was needed.
    pub link_secret: Arc<OnceCell<String>>,
    /// The same broker as a leader, once it leads.
    pub successor: standby::Successor,
    /// Whether this server terminates TLS itself.
    pub is_tls: bool,
}

impl Edge {
    /// Reads the named tokens from the store. Tokens that are missing there are withdrawn at once.
    ///
    /// # Errors
    /// The store fails.
    pub async fn load_tokens(&self) -> Result<(), Problem> {
        let _turn = self.tokens.turn().await;
        self.tokens.set_named(self.service.named_tokens().await?);
        Ok(())
    }

    /// The metrics of this broker.
    ///
    /// # Errors
    /// The store fails.
    pub async fn metrics(&self) -> Result<Exposition, Problem> {
        let own = self.own_runs.edge();
        let mut page = self.service.metrics(own.as_ref().map(|edge| &edge.service)).await?;
        self.guard.write(&mut page);
        self.traffic.write(&mut page);
        self.live.write(&mut page);
        intake::write(&mut page);
        Ok(page)
    }

    /// Makes a change that also changes the stored tokens, and reads them again, until that succeeds. Both are completed if the caller leaves
    /// meanwhile. A change that failed is answered at once.
    ///
    /// # Errors
    /// Those of the change.
    async fn change_tokens<T: 'static>(&self, change: impl Future<Output = Result<T, Problem>> + 'static) -> Result<T, Problem> {
        let edge = self.clone();
        let done = actix_web::rt::spawn(async move {
            let done = change.await;
            let reload = actix_web::rt::spawn(async move {
                while let Err(problem) = edge.load_tokens().await {
                    log::warn!("failed to read the named tokens, retrying reason={}", problem.detail);
                    tokio::time::sleep(RELOAD_PAUSE).await;
                }
            });
            if done.is_ok() {
                reload.await.map_err(|_| Problem::internal())?;
            }
            done
        });
        done.await.map_err(|_| Problem::internal())?
    }
}

/// The whole route table: each resource's routes are at the top of its file. The most frequent come first, because a request is compared
/// with one address after the other.
#[must_use]
pub fn table() -> Vec<Resource> {
    use compat::{easy_job, scheduler_net, scrapyd};
    use http::{
        access_tokens, actors, alerts, audit, brokers, groups, hooks, job_data, jobs, live_logs, logs, metrics, node, nodes, packages,
        plans, portal, queue, redrive, runs, series, sites, status, steering, tasks, transfer, workers,
    };
    tagged("Queues", queue::routes())
        .chain(tagged("Nodes", node::routes()))
        .chain(tagged("Sockets", ws::routes()))
        .chain(tagged("Broker", status::routes()))
        .chain(tagged("Broker", actors::routes()))
        .chain(tagged("Broker", metrics::routes()))
        .chain(tagged("Broker", brokers::routes()))
        .chain(tagged("Broker", series::routes()))
        .chain(tagged("Broker", openapi::routes()))
        .chain(tagged("Jobs", plans::routes()))
        .chain(tagged("Jobs", transfer::routes()))
        .chain(tagged("Jobs", jobs::routes()))
        .chain(tagged("Jobs", job_data::routes()))
        .chain(tagged("Runs", redrive::routes()))
        .chain(tagged("Runs", runs::routes()))
        .chain(tagged("Runs", steering::routes()))
        .chain(tagged("Tasks", tasks::routes()))
        .chain(tagged("Alerts", alerts::routes()))
        .chain(tagged("Scheduler.NET", scheduler_net::routes()))
        .chain(tagged("easy-job", easy_job::routes()))
        .chain(tagged("scrapyd", scrapyd::routes()))
        .chain(tagged("Runs", logs::routes()))
        .chain(tagged("Runs", live_logs::routes()))
        .chain(tagged("Sites", sites::routes()))
        .chain(tagged("Groups", groups::routes()))
        .chain(tagged("Nodes", nodes::routes()))
        .chain(tagged("Packages", packages::routes()))
        .chain(tagged("Workers", workers::routes()))
        .chain(tagged("Tokens", access_tokens::routes()))
        .chain(tagged("Tokens", audit::routes()))
        .chain(tagged("Jobs", hooks::routes()))
        .chain(tagged("Portal", portal::routes()))
        .collect()
}

/// Builds the actix services of the table.
pub fn routes(edge: Edge) -> impl Fn(&mut ServiceConfig) + Clone {
    move |app: &mut ServiceConfig| {
        app.app_data(web::Data::new(edge.clone())).app_data(error::query_config()).default_service(web::to(error::no_such_route));
        route::register(&table(), app, Part::Leader);
    }
}
