//! `webloom job data`: data that the last run of a job stored for the next one.

use super::find::{JobRef, find};
use crate::cli::failure::Failure;
use crate::cli::remote::Shell;
use crate::cli::table::{card, plain, some};
use crate::cli::times::some_time;
use crate::cli::value::text_or_file;
use clap::Subcommand;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Subcommands of `webloom job data`.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Show the data, and the run that stored it
    Get(JobRef),
    /// Replace the data
    Set {
        #[command(flatten)]
        job: JobRef,
        /// JSON, or @FILE (@- is standard input)
        data: String,
    },
    /// Delete the data
    Clear(JobRef),
}

/// Runs the command.
pub async fn data(shell: &Shell, command: DataCommand) -> Result<ExitCode, Failure> {
    match command {
        DataCommand::Get(job) => {
            let id = find(&shell.client, &job.job).await?;
            let answer = shell.client.get(&["jobs", &id, "data"], &[]).await?;
            shell.show(&answer, |data| {
                let from = some(data, "identity").unwrap_or_else(|| "by hand".to_owned());
                card(&[("data", Some(plain(&data["data"].to_string()))), ("stored by", Some(from)), ("at", some_time(data, "updateTime"))])
            })
        }
        DataCommand::Set { job, data } => {
            let text = text_or_file(&data)?;
            let data: Value = serde_json::from_str(&text).map_err(|e| Failure::Usage(format!("the data is not JSON: {e}")))?;
            let id = find(&shell.client, &job.job).await?;
            let answer = shell.client.put(&["jobs", &id, "data"], &json!({ "data": data })).await?;
            shell.show(&answer, |_| format!("stored for the next run of job {id}"))
        }
        DataCommand::Clear(job) => {
            let id = find(&shell.client, &job.job).await?;
            let answer = shell.client.delete(&["jobs", &id, "data"]).await?;
            shell.show(&answer, |_| format!("the data of job {id} is deleted"))
        }
    }
}
