//! `webloom alert`: notifications about jobs.

use super::failure::Failure;
use super::find::{ALERT, find};
use super::remote::{Remote, Shell};
use super::table::{Column, card, cell, list as table, some};
use super::times::some_time;
use super::value::{document, text_or_file};
use super::words::one_of;
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Maximum number of listed alerts.
const MOST: usize = 100_000;

const COLUMNS: [Column; 6] = [
    Column::id("ID", "id"),
    Column::text("NAME", "name"),
    Column::text("KIND", "kind"),
    Column::text("ENABLED", "isEnabled"),
    Column::text("TARGET", "target"),
    Column::of("OF", filter),
];

const EVENTS: [Column; 7] = [
    Column::time("AT", "at"),
    Column::text("EVENT", "event"),
    Column::of("JOB", |event| some(event, "jobName").unwrap_or_else(|| cell(event, "jobId"))),
    Column::id("RUN", "runId"),
    Column::of("TOLD", told),
    Column::text("REASON", "reason"),
    Column::text("ID", "id").wide(),
];

/// Flags of `webloom alert`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: AlertCommand,
}

#[derive(Debug, Subcommand)]
enum AlertCommand {
    /// List alerts
    List,
    /// Show an alert
    Show(AlertRef),
    /// Create an alert: a webhook that is called or an address that gets mail
    Create(Input),
    /// Change an alert; settings without a flag stay as they are
    Update {
        #[command(flatten)]
        alert: AlertRef,
        #[command(flatten)]
        input: Input,
    },
    /// Delete an alert
    Delete(AlertRef),
    /// Send a test; exit code 1 if the receiver does not accept it
    Test(AlertRef),
    /// List alert events and their receivers, newest first
    Events {
        /// Maximum number of events
        #[arg(long, default_value_t = 50, value_parser = super::limit())]
        limit: u32,
    },
}

/// An alert.
#[derive(Debug, ClapArgs)]
struct AlertRef {
    /// The alert: its name, its id or at least 4 digits of it, or its number
    alert: String,
}

/// What an alert is.
#[derive(Debug, ClapArgs)]
struct Input {
    /// A file with the alert as YAML or JSON; `-`: standard input. Flags go before it
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The name: at most 50 characters, unique
    #[arg(long)]
    name: Option<String>,
    /// The URL to call
    #[arg(long, value_name = "URL", conflicts_with = "mail")]
    webhook: Option<String>,
    /// The mail address to write to
    #[arg(long, value_name = "ADDRESS")]
    mail: Option<String>,
    /// The key that signs what is sent to a webhook; @FILE reads it from a file
    #[arg(long)]
    secret: Option<String>,
    /// Only events of this kind. May be repeated
    #[arg(long = "event", value_name = "EVENT", value_parser = one_of(&["failed", "missed", "late", "silent", "recovered", "disabled"]))]
    events: Vec<String>,
    /// Only events of this job, by its name or id. May be repeated
    #[arg(long = "job", value_name = "JOB")]
    jobs: Vec<String>,
    /// Only events of jobs of this group. May be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Send nothing until the alert is enabled
    #[arg(long, conflicts_with = "enabled")]
    disabled: bool,
    /// Send messages again
    #[arg(long)]
    enabled: bool,
}

impl Input {
    /// The body for the API; parts of the filter without a flag stay as they are.
    fn value(&self, alert: &Value) -> Result<Value, Failure> {
        let mut input = document(self.file.as_ref())?.unwrap_or_else(|| json!({}));
        if let Some(name) = &self.name {
            input["name"] = name.as_str().into();
        }
        for (kind, target) in [("webhook", &self.webhook), ("mail", &self.mail)] {
            if let Some(target) = target {
                input["kind"] = kind.into();
                input["target"] = target.as_str().into();
            }
        }
        if let Some(secret) = &self.secret {
            input["secret"] = text_or_file(secret)?.trim_end().into();
        }
        if self.disabled || self.enabled {
            input["isEnabled"] = self.enabled.into();
        }
        let before = input.get("filter").or_else(|| alert.get("filter")).and_then(Value::as_object).cloned().unwrap_or_default();
        let mut filter: Map<String, Value> = before.clone();
        for (key, list) in [("events", &self.events), ("jobs", &self.jobs), ("groups", &self.groups)] {
            if !list.is_empty() {
                filter.insert(key.to_owned(), json!(list));
            }
        }
        if filter != before {
            input["filter"] = filter.into();
        }
        Ok(input)
    }
}

/// Runs the command.
///
/// # Errors
/// The broker refuses it or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        AlertCommand::List => {
            let answer = shell.client.list(&["alerts"], &[], MOST).await?;
            shell.show(&answer, |alerts| table(alerts, "there are no alerts", &COLUMNS))
        }
        AlertCommand::Show(AlertRef { alert }) => {
            let id = find(&shell.client, ALERT, &alert).await?;
            let answer = shell.client.get(&["alerts", &id], &[]).await?;
            shell.show(&answer, describe)
        }
        AlertCommand::Create(input) => {
            let answer = shell.client.post(&["alerts"], &[], &input.value(&Value::Null)?).await?;
            shell.show(&answer, |alert| format!("created alert {} {}", cell(alert, "id"), cell(alert, "name")))
        }
        AlertCommand::Update { alert, input } => update(&shell, &alert.alert, &input).await,
        AlertCommand::Delete(AlertRef { alert }) => {
            let id = find(&shell.client, ALERT, &alert).await?;
            let answer = shell.client.delete(&["alerts", &id]).await?;
            shell.show(&answer, |_| format!("deleted alert {id}"))
        }
        AlertCommand::Test(AlertRef { alert }) => {
            let id = find(&shell.client, ALERT, &alert).await?;
            let answer = shell.client.post(&["alerts", &id, "test"], &[], &json!({})).await?;
            let is_ok = answer.value()?["ok"] == true;
            shell.show(&answer, |test| match some(test, "error") {
                None => format!("accepted in {} ms", cell(test, "time")),
                Some(error) => format!("not accepted: {error}"),
            })?;
            Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        AlertCommand::Events { limit } => {
            let answer = shell.client.list(&["alerts", "events"], &[], limit as usize).await?;
            shell.show(&answer, |events| table(events, "there are no events", &EVENTS))
        }
    })
}

/// The delivery results of an event's messages.
fn told(event: &Value) -> String {
    let states = event["deliveries"].as_array().into_iter().flatten().map(|delivery| cell(delivery, "state"));
    states.collect::<Vec<_>>().join(",")
}

async fn update(shell: &Shell, alert: &str, input: &Input) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, ALERT, alert).await?;
    let before = shell.client.get(&["alerts", &id], &[]).await?.value()?;
    let mut input = input.value(&before)?;
    if input.as_object().is_some_and(Map::is_empty) {
        return Err(Failure::Usage("there is nothing to change; `webloom alert update --help` lists what can be".to_owned()));
    }
    if input["version"].is_null() {
        input["version"] = before["version"].clone();
    }
    let answer = shell.client.put(&["alerts", &id], &input).await?;
    shell.show(&answer, |alert| format!("changed alert {} {}", cell(alert, "id"), cell(alert, "name")))
}

/// The filter of the alert, in one line.
fn filter(alert: &Value) -> String {
    let part = |key: &str| {
        let words: Vec<&str> = alert["filter"][key].as_array()?.iter().filter_map(Value::as_str).collect();
        (!words.is_empty()).then(|| format!("{key}={}", super::table::plain(&words.join(","))))
    };
    let parts: Vec<String> = ["events", "jobs", "groups"].into_iter().filter_map(part).collect();
    if parts.is_empty() { "everything".to_owned() } else { parts.join(" ") }
}

fn describe(alert: &Value) -> String {
    let mut rows: Vec<_> = ["id", "name", "kind", "target"].map(|key| (key, some(alert, key))).to_vec();
    rows.extend([
        ("enabled", some(alert, "isEnabled")),
        ("signed", some(alert, "hasSecret")),
        ("of", Some(filter(alert))),
        ("version", some(alert, "version")),
        ("created", some_time(alert, "creationTime")),
        ("changed", some_time(alert, "updateTime")),
    ]);
    card(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        input: Input,
    }

    #[test]
    fn flags_become_an_alert() {
        let value = |words: &[&str], alert: &Value| Line::try_parse_from([&["x"], words].concat()).unwrap().input.value(alert).unwrap();
        let words = ["--name", "n", "--webhook", "http://h/", "--event", "failed", "--event", "late", "--disabled"];
        let expected = json!({
            "name": "n", "kind": "webhook", "target": "http://h/", "filter": { "events": ["failed", "late"] }, "isEnabled": false,
        });
        assert_eq!(value(&words, &Value::Null), expected);
        let before = json!({ "filter": { "events": ["failed"] } });
        assert_eq!(value(&["--job", "j"], &before), json!({ "filter": { "events": ["failed"], "jobs": ["j"] } }));
        assert_eq!(value(&["--enabled"], &before), json!({ "isEnabled": true }));
    }
}
