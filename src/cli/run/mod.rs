//! `webloom run`: runs from a shell.

mod logs;
mod look;
mod redrive;
mod watch;

pub use watch::follow;

use super::job;
use super::remote::{Failure, Remote, Shell};
use super::table::items;
use crate::domain::ids::{Identity, NumberOr};
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
    /// List runs, the newest first
    List(look::ListArgs),
    /// Show a run
    Show(RunRef),
    /// End a run
    Stop(RunRef),
    /// Run again what a run did
    Retry(RunRef),
    /// Run again what failed for good, of one job or of many
    Redrive(redrive::RedriveArgs),
    /// Say why a run is as it is: what it waits for, why it failed
    Why(RunRef),
    /// Print what was said of a run
    Logs(logs::LogsArgs),
    /// Follow a run until it ends; exit code 0 if it succeeded, 3 if it failed, 4 if it was stopped
    Watch(RunRef),
    /// List the blocks of a run
    Blocks(look::BlocksArgs),
    /// List the instances of a run on several nodes or workers
    Instances(look::BlocksArgs),
    /// Show what each node did for a run
    Status(RunRef),
}

/// A run.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub struct RunRef {
    /// The run: its id or its number
    run: Option<String>,
    /// The latest run of this job, by its name or id
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
}

impl RunRef {
    /// Which run is meant.
    ///
    /// # Errors
    /// There is none.
    async fn find(&self, shell: &Shell) -> Result<String, Failure> {
        let Some(name) = &self.job else {
            let text = self.run.as_deref().unwrap_or_default();
            let run = text.parse::<NumberOr<Identity>>();
            return match run.map_err(|e| Failure::Usage(format!("{e}; `--job {text}` is the latest run of a job")))? {
                NumberOr::Id(run) => Ok(run.to_string()),
                NumberOr::Number(number) => shell.client.numbered("runs", &number.to_string(), "identity").await,
            };
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
/// The broker refuses it or cannot be reached, or the command line makes no sense.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        RunCommand::List(args) => look::list(&shell, args).await,
        RunCommand::Show(run) => look::show(&shell, &run).await,
        RunCommand::Stop(run) => look::stop(&shell, &run).await,
        RunCommand::Retry(run) => look::retry(&shell, &run).await,
        RunCommand::Redrive(args) => redrive::redrive(&shell, args).await,
        RunCommand::Why(run) => look::why(&shell, &run).await,
        RunCommand::Logs(args) => logs::logs(&shell, args).await,
        RunCommand::Watch(run) => follow(&shell, &run.find(&shell).await?).await,
        RunCommand::Blocks(args) => look::blocks(&shell, args).await,
        RunCommand::Instances(args) => look::instances(&shell, args).await,
        RunCommand::Status(run) => look::status(&shell, &run).await,
    })
}
