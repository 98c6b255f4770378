//! `webloom brokers`: the leader and the standbys.

use super::failure::Failure;
use super::remote::Remote;
use super::table::{Column, list as table};
use clap::Args as ClapArgs;
use std::process::ExitCode;

const COLUMNS: [Column; 7] = [
    Column::text("ROLE", "role"),
    Column::text("URL", "url"),
    Column::text("TERM", "term"),
    Column::text("VERSION", "version"),
    Column::time("STARTED", "startedAt"),
    Column::time("SEEN", "lastSeen"),
    Column::id("ID", "id").wide(),
];

/// Flags of `webloom brokers`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    remote: Remote,
}

/// Lists the brokers of a database. A standby answers too.
///
/// # Errors
/// The broker rejects the call or cannot be reached.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |shell| {
        let answer = shell.client.get(&["brokers"], &[]).await?;
        shell.show(&answer, |brokers| table(brokers, "there are no brokers", &COLUMNS))
    })
}
