//! Controls a block run in progress.

use super::RunRef;
use crate::cli::failure::Failure;
use crate::cli::remote::Shell;
use crate::cli::times::some_time;
use serde_json::json;
use std::process::ExitCode;

/// Pauses a run.
pub async fn pause(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    set_paused(shell, run, "pause").await
}

/// Resumes a run.
pub async fn resume(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    set_paused(shell, run, "resume").await
}

async fn set_paused(shell: &Shell, run: &RunRef, word: &str) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.post(&["runs", &id, word], &[], &json!({})).await?;
    shell.show(&answer, |run| match some_time(run, "pausedAt") {
        Some(since) => format!("run {id} is paused since {since}; {} blocks at nodes still finish", run["blocks"]["using"]),
        None => format!("run {id} goes on"),
    })
}
