//! `webloom job`: jobs from a shell.

mod next;

use clap::{Args as ClapArgs, Subcommand};
use std::process::ExitCode;

/// Flags of `webloom job`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    command: JobCommand,
}

#[derive(Debug, Subcommand)]
enum JobCommand {
    /// Show when a cron expression fires next; needs no broker
    Next(next::Args),
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match args.command {
        JobCommand::Next(args) => next::run(&args),
    }
}
