//! Requests of a block run: lists failed ones, queues them again, and finds a URL.

use super::RunRef;
use crate::cli::failure::Failure;
use crate::cli::job;
use crate::cli::remote::Shell;
use crate::cli::table::{Column, cell, list as table, some};
use crate::cli::words::words;
use crate::protocol::node::FetchErrorKind;
use crate::protocol::pending::DiscardInput;
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: [Column; 10] = [
    Column::text("URL", "url"),
    Column::of("ERROR", |row| some(row, "kind").unwrap_or_else(|| "status".to_owned())),
    Column::text("STATUS", "status"),
    Column::text("TRIES", "tries"),
    Column::time("AT", "finishTime"),
    Column::text("MESSAGE", "message"),
    Column::id("AGAIN AS", "requeuedAs"),
    Column::id("IN RUN", "requeuedIn").wide(),
    Column::id("BLOCK", "blockId").wide(),
    Column::text("NODE", "nodeName").wide(),
];

const PENDING: [Column; 7] = [
    Column::text("URL", "url"),
    Column::text("SITE", "site"),
    Column::text("DEPTH", "depth"),
    Column::text("PRIORITY", "priority"),
    Column::text("TRIES", "tries"),
    Column::id("BLOCK", "blockId"),
    Column::id("REQUEST", "requestId").wide(),
];

/// Selects failed requests.
#[derive(Debug, ClapArgs)]
struct Which {
    /// Only requests to this host or site
    #[arg(long)]
    site: Option<String>,
    /// Only requests that failed for this reason
    #[arg(long, value_parser = words::<FetchErrorKind>())]
    kind: Option<String>,
    /// Only requests with this HTTP status; 0: those without a response
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=999))]
    status: Option<u16>,
}

/// Flags of `run requests`.
#[derive(Debug, ClapArgs)]
#[command(group(clap::ArgGroup::new("state").required(true).args(["failed", "pending"])))]
pub struct RequestsArgs {
    #[command(flatten)]
    run: RunRef,
    /// Failed requests
    #[arg(long)]
    failed: bool,
    /// Requests that have no result yet
    #[arg(long)]
    pending: bool,
    /// Only those to this host or site
    #[arg(long)]
    site: Option<String>,
    /// Only those that failed for this reason
    #[arg(long, value_parser = words::<FetchErrorKind>(), conflicts_with = "pending")]
    kind: Option<String>,
    /// Only those that failed with this HTTP status; 0: those without an answer
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=999), conflicts_with = "pending")]
    status: Option<u16>,
    #[command(flatten)]
    which: WhichPending,
    /// Maximum number of requests
    #[arg(long, default_value_t = 50, value_parser = crate::cli::limit())]
    limit: u32,
}

/// Selects pending requests.
#[derive(Debug, ClapArgs)]
struct WhichPending {
    /// Only pending ones whose URL has this part; `*` stands for any characters, `$` at the end for the end of the URL
    #[arg(long, value_name = "PART", conflicts_with = "failed")]
    url: Option<String>,
    /// Only pending ones of at least this depth
    #[arg(long, value_name = "N", conflicts_with = "failed")]
    min_depth: Option<u32>,
    /// Only pending ones of at most this depth
    #[arg(long, value_name = "N", conflicts_with = "failed")]
    max_depth: Option<u32>,
}

/// Lists the requests of a run that failed, or that have no result yet.
pub async fn requests(shell: &Shell, args: RequestsArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let (site, limit) = (("site", args.site), args.limit as usize);
    let (answer, columns) = if args.pending {
        let WhichPending { url, min_depth, max_depth } = args.which;
        let [min_depth, max_depth] = [min_depth, max_depth].map(|depth| depth.map(|depth| depth.to_string()));
        let query = [site, ("url", url), ("minDepth", min_depth), ("maxDepth", max_depth)];
        (shell.client.list(&["runs", &id, "requests", "pending"], &query, limit).await?, &PENDING[..])
    } else {
        let query = [site, ("kind", args.kind), ("status", args.status.map(|status| status.to_string()))];
        (shell.client.list(&["runs", &id, "requests"], &query, limit).await?, &COLUMNS[..])
    };
    shell.show(&answer, |rows| table(rows, "there are no such requests", columns))
}

/// Flags of `run discard`.
#[derive(Debug, ClapArgs)]
#[command(group(clap::ArgGroup::new("condition").required(true).multiple(true).args(["site", "url", "min_depth", "max_depth", "all"])))]
pub struct DiscardArgs {
    #[command(flatten)]
    run: RunRef,
    /// Only those to this host or site
    #[arg(long)]
    site: Option<String>,
    /// Only those whose URL has this part; `*` stands for any characters, `$` at the end for the end of the URL
    #[arg(long, value_name = "PART")]
    url: Option<String>,
    /// Only those of at least this depth
    #[arg(long, value_name = "N")]
    min_depth: Option<u32>,
    /// Only those of at most this depth
    #[arg(long, value_name = "N")]
    max_depth: Option<u32>,
    /// All that are pending
    #[arg(long, conflicts_with_all = ["site", "url", "min_depth", "max_depth"])]
    all: bool,
    /// Maximum number of requests
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only count them
    #[arg(long)]
    dry_run: bool,
}

/// Discards pending requests of a run.
pub async fn discard(shell: &Shell, args: DiscardArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let DiscardArgs { run: _, site, url, min_depth, max_depth, all, limit, dry_run } = args;
    let limit = Some(limit as usize);
    let input = DiscardInput { site, url, min_depth, max_depth, all, limit, dry_run };
    let input = serde_json::to_value(input).map_err(|error| Failure::Usage(error.to_string()))?;
    let answer = shell.client.post(&["runs", &id, "requests", "discard"], &[], &input).await?;
    shell.show(&answer, |done| {
        let more = if done["more"] == true { "; there are more" } else { "" };
        if dry_run {
            return format!("{} pending requests are found{more}", cell(done, "found"));
        }
        format!("{} of {} pending requests are discarded{more}", cell(done, "discarded"), cell(done, "found"))
    })
}

/// Flags of `run requeue`.
#[derive(Debug, ClapArgs)]
pub struct RequeueArgs {
    #[command(flatten)]
    run: RunRef,
    #[command(flatten)]
    which: Which,
    /// Maximum number of requests
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only count them
    #[arg(long)]
    dry_run: bool,
}

/// Queues failed requests of a run again.
pub async fn requeue(shell: &Shell, args: RequeueArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let Which { site, kind, status } = args.which;
    let mut input = json!({ "limit": args.limit, "dryRun": args.dry_run });
    for (key, value) in [("site", site.map(Value::from)), ("kind", kind.map(Value::from)), ("status", status.map(Value::from))] {
        if let Some(value) = value {
            input[key] = value;
        }
    }
    let answer = shell.client.post(&["runs", &id, "requests", "requeue"], &[], &input).await?;
    shell.show(&answer, |done| {
        let over = done["overLimit"].as_u64().filter(|over| *over > 0);
        let over = over.map(|over| format!("; {over} are past the most requests of the run")).unwrap_or_default();
        let more = if done["more"] == true { "; there are more" } else { "" };
        if args.dry_run {
            return format!("{} failed requests are found{more}", cell(done, "found"));
        }
        let new = done["identity"].as_str().map(|run| format!(" in the new run {run}")).unwrap_or_default();
        format!("{} of {} failed requests are queued again{new}{over}{more}", cell(done, "queued"), cell(done, "found"))
    })
}

/// Flags of `run why-url`.
#[derive(Debug, ClapArgs)]
pub struct WhyUrlArgs {
    /// The run: its id or at least 4 digits that the id begins or ends with, or its number
    run: String,
    /// The URL
    url: String,
}

/// Explains where a URL is in a run.
pub async fn why_url(shell: &Shell, args: WhyUrlArgs) -> Result<ExitCode, Failure> {
    let id = RunRef { run: Some(args.run), job: None }.find(shell).await?;
    let answer = shell.client.get(&["runs", &id, "why-url"], &[("url", Some(args.url))]).await?;
    shell.show(&answer, job::explain)
}
