//! `webloom package`: programs that nodes fetch from the broker.

use super::failure::Failure;
use super::find::{PACKAGE, find};
use super::remote::{Remote, Shell};
use super::table::{Column, cell, list as table};
use super::value::unreadable;
use crate::domain::application::PACKAGES;
use crate::package::{Bounds, check};
use crate::protocol::packages::MAX_PACKAGE;
use clap::{Args as ClapArgs, Subcommand};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const COLUMNS: [Column; 5] = [
    Column::id("SHA-256", "sha256"),
    Column::text("NAME", "name"),
    Column::text("BYTES", "size"),
    Column::time("MADE", "creationTime"),
    Column::text("BY", "createBy"),
];

/// Flags of `webloom package`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: PackageCommand,
}

#[derive(Debug, Subcommand)]
enum PackageCommand {
    /// Upload a zip or a tar.gz to the broker; prints the address for --package
    Push {
        /// The file
        file: PathBuf,
        /// A name for people [default: the name of the file]
        #[arg(long)]
        name: Option<String>,
    },
    /// List the packages that the broker stores, newest first
    List,
    /// Delete a package that no job uses
    Remove {
        /// The package: its SHA-256, digits that it begins or ends with, or its name if no other has it
        package: String,
    },
}

/// The bytes of a package.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |e: std::io::Error| unreadable(path, &e);
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    if size > MAX_PACKAGE {
        return Err(Failure::Refused(format!("{} has {size} bytes; a package has at most {MAX_PACKAGE}", path.display())));
    }
    check(file, Bounds::new(size, MAX_PACKAGE)).map_err(|error| {
        let hint = "A package is a zip or a tar.gz with the program in it, for example made by `tar -czf app.tar.gz -C FOLDER .`";
        Failure::Refused(format!("{} is no package: {}. {hint}", path.display(), error.message))
    })?;
    std::fs::read(path).map_err(failed)
}

fn name_of(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// The address of a package at the broker. A file is uploaded, unless the broker already has the same bytes or this is a dry run.
///
/// # Errors
/// It is neither an address nor a package, or the broker rejects it.
pub async fn address_of(shell: &Shell, package: &str, is_dry: bool) -> Result<String, Failure> {
    if package.is_empty() || package.starts_with("http://") || package.starts_with("https://") || package.starts_with(PACKAGES) {
        return Ok(package.to_owned());
    }
    let path = Path::new(package);
    if !path.is_file() {
        let expected = format!("a URL, what `webloom package push` prints ({PACKAGES}…), or a file");
        return Err(Failure::Usage(format!("--package: `{package}` is no file here; expected is {expected}")));
    }
    let bytes = read(path)?;
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let kept = shell.client.get(&["packages"], &[]).await?.value()?;
    let is_kept = kept["items"].as_array().is_some_and(|all| all.iter().any(|package| package["sha256"] == sha256));
    if !is_kept && !is_dry {
        shell.client.post_bytes(&["packages"], &[("name", name_of(path))], bytes).await?;
    }
    Ok(format!("{PACKAGES}{sha256}"))
}

/// Runs a command of `webloom package`.
///
/// # Errors
/// The broker rejects the call or cannot be reached, or the file cannot be read.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        PackageCommand::Push { file, name } => {
            let bytes = read(&file)?;
            let answer = shell.client.post_bytes(&["packages"], &[("name", name.or_else(|| name_of(&file)))], bytes).await?;
            shell.show(&answer, |package| cell(package, "url"))
        }
        PackageCommand::List => {
            let answer = shell.client.get(&["packages"], &[]).await?;
            shell.show(&answer, |packages| table(packages, "there are no packages", &COLUMNS))
        }
        PackageCommand::Remove { package } => {
            let sha256 = find(&shell.client, PACKAGE, &package).await?;
            let answer = shell.client.delete(&["packages", &sha256]).await?;
            shell.show(&answer, |_| format!("package {sha256} is deleted"))
        }
    })
}
