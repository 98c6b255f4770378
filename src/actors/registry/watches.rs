//! Who watches which class, and whose turn it is.

use super::{FindWorker, Registry, WorkerOpen, WorkerWatches};
use crate::domain::ids::{Identity, WorkerId};
use actix::Handler;
use std::collections::{HashMap, HashSet};

/// What one worker watches.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch {
    class_names: Vec<String>,
    /// The turn in which it was last chosen.
    chosen: u64,
}

/// Runs that no worker was found for, by the class that they need.
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

    /// The run has a worker, or needs none any more.
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
    /// Chooses a worker for a run, and keeps in mind that the run has none if there is none.
    pub(super) fn choose_for(&mut self, run: Identity, class_name: &str) -> Option<WorkerId> {
        let chosen = self.choose(class_name);
        match chosen {
            Some(_) => self.unserved.leave(run),
            None => self.unserved.enter(run, class_name),
        }
        chosen
    }

    /// A worker may be chosen that was not there, or was not open: the runs that wait for its classes look again.
    fn tell_unserved(&self, id: WorkerId) {
        let class_names = self.watches.get(&id).map_or(&[][..], |watch| &watch.class_names);
        for identity in self.unserved.of(class_names) {
            if let Some(run) = self.context.addresses.runs.get(identity) {
                run.workers_changed();
            }
        }
    }

    /// The worker that watches a class and was chosen longest ago.
    pub(super) fn choose(&mut self, class_name: &str) -> Option<WorkerId> {
        let open = self.watches.iter().filter(|(id, _)| !self.closed_workers.contains(id));
        let watching = open.filter(|(_, watch)| watch.class_names.iter().any(|name| name == class_name));
        let id = watching.min_by_key(|(id, watch)| (watch.chosen, **id)).map(|(id, _)| *id)?;
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
        self.message("registry.worker_watches");
        self.context.addresses.watches_changed();
        let watch = self.watches.entry(m.id).or_default();
        watch.class_names = m.class_names;
        // First those that it goes on with, so that nobody else is sent for them.
        for identity in &m.runs {
            match self.context.addresses.runs.get(*identity) {
                Some(run) => run.worker_has(m.id),
                None => log::info!("a worker has a run in hand that is not at work run_id={identity} worker_id={}", m.id),
            }
        }
        for identity in self.context.addresses.runs_by_worker.of(m.id) {
            // If it was told to start this one, the word was lost with an earlier connection.
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
        self.message("registry.worker_open");
        self.context.addresses.watches_changed();
        if !open {
            self.closed_workers.insert(id);
        } else if self.closed_workers.remove(&id) {
            self.tell_unserved(id);
        }
    }
}

impl Handler<FindWorker> for Registry {
    type Result = ();
    fn handle(&mut self, m: FindWorker, _: &mut Self::Context) {
        self.message("registry.find_worker");
        let chosen = self.choose_for(m.identity, &m.class_name);
        if let Some(run) = self.context.addresses.runs.get(m.identity) {
            run.worker_found(chosen);
        }
    }
}
