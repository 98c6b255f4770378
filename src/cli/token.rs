//! `webloom token`: named tokens.

use super::failure::Failure;
use super::remote::Remote;
use super::table::{Column, cell, list as table};
use super::times::time;
use super::value::duration_ms;
use super::words::one_of;
use crate::domain::time::Timestamp;
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Maximum number of listed tokens.
const MOST: usize = 10_000;

/// The longest time until a token expires: a hundred years.
const MOST_MS: u64 = 36_500 * 86_400_000;

const COLUMNS: [Column; 6] = [
    Column::text("NAME", "name"),
    Column::text("ROLE", "role"),
    Column::of("GROUPS", groups),
    Column::time_of("EXPIRES", |token| if token["isExpired"] == true { "expired".to_owned() } else { time(token, "expireTime") }),
    Column::time("CREATED", "creationTime"),
    Column::text("BY", "createBy"),
];

/// Flags of `webloom token`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// List named tokens, without their texts
    List,
    /// Create a token and print its text, which is not shown again
    Create {
        /// The name: letters, digits and `._@-`, unique
        name: String,
        /// What it may do
        #[arg(long, value_parser = one_of(&["readonly", "viewer", "operator", "editor", "admin", "agent", "worker"]))]
        role: String,
        /// Limit it to the jobs of this group. May be repeated
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// It expires after this time, such as 12h or 90d
        #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
        expires_in: Option<u64>,
    },
    /// Revoke a token: it is rejected from now on, and its connections end
    Revoke {
        /// The name of the token
        name: String,
    },
}

/// Runs the command.
///
/// # Errors
/// The broker rejects the call or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        TokenCommand::List => {
            let answer = shell.client.list(&["tokens"], &[], MOST).await?;
            shell.show(&answer, |tokens| table(tokens, "there are no named tokens", &COLUMNS))
        }
        TokenCommand::Create { name, role, groups, expires_in } => {
            let mut body = json!({ "name": name, "role": role });
            if !groups.is_empty() {
                body["groups"] = groups.into();
            }
            if let Some(ms) = expires_in {
                if !(1..=MOST_MS).contains(&ms) {
                    return Err(Failure::Usage("--expires-in: must be more than 0, and at most 36500d".to_owned()));
                }
                body["expireTime"] = json!(Timestamp::now().plus_ms(ms as i64));
            }
            let answer = shell.client.post(&["tokens"], &[], &body).await?;
            shell.show(&answer, |token| cell(token, "text"))
        }
        TokenCommand::Revoke { name } => {
            let answer = shell.client.delete(&["tokens", &name]).await?;
            shell.show(&answer, |_| format!("revoked token {name}"))
        }
    })
}

fn groups(token: &Value) -> String {
    let names: Vec<&str> = token["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() { "all".to_owned() } else { super::table::plain(&names.join(",")) }
}
