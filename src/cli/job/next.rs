//! `webloom job next`: the next fires of a cron expression.
//!
//! Standard output has only the fires, one per line, the time first, for use in scripts. The parsed expression, skipped times and errors
//! go to standard error.

use crate::domain::cron::{Cron, Dialect, Occurrence, PreviewLine};
use crate::domain::time::Timestamp;
use crate::domain::zone::{FoldRule, GapRule, Zone, ZoneRules};
use clap::Args as ClapArgs;
use serde_json::json;
use std::io::Write as _;
use std::process::ExitCode;

/// Flags of `webloom job next`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A job's name or id, or an expression in quotes: 5 fields as in crontab(5), 6 with seconds first, 7 with the year last, or @daily
    /// and similar
    #[arg(value_name = "JOB|CRON", allow_hyphen_values = true)]
    pub(super) cron: String,
    /// Time zone, by its IANA name
    #[arg(long, short, default_value = "UTC")]
    zone: Zone,
    /// Show fires after this time: RFC 3339, a local time of the zone, or milliseconds since 1970 [default: now]
    #[arg(long, short, value_name = "INSTANT", allow_hyphen_values = true)]
    pub(super) after: Option<String>,
    /// How many to show
    #[arg(long, short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) count: u32,
    /// How weekdays are numbered: crontab (0 and 7 are Sunday) or quartz (1 is Sunday)
    #[arg(long, default_value = "crontab")]
    dialect: Dialect,
    /// When the local time is missing: skip, after (first instant after the gap) or shift (by the gap) [default: skip if the hour begins with *, else after]
    #[arg(long)]
    gap: Option<GapRule>,
    /// When the local time comes twice: first, second or both [default: both if the hour begins with *, else first]
    #[arg(long)]
    fold: Option<FoldRule>,
}

/// The output, and the exit code.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    out: String,
    err: String,
    code: u8,
}

/// Shows the fires. Exit code 1 if there are none, 2 if the expression or the time is not valid.
pub fn run(args: &Args, json: bool) -> ExitCode {
    let answer = answer(args, json, Timestamp::now());
    // A reader that has seen enough (`head`) closes the pipe; that is not an error.
    let _ = std::io::stderr().write_all(answer.err.as_bytes());
    let _ = std::io::stdout().write_all(answer.out.as_bytes());
    ExitCode::from(answer.code)
}

fn answer(args: &Args, json: bool, now: Timestamp) -> Answer {
    let refused = |why: String| Answer { err: format!("webloom: {why}\n"), code: 2, ..Answer::default() };
    let cron = match Cron::parse(&args.cron, args.dialect) {
        Ok(cron) => cron,
        Err(error) => return refused(format!("{:?}: {error}\n\n{}", error.text, error.pointer())),
    };
    let after = match args.after.as_deref().map(|text| args.zone.instant(text)).transpose() {
        Ok(after) => after.unwrap_or(now),
        Err(why) => return refused(format!("--after: {why}")),
    };
    let lines = cron.preview(&args.zone, ZoneRules { gap: args.gap, fold: args.fold }, after, args.count as usize);
    let fires: Vec<_> = lines.iter().filter_map(|line| if let PreviewLine::Fire(fire) = line { Some(*fire) } else { None }).collect();
    let mut answer = if json { as_json(args, &cron, &lines) } else { as_text(args, &cron, &lines) };
    if fires.is_empty() {
        answer.err += &format!("webloom: {:?} never fires after {}\n", cron.text(), args.zone.rfc3339(after));
        answer.code = 1;
    } else if fires.len() < args.count as usize {
        let (count, s) = (fires.len(), if fires.len() == 1 { "" } else { "s" });
        answer.err += &format!("# only {count} fire{s} left; none follows until the end of 2099\n");
    }
    answer
}

fn as_text(args: &Args, cron: &Cron, lines: &[PreviewLine]) -> Answer {
    let mut answer = Answer::default();
    let (gap, fold) = cron.rules(ZoneRules { gap: args.gap, fold: args.fold });
    answer.err += &format!("# {}\n# {}\n", cron.understood(), cron.describe());
    answer.err += &format!("# zone {}, gap {}, fold {}\n", args.zone, gap.name(), fold.name());
    for line in lines {
        match line {
            PreviewLine::Fire(Occurrence { at, note }) => {
                answer.out += &args.zone.rfc3339(*at);
                if let Some(note) = note {
                    answer.out += &format!("  {note}");
                }
                answer.out.push('\n');
            }
            PreviewLine::Missing { at, first } => {
                answer.err += &format!("# the clock jumps at {}: local time {first} is missing and is skipped\n", args.zone.rfc3339(*at));
            }
        }
    }
    answer
}

fn as_json(args: &Args, cron: &Cron, lines: &[PreviewLine]) -> Answer {
    let (gap, fold) = cron.rules(ZoneRules { gap: args.gap, fold: args.fold });
    let (mut fires, mut missing) = (Vec::new(), Vec::new());
    for line in lines {
        match line {
            PreviewLine::Fire(Occurrence { at, note }) => fires.push(json!({
                "at": args.zone.rfc3339(*at),
                "utc": Zone::utc().rfc3339(*at).replace("+00:00", "Z"),
                "epochMs": at.0,
                "note": note.map(|note| note.to_string()),
            })),
            PreviewLine::Missing { at, first } => {
                missing.push(json!({ "at": args.zone.rfc3339(*at), "epochMs": at.0, "local": first.to_string() }));
            }
        }
    }
    let document = json!({
        "cron": cron.text(),
        "dialect": cron.dialect(),
        "understood": cron.understood(),
        "description": cron.describe(),
        "zone": args.zone.name(),
        "gap": gap,
        "fold": fold,
        "fires": fires,
        "missing": missing,
    });
    Answer { out: format!("{document:#}\n"), ..Answer::default() }
}

#[cfg(test)]
mod tests;
