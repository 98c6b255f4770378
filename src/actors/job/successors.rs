//! After the end of a run: triggers the successors of its job with the result of the run.

use super::loaded::LoadedJob;
use super::message::{TriggerOrder, Triggered};
use crate::actors::context::BrokerContext;
use crate::actors::reply::{Answer, problem_of, reply};
use crate::domain::ids::{Identity, JobId};
use crate::domain::job::{Successor, limits};
use crate::domain::run::Run;
use crate::domain::time::Timestamp;
use crate::domain::trace::TraceContext;
use crate::domain::workflow::{MOST_SUCCESSORS, begins};
use crate::protocol::api::TriggerInput;
use crate::protocol::problem::Problem;
use crate::store::{FindJobs, FlowFault, NewLine};
use actix::{Message, Recipient};
use std::time::Duration;

/// Delay before the end of a run is processed again after an error.
const AGAIN: Duration = Duration::from_secs(2);

const INFO: i16 = 2;
const WARNING: i16 = 3;

/// Validates the list itself. Whether the jobs exist is checked when the list is stored.
pub(super) fn check(successors: &[Successor]) -> Result<(), Problem> {
    if successors.len() > MOST_SUCCESSORS {
        return Err(Problem::invalid("successors", format!("must be at most {MOST_SUCCESSORS} successors")));
    }
    let wrong = |successor: &Successor| successor.job.is_empty() || successor.job.chars().count() > limits::NAME;
    match successors.iter().position(wrong) {
        Some(i) => Err(Problem::invalid(format!("successors[{i}].job"), "must be the name or the id of a job")),
        None => Ok(()),
    }
}

/// Maps a fault in the successors of a job to a problem for the client.
#[must_use]
pub fn flow_problem(fault: &FlowFault) -> Problem {
    match fault {
        FlowFault::Missing(i) => Problem::invalid(format!("successors[{i}].job"), "there is no such job"),
        FlowFault::Loop(names) => {
            let way: Vec<String> = names.iter().chain(names.first()).map(|name| format!("`{name}`")).collect();
            Problem::invalid("successors", format!("the job would begin after itself: {}", way.join(" > ")))
        }
        FlowFault::Endless => Problem::invalid("successors", "the chain of successors is too long"),
    }
}

/// The jobs that begin after the end of a run, in the order of the definition. A deleted job has only its name.
pub(super) struct Succession {
    run: Identity,
    order: TriggerOrder,
    jobs: Vec<(String, Option<JobId>)>,
}

/// The result of a [`Succession`], sent to the job's actor: lines for the log of the run, or the error of a failed trigger.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct SuccessorsBegun {
    pub(super) run: Identity,
    pub(super) lines: Result<Vec<NewLine>, Problem>,
}

impl Succession {
    /// The run that ended.
    pub(super) fn run(&self) -> Identity {
        self.run
    }

    /// Triggers the jobs and sends the result. Meanwhile the job's actor continues, because a successor may be busy for long. A
    /// second call creates no second run.
    pub(super) fn begin(self, context: &BrokerContext, job: JobId, told: Recipient<SuccessorsBegun>) {
        let Self { run, order, jobs } = self;
        let answers = jobs.iter().map(|(name, job)| trigger(context, name, *job, order.clone())).collect();
        Answer::then_all(answers, move |begun| {
            let names = jobs.into_iter().map(|(name, _)| name);
            told.do_send(SuccessorsBegun { run, lines: lines(job, run, names.zip(begun)) });
        });
    }
}

fn trigger(context: &BrokerContext, name: &str, job: Option<JobId>, order: TriggerOrder) -> Answer<Triggered> {
    let (reply, answer) = reply();
    match job {
        None => reply.send(Err(Problem::not_found(format!("there is no job `{name}` any more")))),
        Some(job) => context.registry().open_job(job).then(move |opened| match opened {
            Ok(job) => job.trigger(order).then(move |made| reply.send(made)),
            Err(problem) => reply.send(Err(problem)),
        }),
    }
    answer
}

/// The lines for the log of the run that ended.
fn lines(job: JobId, run: Identity, begun: impl Iterator<Item = (String, Result<Triggered, Problem>)>) -> Result<Vec<NewLine>, Problem> {
    let (mut lines, mut later) = (Vec::new(), None);
    for (name, begun) in begun {
        let (level, text) = match begun {
            Ok(made) => (INFO, format!("run {} of the job `{name}` begins after this one", made.identity)),
            Err(problem) if problem.status >= 500 => {
                later = Some(problem);
                continue;
            }
            Err(problem) => {
                log::warn!("failed to trigger a successor job_id={job} run_id={run} successor={name}: {problem}");
                (WARNING, format!("the job `{name}` does not begin after this run: {}", problem.detail))
            }
        };
        lines.push(NewLine { at: Timestamp::now(), level, source: "broker".to_owned(), text });
    }
    crate::fault::point("job.successors_begun");
    later.map_or(Ok(lines), Err)
}

impl LoadedJob {
    /// The successors to begin after this end, if there are any.
    ///
    /// # Errors
    /// The store fails.
    pub(super) async fn successors_of(&mut self, run: &Run) -> Result<Option<Succession>, Problem> {
        let known = self.known().await?;
        let successors = known.job.successors.iter().filter(|successor| !known.job.is_deleted && begins(successor.on, run.state));
        let names: Vec<String> = successors.map(|successor| successor.job.clone()).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let found = self.context.store.read(FindJobs(names.clone())).await.map_err(|e| problem_of(&e))?;
        let input = TriggerInput {
            arguments: run.result.as_deref().map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.into())),
            idempotency_key: Some(format!("after:{}", run.identity)),
            ..TriggerInput::default()
        };
        let order =
            TriggerOrder { input, trace: TraceContext::of_run(run), waits: true, after: Some(run.identity), ..TriggerOrder::default() };
        Ok(Some(Succession { run: run.identity, order, jobs: names.into_iter().zip(found).collect() }))
    }

    /// Schedules another attempt to process an end.
    pub(super) fn settle_later(&self, identity: Option<Identity>) {
        let (context, job) = (self.context.clone(), self.id);
        actix::spawn(async move {
            tokio::time::sleep(AGAIN).await;
            context.registry().job_unsettled(job, identity);
        });
    }
}
