//! `webloom node`: the machines that carry work out.

use super::remote::{Failure, Remote};
use super::table::{card, cell, list as table, some, some_time, time};
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

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
    /// The node: its id
    node: String,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// List nodes
    List,
    /// Show a node
    Show(NodeRef),
    /// Give a node work again
    Enable(NodeRef),
    /// Give a node no more work
    Disable(NodeRef),
    /// List what a node said of itself, the latest first
    Status {
        #[command(flatten)]
        node: NodeRef,
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = super::limit())]
        limit: u32,
    },
}

/// Runs a command of `webloom node`.
///
/// # Errors
/// The broker refuses it or cannot be reached.
pub fn run(args: NodeArgs) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        NodeCommand::List => {
            let answer = shell.client.get(&["nodes"], &[]).await?;
            shell.show(&answer, |nodes| {
                let columns = ["ID", "STATE", "TYPE", "GROUP", "ADDRESS", "SYSTEM", "HOLDING", "AT MOST", "CPU %", "FREE MB", "LAST SEEN"];
                table(nodes, "there are no nodes", &columns, |node| {
                    let load = &node["load"];
                    vec![
                        cell(node, "nodeId"),
                        state(node).to_owned(),
                        cell(node, "nodeType"),
                        cell(node, "group"),
                        cell(node, "ipAddress"),
                        cell(node, "operatingSystem"),
                        cell(node, "holding"),
                        cell(node, "maxProcessCount"),
                        cell(load, "cpu"),
                        cell(load, "freeMemory"),
                        time(node, "lastOnlineTime"),
                    ]
                })
            })
        }
        NodeCommand::Show(NodeRef { node }) => {
            let answer = shell.client.get(&["nodes", &node], &[]).await?;
            shell.show(&answer, describe)
        }
        NodeCommand::Enable(NodeRef { node }) => {
            let answer = shell.client.post(&["nodes", &node, "enable"], &[], &json!({})).await?;
            shell.show(&answer, |_| format!("node {node} is given work"))
        }
        NodeCommand::Disable(NodeRef { node }) => {
            let answer = shell.client.post(&["nodes", &node, "disable"], &[], &json!({})).await?;
            shell.show(&answer, |_| format!("node {node} is given no more work"))
        }
        NodeCommand::Status { node: NodeRef { node }, limit } => {
            let answer = shell.client.list(&["nodes", &node, "status"], &[], limit as usize).await?;
            shell.show(&answer, |rows| {
                table(rows, "nothing is known of it", &["AT", "AT WORK", "CPU %", "FREE MB"], |row| {
                    let mut cells = vec![time(row, "creationTime")];
                    cells.extend(["processCount", "cpu", "freeMemory"].map(|key| cell(row, key)));
                    cells
                })
            })
        }
    })
}

fn state(node: &Value) -> &'static str {
    match (node["isOnline"].as_bool(), node["isEnabled"].as_bool()) {
        (_, Some(false)) => "disabled",
        (Some(true), _) => "online",
        _ => "offline",
    }
}

fn describe(node: &Value) -> String {
    let load = &node["load"];
    card(&[
        ("id", some(node, "nodeId")),
        ("state", Some(state(node).to_owned())),
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
        ("created", some_time(node, "creationTime")),
        ("last seen", some_time(node, "lastOnlineTime")),
    ])
}
