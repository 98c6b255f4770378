//! Works of seed 003: workers that are known before they are there.

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
    /// A work says who it is. One that says what it watches is there from then on; any other is as it was, by the name and
    /// the group that it has now. `switch`: what is to become of it besides.
    ///
    /// # Errors
    /// A value is not allowed, or it was put out.
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
        // Disabled before it is there, or before it has another group: it would be given something first.
        let is_off = switch == Some(WorkerOrder::Disable);
        if is_off || class_names.is_empty() {
            self.enter_work(id, &facts, by.clone()).await?;
        }
        if is_off {
            self.order_worker(id, WorkerOrder::Disable, None, by.clone()).await?;
        }
        if class_names.is_empty() {
            self.look_up(id).await;
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

    /// A worker that is there gets its tasks by what is stored of it now.
    pub(super) async fn look_up(&self, id: WorkerId) {
        if let Some(worker) = self.worker_handle(id) {
            // If it leaves over that, it begins with what is stored.
            drop(worker.look_up().wait().await);
        }
    }
}
