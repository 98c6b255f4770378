//! `webloom verify-history`: proves from a store file alone that no scheduled time was lost.

use super::failure::Failure;
use super::remote::print;
use super::table::plain;
use crate::domain::database::DatabaseAddress;
use crate::store::verify::{History, Report};
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `webloom verify-history`.
///
/// Computes the schedule of each job again from all its stored definitions, and compares it with the ledger of fires: each scheduled time
/// must be there once, and nothing else. Then it compares the ledger with the runs. It only reads the file; a broker may have it open.
/// Exit code 1 if there is any discrepancy.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The store of a broker: an SQLite file, or postgres://user:password@host/database
    #[arg(long, env = "WEBLOOM_DATABASE", default_value = "webloom.db", hide_env_values = true, value_name = "FILE")]
    database: PathBuf,
    /// Only this job, by its name or id
    #[arg(long)]
    job: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// The file is not a store.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let refused = |e: crate::store::StoreError| Failure::Refused(e.to_string());
    let database = DatabaseAddress::parse(&args.database).map_err(|e| Failure::Refused(format!("--database: {e}")))?;
    let report = History::open(&database).and_then(|mut history| history.verify(args.job.as_deref())).map_err(refused)?;
    print(&if args.json { serde_json::to_string(&report).expect("a report is JSON") } else { text(&report) })?;
    Ok(if report.discrepancies.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &Report) -> String {
    let found = &report.discrepancies;
    let mut lines: Vec<String> =
        found.iter().map(|found| format!("{}: job {} {}: {}", found.check, found.job_id, plain(&found.job_name), found.detail)).collect();
    lines.push(format!("{} jobs, {} planned instants, {} discrepancies", report.jobs, report.planned_instants, found.len()));
    lines.join("\n")
}
