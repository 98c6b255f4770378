//! HTTP, by noun.

pub mod alerts;
pub mod brokers;
pub mod easy_job;
pub mod groups;
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
pub mod runs;
pub mod scheduler_net;
pub mod sites;
pub mod status;
pub mod steering;
pub mod tasks;
pub mod transfer;
pub mod workers;

use super::error::Failure;
use crate::protocol::problem::Problem;

/// Items of a page, if the caller does not say.
const PAGE: usize = 50;
/// Items of a page at most.
const MOST: usize = 1_000;

/// The limit of a list.
fn limit(asked: Option<usize>) -> Result<usize, Failure> {
    match asked {
        None => Ok(PAGE),
        Some(n) if (1..=MOST).contains(&n) => Ok(n),
        Some(_) => Err(Problem::invalid("limit", format!("1 to {MOST} is expected")).into()),
    }
}
