//! `webloom worker`: the programs that produce requests and handle tasks, and operators' orders to them.

use super::failure::Failure;
use super::find::{WORKER, find};
use super::remote::{Remote, Shell};
use super::table::{Column, card, cell, list as table, some};
use super::times::{since, some_time, time};
use super::words::words;
use crate::domain::worker::WorkerState;
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: [Column; 11] = [
    Column::id("ID", "id"),
    Column::text("NAME", "name"),
    Column::text("ONLINE", "isOnline"),
    Column::text("STATE", "state"),
    Column::text("GROUP", "group"),
    Column::of("TASKS", tasks),
    Column::text("SLOTS", "slots"),
    Column::of("WATCHES", |worker| texts(worker, "classNames")),
    Column::time("LAST SEEN", "lastSeen"),
    Column::text("VERSION", "version").wide(),
    Column::text("REASON", "reason").wide(),
];

const WATCHES: [Column; 4] = [
    Column::id("WORKER", "connectionId"),
    Column::text("CLASS", "fullClassName"),
    Column::time("SINCE", "connectTime"),
    Column::time_of("UNTIL", |watch| if watch["disconnectTime"].is_null() { "now".to_owned() } else { time(watch, "disconnectTime") }),
];

/// Flags of `webloom worker`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: WorkerCommand,
}

/// A worker.
#[derive(Debug, ClapArgs)]
struct WorkerRef {
    /// The worker: its id or at least 4 digits of it, its number, or its name if no other worker has it
    worker: String,
}

/// A worker, and a reason.
#[derive(Debug, ClapArgs)]
struct Word {
    #[command(flatten)]
    worker: WorkerRef,
    /// The reason, for people and for the worker
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Subcommand)]
enum WorkerCommand {
    /// List workers
    List(ListArgs),
    /// Show a worker
    Show(WorkerRef),
    /// Enable a worker: it gets work again
    Enable(WorkerRef),
    /// Stop sending work to a worker; it may finish its current work
    Disable(Word),
    /// Stop sending work to a worker, and order it to leave when its current work is finished
    Drain(Word),
    /// Kick a worker: its work goes to other workers, and it is rejected until it is allowed again
    Kick(Word),
    /// Admit a kicked worker again
    Allow(WorkerRef),
    /// Delete a worker that is not connected
    Forget {
        #[command(flatten)]
        worker: WorkerRef,
        /// Also delete a connected worker: it is evicted, and its work goes to other workers
        #[arg(long)]
        force: bool,
    },
    /// List which worker watched which class from when to when
    Watches {
        /// Maximum number of watches
        #[arg(long, default_value_t = 100, value_parser = super::limit())]
        limit: u32,
    },
}

/// Flags of `worker list`.
#[derive(Debug, ClapArgs)]
struct ListArgs {
    /// Only connected workers
    #[arg(long, conflicts_with = "offline")]
    online: bool,
    /// Only workers that are not connected
    #[arg(long)]
    offline: bool,
    /// Only workers in this state
    #[arg(long, value_parser = words::<WorkerState>())]
    state: Option<String>,
    /// Only workers of this group
    #[arg(long)]
    group: Option<String>,
    /// Maximum number of workers
    #[arg(long, default_value_t = 100, value_parser = super::limit())]
    limit: u32,
}

/// Runs the command.
///
/// # Errors
/// The broker rejects the call or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        WorkerCommand::List(args) => list(&shell, args).await,
        WorkerCommand::Show(worker) => {
            let id = find(&shell.client, WORKER, &worker.worker).await?;
            let answer = shell.client.get(&["workers", &id], &[]).await?;
            shell.show(&answer, describe)
        }
        WorkerCommand::Enable(worker) => order(&shell, &worker, "enable", None, "is enabled").await,
        WorkerCommand::Disable(word) => order(&shell, &word.worker, "disable", word.reason, "gets no more work").await,
        WorkerCommand::Drain(word) => order(&shell, &word.worker, "drain", word.reason, "finishes its current work and leaves").await,
        WorkerCommand::Kick(word) => order(&shell, &word.worker, "kick", word.reason, "is kicked").await,
        WorkerCommand::Allow(worker) => order(&shell, &worker, "allow", None, "is admitted again").await,
        WorkerCommand::Forget { worker, force } => {
            let id = find(&shell.client, WORKER, &worker.worker).await?;
            let answer = shell.client.delete_with(&["workers", &id], &[("force", force.then(|| "true".to_owned()))]).await?;
            shell.show(&answer, |_| format!("worker {id} is deleted"))
        }
        WorkerCommand::Watches { limit } => watches(&shell, limit).await,
    })
}

async fn order(shell: &Shell, worker: &WorkerRef, word: &str, reason: Option<String>, done: &str) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, WORKER, &worker.worker).await?;
    let body = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
    let answer = shell.client.post(&["workers", &id, word], &[], &body).await?;
    shell.show(&answer, |_| format!("worker {id} {done}"))
}

async fn list(shell: &Shell, args: ListArgs) -> Result<ExitCode, Failure> {
    let online = (args.online || args.offline).then(|| args.online.to_string());
    let query = [("online", online), ("state", args.state), ("group", args.group)];
    let answer = shell.client.list(&["workers"], &query, args.limit as usize).await?;
    shell.show(&answer, |workers| table(workers, "there are no workers", &COLUMNS))
}

fn tasks(worker: &Value) -> String {
    worker["tasks"].as_array().map_or(0, Vec::len).to_string()
}

fn texts(worker: &Value, key: &str) -> String {
    let all = worker[key].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(Value::as_str).map(super::table::plain).collect::<Vec<_>>().join(", ")
}

fn describe(worker: &Value) -> String {
    let road = if worker["hasSocket"] == true { "by a socket" } else { "by HTTP" };
    let online = if worker["isOnline"] == true { format!("yes, {road}") } else { "no".to_owned() };
    let said = some(worker, "by").map(|by| format!(" by {by}")).unwrap_or_default();
    card(&[
        ("id", some(worker, "id")),
        ("number", some(worker, "number")),
        ("name", some(worker, "name")),
        ("online", Some(online)),
        ("state", Some(format!("{} since {}{said}", cell(worker, "state"), time(worker, "updateTime")))),
        ("reason", some(worker, "reason")),
        ("group", some(worker, "group")),
        ("version", some(worker, "version")),
        ("tags", Some(texts(worker, "tags")).filter(|tags| !tags.is_empty())),
        ("watches", Some(texts(worker, "classNames"))),
        ("tasks", Some(tasks(worker))),
        ("slots", some(worker, "slots")),
        ("first seen", since(worker, "creationTime", "createBy")),
        ("last seen", some_time(worker, "lastSeen")),
    ])
}

async fn watches(shell: &Shell, limit: u32) -> Result<ExitCode, Failure> {
    let answer = shell.client.list(&["workers", "watches"], &[], limit as usize).await?;
    shell.show(&answer, |watches| table(watches, "there are no watches", &WATCHES))
}
