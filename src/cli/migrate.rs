//! `webloom migrate`: the tables of a store, without a broker.

use super::failure::Failure;
use super::remote::print;
use crate::domain::database::DatabaseAddress;
use crate::store::migrations;
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `webloom migrate`.
///
/// Applies the migrations that a store lacks, and lists them. A broker does the same when it begins to lead, so this is only needed to do it
/// before. Refused while a broker leads a store that lacks something; a store that lacks nothing is left alone.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The store of a broker: an SQLite file, or postgres://user:password@host/database. It is made if it is missing
    #[arg(long, env = "WEBLOOM_DATABASE", default_value = "webloom.db", hide_env_values = true, value_name = "FILE")]
    database: PathBuf,
    /// Change nothing: list what is pending, and end with exit code 1 if something is. A broker may lead the store
    #[arg(long)]
    check: bool,
}

/// Runs the command.
///
/// # Errors
/// The store cannot be used.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let database = DatabaseAddress::parse(&args.database).map_err(|e| Failure::Refused(format!("--database: {e}")))?;
    let refused = |e: crate::store::StoreError| Failure::Refused(e.to_string());
    let (found, what) = if args.check {
        (migrations::pending(&database).map_err(refused)?, "pending")
    } else {
        (migrations::apply(&database).map_err(refused)?, "applied")
    };
    if found.is_empty() {
        print(&format!("nothing is pending in {database}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines: Vec<String> = found.iter().map(|name| format!("{what} {name}")).collect();
    print(&lines.join("\n"))?;
    Ok(if args.check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
