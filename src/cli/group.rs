//! `webloom group`: named groups of jobs and nodes.

use super::client::Client;
use super::failure::Failure;
use super::find::{GROUP, find as find_id};
use super::remote::{Remote, Shell};
use super::table::{Column, card, cell, list as table, some};
use super::times::since;
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: [Column; 6] = [
    Column::id("ID", "id"),
    Column::text("NAME", "name"),
    Column::text("JOBS", "jobs"),
    Column::text("NODES", "nodes"),
    Column::time("CHANGED", "updateTime"),
    Column::text("DESCRIPTION", "description"),
];

/// Flags of `webloom group`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Debug, Subcommand)]
enum GroupCommand {
    /// List groups
    List {
        /// Maximum number of groups
        #[arg(long, default_value_t = 100, value_parser = super::limit())]
        limit: u32,
    },
    /// Create a group
    Create {
        /// The name: at most 50 characters, unique
        name: String,
        /// A text for people
        #[arg(long)]
        description: Option<String>,
    },
    /// Show a group
    Show {
        /// The group: its name, its id or at least 4 digits of it, or its number
        group: String,
    },
    /// Give a group another name, or another description
    Rename {
        /// The group: its name, its id or at least 4 digits of it, or its number
        group: String,
        /// The new name
        name: String,
        /// A text for people
        #[arg(long)]
        description: Option<String>,
    },
    /// Delete a group
    Delete {
        /// The group: its name, its id or at least 4 digits of it, or its number
        group: String,
    },
    /// Enable all jobs of a group
    Enable {
        /// The group: its name, its id or at least 4 digits of it, or its number
        group: String,
    },
    /// Disable all jobs of a group
    Disable {
        /// The group: its name, its id or at least 4 digits of it, or its number
        group: String,
        /// The reason, for people
        #[arg(long)]
        reason: Option<String>,
        /// Also stop their runs; otherwise runs in progress continue
        #[arg(long)]
        stop: bool,
    },
}

/// Runs the command.
///
/// # Errors
/// The broker rejects the call or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        GroupCommand::List { limit } => list(&shell, limit as usize).await,
        GroupCommand::Create { name, description } => {
            let answer = shell.client.post(&["groups"], &[], &input(&name, description)).await?;
            shell.show(&answer, |group| format!("created group {} {}", cell(group, "id"), cell(group, "name")))
        }
        GroupCommand::Show { group } => {
            let (id, _) = find(&shell.client, &group).await?;
            let answer = shell.client.get(&["groups", &id], &[]).await?;
            shell.show(&answer, describe)
        }
        GroupCommand::Rename { group, name, description } => {
            let (id, before) = find(&shell.client, &group).await?;
            let answer = shell.client.put(&["groups", &id], &input(&name, description)).await?;
            shell.show(&answer, |group| format!("group {id} was {before} and is {}", cell(group, "name")))
        }
        GroupCommand::Delete { group } => {
            let (id, name) = find(&shell.client, &group).await?;
            let answer = shell.client.delete(&["groups", &id]).await?;
            shell.show(&answer, |_| format!("deleted group {id} {name}"))
        }
        GroupCommand::Enable { group } => switch(&shell, &group, "enable", &json!({})).await,
        GroupCommand::Disable { group, reason, stop } => {
            let mut body = json!({ "mode": if stop { "stop" } else { "drain" } });
            if let Some(reason) = reason {
                body["reason"] = reason.into();
            }
            switch(&shell, &group, "disable", &body).await
        }
    })
}

async fn list(shell: &Shell, limit: usize) -> Result<ExitCode, Failure> {
    let answer = shell.client.list(&["groups"], &[], limit).await?;
    shell.show(&answer, |groups| table(groups, "there are no groups", &COLUMNS))
}

fn describe(group: &Value) -> String {
    let mut rows: Vec<_> = ["id", "number", "name", "description", "jobs", "nodes"].map(|key| (key, some(group, key))).to_vec();
    rows.extend([("created", since(group, "creationTime", "createBy")), ("changed", since(group, "updateTime", "updateBy"))]);
    card(&rows)
}

fn input(name: &str, description: Option<String>) -> Value {
    match description {
        Some(description) => json!({ "name": name, "description": description }),
        None => json!({ "name": name }),
    }
}

/// The id and the name of a group.
async fn find(client: &Client, group: &str) -> Result<(String, String), Failure> {
    let id = find_id(client, GROUP, group).await?;
    let found = client.get(&["groups", &id], &[]).await?.value()?;
    Ok((id, cell(&found, "name")))
}

/// Enables or disables all jobs of a group.
async fn switch(shell: &Shell, group: &str, verb: &str, body: &Value) -> Result<ExitCode, Failure> {
    let (id, name) = find(&shell.client, group).await?;
    let answer = shell.client.post(&["groups", &id, verb], &[], body).await?;
    shell.show(&answer, |done| format!("{verb}d {} of {} jobs of group {name}", cell(done, "changed"), cell(done, "jobs")))
}
