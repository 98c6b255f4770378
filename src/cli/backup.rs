//! `webloom backup` and `webloom restore`: a consistent copy of a store, made while a broker works, and back.

use super::failure::Failure;
use super::remote::print;
use super::say_error;
use crate::domain::backup::{Manifest, size};
use crate::domain::database::DatabaseAddress;
use crate::store::{StoreError, backup};
use clap::Args as ClapArgs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `webloom backup`.
///
/// Copies database, results and packages as they are at one moment, with a manifest of their checksums. Must run on the machine of the
/// broker, as its user. The broker goes on meanwhile; it need not run. Everything that the broker answered before the moment is in the
/// copy. The manifest is written last: an interrupted backup cannot be restored, and is made again by the same command.
#[derive(Debug, ClapArgs)]
pub struct BackupArgs {
    /// The store file of a broker
    #[arg(long, env = "WEBLOOM_DATABASE", default_value = "webloom.db", hide_env_values = true, value_name = "FILE")]
    database: PathBuf,
    /// The folder of the backup: a new one, or an empty one
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Print one JSON document: the manifest
    #[arg(long)]
    json: bool,
}

/// Flags of `webloom restore`.
///
/// Verifies a backup, and copies it to a database file that does not exist yet. It replaces nothing. No broker may run on that file; start
/// it afterwards. An interrupted restore is repeated by the same command; until then no broker starts there.
#[derive(Debug, ClapArgs)]
pub struct RestoreArgs {
    /// The folder of the backup
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
    /// The store file to restore to
    #[arg(long, env = "WEBLOOM_DATABASE", default_value = "webloom.db", hide_env_values = true, value_name = "FILE")]
    database: PathBuf,
    /// Only verify the backup: its files are there and unchanged, and this version can restore them
    #[arg(long)]
    check: bool,
    /// Print one JSON document: the manifest of the backup
    #[arg(long)]
    json: bool,
}

/// Runs `webloom backup`.
///
/// # Errors
/// The store cannot be read, or the folder cannot be used.
pub fn back_up(args: &BackupArgs) -> Result<ExitCode, Failure> {
    let database = file(&args.database, "back it up with pg_dump")?;
    let manifest = backup::make(&database, &args.to).map_err(refused)?;
    tell(&manifest, args.json, &format!("backed up {} to {}", database.display(), args.to.display()))
}

/// Runs `webloom restore`.
///
/// # Errors
/// The backup is damaged, or the file exists.
pub fn restore(args: &RestoreArgs) -> Result<ExitCode, Failure> {
    let from = args.from.display();
    if args.check {
        return tell(&backup::check(&args.from).map_err(refused)?, args.json, &format!("{from} can be restored"));
    }
    let database = file(&args.database, "restore it with pg_restore or psql")?;
    let manifest = backup::restore(&args.from, &database).map_err(refused)?;
    tell(&manifest, args.json, &format!("restored {from} to {}", database.display()))
}

fn file(named: &Path, otherwise: &str) -> Result<PathBuf, Failure> {
    match DatabaseAddress::parse(named) {
        Ok(DatabaseAddress::File(path)) => Ok(path),
        Ok(DatabaseAddress::Server(_)) => {
            Err(Failure::Refused(format!("--database: this is a PostgreSQL database, with all that a broker stores: {otherwise}")))
        }
        Err(e) => Err(Failure::Refused(format!("--database: {e}"))),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(error: StoreError) -> Failure {
    Failure::Refused(error.to_string())
}

fn tell(manifest: &Manifest, json: bool, done: &str) -> Result<ExitCode, Failure> {
    for warning in &manifest.warnings {
        say_error(&format!("not in the backup: {warning}"));
    }
    if json {
        print(&serde_json::to_string(manifest).expect("a manifest is JSON"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let counts = &manifest.counts;
    print(&format!(
        "{done}: state of {}, {} jobs, {} runs ({} not over), {} blocks with results, {} packages, {} in {} files",
        manifest.created_at,
        counts.jobs,
        counts.runs,
        counts.open_runs,
        counts.results,
        counts.packages,
        size(manifest.bytes()),
        manifest.files.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}
