//! Requests of a block run: lists failed ones, queues them again, and finds a URL.

use super::RunRef;
use crate::cli::failure::Failure;
use crate::cli::job;
use crate::cli::remote::Shell;
use crate::cli::table::{Column, cell, list as table, some};
use crate::cli::words::words;
use crate::protocol::node::FetchErrorKind;
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: [Column; 9] = [
    Column::text("URL", "url"),
    Column::of("ERROR", |row| some(row, "kind").unwrap_or_else(|| "status".to_owned())),
    Column::text("STATUS", "status"),
    Column::text("TRIES", "tries"),
    Column::time("AT", "finishTime"),
    Column::text("MESSAGE", "message"),
    Column::id("AGAIN AS", "requeuedAs"),
    Column::id("BLOCK", "blockId").wide(),
    Column::text("NODE", "nodeName").wide(),
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
pub struct RequestsArgs {
    #[command(flatten)]
    run: RunRef,
    /// Failed requests; a run keeps no list of others
    #[arg(long, required = true)]
    failed: bool,
    #[command(flatten)]
    which: Which,
    /// Maximum number of requests
    #[arg(long, default_value_t = 50, value_parser = crate::cli::limit())]
    limit: u32,
}

/// Lists the failed requests of a run.
pub async fn requests(shell: &Shell, args: RequestsArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let Which { site, kind, status } = args.which;
    let state = args.failed.then(|| "failed".to_owned());
    let query = [("state", state), ("site", site), ("kind", kind), ("status", status.map(|status| status.to_string()))];
    let answer = shell.client.list(&["runs", &id, "requests"], &query, args.limit as usize).await?;
    shell.show(&answer, |rows| table(rows, "there are no such requests", &COLUMNS))
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
        format!("{} of {} failed requests are queued again{over}{more}", cell(done, "queued"), cell(done, "found"))
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
