//! `webloom job`: jobs from a shell.

mod change;
mod coming;
mod data;
mod find;
mod hook;
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
    /// Show a job, with its schedule and its last runs
    Show(JobRef),
    /// Create a job
    Create(Box<change::CreateArgs>),
    /// Change a job; settings without a flag stay as they are
    Update(Box<change::UpdateArgs>),
    /// Delete a job; its history stays, and `restore` brings it back
    Delete(JobRef),
    /// Restore a deleted job; it is disabled afterwards
    Restore(JobRef),
    /// Remove a deleted job from the database for good
    Purge(JobRef),
    /// Enable a job: it runs when it is due or triggered
    Enable(JobRef),
    /// Disable a job
    Disable(change::DisableArgs),
    /// Run a job now
    Trigger(change::TriggerArgs),
    /// Show when a job runs next, or when a cron expression fires next (which needs no broker)
    Next(next::Args),
    /// Preview the fires of a schedule that is not stored
    Preview(coming::PreviewArgs),
    /// List the past scheduled times of a job, with their outcomes
    Fires(past::FiresArgs),
    /// Explain why a job ran or did not run at a time
    Why(past::WhyArgs),
    /// List the changes of a job: who, when, what
    History(past::HistoryArgs),
    /// Create the missing runs for scheduled times of a past range
    Backfill(past::BackfillArgs),
    /// Repeat failed runs
    Redrive(past::RedriveArgs),
    /// Data that the last run of a job stored for the next one
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Hooks: addresses at which other systems trigger a job
    #[command(subcommand)]
    Hook(hook::HookCommand),
    /// Print jobs as YAML (with --json as JSON), to store in a file
    Export(change::ExportArgs),
    /// Create and change jobs from a file; jobs are identified by their names
    Import(change::ImportArgs),
}

/// Runs the command.
///
/// # Errors
/// The broker rejects the call or cannot be reached, or the command line is invalid.
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
            JobCommand::Hook(command) => hook::hook(&shell, command).await,
            JobCommand::Export(args) => change::export(&shell, args).await,
            JobCommand::Import(args) => change::import(&shell, args).await,
            JobCommand::Next(_) => unreachable!("it was dealt with above"),
        }),
    }
}
