//! The live actors.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::supervision::ActorFilter;
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use crate::protocol::actors::{ActorDetail, KindOutput};
use crate::protocol::api::ActorOutput;
use crate::protocol::problem::Problem;
use crate::store::LoadJobs;
use std::collections::HashMap;

/// Maximum number of jobs whose names are read for one list.
const MOST_NAMES: usize = 200;

/// The writer of the store is no child of the registry.
const WRITER: (&str, &str) = ("persistence", "writer");

impl Service {
    /// The live actors that a filter selects, ordered by kind and name.
    #[must_use]
    pub fn actors(&self, filter: &ActorFilter) -> Vec<ActorOutput> {
        let now = Timestamp::now();
        let mut actors = self.context.addresses.actor_stats.list(filter, now);
        let writer = self.writer(now);
        if is_selected(filter, &writer) {
            let order = |actor: &ActorOutput| (actor.kind.clone(), actor.name.clone());
            let place = actors.partition_point(|actor| order(actor) < order(&writer));
            actors.insert(place, writer);
            actors.truncate(filter.limit.unwrap_or(usize::MAX));
        }
        actors
    }

    /// The same, with the names of jobs and of the peers of sessions, as far as they are known.
    ///
    /// # Errors
    /// The store fails.
    pub async fn named_actors(&self, filter: &ActorFilter) -> Result<Vec<ActorOutput>, Problem> {
        let mut actors = self.actors(filter);
        let of_kind = |kind: &str| actors.iter().filter(|actor| actor.kind == kind && actor.label.is_none()).collect::<Vec<_>>();
        let jobs: Vec<JobId> = of_kind("job").iter().take(MOST_NAMES).filter_map(|actor| actor.name.parse().ok()).collect();
        let mut names: HashMap<String, String> = HashMap::new();
        if !jobs.is_empty() {
            let jobs = self.context.store.read(LoadJobs(jobs)).await.map_err(|e| problem_of(&e))?;
            names.extend(jobs.into_iter().map(|(job, _)| (job.id.to_string(), job.name)));
        }
        if !of_kind("session").is_empty() {
            for kind in ["node", "worker"] {
                let peers = self.actors(&ActorFilter { kind: Some(kind.to_owned()), ..ActorFilter::default() });
                names.extend(peers.into_iter().filter_map(|peer| Some((format!("{kind} {}", peer.name), peer.label?))));
            }
        }
        for actor in actors.iter_mut().filter(|actor| actor.label.is_none()) {
            // The name of a session is that of its peer with a number: `node <id> #<number>`.
            let key = actor.name.split(" #").next().unwrap_or_default();
            actor.label = names.get(key).cloned();
        }
        Ok(actors)
    }

    /// The sums of each kind of actors.
    #[must_use]
    pub fn actor_kinds(&self) -> Vec<KindOutput> {
        let writer = self.writer(Timestamp::now());
        let mut kinds = self.context.addresses.actor_stats.kinds();
        kinds.push(KindOutput {
            kind: writer.kind,
            parent: None,
            count: 1,
            restarting: 0,
            with_errors: u64::from(writer.last_error.is_some()),
            restarts: writer.restarts.into(),
            queue_depth: writer.queue_depth,
            messages_handled: writer.messages_handled,
            time_per_message: None,
        });
        kinds
    }

    /// An actor with its history.
    ///
    /// # Errors
    /// It is not there, or not any more.
    pub async fn actor(&self, kind: &str, name: &str) -> Result<ActorDetail, Problem> {
        let now = Timestamp::now();
        if (kind, name) == WRITER {
            return Ok(ActorDetail {
                actor: self.writer(now),
                waiting: 0,
                messages: Vec::new(),
                recent: Vec::new(),
                depths: Vec::new(),
                crashes: Vec::new(),
            });
        }
        let found = self.context.addresses.actor_stats.find(kind, name, now);
        let mut found = found.ok_or_else(|| {
            Problem::not_found(format!("there is no actor `{name}` of the kind {kind}; it may have done its work and ended"))
        })?;
        if let (None, "job", Ok(job)) = (&found.actor.label, kind, name.parse::<JobId>()) {
            let jobs = self.context.store.read(LoadJobs(vec![job])).await.map_err(|e| problem_of(&e))?;
            found.actor.label = jobs.into_iter().next().map(|(job, _)| job.name);
        }
        Ok(found)
    }

    fn writer(&self, now: Timestamp) -> ActorOutput {
        let stats = self.context.store.stats();
        ActorOutput {
            kind: WRITER.0.to_owned(),
            name: WRITER.1.to_owned(),
            label: None,
            parent: None,
            state: if self.context.store.is_busy() { "busy" } else { "running" }.to_owned(),
            age: now.since_ms(self.context.since),
            restarts: u32::try_from(stats.restarts).unwrap_or(u32::MAX),
            queue_depth: stats.depth as u64,
            messages_handled: stats.written,
            time_per_message: None,
            last_error: stats.last_error,
        }
    }
}

/// Whether the filter selects this actor.
fn is_selected(filter: &ActorFilter, actor: &ActorOutput) -> bool {
    let has_error = actor.last_error.is_some() || actor.restarts > 0;
    filter.kind.as_ref().is_none_or(|kind| *kind == actor.kind)
        && filter.text.as_ref().is_none_or(|text| actor.name.contains(text))
        && filter.errors.is_none_or(|wanted| wanted == has_error)
        && filter.after.as_ref().is_none_or(|(kind, name)| (actor.kind.as_str(), actor.name.as_str()) > (kind, name))
}
