//! Looking at runs, ending and repeating them.

use super::RunRef;
use crate::cli::job;
use crate::cli::remote::{Failure, Shell};
use crate::cli::table::{card, cell, list as table, plain, since, some, some_time, time};
use crate::cli::value::instant;
use crate::domain::time::Timestamp;
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Flags of `run list`.
#[derive(Debug, ClapArgs)]
pub struct ListArgs {
    /// Only those in this state: pending, scheduled, running, success, failed, stopped
    #[arg(long)]
    state: Option<String>,
    /// Only those of this job, by its name or id
    #[arg(long)]
    job: Option<String>,
    /// Only those of this kind: block, application, callback
    #[arg(long)]
    kind: Option<String>,
    /// Only those of jobs of this group
    #[arg(long)]
    group: Option<String>,
    /// Only those made at this instant and later: RFC 3339, or -2h
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    from: Option<Timestamp>,
    /// Only those made at this instant and earlier
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    to: Option<Timestamp>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = crate::cli::limit())]
    limit: u32,
}

/// Lists runs.
pub async fn list(shell: &Shell, args: ListArgs) -> Result<ExitCode, Failure> {
    let job = match &args.job {
        Some(name) => Some(job::find(&shell.client, name).await?),
        None => None,
    };
    let at = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let query =
        [("state", args.state), ("jobId", job), ("kind", args.kind), ("group", args.group), ("from", at(args.from)), ("to", at(args.to))];
    let answer = shell.client.list(&["runs"], &query, args.limit as usize).await?;
    shell.show(&answer, |runs| {
        table(
            runs,
            "there are no such runs",
            &["ID", "JOB", "STATE", "ATTEMPT", "MADE", "ENDED", "OK", "ERRORS", "TOTAL", "REASON"],
            |run| {
                vec![
                    cell(run, "identity"),
                    cell(run, "jobName"),
                    cell(run, "state"),
                    cell(run, "attempt"),
                    time(run, "creationTime"),
                    time(run, "finishTime"),
                    cell(run, "success"),
                    cell(run, "error"),
                    cell(run, "total"),
                    some(run, "reason").unwrap_or_default(),
                ]
            },
        )
    })
}

/// Shows a run.
pub async fn show(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.get(&["runs", &id], &[]).await?;
    shell.show(&answer, describe)
}

/// A run, line by line.
pub fn describe(run: &Value) -> String {
    let is_block = run["kind"] == "block";
    let counters = || format!("{} of {} answered well, {} not, {} left", run["success"], run["total"], run["error"], run["left"]);
    let blocks = &run["blocks"];
    card(&[
        ("id", some(run, "identity")),
        ("number", some(run, "number")),
        ("job", Some(format!("{} {}", cell(run, "jobId"), cell(run, "jobName")))),
        ("kind", some(run, "kind")),
        ("does", some(run, "className")),
        ("state", some(run, "state")),
        ("reason", some(run, "reason")),
        ("attempt", some(run, "attempt")),
        ("progress", some(run, "progress").map(|percent| format!("{percent} % {}", some(run, "progressText").unwrap_or_default()))),
        ("waits until", some_time(run, "notBefore")),
        ("planned for", some_time(run, "plannedAt")),
        ("made", since(run, "creationTime", "createBy")),
        ("started", some_time(run, "startTime")),
        ("ended", some_time(run, "finishTime")),
        ("changed", run.get("updateBy").and_then(|_| since(run, "updateTime", "updateBy"))),
        ("requests", is_block.then(counters)),
        (
            "blocks",
            is_block.then(|| {
                format!(
                    "{} ready, {} at nodes, {} answered, {} in all",
                    blocks["ready"], blocks["using"], blocks["answered"], blocks["total"]
                )
            }),
        ),
        ("worker", some(run, "workerId")),
        ("repeats", some(run, "retryOf")),
        ("after run", some(run, "after")),
        ("trace", some(run, "traceId")),
        ("result", run.get("result").map(|result| plain(&result.to_string()))),
    ])
}

/// Ends a run.
pub async fn stop(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.post(&["runs", &id, "stop"], &[], &json!({})).await?;
    shell.show(&answer, |run| format!("run {id} is {}", cell(run, "state")))
}

/// Runs it again.
pub async fn retry(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.post(&["runs", &id, "retry"], &[], &json!({})).await?;
    shell.show(&answer, |run| format!("run {} is {}, and repeats {id}", cell(run, "identity"), cell(run, "state")))
}

/// Says why it is as it is.
pub async fn why(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.get(&["runs", &id, "why"], &[]).await?;
    shell.show(&answer, job::explain)
}

/// Lists the instances of a run.
pub async fn instances(shell: &Shell, args: BlocksArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let answer = shell.client.list(&["runs", &id, "instances"], &[], args.limit as usize).await?;
    shell.show(&answer, |rows| {
        let columns =
            ["INSTANCE", "NODE OR WORKER", "STATE", "ATTEMPT", "CODE", "SIGNAL", "PEAK BYTES", "LINES", "BEGAN", "ENDED", "REASON"];
        table(rows, "the run has no instances", &columns, |row| {
            let result = &row["result"];
            let mut cells = ["instance", "peer", "state", "attempt"].map(|key| cell(row, key)).to_vec();
            cells.extend(["code", "signal", "peakMemory"].map(|key| cell(result, key)));
            cells.extend([cell(row, "lines"), time(row, "startTime"), time(row, "finishTime"), some(row, "reason").unwrap_or_default()]);
            cells
        })
    })
}

/// Flags of `run blocks` and `run instances`.
#[derive(Debug, ClapArgs)]
pub struct BlocksArgs {
    #[command(flatten)]
    run: RunRef,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = crate::cli::limit())]
    limit: u32,
}

/// Lists the blocks of a run.
pub async fn blocks(shell: &Shell, args: BlocksArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let answer = shell.client.list(&["runs", &id, "blocks"], &[], args.limit as usize).await?;
    shell.show(&answer, |blocks| {
        table(blocks, "the run has no blocks", &["ID", "STATE", "REQUESTS", "OK", "ERRORS", "ATTEMPT", "NODE", "EXCEPTION"], |block| {
            let mut row = ["blockId", "state", "requests", "success", "error", "attempt", "nodeId"].map(|key| cell(block, key)).to_vec();
            row.push(some(block, "exception").unwrap_or_default());
            row
        })
    })
}

/// Shows what each node did for a run.
pub async fn status(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.get(&["runs", &id, "status"], &[]).await?;
    shell.show(&answer, |rows| {
        table(rows, "no node has done anything for it", &["NODE", "STATUS", "OK", "ERRORS", "LEFT", "TOTAL", "LAST REPORT"], |row| {
            let node = some(row, "nodeId").unwrap_or_else(|| "all".to_owned());
            let mut cells = vec![node, cell(row, "status")];
            cells.extend(["success", "error", "left", "total"].map(|key| cell(row, key)));
            cells.push(time(row, "updateTime"));
            cells
        })
    })
}
