//! `webloom audit`: who changed what.

use super::client::Client;
use super::failure::Failure;
use super::find::{ALERT, DELETED_JOB, GROUP, JOB, NODE, Noun, WORKER, find_if_any};
use super::remote::Remote;
use super::table::{Column, list as table};
use super::value::instant;
use crate::domain::ids::IdPart;
use crate::domain::time::Timestamp;
use clap::Args as ClapArgs;
use std::process::ExitCode;

const COLUMNS: [Column; 9] = [
    Column::time("AT", "at"),
    Column::text("CALLER", "caller"),
    Column::text("ROLE", "role"),
    Column::text("FROM", "address"),
    Column::text("OPERATION", "operation"),
    Column::text("KIND", "kind"),
    Column::id("OBJECT", "object"),
    Column::text("STATUS", "status"),
    Column::text("MEMBERS", "members").wide(),
];

/// Flags of `webloom audit`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    /// Only calls with the token of this name, or with unnamed tokens of this role
    #[arg(long)]
    caller: Option<String>,
    /// Only calls on objects of this kind, such as job, run or token
    #[arg(long)]
    kind: Option<String>,
    /// Only calls on this object: its name, its id or at least 4 digits that the id begins or ends with
    #[arg(long)]
    object: Option<String>,
    /// Only this operation, such as updateJob
    #[arg(long)]
    operation: Option<String>,
    /// Only calls from this time on
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Option<Timestamp>,
    /// Only calls up to this time
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to: Option<Timestamp>,
    /// Maximum number of calls
    #[arg(long, default_value_t = 50, value_parser = super::limit())]
    limit: u32,
}

/// Runs the command.
///
/// # Errors
/// The broker rejects the call or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let Args { remote, caller, kind, object, operation, from, to, limit } = args;
    remote.run(async |shell| {
        let object = match object {
            Some(text) => Some(object_of(&shell.client, kind.as_deref(), text).await?),
            None => None,
        };
        let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
        let query =
            [("caller", caller), ("kind", kind), ("object", object), ("operation", operation), ("from", time(from)), ("to", time(to))];
        let answer = shell.client.list(&["audit"], &query, limit as usize).await?;
        shell.show(&answer, |calls| table(calls, "there are no such calls", &COLUMNS))
    })
}

/// The kinds of objects with names that are not in the audit, which has their ids.
const NAMED: [(&str, Noun); 6] =
    [("job", JOB), ("job", DELETED_JOB), ("group", GROUP), ("node", NODE), ("worker", WORKER), ("alert", ALERT)];

/// The text by which the audit knows an object. Digits that are no name, or part of several ids, are sent to the broker as they are: the object
/// may have been deleted.
async fn object_of(client: &Client, kind: Option<&str>, text: String) -> Result<String, Failure> {
    let is_id_part = text.parse::<IdPart>().is_ok();
    for (_, noun) in NAMED.iter().filter(|(of, _)| kind.is_none_or(|kind| kind == *of)) {
        match find_if_any(client, *noun, &text).await {
            Ok(Some(id)) => return Ok(id),
            Err(failure) if !is_id_part => return Err(failure),
            Ok(None) | Err(_) => {}
        }
    }
    Ok(text)
}
