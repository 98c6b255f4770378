//! `webloom node`: the machines that do the work.

use super::failure::Failure;
use super::find::{NODE, find};
use super::remote::{Remote, Shell};
use super::table::{Column, card, cell, list as table, some};
use super::times::{since, some_time};
use super::value::instant;
use crate::domain::time::Timestamp;
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: [Column; 14] = [
    Column::text("NAME", "name"),
    Column::id("ID", "nodeId"),
    Column::of("STATE", |node| state(node).to_owned()),
    Column::text("GROUP", "group"),
    Column::text("ADDRESS", "ipAddress"),
    Column::text("BLOCKS", "holding"),
    Column::text("PROGRAMS", "programs"),
    Column::of("CPU %", |node| cell(&node["load"], "cpu")),
    Column::time("LAST SEEN", "lastOnlineTime"),
    Column::text("TYPE", "nodeType").wide(),
    Column::text("SYSTEM", "operatingSystem").wide(),
    Column::text("AT MOST", "maxProcessCount").wide(),
    Column::of("FREE MB", |node| cell(&node["load"], "freeMemory")).wide(),
    Column::text("REASON", "reason").wide(),
];

const STATUSES: [Column; 4] = [
    Column::exact("AT", "creationTime"),
    Column::text("AT WORK", "processCount"),
    Column::text("CPU %", "cpu"),
    Column::text("FREE MB", "freeMemory"),
];

/// Flags of `webloom node`.
#[derive(Debug, ClapArgs)]
pub struct NodeArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: NodeCommand,
}

/// A node.
#[derive(Debug, ClapArgs)]
struct NodeRef {
    /// The node: its id or at least 4 digits of it, its number, or its name if no other node has it
    node: String,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// List nodes
    List,
    /// Show a node
    Show(NodeRef),
    /// Enable a node: it gets work again, whatever order it had before
    Enable(NodeRef),
    /// Stop sending work to a node; it finishes its current work
    Disable(WorkArgs),
    /// Stop sending work to a node; it finishes its current work and exits
    Drain(WorkArgs),
    /// Shut down a node's agent and its programs
    Exit(WorkArgs),
    /// Remove a node and its status history
    Remove {
        #[command(flatten)]
        node: NodeRef,
        /// Also remove a connected node: it is shut down
        #[arg(long)]
        force: bool,
    },
    /// List the status of a node from its heartbeats, newest first
    #[command(alias = "status")]
    History {
        #[command(flatten)]
        node: NodeRef,
        /// Only statuses at this time or later: RFC 3339, or -2h
        #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
        from: Option<Timestamp>,
        /// Only statuses at this time or earlier
        #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
        to: Option<Timestamp>,
        /// Maximum number of statuses
        #[arg(long, default_value_t = 50, value_parser = super::limit())]
        limit: u32,
    },
}

/// A node, and a reason.
#[derive(Debug, ClapArgs)]
struct WorkArgs {
    #[command(flatten)]
    node: NodeRef,
    /// The reason, for people
    #[arg(long)]
    reason: Option<String>,
}

/// Runs a command of `webloom node`.
///
/// # Errors
/// The broker rejects the call or cannot be reached.
pub fn run(args: NodeArgs) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        NodeCommand::List => {
            let answer = shell.client.get(&["nodes"], &[]).await?;
            shell.show(&answer, |nodes| table(nodes, "there are no nodes", &COLUMNS))
        }
        NodeCommand::Show(NodeRef { node }) => {
            let node = find(&shell.client, NODE, &node).await?;
            let answer = shell.client.get(&["nodes", &node], &[]).await?;
            shell.show(&answer, describe)
        }
        NodeCommand::Enable(NodeRef { node }) => {
            let node = find(&shell.client, NODE, &node).await?;
            let answer = shell.client.post(&["nodes", &node, "enable"], &[], &json!({})).await?;
            shell.show(&answer, |_| format!("node {node} is enabled"))
        }
        NodeCommand::Disable(args) => set_work(&shell, &args, "disable", "gets no more work").await,
        NodeCommand::Drain(args) => set_work(&shell, &args, "drain", "finishes its current work and exits").await,
        NodeCommand::Exit(args) => set_work(&shell, &args, "exit", "is shutting down").await,
        NodeCommand::Remove { node: NodeRef { node }, force } => {
            let node = find(&shell.client, NODE, &node).await?;
            let answer = shell.client.delete_with(&["nodes", &node], &[("force", force.then(|| "true".to_owned()))]).await?;
            shell.show(&answer, |_| format!("node {node} is removed"))
        }
        NodeCommand::History { node: NodeRef { node }, from, to, limit } => {
            let node = find(&shell.client, NODE, &node).await?;
            let at = |at: Option<Timestamp>| at.map(|at| at.to_string());
            let query = [("from", at(from)), ("to", at(to))];
            let answer = shell.client.list(&["nodes", &node, "statuses"], &query, limit as usize).await?;
            shell.show(&answer, |rows| table(rows, "the node has no statuses", &STATUSES))
        }
    })
}

async fn set_work(shell: &Shell, args: &WorkArgs, what: &str, says: &str) -> Result<ExitCode, Failure> {
    let node = find(&shell.client, NODE, &args.node.node).await?;
    let body = args.reason.as_ref().map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
    let answer = shell.client.post(&["nodes", &node, what], &[], &body).await?;
    shell.show(&answer, |_| format!("node {node} {says}"))
}

fn state(node: &Value) -> &'static str {
    if node["isLeaving"] == true {
        return "leaving";
    }
    if node["isDraining"] == true {
        return "draining";
    }
    match (node["isOnline"].as_bool(), node["isEnabled"].as_bool()) {
        (_, Some(false)) => "disabled",
        (Some(true), _) => "online",
        _ => "offline",
    }
}

fn describe(node: &Value) -> String {
    let load = &node["load"];
    card(&[
        ("name", some(node, "name")),
        ("id", some(node, "nodeId")),
        ("number", some(node, "number")),
        ("state", Some(state(node).to_owned())),
        ("reason", some(node, "reason")),
        ("online", some(node, "isOnline")),
        ("type", some(node, "nodeType")),
        ("group", some(node, "group")),
        ("address", some(node, "ipAddress")),
        ("system", some(node, "operatingSystem")),
        ("processors", some(node, "processorCount")),
        ("memory", some(node, "memory").map(|mb| format!("{mb} MB"))),
        ("free memory", some(load, "freeMemory").map(|mb| format!("{mb} MB"))),
        ("cpu", some(load, "cpu").map(|percent| format!("{percent} %"))),
        ("holding", Some(format!("{} of {} blocks", cell(node, "holding"), cell(node, "maxProcessCount")))),
        ("programs", some(node, "programs")),
        ("created", since(node, "creationTime", "createBy")),
        ("changed", since(node, "updateTime", "updateBy")),
        ("last seen", some_time(node, "lastOnlineTime")),
    ])
}
