//! `webloom run logs`: the log of a run.

use super::RunRef;
use crate::cli::failure::Failure;
use crate::cli::remote::{Shell, print, print_document};
use crate::cli::table::{cell, items, plain};
use crate::cli::times::exact_time;
use crate::cli::value::instant;
use crate::cli::words::one_of;
use crate::domain::time::Timestamp;
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Lines per response.
const PAGE: usize = 1_000;
/// Seconds that one call waits for more lines.
const WAIT: u32 = 20;

/// Flags of `run logs`.
#[derive(Debug, ClapArgs)]
pub struct LogsArgs {
    #[command(flatten)]
    run: RunRef,
    /// Continue until the run ends
    #[arg(long, short)]
    follow: bool,
    /// Only lines of this level and above
    #[arg(long, value_parser = one_of(&["trace", "debug", "info", "warning", "error", "critical"]))]
    level: Option<String>,
    /// Only lines that contain this text
    #[arg(long)]
    text: Option<String>,
    /// Only lines at this time or later: RFC 3339, or -10m
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    since: Option<Timestamp>,
    /// Only lines at this time or earlier
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    until: Option<Timestamp>,
    /// Maximum number of lines
    #[arg(long, default_value_t = 10_000, value_parser = crate::cli::limit())]
    limit: u32,
}

/// Prints the log of a run.
pub async fn logs(shell: &Shell, args: LogsArgs) -> Result<ExitCode, Failure> {
    let id = args.run.find(shell).await?;
    let limit = args.limit as usize;
    let (mut after, mut shown, mut wait, mut lines) = (None, 0, None, Vec::new());
    loop {
        let query = [
            ("after", after.map(|id: i64| id.to_string())),
            ("level", args.level.clone()),
            ("text", args.text.clone()),
            ("since", args.since.map(|at| at.to_string())),
            ("until", args.until.map(|at| at.to_string())),
            ("wait", wait.map(|seconds: u32| seconds.to_string())),
            ("limit", Some((limit - shown).clamp(1, PAGE).to_string())),
        ];
        let answer = shell.client.get(&["runs", &id, "logs"], &query).await?.value()?;
        let found = items(&answer);
        shown += found.len();
        after = answer["next"].as_i64().or_else(|| found.last().and_then(|line| line["id"].as_i64())).or(after);
        if shell.is_document && !args.follow {
            lines.extend_from_slice(found);
        } else {
            for entry in found {
                print(&if shell.is_document { entry.to_string() } else { line(entry) })?;
            }
        }
        let is_over = !args.follow || matches!(answer["state"].as_str(), Some("success" | "failed" | "stopped"));
        let is_all = answer["more"].as_bool().map_or(found.is_empty(), |more| !more);
        if shown >= limit || is_over && is_all {
            break;
        }
        wait = (args.follow && is_all).then_some(WAIT);
    }
    if shell.is_document && !args.follow {
        print_document(&json!({ "items": lines, "next": after }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of the log, for people.
pub fn line(entry: &Value) -> String {
    let text = entry["text"].as_str().unwrap_or_default();
    // Line breaks are kept, so that stack traces stay readable.
    let text: Vec<String> = text.lines().map(plain).collect();
    format!("{} {:<8} {}  {}", exact_time(entry, "at"), cell(entry, "level"), cell(entry, "source"), text.join("\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_lines() {
        let entry = json!({ "at": "2026-01-01T00:00:00.500Z", "level": "info", "source": "worker", "text": "a\nb\u{1b}" });
        assert_eq!(line(&entry), "2026-01-01T00:00:00.500Z info     worker  a\n    b\u{fffd}");
    }
}
