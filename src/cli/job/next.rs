//! `webloom job next` of a cron expression.

use crate::cli::remote::print;
use crate::domain::cron::{Cron, Dialect};
use crate::domain::time::Timestamp;
use crate::domain::zone::{Zone, ZoneRules};
use clap::Args as ClapArgs;
use std::process::ExitCode;

/// Flags of `webloom job next`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A job's name or id, or a cron expression in quotes
    #[arg(value_name = "JOB|CRON", allow_hyphen_values = true)]
    pub(super) cron: String,
    /// Show fires after this instant [default: now]
    #[arg(long, short, value_name = "INSTANT", allow_hyphen_values = true)]
    pub(super) after: Option<String>,
    /// How many to show
    #[arg(long, short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) count: u32,
}

/// Shows the fires.
pub fn run(args: &Args) -> ExitCode {
    let Ok(cron) = Cron::parse(&args.cron, Dialect::Crontab) else {
        crate::cli::say_error(&format!("`{}` is no cron expression", args.cron));
        return ExitCode::from(2);
    };
    let mut at = args.after.as_deref().and_then(|text| crate::cli::value::instant(text).ok()).unwrap_or_else(Timestamp::now);
    for _ in 0..args.count {
        let Some(next) = cron.next(&Zone::utc(), ZoneRules::default(), at) else { break };
        at = next.at;
        if print(&at.to_string()).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}
