//! `webloom status`: the state of a broker and its fleet, on one screen.

use super::failure::Failure;
use super::look::{Format, Look};
use super::remote::{Remote, Shell, print, print_document};
use super::table::{Column, card, cell, items, list as table, some};
use super::times::time;
use crate::domain::time::Timestamp;
use chrono::DateTime;
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Exit code if something needs attention.
const UNWELL: u8 = 3;
/// A fire, or a waiting run, is late after this.
const LATE_MS: i64 = 60_000;
/// The largest count.
const MOST: usize = 1_000;
/// Number of failures shown.
const SHOWN: usize = 5;
const DAY_MS: i64 = 86_400_000;

/// Flags of `webloom status`.
///
/// Shows the leader, the number of nodes and workers, the number of runs in each state, the latest failures of the last 24 hours, and
/// what needs attention: no broker leads, an enabled node is offline, a job is more than a minute late, a run waits for more than a
/// minute. Exit code 0 if nothing needs attention, 3 if something does, 1 if no broker answers. A token of the role readonly is enough. A
/// standby answers too; if it does not reach the leader, without the data that only the leader has.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
}

const FAILED: [Column; 4] =
    [Column::id("RUN", "identity"), Column::text("JOB", "jobName"), Column::time("ENDED", "finishTime"), Column::text("REASON", "reason")];

/// Runs the command.
///
/// # Errors
/// The broker rejects the call or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |shell| {
        let status = gather(&shell).await?;
        match Look::get().format {
            Format::Json | Format::Yaml => print_document(&status)?,
            Format::Name => print(if status["healthy"] == true { "healthy" } else { "unhealthy" })?,
            Format::Table | Format::Wide => print(&screen(&status))?,
        }
        Ok(if status["healthy"] == true { ExitCode::SUCCESS } else { ExitCode::from(UNWELL) })
    })
}

/// Collects everything into one document.
async fn gather(shell: &Shell) -> Result<Value, Failure> {
    let client = &shell.client;
    let list = async |path: &str, query: &[(&str, &str)], limit: usize| {
        let query: Vec<(&str, Option<String>)> = query.iter().map(|(key, value)| (*key, Some((*value).to_owned()))).collect();
        client.list(&[path], &query, limit).await?.value()
    };
    // With the addresses of several brokers this finds the leader; otherwise it shows whether this one leads.
    let leads = client.get(&["", "readyz"], &[]).await.is_ok();
    // A standby passes this on to the leader, as it does lists of nodes and workers.
    let knows_online = leads || client.get(&["actors", "kinds"], &[]).await.is_ok();
    let brokers = client.get(&["brokers"], &[]).await?.value()?;
    let nodes = client.get(&["nodes"], &[]).await?.value()?;
    let workers = list("workers", &[], MOST).await?;
    let figures = client.get(&["", "metrics"], &[]).await?.text;
    let since = Timestamp::now().plus_ms(-DAY_MS).to_string();
    let failed = list("runs", &[("state", "failed"), ("from", &since)], MOST).await?;
    let next = list("jobs", &[("enabled", "true"), ("sort", "nextFire")], SHOWN).await?;
    let waiting = list("runs", &[("state", "pending"), ("sort", "creationTime")], SHOWN).await?;
    let attention = attention(knows_online, &brokers, &nodes, &next, &waiting);
    let count = |list: &Value, is: fn(&Value) -> bool| items(list).iter().filter(|thing| is(thing)).count();
    let is_online: fn(&Value) -> bool = |thing| thing["isOnline"] == true;
    let online = |list: &Value| if knows_online { json!(count(list, is_online)) } else { Value::Null };
    Ok(json!({
        "healthy": attention.is_empty(),
        "leads": leads,
        "brokers": brokers,
        "nodes": { "total": items(&nodes).len(), "online": online(&nodes), "disabled": count(&nodes, |node| node["isEnabled"] == false) },
        "workers": { "total": items(&workers).len(), "online": online(&workers) },
        "runs": runs(&figures),
        "failedLastDay": items(&failed).len(),
        "failed": items(&failed).iter().take(SHOWN).collect::<Vec<_>>(),
        "attention": attention,
    }))
}

/// Runs by state, from the broker's metrics.
fn runs(figures: &str) -> Value {
    let state = |line: &str| {
        let (state, count) = line.strip_prefix("webloom_runs{state=\"")?.split_once("\"} ")?;
        Some((state.to_owned(), json!(count.trim().parse::<f64>().ok()? as u64)))
    };
    Value::Object(figures.lines().filter_map(state).collect())
}

fn is_past(value: &Value, key: &str, ms: i64) -> bool {
    let at = value[key].as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    at.is_some_and(|at| Timestamp::now().0 - at.timestamp_millis() > ms)
}

/// What an operator should look at, one sentence each.
fn attention(knows_online: bool, brokers: &Value, nodes: &Value, next: &Value, waiting: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if !items(brokers).iter().any(|broker| broker["role"] == "leader") {
        found.push("no broker leads".to_owned());
    }
    // A node that an operator drains, disables or orders to leave may be offline.
    let may_be_offline = |node: &Value| node["isEnabled"] == false || node["isDraining"] == true || node["isLeaving"] == true;
    let lost = |node: &&Value| knows_online && node["isOnline"] == false && !may_be_offline(node);
    for node in items(nodes).iter().filter(lost) {
        let name = some(node, "name").map(|name| format!(" {name}")).unwrap_or_default();
        found.push(format!("node {}{name} is offline, last seen {}", cell(node, "nodeId"), time(node, "lastOnlineTime")));
    }
    for job in items(next).iter().filter(|job| is_past(job, "nextFire", LATE_MS)) {
        found.push(format!("job {} is late: it was to run {}", cell(job, "name"), time(job, "nextFire")));
    }
    // A run that waits for a set time is not late before it.
    let is_due = |run: &&Value| run["notBefore"].is_null() && is_past(run, "creationTime", LATE_MS);
    for run in items(waiting).iter().filter(is_due) {
        let id = cell(run, "identity");
        found.push(format!("run {id} of {} waits since {}: see `webloom run why {id}`", cell(run, "jobName"), time(run, "creationTime")));
    }
    found
}

fn screen(status: &Value) -> String {
    let broker = |broker: &Value| {
        let role = match broker["role"].as_str() {
            Some("leader") => "leads",
            Some("gone") => "is gone",
            _ => "stands by",
        };
        format!("{} {role}, version {}, started {}", cell(broker, "url"), cell(broker, "version"), time(broker, "startedAt"))
    };
    let peers = |key: &str| {
        let peers = &status[key];
        let online = match &peers["online"] {
            Value::Null => "the number online is not known without the leader".to_owned(),
            online => format!("{online} online"),
        };
        let disabled = peers["disabled"].as_u64().filter(|n| *n > 0).map(|n| format!(", {n} disabled")).unwrap_or_default();
        Some(format!("{online}, {} in all{disabled}", peers["total"]))
    };
    // A broker that was killed and started again is one broker for the user.
    let is_back = |gone: &Value| items(&status["brokers"]).iter().any(|other| other["role"] != "gone" && other["url"] == gone["url"]);
    let brokers = items(&status["brokers"]).iter().filter(|one| one["role"] != "gone" || !is_back(one));
    let mut rows: Vec<(&str, Option<String>)> =
        brokers.enumerate().map(|(i, one)| (if i == 0 { "broker" } else { "" }, Some(broker(one)))).collect();
    let states = status["runs"].as_object().into_iter().flatten().map(|(state, count)| format!("{count} {state}"));
    let failed = status["failedLastDay"].as_u64().unwrap_or(0);
    let more = if failed as usize >= MOST { " or more" } else { "" };
    rows.extend([
        ("nodes", peers("nodes")),
        ("workers", peers("workers")),
        ("runs", Some(states.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())),
        ("failed", Some(format!("{failed}{more} in the last 24 h"))),
    ]);
    let mut parts = vec![card(&rows)];
    if failed > 0 {
        parts.push(table(&status["failed"], "", &FAILED));
    }
    let attention: Vec<String> = items(&status["attention"]).iter().filter_map(Value::as_str).map(|text| format!("  {text}")).collect();
    parts.push(match attention.len() {
        0 if failed > 0 => "nothing else needs attention".to_owned(),
        0 => "nothing needs attention".to_owned(),
        _ => format!("needs attention:\n{}", attention.join("\n")),
    });
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_the_metrics() {
        let figures = "# TYPE webloom_runs gauge\nwebloom_runs{state=\"pending\"} 2\nwebloom_runs{state=\"running\"} 1\nother 4\n";
        assert_eq!(runs(figures), json!({ "pending": 2, "running": 1 }));
    }

    #[test]
    fn after_failures_it_does_not_say_that_nothing_needs_attention() {
        let mut status =
            json!({ "brokers": [], "nodes": {}, "workers": {}, "runs": {}, "failedLastDay": 0, "failed": [], "attention": [] });
        assert!(screen(&status).ends_with("nothing needs attention"), "{}", screen(&status));
        status["failedLastDay"] = json!(1);
        status["failed"] = json!([{ "identity": "r1", "jobName": "j" }]);
        assert!(screen(&status).ends_with("nothing else needs attention"), "{}", screen(&status));
    }

    #[test]
    fn a_broker_that_is_back_is_shown_once() {
        let broker = |role: &str, url: &str| json!({ "role": role, "url": url, "version": "1", "startedAt": Timestamp::now() });
        let brokers = [broker("gone", "http://a"), broker("gone", "http://b"), broker("leader", "http://a"), broker("gone", "http://a")];
        let status =
            json!({ "brokers": brokers, "nodes": {}, "workers": {}, "runs": {}, "failedLastDay": 0, "failed": [], "attention": [] });
        let screen = screen(&status);
        assert_eq!((screen.matches("http://a ").count(), screen.matches("http://b is gone").count()), (1, 1), "{screen}");
    }

    #[test]
    fn what_is_late_or_lost_needs_attention() {
        let ago = |ms: i64| Timestamp::now().plus_ms(-ms);
        let brokers = json!([{ "role": "leader" }]);
        let nodes = json!([
            { "nodeId": "n1", "name": "host", "isOnline": false, "isEnabled": true, "lastOnlineTime": ago(600_000) },
            { "nodeId": "n2", "isOnline": false, "isEnabled": false },
            { "nodeId": "n3", "isOnline": true, "isEnabled": true },
            { "nodeId": "n4", "isOnline": false, "isEnabled": true, "isDraining": true },
            { "nodeId": "n5", "isOnline": false, "isEnabled": true, "isLeaving": true },
        ]);
        let next = json!({ "items": [{ "name": "late", "nextFire": ago(300_000) }, { "name": "soon", "nextFire": ago(-5_000) }] });
        let waiting = json!({ "items": [
            { "identity": "r1", "jobName": "j", "creationTime": ago(400_000) },
            { "identity": "r2", "jobName": "j", "creationTime": ago(400_000), "notBefore": ago(-1_000) },
        ] });
        let found = attention(true, &brokers, &nodes, &next, &waiting);
        assert_eq!(
            found,
            [
                "node n1 host is offline, last seen 10 min ago",
                "job late is late: it was to run 5 min ago",
                "run r1 of j waits since 6 min ago: see `webloom run why r1`",
            ]
        );
        let nothing = json!([]);
        assert_eq!(attention(false, &brokers, &nodes, &nothing, &nothing), [] as [&str; 0], "a standby does not know who is there");
        assert_eq!(attention(true, &nothing, &nothing, &nothing, &nothing), ["no broker leads"]);
    }
}
