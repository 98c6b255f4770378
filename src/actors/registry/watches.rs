//! Who watches which class, and whose turn it is.

use super::{FindWorker, Registry, WorkerOpen, WorkerWatches};
use crate::domain::ids::WorkerId;
use actix::Handler;

/// What one worker watches.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch {
    class_names: Vec<String>,
    /// The turn in which it was last chosen.
    chosen: u64,
}

impl Registry {
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
        self.house.directory.watches_changed();
        let watch = self.watches.entry(m.id).or_default();
        watch.class_names = m.class_names;
        // First those that it goes on with, so that nobody else is sent for them.
        for identity in &m.runs {
            match self.house.directory.runs.get(*identity) {
                Some(run) => run.worker_has(m.id),
                None => log::info!("a worker has a run in hand that is not at work run={identity} worker={}", m.id),
            }
        }
        for (identity, run) in self.house.directory.runs.all() {
            if !m.runs.contains(&identity) {
                // If it was told to start this one, the word was lost with an earlier connection.
                run.worker_back(m.id);
            }
            run.workers_changed();
        }
    }
}

impl Handler<WorkerOpen> for Registry {
    type Result = ();
    fn handle(&mut self, WorkerOpen { id, open }: WorkerOpen, _: &mut Self::Context) {
        self.message("registry.worker_open");
        self.house.directory.watches_changed();
        if !open {
            self.closed_workers.insert(id);
        } else if self.closed_workers.remove(&id) {
            for (_, run) in self.house.directory.runs.all() {
                run.workers_changed();
            }
        }
    }
}

impl Handler<FindWorker> for Registry {
    type Result = ();
    fn handle(&mut self, m: FindWorker, _: &mut Self::Context) {
        self.message("registry.find_worker");
        let chosen = self.choose(&m.class_name);
        if let Some(run) = self.house.directory.runs.get(m.identity) {
            run.worker_found(chosen);
        }
    }
}
