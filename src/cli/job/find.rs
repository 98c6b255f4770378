//! Which job is meant: by its id, by digits of it, or by its name.

use crate::cli::client::Client;
use crate::cli::failure::Failure;
use crate::cli::find::{DELETED_JOB, JOB};
use clap::Args as ClapArgs;

/// A job.
#[derive(Debug, ClapArgs)]
pub struct JobRef {
    /// The job: its name, its id or at least 4 digits that the id begins or ends with, or its number
    pub job: String,
}

/// The id of the job that is meant.
///
/// # Errors
/// There is none, or there are several.
pub async fn find(client: &Client, name: &str) -> Result<String, Failure> {
    crate::cli::find::find(client, JOB, name).await
}

/// As [`find`], among the deleted jobs.
///
/// # Errors
/// There is none, or there are several.
pub async fn find_deleted(client: &Client, name: &str) -> Result<String, Failure> {
    crate::cli::find::find(client, DELETED_JOB, name).await
}
