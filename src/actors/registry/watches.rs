//! Which worker watches which class, and which one is chosen next.

use super::{FindWorker, Registry, WorkerOpen, WorkerWatches};
use crate::domain::ids::{Identity, WorkerId};
use crate::domain::worker::NotEligible;
use actix::Handler;
use std::collections::{HashMap, HashSet};

/// The classes that one worker watches.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch {
    class_names: Vec<String>,
    /// The number of the choice in which it was chosen last.
    chosen: u64,
}

/// Runs without a worker, by the class that they need.
#[derive(Debug, Default)]
pub(super) struct Unserved {
    by_class: HashMap<String, HashSet<Identity>>,
    classes: HashMap<Identity, String>,
}

impl Unserved {
    fn enter(&mut self, run: Identity, class_name: &str) {
        if self.classes.insert(run, class_name.to_owned()).is_none() {
            self.by_class.entry(class_name.to_owned()).or_default().insert(run);
        }
    }

    /// Removes a run that has a worker, or needs none any more.
    pub(super) fn leave(&mut self, run: Identity) {
        let Some(class_name) = self.classes.remove(&run) else { return };
        if let Some(runs) = self.by_class.get_mut(&class_name) {
            runs.remove(&run);
            if runs.is_empty() {
                self.by_class.remove(&class_name);
            }
        }
    }

    fn of(&self, class_names: &[String]) -> Vec<Identity> {
        class_names.iter().filter_map(|name| self.by_class.get(name)).flatten().copied().collect()
    }
}

impl Registry {
    /// Chooses a worker for a run. If there is none, the run is stored as unserved.
    pub(super) fn choose_for(&mut self, run: Identity, class_name: &str) -> Result<WorkerId, NotEligible> {
        let chosen = self.choose(class_name);
        match chosen {
            Some(_) => self.unserved.leave(run),
            None => self.unserved.enter(run, class_name),
        }
        chosen.ok_or_else(|| {
            let mut watching: Vec<_> = self.watching(class_name).map(|(id, _)| (*id, String::new())).collect();
            watching.sort_unstable();
            if watching.is_empty() { NotEligible::Unwatched } else { NotEligible::Disabled(watching) }
        })
    }

    fn watching(&self, class_name: &str) -> impl Iterator<Item = (&WorkerId, &Watch)> {
        self.watches.iter().filter(move |(_, watch)| watch.class_names.iter().any(|name| name == class_name))
    }

    /// Notifies the runs that wait for the classes of a worker: it is now available, or the reason why they wait has changed.
    pub(super) fn tell_unserved(&self, id: WorkerId) {
        let class_names = self.watches.get(&id).map_or(&[][..], |watch| &watch.class_names);
        for identity in self.unserved.of(class_names) {
            if let Some(run) = self.context.addresses.runs.get(identity) {
                run.workers_changed();
            }
        }
    }

    /// The worker that watches a class and was chosen least recently.
    pub(super) fn choose(&mut self, class_name: &str) -> Option<WorkerId> {
        let open = self.watching(class_name).filter(|(id, _)| !self.closed_workers.contains(id));
        let id = open.min_by_key(|(id, watch)| (watch.chosen, **id)).map(|(id, _)| *id)?;
        self.turn += 1;
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.chosen = self.turn;
        }
        Some(id)
    }
}

impl Handler<WorkerWatches> for Registry {
    type Result = ();
    fn handle(&mut self, m: WorkerWatches, _: &mut Self::Context) {
        let _timed = self.timed("registry.worker_watches");
        self.context.addresses.watches_changed();
        let watch = self.watches.entry(m.id).or_default();
        watch.class_names = m.class_names;
        // Handle the runs that it continues first, so that no other worker is sent for them.
        for identity in &m.runs {
            match self.context.addresses.runs.get(*identity) {
                Some(run) => run.worker_has(m.id),
                None => log::info!("worker reports a run that is not active run_id={identity} worker_id={}", m.id),
            }
        }
        for identity in self.context.addresses.runs_by_worker.of(m.id) {
            // If the worker received an order to start this run, the order was lost with an earlier connection.
            if !m.runs.contains(&identity)
                && let Some(run) = self.context.addresses.runs.get(identity)
            {
                run.worker_back(m.id);
            }
        }
        self.tell_unserved(m.id);
    }
}

impl Handler<WorkerOpen> for Registry {
    type Result = ();
    fn handle(&mut self, WorkerOpen { id, open }: WorkerOpen, _: &mut Self::Context) {
        let _timed = self.timed("registry.worker_open");
        self.context.addresses.watches_changed();
        let has_changed = if open { self.closed_workers.remove(&id) } else { self.closed_workers.insert(id) };
        if has_changed {
            self.tell_unserved(id);
        }
    }
}

impl Handler<FindWorker> for Registry {
    type Result = ();
    fn handle(&mut self, m: FindWorker, _: &mut Self::Context) {
        let _timed = self.timed("registry.find_worker");
        let chosen = self.choose_for(m.identity, &m.class_name);
        if let Some(run) = self.context.addresses.runs.get(m.identity) {
            run.worker_found(chosen);
        }
    }
}
