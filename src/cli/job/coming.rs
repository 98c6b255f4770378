//! Shows when jobs and schedules run next.

use super::input::ScheduleFlags;
use super::next;
use crate::cli::failure::Failure;
use crate::cli::find::{JOB, find_if_any};
use crate::cli::remote::{Remote, Shell};
use crate::cli::table::{Column, cell, list as table, plain, some};
use crate::cli::value::{document, instant};
use crate::domain::cron::{Cron, Dialect};
use crate::domain::time::Timestamp;
use clap::Args as ClapArgs;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// A text that parses as a cron expression is one; any other text is the name of a job, if the broker has it.
pub fn next(remote: Remote, args: next::Args) -> Result<ExitCode, Failure> {
    let is_cron = Cron::parse(&args.cron, Dialect::Crontab).is_ok() || Cron::parse(&args.cron, Dialect::Quartz).is_ok();
    // Several short words of the letters of cron expressions, with a digit among them.
    let is_alike = |text: &str| {
        text.split_whitespace().count() > 1
            && text.contains(|c: char| c.is_ascii_digit())
            && text.split_whitespace().all(|word| word.len() < 12)
    };
    let looks_like_cron =
        args.cron.starts_with('@') || args.cron.contains(['*', '?']) || args.cron.trim().is_empty() || is_alike(&args.cron);
    let is_document = remote.look().is_document();
    if is_cron || looks_like_cron {
        return Ok(next::run(&args, is_document));
    }
    remote.run(async |shell| {
        let Some(id) = find_if_any(&shell.client, JOB, &args.cron).await? else {
            let text = &args.cron;
            let example = "5 fields as in \"0 9 * * MON\": 09:00 every Monday";
            return Err(Failure::Usage(format!("`{text}` is neither a job nor a cron expression, which has {example}")));
        };
        let after = args.after.as_deref().map(instant).transpose().map_err(|e| Failure::Usage(format!("--after: {e}")))?;
        let query = [("count", Some(args.count.to_string())), ("after", after.map(|at| at.to_string()))];
        let answer = shell.client.get(&["jobs", &id, "next"], &query).await?;
        shell.show(&answer, describe)
    })
}

/// Flags of `job preview`.
#[derive(Debug, ClapArgs)]
pub struct PreviewArgs {
    /// A file with a job or a schedule as YAML or JSON; `-`: standard input. Flags go before it
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Show fires after this time [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    after: Option<Timestamp>,
    /// How many to show
    #[arg(long, short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    count: u32,
    #[command(flatten)]
    schedule: ScheduleFlags,
}

/// Shows the fires of a schedule.
pub async fn preview(shell: &Shell, args: PreviewArgs) -> Result<ExitCode, Failure> {
    let mut body = json!({ "schedule": schedule_of(&args)?, "count": args.count });
    if let Some(after) = args.after {
        body["after"] = json!(after);
    }
    let answer = shell.client.post(&["jobs", "preview"], &[], &body).await?;
    shell.show(&answer, describe)
}

fn schedule_of(args: &PreviewArgs) -> Result<Map<String, Value>, Failure> {
    let mut schedule = match document(args.file.as_ref())? {
        Some(Value::Object(mut job)) => match (job.remove("schedule"), job.remove("cron")) {
            (Some(Value::Object(schedule)), _) => schedule,
            (_, Some(cron)) => Map::from_iter([("triggers".to_owned(), json!([{ "cron": cron }]))]),
            _ => job,
        },
        _ => Map::new(),
    };
    args.schedule.apply(&mut schedule);
    Ok(schedule)
}

/// The text of a preview: the fires, and notes about them.
fn describe(preview: &Value) -> String {
    let texts = |key: &str| preview[key].as_array().cloned().unwrap_or_default().into_iter().filter_map(|v| v.as_str().map(plain));
    let mut lines: Vec<String> = texts("understood").map(|cron| format!("# understood as {cron}")).collect();
    lines.extend(texts("remarks").map(|remark| format!("# {remark}")));
    let fires = preview["fires"].as_array().map_or(&[][..], Vec::as_slice);
    if fires.is_empty() {
        lines.push("no scheduled time follows".to_owned());
        return lines.join("\n");
    }
    let columns = [
        Column::exact("AT", "at"),
        Column::text("", "local").under(format!("IN {}", cell(preview, "zone"))),
        Column::text("KIND", "kind"),
        Column::of("NOTE", |fire| {
            let blackout = some(fire, "blackout").map(|name| format!("makes no run: blackout {name}"));
            [some(fire, "note"), blackout].into_iter().flatten().collect::<Vec<_>>().join("; ")
        }),
    ];
    lines.push(table(&preview["fires"], "", &columns));
    lines.join("\n")
}
