//! Workers without a socket and their tasks.

use super::Service;
use crate::actors::worker::{WorkerHandle, check_reports};
use crate::domain::ids::WorkerId;
use crate::protocol::problem::Problem;
use crate::protocol::task::{SettledTask, TaskRef, TaskReport};
use crate::protocol::worker::FromWorker;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a report waits to be settled. It may be said again.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
/// Reports of one call.
const MOST_REPORTS: usize = 1_000;

impl Service {
    async fn known_worker(&self, id: WorkerId) -> Result<WorkerHandle, Problem> {
        let unknown = || Problem::not_found(format!("worker {id} is not registered, or was silent for too long"));
        self.worker_handle(id).ok_or_else(unknown)
    }

    /// What became of tasks. Answers with those that are final and may be forgotten.
    ///
    /// # Errors
    /// The worker is not known (any more), a report is not allowed (then none is taken), or the broker is too busy.
    pub async fn worker_reports(&self, id: WorkerId, reports: Vec<TaskReport>) -> Result<Vec<SettledTask>, Problem> {
        let worker = self.known_worker(id).await?;
        if reports.len() > MOST_REPORTS {
            return Err(Problem::invalid("body", format!("at most {MOST_REPORTS} reports are taken at once")));
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
        let busy = || Problem::busy("a report is not settled yet: say it again");
        all.map_err(|_| busy())?.into_iter().map(|told| told.map_err(|_| busy())).collect()
    }

    /// A worker lives and has these tasks in hand.
    ///
    /// # Errors
    /// The worker is not known (any more).
    pub async fn worker_beats(&self, id: WorkerId, tasks: Vec<TaskRef>) -> Result<(), Problem> {
        self.known_worker(id).await?.said(FromWorker::Heartbeat { tasks: Some(tasks) }).wait().await
    }
}
