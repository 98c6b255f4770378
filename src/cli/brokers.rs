//! `webloom brokers`: who leads, and who stands by.

use super::remote::{Failure, Remote};
use super::table::{cell, list as table, some, time};
use clap::Args as ClapArgs;
use std::process::ExitCode;

/// Flags of `webloom brokers`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
}

/// Lists the brokers of a database. One that stands by answers too.
///
/// # Errors
/// The broker refuses it or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |shell| {
        let answer = shell.client.get(&["brokers"], &[]).await?;
        shell.show(&answer, |brokers| {
            table(brokers, "there are no brokers", &["ROLE", "URL", "TERM", "VERSION", "STARTED", "SEEN", "ID"], |broker| {
                vec![
                    cell(broker, "role"),
                    cell(broker, "url"),
                    some(broker, "term").unwrap_or_default(),
                    cell(broker, "version"),
                    time(broker, "startedAt"),
                    time(broker, "lastSeen"),
                    cell(broker, "id"),
                ]
            })
        })
    })
}
