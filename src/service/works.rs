//! Works of seed 003: workers that may be registered before they connect.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::worker::{check_classes, check_facts};
use crate::domain::ids::WorkerId;
use crate::domain::time::Timestamp;
use crate::domain::worker::WorkerOrder;
use crate::protocol::api::WorkerInput;
use crate::protocol::management::WorkerOutput;
use crate::protocol::problem::Problem;
use crate::protocol::worker::WorkerFacts;
use crate::store::EnterWorker;

impl Service {
    /// Registers a work. A work with classes counts as connected from then on; any other keeps its connection state, with its new
    /// name and group. `switch` is an additional order.
    ///
    /// # Errors
    /// A value is invalid, or the worker was kicked.
    pub async fn register_work(
        &self,
        id: WorkerId,
        facts: WorkerFacts,
        class_names: Vec<String>,
        switch: Option<WorkerOrder>,
        by: Option<String>,
    ) -> Result<WorkerOutput, Problem> {
        self.admit_worker(id).await?;
        check_facts(&facts)?;
        if !class_names.is_empty() {
            check_classes(&class_names)?;
        }
        // Disable it before it connects or changes its group; otherwise it could receive a task first.
        let is_off = switch == Some(WorkerOrder::Disable);
        if is_off || class_names.is_empty() {
            self.enter_work(id, &facts, by.clone()).await?;
        }
        if is_off {
            self.order_worker(id, WorkerOrder::Disable, None, by.clone()).await?;
        }
        if class_names.is_empty() {
            self.reload_worker(id).await;
        } else {
            let input = WorkerInput { worker_id: None, class_names, runs: Vec::new(), tasks: Vec::new(), worker: facts };
            self.register_worker(id, input, by.clone()).await?;
        }
        match switch {
            Some(order) if !is_off => self.order_worker(id, order, None, by).await,
            _ => self.worker(id).await,
        }
    }

    async fn enter_work(&self, worker: WorkerId, facts: &WorkerFacts, by: Option<String>) -> Result<(), Problem> {
        let WorkerFacts { name, group, tags, .. } = facts.clone();
        let enter = EnterWorker { worker, name, group, tags, by, now: Timestamp::now() };
        self.context.store.write(enter).await.map_err(|e| problem_of(&e))
    }

    /// Makes a connected worker use its stored identity for the assignment of tasks.
    pub(super) async fn reload_worker(&self, id: WorkerId) {
        if let Some(worker) = self.worker_handle(id) {
            // If its actor ends during this call, the next one starts from the stored record.
            drop(worker.reload_record().wait().await);
        }
    }
}
