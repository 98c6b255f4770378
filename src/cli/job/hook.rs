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
    Column::whole("PATH", "path"),
    Column::time("CREATED", "creationTime"),
    Column::text("BY", "createBy"),
    Column::id("ID", "id").wide(),
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
        /// The id or the name of the hook
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
            shell.show(&answer, |hook| {
                let call = some(hook, "secret")
                    .zip(some(hook, "path"))
                    .map(|(secret, path)| format!("curl --request POST --header 'Webloom-Secret: {secret}' \"$WEBLOOM_BROKER{path}\""));
                let [id, path, secret] = ["id", "path", "secret"].map(|key| (key, some(hook, key)));
                card(&[id, path, secret, ("call", call)])
            })
        }
        HookCommand::Delete { job, hook } => {
            let id = find(&shell.client, &job.job).await?;
            let hooks = shell.client.get(&["jobs", &id, "hooks"], &[]).await?.value()?;
            let named = hooks["items"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|known| known["id"] == hook.as_str() || known["name"] == hook.as_str());
            let Some(hook_id) = named.and_then(|hook| hook["id"].as_str()) else {
                return Err(Failure::Refused(format!("the job has no hook `{hook}`: `webloom job hook list` shows what there is")));
            };
            let answer = shell.client.delete(&["jobs", &id, "hooks", hook_id]).await?;
            shell.show(&answer, |_| format!("deleted hook {hook}"))
        }
    }
}
