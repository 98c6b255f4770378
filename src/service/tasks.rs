//! Reports and heartbeats of workers in polling mode.

use super::Service;
use crate::actors::worker::{WorkerHandle, check_reports};
use crate::domain::ids::WorkerId;
use crate::protocol::problem::Problem;
use crate::protocol::task::{SettledTask, TaskRef, TaskReport};
use crate::protocol::worker::FromWorker;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a report waits for its acknowledgement. The worker may send it again.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of reports in one call.
const MOST_REPORTS: usize = 1_000;

impl Service {
    async fn known_worker(&self, id: WorkerId) -> Result<WorkerHandle, Problem> {
        let unknown = || Problem::not_found(format!("worker {id} is not registered, or was silent for too long"));
        self.worker_handle(id).ok_or_else(unknown)
    }

    /// Handles reports of tasks. Returns the acknowledgements of the final reports, which the worker may discard.
    ///
    /// # Errors
    /// The worker is not registered or no longer, a report is invalid (then none is accepted), or the broker is too busy.
    pub async fn worker_reports(&self, id: WorkerId, reports: Vec<TaskReport>) -> Result<Vec<SettledTask>, Problem> {
        let worker = self.known_worker(id).await?;
        if reports.len() > MOST_REPORTS {
            return Err(Problem::invalid("body", format!("must be at most {MOST_REPORTS} reports")));
        }
        check_reports(&reports)?;
        let mut settled = Vec::new();
        let reports = reports.into_iter().map(|report| {
            let waits = report.state.is_final().then(oneshot::channel).map(|(tell, told)| {
                settled.push(told);
                tell
            });
            (report, waits)
        });
        worker.reported(reports.collect());
        let all = futures_util::future::join_all(settled);
        let all = tokio::time::timeout(SETTLED_WITHIN, all).await;
        let busy = || Problem::busy("a report is not acknowledged yet: send it again");
        all.map_err(|_| busy())?.into_iter().map(|told| told.map_err(|_| busy())).collect()
    }

    /// Handles a heartbeat with the tasks of the worker.
    ///
    /// # Errors
    /// The worker is not registered, or no longer.
    pub async fn worker_beats(&self, id: WorkerId, tasks: Vec<TaskRef>) -> Result<(), Problem> {
        self.known_worker(id).await?.message(FromWorker::Heartbeat { tasks: Some(tasks) }).wait().await
    }
}
