//! `webloom run redrive`: repeats dead runs, which failed for good.

use crate::cli::failure::Failure;
use crate::cli::job;
use crate::cli::remote::Shell;
use crate::cli::table::{Column, items, list as table};
use crate::cli::value::instant;
use crate::domain::time::Timestamp;
use clap::Args as ClapArgs;
use serde_json::json;
use std::process::ExitCode;

const COLUMNS: [Column; 4] =
    [Column::id("DEAD RUN", "retryOf"), Column::id("JOB", "jobId"), Column::id("RUN", "identity"), Column::text("REFUSED", "refused")];

/// Flags of `run redrive`.
#[derive(Debug, ClapArgs)]
pub struct RedriveArgs {
    /// Only runs of this job, by its name or id
    #[arg(long)]
    job: Option<String>,
    /// Only runs of jobs of this group
    #[arg(long)]
    group: Option<String>,
    /// Only runs created at this time or later: RFC 3339, or -2h
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    from: Option<Timestamp>,
    /// Only runs created at this time or earlier
    #[arg(long, value_name = "INSTANT", value_parser = instant, allow_hyphen_values = true)]
    to: Option<Timestamp>,
    /// Maximum number of runs
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Only list the runs
    #[arg(long)]
    dry_run: bool,
}

/// Repeats dead runs.
pub async fn redrive(shell: &Shell, args: RedriveArgs) -> Result<ExitCode, Failure> {
    let mut input = json!({ "limit": args.limit, "dryRun": args.dry_run });
    if let Some(name) = &args.job {
        input["jobId"] = json!(job::find(&shell.client, name).await?);
    }
    for (key, value) in [("group", args.group), ("from", args.from.map(|at| at.to_string())), ("to", args.to.map(|at| at.to_string()))] {
        if let Some(value) = value {
            input[key] = json!(value);
        }
    }
    let answer = shell.client.post(&["runs", "redrive"], &[], &input).await?;
    shell.show(&answer, |done| {
        let rows = table(&done["runs"], "there are no dead runs", &COLUMNS);
        if items(&done["runs"]).is_empty() {
            return rows;
        }
        let more = if done["more"] == true { "; there are more" } else { "" };
        format!("{rows}\n{} of {} are run again{more}", done["redriven"], done["found"])
    })
}
