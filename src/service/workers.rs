//! Workers: the views and the orders of operators.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::worker::kicked;
use crate::domain::ids::WorkerId;
use crate::domain::time::Timestamp;
use crate::domain::work_history::STEP_MS;
use crate::domain::worker::{WorkerOrder, WorkerRecord, WorkerState};
use crate::protocol::api::{Page, WorkerWatch};
use crate::protocol::management::WorkerOutput;
use crate::protocol::peer_history::WorkerWorkOutput;
use crate::protocol::problem::Problem;
use crate::store::{ForgetWorker, GetWorker, ListWorkerRecords, ListWorkers, OrderWorker, StoreError};
use std::time::{Duration, Instant};

/// Number of records per read of a filtered list.
const PAGE: usize = 500;

/// The reason for kicking a worker that is deleted.
const DELETED: &str = "an operator deleted the worker";
/// How long a deletion waits until a worker is kicked, and the pause between two checks.
const PUT_OUT: Duration = Duration::from_secs(5);
const PUT_OUT_PAUSE: Duration = Duration::from_millis(10);

/// Selects the workers to list.
#[derive(Debug, Clone, Default)]
pub struct WorkerFilter {
    /// Only connected workers, or only others.
    pub online: Option<bool>,
    /// Only workers in this admin state.
    pub state: Option<WorkerState>,
    /// Only workers of this group.
    pub group: Option<String>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of items in the answer.
    pub limit: usize,
}

fn unknown(id: WorkerId) -> Problem {
    Problem::not_found(format!("there is no worker {id}"))
}

impl Service {
    /// Rejects a worker that was kicked.
    ///
    /// # Errors
    /// The worker was kicked.
    pub async fn admit_worker(&self, id: WorkerId) -> Result<(), Problem> {
        let record = self.context.store.read(GetWorker(id)).await.map_err(|e| problem_of(&e))?;
        match record {
            Some(record) if record.state == WorkerState::Kicked => Err(kicked(&record)),
            _ => Ok(()),
        }
    }

    async fn worker_output(&self, record: WorkerRecord) -> WorkerOutput {
        let asked = match self.context.addresses.workers.get(record.id) {
            Some(worker) => worker.describe().wait().await.ok(),
            None => None,
        };
        let (number, update_by) = (record.id.number(), record.by.clone());
        match asked {
            Some(asked) => WorkerOutput {
                number,
                update_by,
                record: WorkerRecord { last_seen: asked.last_message, ..record },
                is_online: true,
                has_socket: asked.has_socket,
                tasks: asked.tasks,
            },
            None => WorkerOutput { record, number, update_by, is_online: false, has_socket: false, tasks: Vec::new() },
        }
    }

    /// All known workers, by id.
    ///
    /// # Errors
    /// The cursor is invalid, or the store fails.
    pub async fn workers(&self, filter: WorkerFilter) -> Result<Page<WorkerOutput>, Problem> {
        let WorkerFilter { online, state, group, cursor, limit } = filter;
        let mut after = cursor.map(|text| text.parse().map_err(|_| Problem::invalid("cursor", "not a cursor of this list"))).transpose()?;
        let mut found = Vec::new();
        loop {
            let page = if online.is_some() { PAGE } else { limit + 1 };
            let query = ListWorkerRecords { state, group: group.clone(), after, limit: page };
            let records = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
            let is_last = records.len() < page;
            after = records.last().map(|record| record.id);
            let fits =
                |record: &WorkerRecord| online.is_none_or(|online| online == self.context.addresses.workers.get(record.id).is_some());
            found.extend(records.into_iter().filter(fits));
            if is_last || found.len() > limit {
                break;
            }
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let next_cursor = found.last().filter(|_| more).map(|record| record.id.to_string());
        let mut items = Vec::with_capacity(found.len());
        for record in found {
            items.push(self.worker_output(record).await);
        }
        Ok(Page { items, next_cursor })
    }

    /// A worker.
    ///
    /// # Errors
    /// The worker does not exist.
    pub async fn worker(&self, id: WorkerId) -> Result<WorkerOutput, Problem> {
        let record = self.context.store.read(GetWorker(id)).await.map_err(|e| problem_of(&e))?;
        Ok(self.worker_output(record.ok_or_else(|| unknown(id))?).await)
    }

    /// Applies an operator's order to a worker. It is stored before the worker receives it.
    ///
    /// # Errors
    /// The worker does not exist, the reason is too long, or the worker was kicked and must be allowed first.
    pub async fn order_worker(
        &self,
        id: WorkerId,
        order: WorkerOrder,
        reason: Option<String>,
        by: Option<String>,
    ) -> Result<WorkerOutput, Problem> {
        let most = crate::domain::job::limits::DESCRIPTION;
        if reason.as_ref().is_some_and(|reason| reason.chars().count() > most) {
            return Err(Problem::invalid("reason", format!("must be at most {most} characters")));
        }
        let context = self.context.clone();
        let (stored, answer) = crate::actors::reply::reply();
        // In its own task: if the caller disconnects, the worker still receives the stored order.
        actix::spawn(async move {
            let written = context.store.write(OrderWorker { worker: id, order, reason, by, now: Timestamp::now() }).await;
            if let (Ok(record), Some(worker)) = (&written, context.addresses.workers.get(id)) {
                worker.set_admin_state(record.clone());
            }
            stored.send(written.map_err(|error| match error {
                StoreError::NotFound => unknown(id),
                StoreError::Conflict(_) => Problem::conflict("worker-kicked", format!("worker {id} was kicked: allow it first")),
                other => problem_of(&other),
            }));
        });
        let record = answer.wait().await?;
        Ok(self.worker_output(record).await)
    }

    /// Deletes the record of a worker, with its admin state. With `force`, a connected worker is kicked first, and its work goes
    /// to other workers.
    ///
    /// # Errors
    /// The worker does not exist, is connected and `force` is not set, or does not end.
    pub async fn forget_worker(&self, id: WorkerId, force: bool, by: Option<String>) -> Result<(), Problem> {
        let is_there = || self.context.addresses.workers.get(id).is_some();
        if is_there() && !force {
            return Err(Problem::conflict("worker-online", format!("worker {id} is connected: use `force` to kick and delete it")));
        }
        if is_there() {
            // The kick is stored, so that the worker cannot reconnect before its record is deleted.
            self.order_worker(id, WorkerOrder::Kick, Some(DELETED.to_owned()), by).await?;
            let since = Instant::now();
            while is_there() {
                if since.elapsed() > PUT_OUT {
                    return Err(Problem::busy("the worker is being kicked; retry the deletion later"));
                }
                tokio::time::sleep(PUT_OUT_PAUSE).await;
            }
        }
        self.context.store.write(ForgetWorker(id)).await.map_err(|error| match error {
            StoreError::NotFound => unknown(id),
            other => problem_of(&other),
        })
    }

    /// What a worker did in each of the last minutes; nothing if it is not connected.
    ///
    /// # Errors
    /// The worker does not exist.
    pub async fn worker_work(&self, id: WorkerId) -> Result<WorkerWorkOutput, Problem> {
        let record = self.context.store.read(GetWorker(id)).await.map_err(|e| problem_of(&e))?;
        record.ok_or_else(|| unknown(id))?;
        let asked = match self.context.addresses.workers.get(id) {
            Some(worker) => worker.describe().wait().await.ok(),
            None => None,
        };
        let (from, minutes) = asked.map_or((Timestamp::now().0, Vec::new()), |asked| asked.history);
        Ok(WorkerWorkOutput {
            from: Timestamp(from),
            step: STEP_MS as u64,
            running: minutes.iter().map(|minute| minute.running).collect(),
            success: minutes.iter().map(|minute| minute.success).collect(),
            failed: minutes.iter().map(|minute| minute.failed).collect(),
        })
    }

    /// Current and past watches of workers, newest first.
    ///
    /// # Errors
    /// The store fails.
    pub async fn worker_watches(&self, worker: Option<WorkerId>, limit: usize) -> Result<Vec<WorkerWatch>, Problem> {
        let rows = self.context.store.read(ListWorkers { worker, limit }).await.map_err(|e| problem_of(&e))?;
        let watch = |row: crate::store::WorkerRow| WorkerWatch {
            id: row.id,
            full_class_name: row.full_class_name,
            connection_id: row.connection_id,
            connect_time: row.connect_time,
            disconnect_time: row.disconnect_time,
        };
        Ok(rows.into_iter().map(watch).collect())
    }
}
