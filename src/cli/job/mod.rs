//! `webloom job`: jobs from a shell.

mod change;
mod coming;
mod data;
mod find;
mod input;
mod look;
mod next;
mod past;
mod task_flags;

pub use find::{JobRef, find};
pub use past::explain;

use super::failure::Failure;
use super::remote::Remote;
use clap::{Args as ClapArgs, Subcommand};
use std::process::ExitCode;

/// Flags of `webloom job`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: JobCommand,
}

#[derive(Debug, Subcommand)]
enum JobCommand {
    /// List jobs
    List(look::ListArgs),
    /// Show a job, and how it stands with its plan
    Show(JobRef),
    /// Create a job
    Create(Box<change::CreateArgs>),
    /// Change a job; what no flag says stays as it is
    Update(Box<change::UpdateArgs>),
    /// Delete a job; its past stays, and `restore` brings it back
    Delete(JobRef),
    /// Bring a deleted job back, disabled
    Restore(JobRef),
    /// Take a deleted job out of the tables, for good
    Purge(JobRef),
    /// Let a job run when it is due or triggered
    Enable(JobRef),
    /// Let a job run no more
    Disable(change::DisableArgs),
    /// Run a job now
    Trigger(change::TriggerArgs),
    /// Show when a job runs next, or when a cron expression fires next (that needs no broker)
    Next(next::Args),
    /// Show when a schedule would run that is not stored
    Preview(coming::PreviewArgs),
    /// List the planned instants of a job that have passed, and what became of each
    Fires(past::FiresArgs),
    /// Say why a job ran or did not run at an instant
    Why(past::WhyArgs),
    /// List the changes of a job: who, when, what
    History(past::HistoryArgs),
    /// Run the instants of a past time that made no run
    Backfill(past::BackfillArgs),
    /// Run again what failed
    Redrive(past::RedriveArgs),
    /// What the last run of a job left for the next one
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Print jobs as YAML (with --json as JSON), to be kept in a file
    Export(change::ExportArgs),
    /// Create and change jobs as a file says; jobs are known by their names
    Import(change::ImportArgs),
}

/// Runs the command.
///
/// # Errors
/// The broker refuses it or cannot be reached, or the command line makes no sense.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let remote = args.remote;
    match args.command {
        JobCommand::Next(args) => coming::next(remote, args),
        command => remote.run(async |shell| match command {
            JobCommand::List(args) => look::list(&shell, args).await,
            JobCommand::Show(job) => look::show(&shell, &job).await,
            JobCommand::Create(args) => change::create(&shell, *args).await,
            JobCommand::Update(args) => change::update(&shell, *args).await,
            JobCommand::Delete(job) => change::delete(&shell, &job).await,
            JobCommand::Restore(job) => change::restore(&shell, &job).await,
            JobCommand::Purge(job) => change::purge(&shell, &job).await,
            JobCommand::Enable(job) => change::enable(&shell, &job).await,
            JobCommand::Disable(args) => change::disable(&shell, args).await,
            JobCommand::Trigger(args) => change::trigger(&shell, args).await,
            JobCommand::Preview(args) => coming::preview(&shell, args).await,
            JobCommand::Fires(args) => past::fires(&shell, args).await,
            JobCommand::Why(args) => past::why(&shell, args).await,
            JobCommand::History(args) => past::history(&shell, args).await,
            JobCommand::Backfill(args) => past::backfill(&shell, args).await,
            JobCommand::Redrive(args) => past::redrive(&shell, args).await,
            JobCommand::Data(command) => data::data(&shell, command).await,
            JobCommand::Export(args) => change::export(&shell, args).await,
            JobCommand::Import(args) => change::import(&shell, args).await,
            JobCommand::Next(_) => unreachable!("it was dealt with above"),
        }),
    }
}
