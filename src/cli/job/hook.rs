//! `webloom job hook`: addresses at which other systems trigger a job.

use super::find::{JobRef, find};
use crate::cli::failure::Failure;
use crate::cli::remote::Shell;
use crate::cli::table::{Column, card, list as table, some};
use clap::Subcommand;
use serde_json::json;
use std::process::ExitCode;

const COLUMNS: [Column; 5] = [
    Column::text("NAME", "name"),
    Column::text("ID", "id"),
    Column::text("PATH", "path"),
    Column::time("CREATED", "creationTime"),
    Column::text("BY", "createBy"),
];

/// Subcommands of `webloom job hook`.
#[derive(Debug, Subcommand)]
pub enum HookCommand {
    /// List the hooks of a job, without their secrets
    List(JobRef),
    /// Create a hook and print its path and its secret, which is not shown again
    Create {
        #[command(flatten)]
        job: JobRef,
        /// The name: letters, digits and `._@-`, unique in the job
        name: String,
    },
    /// Delete a hook
    Delete {
        #[command(flatten)]
        job: JobRef,
        /// The id of the hook
        hook: String,
    },
}

/// Runs the command.
pub async fn hook(shell: &Shell, command: HookCommand) -> Result<ExitCode, Failure> {
    match command {
        HookCommand::List(job) => {
            let id = find(&shell.client, &job.job).await?;
            let answer = shell.client.get(&["jobs", &id, "hooks"], &[]).await?;
            shell.show(&answer, |hooks| table(hooks, "the job has no hooks", &COLUMNS))
        }
        HookCommand::Create { job, name } => {
            let id = find(&shell.client, &job.job).await?;
            let answer = shell.client.post(&["jobs", &id, "hooks"], &[], &json!({ "name": name })).await?;
            shell.show(&answer, |hook| card(&["id", "path", "secret"].map(|key| (key, some(hook, key)))))
        }
        HookCommand::Delete { job, hook } => {
            let id = find(&shell.client, &job.job).await?;
            let answer = shell.client.delete(&["jobs", &id, "hooks", &hook]).await?;
            shell.show(&answer, |_| format!("deleted hook {hook}"))
        }
    }
}
