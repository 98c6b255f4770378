//! `webloom store`: what is done with a whole store while no broker works on it.

use super::failure::Failure;
use super::remote::print;
use super::say_error;
use super::table::{Column, list as table};
use crate::domain::database::DatabaseAddress;
use crate::store::copy;
use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const COLUMNS: [Column; 3] = [Column::text("TABLE", "table"), Column::text("ROWS", "rows"), Column::of("CHECKSUM", checksum)];

/// Its beginning: enough to see that two are equal.
fn checksum(part: &Value) -> String {
    part["checksum"].as_str().unwrap_or_default().chars().take(16).collect()
}

/// Flags of `webloom store`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy a store from SQLite to PostgreSQL, or back
    Copy(CopyArgs),
}

/// Flags of `webloom store copy`.
///
/// Copies every table, the results that wait for workers, and all packages to an empty store; reads the target back and compares it with the
/// source. Refused while a broker leads one of the two. No broker starts on a target whose copy was interrupted; the same command begins
/// again. The source stays as it is. Brokers must not go on with both.
#[derive(Debug, ClapArgs)]
struct CopyArgs {
    /// The source: an SQLite file, or postgres://user:password@host/database
    #[arg(long, env = "WEBLOOM_COPY_FROM", hide_env_values = true, value_name = "DATABASE")]
    from: PathBuf,
    /// The target: a file that does not exist, or an empty PostgreSQL database
    #[arg(long, env = "WEBLOOM_COPY_TO", hide_env_values = true, value_name = "DATABASE")]
    to: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// One of the stores cannot be used, or the copy differs.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let Command::Copy(args) = &args.command;
    let (from, to) = (address("--from", &args.from)?, address("--to", &args.to)?);
    let report = copy::copy(&from, &to).map_err(|e| Failure::Refused(e.to_string()))?;
    for warning in &report.warnings {
        say_error(warning);
    }
    let parts = report.parts.iter().map(|part| json!({ "table": part.what, "rows": part.rows, "checksum": part.checksum }));
    let answer = json!({ "items": parts.collect::<Vec<_>>(), "warnings": report.warnings });
    if args.json {
        print(&answer.to_string())?;
    } else {
        print(&format!("{}\ncopied {from} to {to}, and read it back: all are equal", table(&answer, "", &COLUMNS)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn address(flag: &str, named: &Path) -> Result<DatabaseAddress, Failure> {
    DatabaseAddress::parse(named).map_err(|e| Failure::Refused(format!("{flag}: {e}")))
}
