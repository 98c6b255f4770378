//! A run asks its job for a time.

use crate::actors::house::House;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use std::time::Duration;

/// A job that is asked for its next time has this long to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// A run says when its job is to be run next; the job plans it.
pub async fn ask_next(house: House, job_id: JobId, identity: Identity, at: Timestamp) {
    let ask = async {
        let job = house.registry().open_job(job_id).wait().await?;
        let asked = job.ask_next(identity, at).wait().await;
        match asked {
            // The plan went on meanwhile: the job has read it anew.
            Err(problem) if problem.status == 503 => job.ask_next(identity, at).wait().await,
            other => other,
        }
    };
    // The job may be waiting for the end of this very run: not for ever.
    match tokio::time::timeout(ASK_TIMEOUT, ask).await {
        Ok(Ok(_)) => {}
        Ok(Err(problem)) => log::warn!("the next time that a run asked for could not be planned run={identity}: {problem}"),
        Err(_) => log::warn!("the next time that a run asked for could not be planned run={identity}: its job does not answer"),
    }
}
