//! Works of seed 003: workers that are known before they are there.

use super::Desk;
use crate::actors::reply::problem_of;
use crate::actors::worker::check_facts;
use crate::domain::ids::WorkerId;
use crate::domain::time::Timestamp;
use crate::protocol::api::WorkerInput;
use crate::protocol::management::WorkerOutput;
use crate::protocol::problem::Problem;
use crate::protocol::worker::WorkerFacts;
use crate::store::EnterWorker;

impl Desk {
    /// A work says who it is. One that says what it watches is there from then on; of any other it is only kept.
    ///
    /// # Errors
    /// A value is not allowed, or it was put out.
    pub async fn register_work(
        &self,
        id: WorkerId,
        facts: WorkerFacts,
        class_names: Vec<String>,
        by: Option<String>,
    ) -> Result<WorkerOutput, Problem> {
        if class_names.is_empty() {
            self.admit_worker(id).await?;
            check_facts(&facts)?;
            let WorkerFacts { name, group, tags, .. } = facts;
            let enter = EnterWorker { worker: id, name, group, tags, by, now: Timestamp::now() };
            self.house.store.write(enter).await.map_err(|e| problem_of(&e))?;
        } else {
            let input = WorkerInput { worker_id: Some(id), class_names, runs: Vec::new(), tasks: Vec::new(), worker: facts };
            self.register_worker(id, input, by).await?;
        }
        self.worker(id).await
    }
}
