//! Outcomes of the past scheduled times of a job, and the history of the job itself.

use super::find::{JobRef, find};
use crate::cli::failure::Failure;
use crate::cli::remote::Shell;
use crate::cli::table::{Column, cell, items, list as table, plain, some};
use crate::cli::times::exact_time;
use crate::cli::value::instant;
use crate::cli::words::one_of;
use crate::domain::time::Timestamp;
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use std::process::ExitCode;

const FIRES: [Column; 6] = [
    Column::exact("PLANNED", "plannedAt"),
    Column::text("VERDICT", "verdict"),
    Column::text("KIND", "kind"),
    Column::text("RULE", "rule"),
    Column::id("RUN", "identity"),
    Column::of("REASON", |fire| {
        let several = fire["instants"].as_u64().filter(|n| *n > 1);
        let until = several.map(|n| format!("{n} times until {}", exact_time(fire, "plannedUntil")));
        [until, some(fire, "reason")].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }),
];

const CHANGES: [Column; 5] = [
    Column::time("AT", "at"),
    Column::text("VERSION", "version"),
    Column::text("ACTION", "action"),
    Column::text("BY", "by"),
    Column::text("CHANGED", "changed"),
];

const BACKFILLED: [Column; 2] = [Column::exact("PLANNED", "plannedAt"), Column::id("RUN", "identity")];

/// Flags of `job fires`.
#[derive(Debug, ClapArgs)]
pub struct FiresArgs {
    #[command(flatten)]
    job: JobRef,
    /// Only entries at this time or later: RFC 3339, or -2h
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    from: Option<Timestamp>,
    /// Only entries at this time or earlier
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    to: Option<Timestamp>,
    /// Only entries with this verdict
    #[arg(long, value_parser = one_of(&["fired", "skipped", "missed", "merged"]))]
    verdict: Option<String>,
    /// Maximum number of entries
    #[arg(long, default_value_t = 50, value_parser = crate::cli::limit())]
    limit: u32,
}

/// Lists rows of the ledger.
pub async fn fires(shell: &Shell, args: FiresArgs) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &args.job.job).await?;
    let at = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let query = [("from", at(args.from)), ("to", at(args.to)), ("verdict", args.verdict)];
    let answer = shell.client.list(&["jobs", &id, "fires"], &query, args.limit as usize).await?;
    shell.show(&answer, |fires| table(fires, "there are no such scheduled times", &FIRES))
}

/// Flags of `job why`.
#[derive(Debug, ClapArgs)]
pub struct WhyArgs {
    #[command(flatten)]
    job: JobRef,
    /// The time to explain: RFC 3339, or -2h [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    at: Option<Timestamp>,
}

/// Explains a fire.
pub async fn why(shell: &Shell, args: WhyArgs) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &args.job.job).await?;
    let at = args.at.unwrap_or_else(Timestamp::now);
    let answer = shell.client.get(&["jobs", &id, "why"], &[("at", Some(at.to_string()))]).await?;
    shell.show(&answer, explain)
}

/// The text of an explanation, one sentence per line.
pub fn explain(why: &Value) -> String {
    let mut lines = vec![format!("{}: {} ({})", cell(why, "subject"), cell(why, "verdict"), cell(why, "rule"))];
    lines.extend(why["because"].as_array().into_iter().flatten().filter_map(Value::as_str).map(plain));
    // The run is not named again if the subject already names it.
    let run = some(why, "identity").filter(|run| !cell(why, "subject").contains(run.as_str()));
    lines.extend(run.map(|run| format!("its run: {run}")));
    lines.join("\n")
}

/// Flags of `job history`.
#[derive(Debug, ClapArgs)]
pub struct HistoryArgs {
    #[command(flatten)]
    job: JobRef,
    /// Maximum number of changes
    #[arg(long, default_value_t = 50, value_parser = crate::cli::limit())]
    limit: u32,
}

/// Lists the changes of a job.
pub async fn history(shell: &Shell, args: HistoryArgs) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &args.job.job).await?;
    let answer = shell.client.list(&["jobs", &id, "history"], &[], args.limit as usize).await?;
    shell.show(&answer, |changes| {
        let (mut shown, changes) = (changes.clone(), items(changes));
        // Newest first: the previous version is the next entry of the list.
        let changed = |i: usize| changes.get(i + 1).map(|before| differences(&before["job"], &changes[i]["job"]));
        for (i, change) in shown["items"].as_array_mut().into_iter().flatten().enumerate() {
            change["changed"] = changed(i).into();
        }
        table(&shown, "no changes are known", &CHANGES)
    })
}

/// The names of the parts that differ between two versions.
fn differences(before: &Value, after: &Value) -> String {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return String::new() };
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = |name: &&&String| old.get(**name) != new.get(**name);
    let always = ["version", "updateTime", "updateBy"];
    let names = names.iter().filter(differs).map(|name| name.as_str()).filter(|name| !always.contains(name));
    names.collect::<Vec<_>>().join(", ")
}

/// Flags of `job backfill`.
#[derive(Debug, ClapArgs)]
pub struct BackfillArgs {
    #[command(flatten)]
    job: JobRef,
    /// The first time of the range: RFC 3339, or -2d
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    from: Timestamp,
    /// The last time of the range
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true, default_value = "now")]
    to: Timestamp,
    /// Maximum number of runs
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Only list the times
    #[arg(long)]
    dry_run: bool,
}

/// Creates the missing runs.
pub async fn backfill(shell: &Shell, args: BackfillArgs) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &args.job.job).await?;
    let body = json!({ "from": args.from, "to": args.to, "limit": args.limit, "dryRun": args.dry_run });
    let answer = shell.client.post(&["jobs", &id, "backfill"], &[], &body).await?;
    shell.show(&answer, |done| {
        let mut lines = vec![table(&done["fires"], "there are no missing runs", &BACKFILLED)];
        let already = done["already"].as_u64().unwrap_or(0);
        lines.extend((already > 0).then(|| format!("{already} of these times had made a run before")));
        lines.extend((done["more"] == true).then(|| "there are more times than --limit".to_owned()));
        lines.join("\n")
    })
}

/// Flags of `job redrive`.
#[derive(Debug, ClapArgs)]
pub struct RedriveArgs {
    #[command(flatten)]
    job: JobRef,
    /// Only list the runs
    #[arg(long)]
    dry_run: bool,
}

/// Repeats failed runs.
pub async fn redrive(shell: &Shell, args: RedriveArgs) -> Result<ExitCode, Failure> {
    let id = find(&shell.client, &args.job.job).await?;
    let answer = shell.client.post(&["jobs", &id, "redrive"], &[], &json!({ "dryRun": args.dry_run })).await?;
    shell.show(&answer, |done| {
        let (list, would) = if args.dry_run { ("dead", " would be repeated") } else { ("runs", "") };
        let runs = done[list].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut lines: Vec<String> = runs.map(|run| format!("run {run}{would}")).collect();
        let refused = |run: &Value| format!("run {} is refused: {}", cell(run, "retryOf"), cell(run, "refused"));
        lines.extend(done["refused"].as_array().into_iter().flatten().map(refused));
        if lines.is_empty() {
            lines.push("there are no dead runs".to_owned());
        }
        lines.extend((done["more"] == true).then(|| "there are more: run the command again".to_owned()));
        lines.join("\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_what_differs() {
        let (before, after) = (json!({ "name": "a", "version": 1, "x": 1 }), json!({ "name": "b", "version": 2, "y": 1 }));
        assert_eq!(differences(&before, &after), "name, x, y");
    }

    #[test]
    fn a_reason_is_read_aloud() {
        let why = json!({ "subject": "s", "verdict": "fired", "rule": "due", "because": ["One.", "Two."], "identity": "r" });
        assert_eq!(explain(&why), "s: fired (due)\nOne.\nTwo.\nits run: r");
    }
}
