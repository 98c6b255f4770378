//! Workers, as operators see them and put them to rights.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::worker::kicked;
use crate::domain::ids::WorkerId;
use crate::domain::time::Timestamp;
use crate::domain::worker::{WorkerOrder, WorkerRecord, WorkerState};
use crate::protocol::api::{Page, WorkerWatch};
use crate::protocol::management::WorkerOutput;
use crate::protocol::problem::Problem;
use crate::store::{ForgetWorker, GetWorker, ListWorkerRecords, ListWorkers, OrderWorker, StoreError};
use std::time::{Duration, Instant};

/// Records that one read of a filtered list takes.
const PAGE: usize = 500;

/// Why a worker that is deleted is put out.
const DELETED: &str = "an operator deleted the worker";
/// How long a deletion waits until a worker is put out, and the pause between two looks.
const PUT_OUT: Duration = Duration::from_secs(5);
const PUT_OUT_PAUSE: Duration = Duration::from_millis(10);

/// Which workers to list.
#[derive(Debug, Clone, Default)]
pub struct WorkerFilter {
    /// There now, or not.
    pub online: Option<bool>,
    /// On whom the operator's word is this.
    pub state: Option<WorkerState>,
    /// Of this group.
    pub group: Option<String>,
    /// Where the last page ended.
    pub cursor: Option<String>,
    /// The most items in the answer.
    pub limit: usize,
}

fn unknown(id: WorkerId) -> Problem {
    Problem::not_found(format!("there is no worker {id}"))
}

impl Service {
    /// Refuses a worker that was put out.
    ///
    /// # Errors
    /// It was.
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
                record: WorkerRecord { last_seen: asked.last_heard, ..record },
                is_online: true,
                has_socket: asked.has_socket,
                tasks: asked.tasks,
            },
            None => WorkerOutput { record, number, update_by, is_online: false, has_socket: false, tasks: Vec::new() },
        }
    }

    /// Workers that were ever there and are not forgotten, by their ids.
    ///
    /// # Errors
    /// The cursor is none of this list, or the store fails.
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
    /// There is none.
    pub async fn worker(&self, id: WorkerId) -> Result<WorkerOutput, Problem> {
        let record = self.context.store.read(GetWorker(id)).await.map_err(|e| problem_of(&e))?;
        Ok(self.worker_output(record.ok_or_else(|| unknown(id))?).await)
    }

    /// The operator's word on a worker. It is stored before the worker hears of it.
    ///
    /// # Errors
    /// There is none, the reason is too long, or it was put out and has to be allowed first.
    pub async fn order_worker(
        &self,
        id: WorkerId,
        order: WorkerOrder,
        reason: Option<String>,
        by: Option<String>,
    ) -> Result<WorkerOutput, Problem> {
        let most = crate::domain::job::limits::DESCRIPTION;
        if reason.as_ref().is_some_and(|reason| reason.chars().count() > most) {
            return Err(Problem::invalid("reason", format!("at most {most} characters are taken")));
        }
        let context = self.context.clone();
        let (stored, answer) = crate::actors::reply::reply();
        // By itself: if the caller hangs up, the worker hears of what is stored all the same.
        actix::spawn(async move {
            let written = context.store.write(OrderWorker { worker: id, order, reason, by, now: Timestamp::now() }).await;
            if let (Ok(record), Some(worker)) = (&written, context.addresses.workers.get(id)) {
                worker.control(record.clone());
            }
            stored.send(written.map_err(|error| match error {
                StoreError::NotFound => unknown(id),
                StoreError::Conflict(_) => Problem::conflict("worker-kicked", format!("worker {id} was put out: allow it first")),
                other => problem_of(&other),
            }));
        });
        let record = answer.wait().await?;
        Ok(self.worker_output(record).await)
    }

    /// Deletes what is kept of a worker, and the operator's word on it. One that is connected is put out first, if that is meant:
    /// what it has goes to others.
    ///
    /// # Errors
    /// There is none, or it is connected and that is not meant, or it does not end.
    pub async fn forget_worker(&self, id: WorkerId, force: bool, by: Option<String>) -> Result<(), Problem> {
        let is_there = || self.context.addresses.workers.get(id).is_some();
        if is_there() && !force {
            return Err(Problem::conflict("worker-online", format!("worker {id} is connected: `force` puts it out and deletes it")));
        }
        if is_there() {
            // Stored, so that it cannot come back before its record is deleted.
            self.order_worker(id, WorkerOrder::Kick, Some(DELETED.to_owned()), by).await?;
            let since = Instant::now();
            while is_there() {
                if since.elapsed() > PUT_OUT {
                    return Err(Problem::busy("the worker is being put out; delete it again later"));
                }
                tokio::time::sleep(PUT_OUT_PAUSE).await;
            }
        }
        self.context.store.write(ForgetWorker(id)).await.map_err(|error| match error {
            StoreError::NotFound => unknown(id),
            other => problem_of(&other),
        })
    }

    /// Who watches or watched what, newest first.
    ///
    /// # Errors
    /// The store fails.
    pub async fn worker_watches(&self, limit: usize) -> Result<Vec<WorkerWatch>, Problem> {
        let rows = self.context.store.read(ListWorkers { limit }).await.map_err(|e| problem_of(&e))?;
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
