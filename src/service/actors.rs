//! The live actors.

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::ids::{BrokerId, JobId};
use crate::domain::time::Timestamp;
use crate::protocol::actors::{ActorDetail, ActorFilter, KindOutput};
use crate::protocol::api::ActorOutput;
use crate::protocol::ownership::{Question, RunAnswer};
use crate::protocol::problem::Problem;
use crate::store::LoadJobs;
use std::collections::HashMap;

/// Maximum number of jobs whose names are read for one list.
const MOST_NAMES: usize = 200;
/// Maximum number of actors that each other broker lists.
const MOST_ELSEWHERE: usize = 10_000;

/// The writer of the store is no child of the registry.
const WRITER: (&str, &str) = ("persistence", "writer");

impl Service {
    /// The live actors of this broker that a filter selects, ordered by kind and name.
    #[must_use]
    pub fn own_actors(&self, filter: &ActorFilter) -> Vec<ActorOutput> {
        let now = Timestamp::now();
        let mut actors = self.context.addresses.actor_stats.list(filter, now);
        let writer = self.writer(now);
        if is_selected(filter, &writer) {
            let place = actors.partition_point(|actor| (&actor.kind, &actor.name) < (&writer.kind, &writer.name));
            actors.insert(place, writer);
            actors.truncate(filter.limit.unwrap_or(usize::MAX));
        }
        actors
    }

    /// The live actors of all brokers that a filter selects, ordered by kind and name, with the names of jobs and of the peers of
    /// sessions, as far as they are known.
    ///
    /// # Errors
    /// The store fails.
    pub async fn actors(&self, filter: &ActorFilter) -> Result<Vec<ActorOutput>, Problem> {
        let mut actors = self.own_actors(filter);
        // Some MB at most, whatever the others have.
        let most = filter.limit.map_or(MOST_ELSEWHERE, |limit| limit.min(MOST_ELSEWHERE));
        for (broker, answer) in self.ask_owners(Question::Actors(ActorFilter { limit: Some(most), ..filter.clone() })).await {
            if let RunAnswer::Actors(elsewhere) = answer {
                actors.extend(elsewhere.into_iter().map(|actor| ActorOutput { broker_id: Some(broker), ..actor }));
            }
        }
        merge(&mut actors, filter.limit);
        let of_kind = |kind: &str| actors.iter().filter(|actor| actor.kind == kind && actor.label.is_none()).collect::<Vec<_>>();
        let jobs: Vec<JobId> = of_kind("job").iter().take(MOST_NAMES).filter_map(|actor| actor.name.parse().ok()).collect();
        let mut names: HashMap<String, String> = HashMap::new();
        if !jobs.is_empty() {
            let jobs = self.context.store.read(LoadJobs(jobs)).await.map_err(|e| problem_of(&e))?;
            names.extend(jobs.into_iter().map(|(job, _)| (job.id.to_string(), job.name)));
        }
        if !of_kind("session").is_empty() {
            for kind in ["node", "worker"] {
                let peers = self.own_actors(&ActorFilter { kind: Some(kind.to_owned()), ..ActorFilter::default() });
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

    /// The sums of each kind of actors of this broker.
    #[must_use]
    pub fn own_actor_kinds(&self) -> Vec<KindOutput> {
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

    /// The sums of each kind of actors of all brokers.
    pub async fn actor_kinds(&self) -> Vec<KindOutput> {
        let mut kinds = self.own_actor_kinds();
        for (_, answer) in self.ask_owners(Question::ActorKinds).await {
            let RunAnswer::ActorKinds(elsewhere) = answer else { continue };
            for sums in elsewhere {
                match kinds.iter_mut().find(|known| known.kind == sums.kind) {
                    Some(known) => known.add(&sums),
                    None => kinds.push(sums),
                }
            }
        }
        kinds
    }

    /// An actor of this broker with its history, if it is there.
    #[must_use]
    pub fn own_actor(&self, kind: &str, name: &str) -> Option<ActorDetail> {
        let now = Timestamp::now();
        if (kind, name) == WRITER {
            return Some(ActorDetail {
                actor: self.writer(now),
                waiting: 0,
                messages: Vec::new(),
                recent: Vec::new(),
                depths: Vec::new(),
                crashes: Vec::new(),
            });
        }
        self.context.addresses.actor_stats.find(kind, name, now)
    }

    /// An actor with its history: of this broker, or of `broker`, or, if that is not named, of any.
    ///
    /// # Errors
    /// It is not there, or not any more.
    pub async fn actor(&self, kind: &str, name: &str, broker: Option<BrokerId>) -> Result<ActorDetail, Problem> {
        let is_here = broker.is_none_or(|broker| broker == self.context.brokers.me.id);
        let mut found = self.own_actor(kind, name).filter(|_| is_here);
        if found.is_none() {
            let asked = self.ask_owners(Question::Actor { kind: kind.to_owned(), name: name.to_owned() }).await;
            found = asked.into_iter().filter(|(of, _)| broker.is_none_or(|broker| broker == *of)).find_map(|(of, answer)| match answer {
                RunAnswer::Actor(Some(mut detail)) => {
                    detail.actor.broker_id = Some(of);
                    Some(*detail)
                }
                _ => None,
            });
        }
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
            broker_id: None,
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

/// Puts the actors of several brokers in order. The next page begins after a kind and a name, so that those of one name stay together.
fn merge(actors: &mut Vec<ActorOutput>, limit: Option<usize>) {
    actors.sort_by(|a, b| (&a.kind, &a.name, a.broker_id).cmp(&(&b.kind, &b.name, b.broker_id)));
    let Some(limit) = limit.filter(|limit| (1..actors.len()).contains(limit)) else { return };
    let last = (actors[limit - 1].kind.clone(), actors[limit - 1].name.clone());
    let more = actors[limit..].iter().take_while(|actor| (&actor.kind, &actor.name) == (&last.0, &last.1)).count();
    actors.truncate(limit + more);
}

/// Whether the filter selects this actor.
fn is_selected(filter: &ActorFilter, actor: &ActorOutput) -> bool {
    let has_error = actor.last_error.is_some() || actor.restarts > 0;
    filter.kind.as_ref().is_none_or(|kind| *kind == actor.kind)
        && filter.text.as_ref().is_none_or(|text| actor.name.contains(text))
        && filter.errors.is_none_or(|wanted| wanted == has_error)
        && filter.after.as_ref().is_none_or(|(kind, name)| (actor.kind.as_str(), actor.name.as_str()) > (kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_of_one_name_stay_on_one_page() {
        let (one, two) = (BrokerId::random(), BrokerId::random());
        let actor = |name: &str, broker_id| ActorOutput {
            kind: "k".to_owned(),
            name: name.to_owned(),
            broker_id,
            label: None,
            parent: None,
            state: "running".to_owned(),
            age: 0,
            restarts: 0,
            queue_depth: 0,
            messages_handled: 0,
            time_per_message: None,
            last_error: None,
        };
        let all = [actor("b", None), actor("c", None), actor("a", Some(one)), actor("b", Some(two)), actor("b", Some(one))];
        let names = |limit| {
            let mut all = all.to_vec();
            merge(&mut all, limit);
            all.iter().map(|actor| actor.name.clone()).collect::<String>()
        };
        assert_eq!([None, Some(1), Some(2), Some(4), Some(5), Some(9)].map(names), ["abbbc", "a", "abbb", "abbb", "abbbc", "abbbc"]);
    }
}
