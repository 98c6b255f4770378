//! Creates and changes jobs.

use super::find::{JobRef, find, find_deleted};
use super::input::JobFlags;
use super::look::describe;
use crate::cli::failure::Failure;
use crate::cli::look::{Format, Look};
use crate::cli::remote::{Shell, print};
use crate::cli::table::{Column, cell, list as table, some};
use crate::cli::value::{instant, is_json, read};
use crate::domain::time::Timestamp;
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

const IMPORTED: [Column; 3] = [Column::text("ACTION", "action"), Column::text("NAME", "name"), Column::id("ID", "id")];

/// Flags of `job create`.
#[derive(Debug, ClapArgs)]
pub struct CreateArgs {
    /// Only check the job, and show the result
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    flags: JobFlags,
}

/// Creates a job.
pub async fn create(shell: &Shell, mut args: CreateArgs) -> Result<ExitCode, Failure> {
    args.flags.settle_package(shell, args.dry_run).await?;
    let input = args.flags.input(&Value::Null)?;
    let query = [("dryRun", args.dry_run.then(|| "true".to_owned()))];
    let answer = shell.client.post(&["jobs"], &query, &input).await?;
    shell.show(&answer, |job| if args.dry_run { describe(job) } else { said("created", job) })
}

/// Flags of `job update`.
#[derive(Debug, ClapArgs)]
pub struct UpdateArgs {
    #[command(flatten)]
    job: JobRef,
    #[command(flatten)]
    flags: JobFlags,
    /// Remove the schedule: the job then only runs when it is triggered
    #[arg(long, conflicts_with_all = ["cron", "every", "at"], help_heading = "When it runs")]
    no_schedule: bool,
}

/// Changes a job. A concurrent change by another caller is detected.
pub async fn update(shell: &Shell, mut args: UpdateArgs) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &args.job.job).await?;
    args.flags.settle_package(shell, false).await?;
    let job = shell.client.get(&["jobs", &id], &[]).await?.value()?;
    let mut input = args.flags.input(&job)?;
    if args.no_schedule {
        input["schedule"] = json!({});
    }
    if input.as_object().is_some_and(serde_json::Map::is_empty) {
        return Err(Failure::Usage("there is nothing to change; `webloom job update --help` lists what can be".to_owned()));
    }
    if input["version"].is_null() {
        input["version"] = job["version"].clone();
    }
    let answer = shell.client.put(&["jobs", &id], &input).await?;
    shell.show(&answer, |job| said("changed", job))
}

/// Deletes a job.
pub async fn delete(shell: &Shell, job: &JobRef) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &job.job).await?;
    let answer = shell.client.delete(&["jobs", &id]).await?;
    shell.show(&answer, |_| format!("deleted {id}; `webloom job restore {id}` brings it back"))
}

/// Restores a deleted job.
pub async fn restore(shell: &Shell, job: &JobRef) -> Result<ExitCode, Failure> {
    let id = find_deleted(&shell.client, &job.job).await?;
    let answer = shell.client.post(&["jobs", &id, "restore"], &[], &json!({})).await?;
    shell.show(&answer, |job| format!("{}; it is disabled", said("restored", job)))
}

/// Removes a job for good.
pub async fn purge(shell: &Shell, job: &JobRef) -> Result<ExitCode, Failure> {
    let id = find_deleted(&shell.client, &job.job).await?;
    let answer = shell.client.post(&["jobs", &id, "purge"], &[], &json!({})).await?;
    shell.show(&answer, |_| format!("purged {id}"))
}

/// Enables a job.
pub async fn enable(shell: &Shell, job: &JobRef) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &job.job).await?;
    let answer = shell.client.post(&["jobs", &id, "enable"], &[], &json!({})).await?;
    shell.show(&answer, |job| said("enabled", job))
}

/// Flags of `job disable`.
#[derive(Debug, ClapArgs)]
pub struct DisableArgs {
    #[command(flatten)]
    job: JobRef,
    /// The reason, for people
    #[arg(long)]
    reason: Option<String>,
    /// Also stop its runs; otherwise runs in progress continue
    #[arg(long)]
    stop: bool,
}

/// Disables a job.
pub async fn disable(shell: &Shell, args: DisableArgs) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &args.job.job).await?;
    let mut body = json!({ "mode": if args.stop { "stop" } else { "drain" } });
    if let Some(reason) = args.reason {
        body["reason"] = reason.into();
    }
    let answer = shell.client.post(&["jobs", &id, "disable"], &[], &body).await?;
    shell.show(&answer, |job| said("disabled", job))
}

/// Flags of `job trigger`.
#[derive(Debug, ClapArgs)]
pub struct TriggerArgs {
    #[command(flatten)]
    job: JobRef,
    /// Arguments for its worker, instead of the job's own
    #[arg(long, allow_hyphen_values = true)]
    arguments: Option<String>,
    /// Payload for the function of a task, as JSON, instead of the job's own
    #[arg(long, value_name = "JSON", value_parser = super::task_flags::json_value, allow_hyphen_values = true, conflicts_with = "arguments")]
    payload: Option<serde_json::Value>,
    /// The priority, instead of the job's own
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    /// The scheduled time: triggers with the same time make one run
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    fire_time: Option<Timestamp>,
    /// Triggers with the same key make one run
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Follow the run until it ends, and exit as `webloom run watch` does
    #[arg(long)]
    watch: bool,
}

/// Runs a job now.
pub async fn trigger(shell: &Shell, args: TriggerArgs) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &args.job.job).await?;
    let all = json!({
        "arguments": args.payload.or(args.arguments.map(serde_json::Value::from)), "priority": args.priority, "fireTime": args.fire_time, "idempotencyKey": args.key,
    });
    let said: serde_json::Map<_, _> =
        all.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let answer = shell.client.post(&["jobs", &id, "trigger"], &[], &Value::Object(said)).await?;
    let run = answer.value()?;
    match run["identity"].as_str().filter(|_| args.watch) {
        Some(identity) => crate::cli::run::follow(shell, identity).await,
        None => shell.show(&answer, |run| format!("run {} is {}", cell(run, "identity"), cell(run, "state"))),
    }
}

/// Flags of `job export`.
#[derive(Debug, ClapArgs)]
pub struct ExportArgs {
    /// Only jobs whose name contains this, ignoring case
    #[arg(long, value_name = "PART")]
    name: Option<String>,
    /// Only jobs of this group
    #[arg(long)]
    group: Option<String>,
}

/// Prints jobs as a file.
pub async fn export(shell: &Shell, args: ExportArgs) -> Result<ExitCode, Failure> {
    let media_type = if Look::get().format == Format::Json { "application/json" } else { "application/yaml" };
    let query = [("name", args.name), ("group", args.group)];
    let answer = shell.client.get_as(media_type, &["jobs", "export"], &query).await?;
    print(answer.text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Flags of `job import`.
#[derive(Debug, ClapArgs)]
pub struct ImportArgs {
    /// Jobs as YAML or JSON, as `job export` prints them; `-`: standard input
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

/// Creates and changes jobs from a file.
pub async fn import(shell: &Shell, args: ImportArgs) -> Result<ExitCode, Failure> {
    let text = read(&args.file)?;
    let media_type = if is_json(&text) { "application/json" } else { "application/yaml" };
    let query = [("dryRun", args.dry_run.then(|| "true".to_owned()))];
    let answer = shell.client.post_text(media_type, &["jobs", "import"], &query, text).await?;
    shell.show(&answer, |jobs| table(jobs, "the file holds no jobs", &IMPORTED))
}

fn said(what: &str, job: &Value) -> String {
    let next = some(job, "nextFire").map(|_| format!(", next run {}", crate::cli::times::exact_time(job, "nextFire"))).unwrap_or_default();
    format!("{what} job {} {}{next}", cell(job, "id"), cell(job, "name"))
}
