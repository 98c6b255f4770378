//! After the end of a run: the jobs that are named as its successors are triggered, with what it brought.

use super::message::TriggerOrder;
use super::room::Room;
use crate::actors::reply::problem_of;
use crate::domain::ids::{Identity, JobId};
use crate::domain::job::{Successor, limits};
use crate::domain::run::Run;
use crate::domain::time::Timestamp;
use crate::domain::workflow::{MOST_SUCCESSORS, begins};
use crate::protocol::api::TriggerInput;
use crate::protocol::problem::Problem;
use crate::store::{FindJobs, FlowFault, NewLine};
use std::time::Duration;

/// A successor's actor that does not answer in this time is asked again later: the job that waits for it has more to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// An end that could not be dealt with is dealt with again after this.
const AGAIN: Duration = Duration::from_secs(2);

const INFO: i16 = 2;
const WARNING: i16 = 3;

/// Checks what shows from the list alone; whether its jobs are there is seen when it is stored.
pub(super) fn check(successors: &[Successor]) -> Result<(), Problem> {
    if successors.len() > MOST_SUCCESSORS {
        return Err(Problem::invalid("successors", format!("at most {MOST_SUCCESSORS} successors are taken")));
    }
    let wrong = |successor: &Successor| successor.job.is_empty() || successor.job.chars().count() > limits::NAME;
    match successors.iter().position(wrong) {
        Some(i) => Err(Problem::invalid(format!("successors[{i}].job"), "the name or the id of a job is expected")),
        None => Ok(()),
    }
}

/// What is wrong with the successors of a job, for whoever sent it.
#[must_use]
pub fn flow_problem(fault: &FlowFault) -> Problem {
    match fault {
        FlowFault::Missing(i) => Problem::invalid(format!("successors[{i}].job"), "there is no such job"),
        FlowFault::Loop(names) => {
            let way: Vec<String> = names.iter().chain(names.first()).map(|name| format!("`{name}`")).collect();
            Problem::invalid("successors", format!("the job would begin after itself: {}", way.join(" > ")))
        }
        FlowFault::Endless => Problem::invalid("successors", "too many jobs follow, one after the other"),
    }
}

impl Room {
    /// Triggers what begins after this end, and gives back what is worth a line in the log of the run. Done twice, it makes
    /// no second run.
    ///
    /// # Errors
    /// A successor could not be asked now; those that could have their runs.
    pub(super) async fn begin_successors(&mut self, run: &Run) -> Result<Vec<NewLine>, Problem> {
        let known = self.known().await?;
        if known.job.is_deleted {
            return Ok(Vec::new());
        }
        let names: Vec<String> = known
            .job
            .successors
            .iter()
            .filter(|successor| begins(successor.on, run.state))
            .map(|successor| successor.job.clone())
            .collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.house.store.read(FindJobs(names.clone())).await.map_err(|e| problem_of(&e))?;
        let (mut lines, mut later) = (Vec::new(), None);
        for (name, job) in names.iter().zip(found) {
            let begun = match job {
                Some(job) => self.begin_successor(run, job).await,
                None => Err(Problem::not_found(format!("there is no job `{name}` any more"))),
            };
            let (level, text) = match begun {
                Ok(made) => (INFO, format!("run {} of the job `{name}` begins after this one", made.identity)),
                Err(problem) if problem.status >= 500 => {
                    later = Some(problem);
                    continue;
                }
                Err(problem) => {
                    log::warn!("a successor does not begin job={} run={} successor={name}: {problem}", self.id, run.identity);
                    (WARNING, format!("the job `{name}` does not begin after this run: {}", problem.detail))
                }
            };
            lines.push(NewLine { at: Timestamp::now(), level, source: "broker".to_owned(), text });
        }
        crate::fault::point("job.successors_begun");
        later.map_or(Ok(lines), Err)
    }

    async fn begin_successor(&self, run: &Run, job: JobId) -> Result<super::Triggered, Problem> {
        let input = TriggerInput {
            arguments: run.result.as_deref().map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.into())),
            idempotency_key: Some(format!("after:{}", run.identity)),
            ..TriggerInput::default()
        };
        let order =
            TriggerOrder { input, trace_id: run.trace_id.clone(), waits: true, after: Some(run.identity), ..TriggerOrder::default() };
        let house = self.house.clone();
        // No job begins after itself, so no two actors can wait for one another; what takes long is cut off all the same.
        let begun = async move { house.registry().open_job(job).wait().await?.trigger(order).wait().await };
        tokio::time::timeout(PATIENCE, begun).await.unwrap_or_else(|_| Err(Problem::busy("the successor did not answer in time")))
    }

    /// Deals with an end again that could not be dealt with now.
    pub(super) fn settle_later(&self, identity: Option<Identity>) {
        let (house, job) = (self.house.clone(), self.id);
        actix::spawn(async move {
            tokio::time::sleep(AGAIN).await;
            house.registry().job_unsettled(job, identity);
        });
    }
}
