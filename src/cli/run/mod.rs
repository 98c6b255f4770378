//! `webloom run`: runs from a shell.

mod logs;
mod look;
mod redrive;
mod requests;
mod results;
mod steer;
mod watch;

pub use watch::follow;

use super::failure::Failure;
use super::find::{RUN, find};
use super::job;
use super::remote::{Remote, Shell};
use super::table::items;
use crate::domain::ids::{IdPart, Identity, NumberOr};
use clap::{Args as ClapArgs, Subcommand};
use std::process::ExitCode;

/// Flags of `webloom run`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    /// List runs, newest first
    List(look::ListArgs),
    /// Show a run
    Show(RunRef),
    /// Stop a run
    Stop(RunRef),
    /// Pause a block run: it dispatches no more blocks
    Pause(RunRef),
    /// Resume a paused block run
    Resume(RunRef),
    /// Repeat a run
    Retry(RunRef),
    /// Repeat dead runs, which failed for good, of one job or of many
    Redrive(redrive::RedriveArgs),
    /// Explain the state of a run: what it waits for, why it failed
    Why(RunRef),
    /// Explain where a URL is in a block run, and why it has no result
    WhyUrl(requests::WhyUrlArgs),
    /// List the failed requests of a block run
    Requests(requests::RequestsArgs),
    /// Queue failed requests of a block run again; if it is over, in a new run of its job
    Requeue(requests::RequeueArgs),
    /// Discard requests of a block run that wait for a node: each gets a failure of the kind `discarded`
    Discard(requests::DiscardArgs),
    /// Print the results of a run, a line of JSON for each: of a block run those that its worker has not acknowledged, and bodies as base64
    Results(RunRef),
    /// Print the log of a run
    Logs(logs::LogsArgs),
    /// Follow a run until it ends; exit code 0 if it succeeded, 3 if it failed, 4 if it was stopped
    Watch(RunRef),
    /// List the blocks of a run
    Blocks(look::BlocksArgs),
    /// List the instances of a run on several nodes or workers
    Instances(look::BlocksArgs),
    /// List the sites of a block run: requests left, done and failed, the delay and what it comes from, and when the next may begin
    Sites(look::BlocksArgs),
    /// Show the statistics of each node for a run
    Status(RunRef),
}

/// A run.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub struct RunRef {
    /// The run: its id or at least 4 digits that the id begins or ends with, or its number
    run: Option<String>,
    /// The latest run of this job, by its name or id
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
}

impl RunRef {
    /// The id of the run.
    ///
    /// # Errors
    /// There is none.
    async fn find(&self, shell: &Shell) -> Result<String, Failure> {
        let Some(name) = &self.job else {
            let text = self.run.as_deref().unwrap_or_default();
            let run = text.parse::<NumberOr<Identity>>();
            if run.is_err() && text.trim_start_matches('…').parse::<IdPart>().is_err() {
                let why = "is neither an id of a run, nor 4 digits or more of one, nor a number";
                return Err(Failure::Usage(format!("`{text}` {why}; `--job {text}` is the latest run of a job")));
            }
            return find(&shell.client, RUN, text).await;
        };
        let id = job::find(&shell.client, name).await?;
        let runs = shell.client.list(&["runs"], &[("jobId", Some(id))], 1).await?.value()?;
        let run = items(&runs).first().and_then(|run| run["identity"].as_str()).map(str::to_owned);
        run.ok_or_else(|| Failure::Refused(format!("the job `{name}` has no runs")))
    }
}

/// Runs the command.
///
/// # Errors
/// The broker rejects the call or cannot be reached, or the command line is invalid.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        RunCommand::List(args) => look::list(&shell, args).await,
        RunCommand::Show(run) => look::show(&shell, &run).await,
        RunCommand::Stop(run) => look::stop(&shell, &run).await,
        RunCommand::Pause(run) => steer::pause(&shell, &run).await,
        RunCommand::Resume(run) => steer::resume(&shell, &run).await,
        RunCommand::Retry(run) => look::retry(&shell, &run).await,
        RunCommand::Redrive(args) => redrive::redrive(&shell, args).await,
        RunCommand::Why(run) => look::why(&shell, &run).await,
        RunCommand::WhyUrl(args) => requests::why_url(&shell, args).await,
        RunCommand::Requests(args) => requests::requests(&shell, args).await,
        RunCommand::Requeue(args) => requests::requeue(&shell, args).await,
        RunCommand::Discard(args) => requests::discard(&shell, args).await,
        RunCommand::Results(run) => results::results(&shell, &run).await,
        RunCommand::Logs(args) => logs::logs(&shell, args).await,
        RunCommand::Watch(run) => follow(&shell, &run.find(&shell).await?).await,
        RunCommand::Blocks(args) => look::blocks(&shell, args).await,
        RunCommand::Instances(args) => look::instances(&shell, args).await,
        RunCommand::Sites(args) => look::sites(&shell, args).await,
        RunCommand::Status(run) => look::status(&shell, &run).await,
    })
}
