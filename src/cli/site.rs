//! `webloom site`: the sites that runs request.

use super::failure::Failure;
use super::remote::Remote;
use super::table::{Column, cell, list as table, some};
use super::times::{exact_time, time};
use super::value::{duration_ms, instant};
use crate::domain::time::Timestamp;
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: [Column; 9] = [
    Column::text("NAME", "name"),
    Column::of("HELD", |site| some(&site["held"], "why").unwrap_or_default()),
    Column::time_of("UNTIL", until),
    Column::of("BY", |site| some(&site["held"], "by").unwrap_or_default()).wide(),
    Column::time("NEXT REQUEST", "nextAt"),
    Column::text("DELAY MS", "delay"),
    Column::text("FAILURES", "failures"),
    Column::id("RUN", "run"),
    Column::of("LAST ERROR", last_error).wide(),
];

/// Columns of `run sites`.
pub const OF_RUN: [Column; 11] = [
    Column::text("NAME", "name"),
    Column::text("LEFT", "left"),
    Column::text("OK", "success"),
    Column::text("ERRORS", "error"),
    Column::of("BY KIND", errors),
    Column::text("AT NODES", "atNodes"),
    Column::time("NEXT", "nextAt"),
    Column::of("DELAY MS", delay),
    Column::of("HELD", held),
    Column::text("CONNECTIONS", "connections").wide(),
    Column::of("LAST ERROR", last_error).wide(),
];

/// The failed requests by kind: `timeout 2, http 404 1`.
fn errors(site: &Value) -> String {
    let one = |count: &Value| match some(count, "kind") {
        Some(kind) => format!("{kind} {}", cell(count, "failed")),
        None => format!("http {} {}", cell(count, "status"), cell(count, "failed")),
    };
    site["errors"].as_array().into_iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

/// The delay, and what it comes from.
fn delay(site: &Value) -> String {
    let by = match site["delayBy"].as_str() {
        Some("slowAnswers") => " slow answers",
        Some("robots") => " robots",
        Some("operator") => " operator",
        Some("job") => " job",
        _ => "",
    };
    format!("{}{by}", cell(site, "delay"))
}

/// Why it is held, and until when.
fn held(site: &Value) -> String {
    some(&site["held"], "why").map_or_else(String::new, |why| format!("{why}, {}", until(site)))
}

fn last_error(site: &Value) -> String {
    let error = &site["lastError"];
    if error.is_object() { format!("{}: {}", cell(error, "kind"), cell(error, "message")) } else { String::new() }
}

fn until(site: &Value) -> String {
    if site["held"].is_object() { time(&site["held"], "until") } else { String::new() }
}

/// Flags of `webloom site`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: SiteCommand,
}

/// A site.
#[derive(Debug, ClapArgs)]
struct SiteRef {
    /// The site: a host (example.org), an address, or an origin (http://127.0.0.1:8000)
    name: String,
}

#[derive(Debug, Subcommand)]
enum SiteCommand {
    /// List sites that runs requested lately, that are on hold, or that fail
    List {
        /// Only sites on hold
        #[arg(long)]
        held: bool,
        /// Only sites whose name contains this
        #[arg(long, value_name = "PART")]
        name: Option<String>,
        /// Maximum number of sites
        #[arg(long, default_value_t = 50, value_parser = super::limit())]
        limit: u32,
    },
    /// Put a site on hold: no run starts a request there until the hold ends, and nodes drop their blocks of it
    Hold {
        #[command(flatten)]
        site: SiteRef,
        #[command(flatten)]
        time: HoldTime,
    },
    /// End the hold of a site, whatever its reason; runs continue at once, at the site's pace
    Release(SiteRef),
}

/// The length of a hold.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
struct HoldTime {
    /// For this long: 10m, 2h or 1d, at most 49d
    #[arg(long = "for", value_name = "TIME", value_parser = duration_ms)]
    span_ms: Option<u64>,
    /// Until this time: RFC 3339, or +2h
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    until: Option<Timestamp>,
}

/// Runs a command of `webloom site`.
///
/// # Errors
/// The broker rejects the call or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        SiteCommand::List { held, name, limit } => {
            let query = [("held", held.then(|| "true".to_owned())), ("name", name)];
            let answer = shell.client.list(&["sites"], &query, limit as usize).await?;
            shell.show(&answer, |sites| table(sites, if held { "no site is held" } else { "there are no such sites" }, &COLUMNS))
        }
        SiteCommand::Hold { site, time: HoldTime { span_ms, until } } => {
            let body = match (span_ms, until) {
                (Some(ms), _) => json!({ "for": ms }),
                (None, until) => json!({ "until": until }),
            };
            let answer = shell.client.post(&["sites", &site.name, "hold"], &[], &body).await?;
            shell.show(&answer, |site| {
                let name = cell(site, "name");
                match site.get("held") {
                    Some(held) => format!("site {name} is held until {}", exact_time(held, "until")),
                    None => format!("site {name} was held, and its hold is over"),
                }
            })
        }
        SiteCommand::Release(site) => {
            let answer = shell.client.post(&["sites", &site.name, "release"], &[], &json!({})).await?;
            shell.show(&answer, |site| format!("site {} is released", cell(site, "name")))
        }
    })
}
