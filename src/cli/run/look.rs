//! Shows, stops and repeats runs.

use super::RunRef;
use crate::cli::failure::Failure;
use crate::cli::job;
use crate::cli::remote::Shell;
use crate::cli::table::{Column, card, cell, list as table, plain, some};
use crate::cli::times::{since, some_time};
use crate::cli::value::instant;
use crate::cli::words::words;
use crate::domain::ids::TraceId;
use crate::domain::job::JobKind;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: [Column; 15] = [
    Column::id("ID", "identity"),
    Column::text("JOB", "jobName"),
    Column::of("STATE", state),
    Column::time("MADE", "creationTime"),
    Column::time("ENDED", "finishTime"),
    Column::of("OK", |run| count(run, RunState::Success)),
    Column::of("ERRORS", |run| count(run, RunState::Failed)),
    Column::text("REASON", "reason"),
    Column::text("WAITS FOR", "waitsFor").wide(),
    Column::of("TOTAL", total).wide(),
    Column::text("ATTEMPT", "attempt").wide(),
    Column::time("PAUSED", "pausedAt").wide(),
    Column::text("KIND", "kind").wide(),
    Column::id("WORKER", "workerId").wide(),
    Column::id("TRACE", "traceId").wide(),
];

const INSTANCES: [Column; 12] = [
    Column::text("INSTANCE", "instance"),
    Column::text("NODE OR WORKER", "peerName"),
    Column::text("STATE", "state"),
    Column::of("CODE", |row| cell(&row["result"], "code")),
    Column::time("BEGAN", "startTime"),
    Column::time("ENDED", "finishTime"),
    Column::text("REASON", "reason"),
    Column::text("ATTEMPT", "attempt").wide(),
    Column::text("LINES", "lines").wide(),
    Column::of("SIGNAL", |row| cell(&row["result"], "signal")).wide(),
    Column::of("PEAK BYTES", |row| cell(&row["result"], "peakMemory")).wide(),
    Column::id("ITS ID", "peer").wide(),
];

const BLOCKS: [Column; 9] = [
    Column::id("ID", "blockId"),
    Column::text("STATE", "state"),
    Column::text("REQUESTS", "requests"),
    Column::text("OK", "success"),
    Column::text("ERRORS", "error"),
    Column::text("ATTEMPT", "attempt"),
    Column::text("NODE", "nodeName"),
    Column::text("EXCEPTION", "exception"),
    Column::id("NODE ID", "nodeId").wide(),
];

const STATUSES: [Column; 7] = [
    Column::of("NODE", |row| some(row, "nodeName").unwrap_or_else(|| "all".to_owned())),
    Column::text("STATUS", "status"),
    Column::text("OK", "success"),
    Column::text("ERRORS", "error"),
    Column::text("LEFT", "left"),
    Column::text("TOTAL", "total"),
    Column::time("LAST REPORT", "updateTime"),
];

/// How much of a run went well or failed: requests of a block run, programs of an application, or the run itself.
fn count(run: &Value, which: RunState) -> String {
    let (counter, of_programs) = if which == RunState::Success { ("success", "success") } else { ("error", "failed") };
    match run["kind"].as_str() {
        Some("block" | "") | None => cell(run, counter),
        Some("application") if run["result"][of_programs].is_u64() => cell(&run["result"], of_programs),
        _ if run["finishTime"].is_null() => String::new(),
        _ => u8::from(run["state"] == which.name()).to_string(),
    }
}

/// The number that `OK` and `ERRORS` are parts of.
fn total(run: &Value) -> String {
    match run["kind"].as_str() {
        Some("block" | "") | None => cell(run, "total"),
        Some("application") => cell(&run["result"], "instances"),
        _ => String::new(),
    }
}

/// The state of a run, and whether it is paused.
fn state(run: &Value) -> String {
    let paused = if run.get("pausedAt").is_some() { ", paused" } else { "" };
    format!("{}{paused}", cell(run, "state"))
}

/// Flags of `run list`.
#[derive(Debug, ClapArgs)]
pub struct ListArgs {
    /// Only runs in this state
    #[arg(long, value_parser = words::<RunState>())]
    state: Option<String>,
    /// Only runs of this job, by its name or id
    #[arg(long)]
    job: Option<String>,
    /// Only runs of this kind
    #[arg(long, value_parser = words::<JobKind>())]
    kind: Option<String>,
    /// Only runs of jobs of this group
    #[arg(long)]
    group: Option<String>,
    /// Only runs of this W3C trace: 32 hexadecimal digits
    #[arg(long, value_name = "TRACE_ID")]
    trace: Option<TraceId>,
    /// Only runs created at this time or later: RFC 3339, or -2h
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    from: Option<Timestamp>,
    /// Only runs created at this time or earlier
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    to: Option<Timestamp>,
    /// Maximum number of runs
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
    let query = [
        ("state", args.state),
        ("jobId", job),
        ("kind", args.kind),
        ("group", args.group),
        ("traceId", args.trace.map(|trace| trace.to_string())),
        ("from", at(args.from)),
        ("to", at(args.to)),
    ];
    let answer = shell.client.list(&["runs"], &query, args.limit as usize).await?;
    shell.show(&answer, |runs| table(runs, "there are no such runs", &COLUMNS))
}

/// Shows a run.
pub async fn show(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.get(&["runs", &id], &[]).await?;
    shell.show(&answer, describe)
}

/// The text of a run, line by line.
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
        ("waits for", some(run, "waitsFor")),
        ("paused", some_time(run, "pausedAt")),
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
            // Only the broker that executes the run knows what is at nodes.
            is_block.then(|| {
                let counts = [("ready", "ready"), ("using", "at nodes"), ("answered", "answered"), ("total", "in all")];
                let known = counts.into_iter().filter(|(count, _)| !blocks[*count].is_null());
                known.map(|(count, name)| format!("{} {name}", blocks[count])).collect::<Vec<_>>().join(", ")
            }),
        ),
        (
            "sites met",
            run.get("sites").map(|sites| format!("{} in all, {} active, {} held", sites["total"], sites["active"], sites["held"])),
        ),
        ("crawling", run.get("crawling").map(treatment)),
        ("bounds", run.get("crawling").map(bounds).filter(|text| !text.is_empty())),
        ("worker", some(run, "workerId")),
        ("repeats", some(run, "retryOf")),
        ("after run", some(run, "after")),
        ("trace", some(run, "traceId")),
        ("arguments", run.get("arguments").map(|arguments| plain(&arguments.to_string()))),
        ("result", run.get("result").map(|result| plain(&result.to_string()))),
    ])
}

/// How a run treats sites.
fn treatment(crawling: &Value) -> String {
    let robots = match crawling["robots"].as_str() {
        Some("ignore") => "robots.txt is ignored",
        Some("obey") => "robots.txt is obeyed",
        _ => "robots.txt is obeyed at public hosts",
    };
    let delay = some(crawling, "delay").map_or("default delay".to_owned(), |ms| format!("delay {ms} ms"));
    let at_once = some(crawling, "perSite").map(|n| format!(", {n} at once")).unwrap_or_default();
    let redirects = match crawling["redirects"].as_str() {
        Some("follow") => format!("redirects are followed by the node, at most {}", cell(crawling, "maxRedirects")),
        _ => format!("redirects are requests, at most {}", cell(crawling, "maxRedirects")),
    };
    let hosts: Vec<&str> = crawling["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let hosts = if hosts.is_empty() { String::new() } else { format!("; headers and cookies to {}", hosts.join(", ")) };
    let agent = some(crawling, "userAgent").map(|agent| format!("; user agent {agent}")).unwrap_or_default();
    format!("{robots}; {delay}{at_once} by {}; {redirects}{hosts}{agent}", cell(crawling, "siteBy"))
}

/// Where a run ends.
fn bounds(crawling: &Value) -> String {
    let named = [("depth", "depthLimit"), ("requests", "maxRequests"), ("requests per site", "maxPerSite"), ("bytes", "maxBytes")];
    let set: Vec<String> = named.iter().filter_map(|(name, key)| Some(format!("{name} {}", some(crawling, key)?))).collect();
    set.join(", ")
}

/// Stops a run.
pub async fn stop(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.post(&["runs", &id, "stop"], &[], &json!({})).await?;
    shell.show(&answer, |run| stopped(&id, run))
}

fn stopped(id: &str, run: &Value) -> String {
    let state = cell(run, "state");
    if run["finishTime"].is_null() {
        format!(
            "run {id} is being stopped, and is still {state}: what it has started has time to end. `webloom run watch {id}` waits for that"
        )
    } else {
        format!("run {id} is {state}")
    }
}

/// Repeats a run.
pub async fn retry(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.post(&["runs", &id, "retry"], &[], &json!({})).await?;
    shell.show(&answer, |run| format!("run {} is {}, and repeats {id}", cell(run, "identity"), cell(run, "state")))
}

/// Explains the state of a run.
pub async fn why(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.get(&["runs", &id, "why"], &[]).await?;
    shell.show(&answer, job::explain)
}

/// Lists the instances of a run.
pub async fn instances(shell: &Shell, args: BlocksArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let answer = shell.client.list(&["runs", &id, "instances"], &[], args.limit as usize).await?;
    shell.show(&answer, |rows| table(rows, "the run has no instances", &INSTANCES))
}

/// Lists the sites of a run.
pub async fn sites(shell: &Shell, args: BlocksArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let answer = shell.client.list(&["runs", &id, "sites"], &[("errors", Some("true".to_owned()))], args.limit as usize).await?;
    let none = "the run has no sites to list: a host without a pace is listed only if its robots.txt is obeyed, its requests are limited, or it is or was on hold";
    shell.show(&answer, |rows| table(rows, none, &crate::cli::site::OF_RUN))
}

/// Flags of `run blocks`, `run instances` and `run sites`.
#[derive(Debug, ClapArgs)]
pub struct BlocksArgs {
    #[command(flatten)]
    run: RunRef,
    /// Maximum number of entries
    #[arg(long, default_value_t = 50, value_parser = crate::cli::limit())]
    limit: u32,
}

/// Lists the blocks of a run.
pub async fn blocks(shell: &Shell, args: BlocksArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let answer = shell.client.list(&["runs", &id, "blocks"], &[], args.limit as usize).await?;
    shell.show(&answer, |blocks| table(blocks, "the run has no blocks", &BLOCKS))
}

/// Shows the statistics of each node for a run.
pub async fn status(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let answer = shell.client.get(&["runs", &id, "status"], &[]).await?;
    shell.show(&answer, |rows| table(rows, "no node has worked for the run", &STATUSES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_shows_how_it_treats_sites() {
        let mut run = json!({ "crawling": { "robots": "ignore", "siteBy": "host", "redirects": "request", "maxRedirects": 10 } });
        assert_eq!(treatment(&run["crawling"]), "robots.txt is ignored; default delay by host; redirects are requests, at most 10");
        assert_eq!(bounds(&run["crawling"]), "");
        run["crawling"] = json!({ "robots": "public", "delay": 500, "perSite": 2, "siteBy": "domain", "redirects": "follow", "maxRedirects": 3,
            "hosts": ["a.example"], "userAgent": "me/1", "depthLimit": 4, "maxBytes": 10 });
        let text = "robots.txt is obeyed at public hosts; delay 500 ms, 2 at once by domain; redirects are followed by the node, at most 3; \
                    headers and cookies to a.example; user agent me/1";
        assert_eq!((treatment(&run["crawling"]).as_str(), bounds(&run["crawling"]).as_str()), (text, "depth 4, bytes 10"));
    }
}
