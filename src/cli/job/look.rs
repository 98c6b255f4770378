//! Shows jobs.

use super::{JobRef, find};
use crate::cli::failure::Failure;
use crate::cli::remote::Shell;
use crate::cli::table::{Column, card, cell, list as table, plain, some};
use crate::cli::times::{exact_time, since, some_time, span, time};
use crate::cli::words::{one_of, words};
use crate::domain::job::JobKind;
use clap::Args as ClapArgs;
use serde_json::Value;
use std::process::ExitCode;

const COLUMNS: [Column; 9] = [
    Column::id("ID", "id"),
    Column::text("NAME", "name"),
    Column::text("KIND", "jobType"),
    Column::of("STATE", |job| state(job).to_owned()),
    Column::of("SCHEDULE", schedule),
    Column::time("NEXT", "nextFire"),
    Column::time_of("LAST", last),
    Column::text("GROUP", "group"),
    Column::text("DESCRIPTION", "description").wide(),
];

const SORTS: [&str; 8] = ["name", "-name", "creationTime", "-creationTime", "updateTime", "-updateTime", "nextFire", "-nextFire"];

/// Flags of `job list`.
#[derive(Debug, ClapArgs)]
pub struct ListArgs {
    /// Only jobs whose name contains this, ignoring case
    #[arg(long, value_name = "PART")]
    name: Option<String>,
    /// Only jobs of this kind
    #[arg(long, value_parser = words::<JobKind>())]
    kind: Option<String>,
    /// Only jobs of this group
    #[arg(long)]
    group: Option<String>,
    /// Only enabled jobs
    #[arg(long, conflicts_with = "disabled")]
    enabled: bool,
    /// Only disabled jobs
    #[arg(long)]
    disabled: bool,
    /// Only deleted jobs
    #[arg(long)]
    deleted: bool,
    /// The order; a leading `-` reverses it
    #[arg(long, default_value = "name", allow_hyphen_values = true, value_parser = one_of(&SORTS))]
    sort: String,
    /// Maximum number of jobs
    #[arg(long, default_value_t = 100, value_parser = crate::cli::limit())]
    limit: u32,
}

/// Lists jobs.
pub async fn list(shell: &Shell, args: ListArgs) -> Result<ExitCode, Failure> {
    let enabled = (args.enabled || args.disabled).then_some(args.enabled);
    let query = [
        ("name", args.name),
        ("kind", args.kind),
        ("group", args.group),
        ("enabled", enabled.map(|enabled| enabled.to_string())),
        ("deleted", args.deleted.then(|| "true".to_owned())),
        ("sort", Some(args.sort)),
    ];
    let answer = shell.client.list(&["jobs"], &query, args.limit as usize).await?;
    shell.show(&answer, |jobs| table(jobs, "there are no such jobs", &COLUMNS))
}

/// Shows a job.
pub async fn show(shell: &Shell, job: &JobRef) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &job.job).await?;
    let answer = shell.client.get(&["jobs", &id], &[]).await?;
    shell.show(&answer, describe)
}

/// The text of a job, line by line.
pub fn describe(job: &Value) -> String {
    let reason = some(job, "disabledReason").map(|reason| format!(": {reason}")).unwrap_or_default();
    let mut rows = vec![
        ("id", some(job, "id")),
        ("number", some(job, "number")),
        ("name", some(job, "name")),
        ("kind", some(job, "jobType")),
        ("description", some(job, "description")),
        ("group", some(job, "group")),
        ("state", Some(format!("{}{reason}", state(job)))),
        ("priority", some(job, "priority")),
        ("schedule", Some(schedule(job))),
        ("next", some_time(job, "nextFire")),
        ("last", some_time(job, "lastFire")),
        ("runs by plan", some(job, "fires")),
        ("failures", some(job, "failures").filter(|n| n != "0").map(|n| format!("{n} one after the other"))),
    ];
    let activity = &job["activity"];
    rows.push(("runs", some(activity, "runs")));
    rows.push(("status", some(activity, "status")));
    rows.push(("took on average", activity["averageMs"].as_u64().map(span)));
    rows.push(("last run", some(&activity["lastRun"], "identity").map(|run| format!("{run} {}", cell(&activity["lastRun"], "state")))));
    rows.push(("open run", some(activity, "openRun")));
    rows.push(("worker", some(activity, "workerId")));
    let callback = &job["callback"];
    rows.push(("calls", some(callback, "url").map(|url| format!("{} {url}", some(callback, "method").unwrap_or_default()))));
    rows.push(("handler", some(&job["task"], "handler")));
    rows.push(("arguments", job["task"].get("arguments").map(|arguments| plain(&arguments.to_string()))));
    rows.push(("task settings", task_settings(job)));
    rows.push(("policies", job["policies"].is_object().then(|| plain(&job["policies"].to_string()))));
    for (key, value) in job["properties"].as_object().into_iter().flatten() {
        rows.push(("property", value.as_str().map(|value| plain(&format!("{key}={value}")))));
    }
    rows.push(("version", some(job, "version")));
    rows.push(("created", since(job, "creationTime", "createBy")));
    rows.push(("changed", since(job, "updateTime", "updateBy")));
    card(&rows)
}

/// When the job ran last: its last scheduled time or its last run, whatever made it. Runs may have been deleted.
fn last(job: &Value) -> String {
    let of = |key: &str| job[key].as_str().and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
    time(job, if of("lastRunTime") > of("lastFire") { "lastRunTime" } else { "lastFire" })
}

/// The settings of a task, without those that have lines of their own.
fn task_settings(job: &Value) -> Option<String> {
    let mut settings = job["task"].as_object()?.clone();
    settings.retain(|name, _| name != "handler" && name != "arguments");
    (!settings.is_empty()).then(|| plain(&Value::Object(settings).to_string()))
}

fn state(job: &Value) -> &'static str {
    match (job["isDeleted"].as_bool(), job["isEnabled"].as_bool()) {
        (Some(true), _) => "deleted",
        (_, Some(false)) => "disabled",
        _ => "enabled",
    }
}

/// A schedule in one line.
fn schedule(job: &Value) -> String {
    let schedule = &job["schedule"];
    let one = |trigger: &Value| match (trigger["cron"].as_str(), trigger["every"].as_u64()) {
        (Some(cron), _) => plain(cron),
        (_, Some(0)) => "once".to_owned(),
        (_, Some(ms)) if trigger["afterEnd"] == true => format!("{} after the end", span(ms)),
        (_, Some(ms)) => format!("every {}", span(ms)),
        _ => format!("at {}", exact_time(trigger, "at")),
    };
    let triggers: Vec<String> = schedule["triggers"].as_array().into_iter().flatten().map(one).collect();
    let text = if triggers.is_empty() { "by hand".to_owned() } else { triggers.join(" | ") };
    match schedule["zone"].as_str() {
        Some(zone) => format!("{text} ({})", plain(zone)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;
    use serde_json::json;

    #[test]
    fn the_last_run_is_the_newer_of_plan_and_hand() {
        let (early, late) = (Timestamp::now().plus_ms(-400_000), Timestamp::now().plus_ms(-130_000));
        assert_eq!(last(&json!({ "lastFire": early, "lastRunTime": late })), "2 min ago");
        assert_eq!(last(&json!({ "lastFire": late, "lastRunTime": early })), "2 min ago");
        assert_eq!(last(&json!({ "lastRunTime": early })), "6 min ago");
        assert_eq!(last(&json!({ "lastFire": early })), "6 min ago");
        assert_eq!(last(&json!({})), "-");
    }

    #[test]
    fn a_schedule_is_one_line() {
        let of = |triggers: Value| schedule(&json!({ "schedule": { "triggers": triggers } }));
        assert_eq!(of(json!([{ "cron": "0 2 * * *" }, { "every": 90_000 }])), "0 2 * * * | every 1m 30s");
        assert_eq!(of(json!([{ "every": 1_000, "afterEnd": true }])), "1s after the end");
        assert_eq!(of(json!([{ "at": "2026-12-24T18:00:00.000Z" }])), "at 2026-12-24T18:00:00Z");
        assert_eq!(schedule(&json!({})), "by hand");
    }
}
