//! `webloom package`: programs that nodes fetch from the broker.

use super::remote::{Failure, Remote};
use super::table::{cell, list as table, some, time};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

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
    /// Hand a zip or a tar.gz to the broker; prints the address that --package takes
    Push {
        /// The file
        file: PathBuf,
        /// What it is called, for people [default: the name of the file]
        #[arg(long)]
        name: Option<String>,
    },
    /// List the packages that the broker keeps, the newest first
    List,
    /// Forget a package that nobody uses
    Remove {
        /// Its SHA-256
        sha256: String,
    },
}

/// Runs a command of `webloom package`.
///
/// # Errors
/// The broker refuses it or cannot be reached, or the file cannot be read.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let command = args.command;
    args.remote.run(async |shell| match command {
        PackageCommand::Push { file, name } => {
            let bytes = std::fs::read(&file).map_err(|e| Failure::Refused(format!("{}: {e}", file.display())))?;
            let name = name.or_else(|| file.file_name().map(|name| name.to_string_lossy().into_owned()));
            let answer = shell.client.post_bytes(&["packages"], &[("name", name)], bytes).await?;
            shell.show(&answer, |package| cell(package, "url"))
        }
        PackageCommand::List => {
            let answer = shell.client.get(&["packages"], &[]).await?;
            shell.show(&answer, |packages| {
                table(packages, "there are no packages", &["SHA-256", "BYTES", "MADE", "BY", "NAME"], |package| {
                    vec![
                        cell(package, "sha256"),
                        cell(package, "size"),
                        time(package, "creationTime"),
                        cell(package, "createBy"),
                        some(package, "name").unwrap_or_default(),
                    ]
                })
            })
        }
        PackageCommand::Remove { sha256 } => {
            let answer = shell.client.delete(&["packages", &sha256]).await?;
            shell.show(&answer, |_| format!("package {sha256} is gone"))
        }
    })
}
