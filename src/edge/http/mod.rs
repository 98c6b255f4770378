//! HTTP handlers, one module per resource.

pub mod access_tokens;
pub mod actors;
pub mod alerts;
pub mod audit;
pub mod brokers;
pub mod groups;
pub mod hooks;
pub mod job_data;
pub mod jobs;
pub mod live_logs;
pub mod logs;
pub mod metrics;
pub mod node;
pub mod nodes;
pub mod packages;
pub mod plans;
pub mod portal;
pub mod queue;
pub mod redrive;
mod results;
pub mod runs;
pub mod series;
pub mod sites;
pub mod status;
pub mod steering;
pub mod tasks;
pub mod transfer;
pub mod workers;

use super::error::Failure;
use crate::protocol::problem::Problem;

/// Items per page by default.
const PAGE: usize = 50;
/// Largest number of items per page.
pub(super) const MOST: usize = 1_000;

/// The page size of a list.
fn limit(asked: Option<usize>) -> Result<usize, Failure> {
    match asked {
        None => Ok(PAGE),
        Some(n) if (1..=MOST).contains(&n) => Ok(n),
        Some(_) => Err(Problem::invalid("limit", format!("must be 1 to {MOST}")).into()),
    }
}
