//! Data that the runs of a job pass on; people can read and correct it.

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::ids::JobId;
use crate::domain::task::limits;
use crate::domain::time::Timestamp;
use crate::protocol::management::JobDataOutput;
use crate::protocol::problem::Problem;
use crate::store::{GetJobData, PutJobData, StoreError};
use serde_json::Value;

impl Service {
    /// The data for the next run of a job.
    ///
    /// # Errors
    /// The job does not exist, or has no data.
    pub async fn job_data(&self, id: JobId) -> Result<JobDataOutput, Problem> {
        self.stored_job(id, false).await?;
        let found = self.context.store.read(GetJobData(id)).await.map_err(|e| problem_of(&e))?;
        let found = found.ok_or_else(|| Problem::not_found(format!("job {id} has no data for its next run")))?;
        let data = serde_json::from_str(&found.data).map_err(|e| {
            log::error!("stored data of a job is not valid JSON job_id={id}: {e}");
            Problem::internal()
        })?;
        Ok(JobDataOutput { data, identity: found.run, update_by: found.by, update_time: found.update_time })
    }

    /// Replaces the data, or removes it with `None`. Active runs have already received theirs.
    ///
    /// # Errors
    /// The job does not exist, or the data is too large.
    pub async fn put_job_data(&self, id: JobId, data: Option<Value>, by: Option<String>) -> Result<(), Problem> {
        let data = data.map(|data| data.to_string());
        if data.as_ref().is_some_and(|data| data.len() > limits::PAYLOAD) {
            return Err(Problem::invalid("data", format!("must be at most {} bytes", limits::PAYLOAD)));
        }
        let put = PutJobData { job_id: id, data, by, now: Timestamp::now() };
        self.context.store.write(put).await.map_err(|error| match error {
            StoreError::NotFound => Problem::not_found(format!("there is no job {id}")),
            other => problem_of(&other),
        })?;
        // Its actor may have cached the old data.
        if let Some(actor) = self.context.addresses.jobs.get(id) {
            actor.forget();
        }
        Ok(())
    }
}
