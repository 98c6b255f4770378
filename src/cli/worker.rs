//! `webloom worker`: the programs that say what is to be done, and what an operator says of them.

use super::client::Client;
use super::remote::{Failure, Remote, Shell};
use super::table::{card, cell, items, list as table, since, some, some_time, time};
use crate::domain::ids::{Number, WorkerId};
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

/// More workers than this are not looked through for a name.
const MOST: usize = 100_000;

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
    /// The worker: its id, its number, or its name if no other worker has it
    worker: String,
}

/// A worker, and why.
#[derive(Debug, ClapArgs)]
struct Word {
    #[command(flatten)]
    worker: WorkerRef,
    /// Why, for people and for the worker
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Subcommand)]
enum WorkerCommand {
    /// List workers
    List(ListArgs),
    /// Show a worker
    Show(WorkerRef),
    /// Give a worker work again
    Enable(WorkerRef),
    /// Give a worker nothing new; what it has it may finish
    Disable(Word),
    /// Give a worker nothing new, and tell it to leave when it is done
    Drain(Word),
    /// Put a worker out: what it has goes to others, and it is refused until it is allowed
    Kick(Word),
    /// Let a worker in again that was put out
    Allow(WorkerRef),
    /// Forget a worker that is not there
    Forget(WorkerRef),
    /// List who watched which class from when to when
    Watches {
        /// At most so many
        #[arg(long, default_value_t = 100, value_parser = super::limit())]
        limit: u32,
    },
}

/// Flags of `worker list`.
#[derive(Debug, ClapArgs)]
struct ListArgs {
    /// Only those that are there
    #[arg(long, conflicts_with = "offline")]
    online: bool,
    /// Only those that are not there
    #[arg(long)]
    offline: bool,
    /// Only those in this state: enabled, disabled, draining, kicked
    #[arg(long)]
    state: Option<String>,
    /// Only those of this group
    #[arg(long)]
    group: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = super::limit())]
    limit: u32,
}

/// Runs the command.
///
/// # Errors
/// The broker refuses it or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        WorkerCommand::List(args) => list(&shell, args).await,
        WorkerCommand::Show(worker) => {
            let id = find(&shell.client, &worker).await?;
            let answer = shell.client.get(&["workers", &id], &[]).await?;
            shell.show(&answer, describe)
        }
        WorkerCommand::Enable(worker) => order(&shell, &worker, "enable", None, "is given work").await,
        WorkerCommand::Disable(word) => order(&shell, &word.worker, "disable", word.reason, "is given nothing new").await,
        WorkerCommand::Drain(word) => order(&shell, &word.worker, "drain", word.reason, "finishes what it has, and leaves").await,
        WorkerCommand::Kick(word) => order(&shell, &word.worker, "kick", word.reason, "is put out").await,
        WorkerCommand::Allow(worker) => order(&shell, &worker, "allow", None, "may come again").await,
        WorkerCommand::Forget(worker) => {
            let id = find(&shell.client, &worker).await?;
            let answer = shell.client.delete(&["workers", &id]).await?;
            shell.show(&answer, |_| format!("worker {id} is forgotten"))
        }
        WorkerCommand::Watches { limit } => watches(&shell, limit).await,
    })
}

/// The id of the worker that is meant.
async fn find(client: &Client, WorkerRef { worker }: &WorkerRef) -> Result<String, Failure> {
    if let Ok(id) = worker.parse::<WorkerId>() {
        return Ok(id.to_string());
    }
    let found = client.list(&["workers"], &[], MOST).await?.value()?;
    let named: Vec<&Value> = items(&found).iter().filter(|one| one["name"] == worker.as_str()).collect();
    // A program that takes a new id at each start leaves others of its name behind.
    let online: Vec<&Value> = named.iter().copied().filter(|one| one["isOnline"] == true).collect();
    let ids = |some: &[&Value]| some.iter().filter_map(|one| one["id"].as_str()).collect::<Vec<_>>().join("\n  ");
    match (&named[..], &online[..]) {
        ([one], _) | (_, [one]) => Ok(cell(one, "id")),
        ([], _) if worker.parse::<Number>().is_ok() => client.numbered("workers", worker, "id").await,
        ([], _) => Err(Failure::Refused(format!("there is no worker `{worker}`"))),
        (several, _) => Err(Failure::Refused(format!("several workers are called `{worker}`; say which by its id:\n  {}", ids(several)))),
    }
}

async fn order(shell: &Shell, worker: &WorkerRef, word: &str, reason: Option<String>, done: &str) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, worker).await?;
    let body = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
    let answer = shell.client.post(&["workers", &id, word], &[], &body).await?;
    shell.show(&answer, |_| format!("worker {id} {done}"))
}

async fn list(shell: &Shell, args: ListArgs) -> Result<ExitCode, Failure> {
    let online = (args.online || args.offline).then(|| args.online.to_string());
    let query = [("online", online), ("state", args.state), ("group", args.group)];
    let answer = shell.client.list(&["workers"], &query, args.limit as usize).await?;
    shell.show(&answer, |workers| {
        let columns = ["ID", "NAME", "ONLINE", "STATE", "GROUP", "VERSION", "TASKS", "SLOTS", "WATCHES", "LAST SEEN", "REASON"];
        table(workers, "there are no workers", &columns, |worker| {
            vec![
                cell(worker, "id"),
                cell(worker, "name"),
                if worker["isOnline"] == true { "yes" } else { "no" }.to_owned(),
                cell(worker, "state"),
                cell(worker, "group"),
                cell(worker, "version"),
                tasks(worker),
                cell(worker, "slots"),
                texts(worker, "classNames"),
                time(worker, "lastSeen"),
                some(worker, "reason").unwrap_or_default(),
            ]
        })
    })
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
    shell.show(&answer, |watches| {
        table(watches, "nobody watched anything", &["WORKER", "CLASS", "SINCE", "UNTIL"], |watch| {
            vec![
                cell(watch, "connectionId"),
                cell(watch, "fullClassName"),
                time(watch, "connectTime"),
                some_time(watch, "disconnectTime").unwrap_or_else(|| "now".to_owned()),
            ]
        })
    })
}
