//! Resolves a job: by its id, by digits of it, or by its name.

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

/// The id of the job.
///
/// # Errors
/// No job matches, or several do.
pub async fn find(client: &Client, name: &str) -> Result<String, Failure> {
    crate::cli::find::find(client, JOB, name).await
}

/// Same as [`find`], among the deleted jobs.
///
/// # Errors
/// No job matches, or several do.
pub async fn find_deleted(client: &Client, name: &str) -> Result<String, Failure> {
    crate::cli::find::find(client, DELETED_JOB, name).await
}
