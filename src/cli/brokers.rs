//! `webloom brokers`: the leader and the standbys.

use super::failure::Failure;
use super::remote::{Remote, Shell};
use super::table::{Column, list as table};
use clap::{Args as ClapArgs, Subcommand};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

const COLUMNS: [Column; 9] = [
    Column::text("ROLE", "role"),
    Column::text("URL", "url"),
    Column::text("EXECUTES", "executes"),
    Column::text("RUNS", "runs"),
    Column::text("TERM", "term"),
    Column::text("VERSION", "version"),
    Column::time("STARTED", "startedAt"),
    Column::time("SEEN", "lastSeen"),
    Column::id("ID", "id").wide(),
];
/// Between two looks at a broker whose runs move.
const LOOK: Duration = Duration::from_millis(500);

/// Flags of `webloom brokers`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Option<BrokersCommand>,
}

#[derive(Debug, Subcommand)]
enum BrokersCommand {
    /// List the brokers, as without a command
    List,
    /// Move all runs of a standby to other brokers, before it is stopped; attempts that have begun are finished first
    Drain {
        /// The broker: its URL, or its id or at least 4 digits of it
        #[arg(value_name = "BROKER")]
        which: String,
        /// Do not wait until the broker has no runs
        #[arg(long)]
        no_wait: bool,
    },
}

/// Lists the brokers of a database, or drains one. A standby answers too.
///
/// # Errors
/// The broker rejects the call or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |shell| match args.command {
        None | Some(BrokersCommand::List) => {
            let answer = shell.client.get(&["brokers"], &[]).await?;
            shell.show(&answer, |brokers| table(brokers, "there are no brokers", &COLUMNS))
        }
        Some(BrokersCommand::Drain { which, no_wait }) => drain(&shell, &which, no_wait).await,
    })
}

async fn drain(shell: &Shell, name: &str, no_wait: bool) -> Result<ExitCode, Failure> {
    let id = find(&brokers(shell).await?, name)?;
    let order = async || shell.client.post(&["brokers", &id, "drain"], &[], &Value::Null).await;
    let answer = order().await?;
    // A broker that is gone executes nothing either.
    while !no_wait && of_id(&brokers(shell).await?, &id).is_some_and(|broker| broker["executes"] == true) {
        tokio::time::sleep(LOOK).await;
        // A leader that has just begun does not know of the order. One that the broker has not reached yet refuses it.
        let _ = order().await;
    }
    let state = if no_wait {
        "gets no more runs, and gives up those that it has"
    } else {
        "has no runs any more, and gets none until it is started again"
    };
    shell.show(&answer, |broker| format!("{} {state}", broker["url"].as_str().unwrap_or_default()))
}

async fn brokers(shell: &Shell) -> Result<Value, Failure> {
    shell.client.get(&["brokers"], &[]).await?.value()
}

fn of_id<'a>(brokers: &'a Value, id: &str) -> Option<&'a Value> {
    brokers.as_array()?.iter().find(|broker| broker["id"] == id)
}

/// The id of the broker with this URL, or whose id begins with this text. One that is gone may have had the URL before.
fn find(brokers: &Value, name: &str) -> Result<String, Failure> {
    let name = name.trim_end_matches('/').to_lowercase();
    let is_it = |broker: &&Value| {
        let text = |member: &str| broker[member].as_str().unwrap_or_default().trim_end_matches('/').to_lowercase();
        broker["role"] != "gone" && text("url") == name || name.len() >= 4 && text("id").starts_with(&name)
    };
    let found: Vec<&Value> = brokers.as_array().into_iter().flatten().filter(is_it).collect();
    match found[..] {
        [broker] => Ok(broker["id"].as_str().unwrap_or_default().to_owned()),
        [] => Err(Failure::Refused(format!("no broker has the URL or the id `{name}`; `webloom brokers -o wide` lists them"))),
        _ => Err(Failure::Refused(format!("`{name}` names several brokers: write more digits of the id"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_broker_is_found_by_its_url_or_its_id() {
        let brokers = json!([{"id": "0199aaaa-0000", "url": "http://a:1"}, {"id": "0199aabb-0000", "url": "http://b:1"},
            {"id": "0199cccc-0000", "url": "http://a:1", "role": "gone"}]);
        let find = |name| find(&brokers, name).ok();
        assert_eq!(find("http://A:1/").as_deref(), Some("0199aaaa-0000"));
        assert_eq!(find("0199aab").as_deref(), Some("0199aabb-0000"));
        assert_eq!([find("0199aa"), find("019"), find("http://c:1")], [None, None, None]);
    }
}
