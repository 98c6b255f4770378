//! Which job is meant: by its id, or by its name.

use crate::cli::client::Client;
use crate::cli::remote::Failure;
use crate::cli::table::items;
use crate::domain::ids::{JobId, Number};
use clap::Args as ClapArgs;

/// More jobs than this are not looked through for a name.
const MOST: usize = 100_000;

/// A job.
#[derive(Debug, ClapArgs)]
pub struct JobRef {
    /// The job: its name, its id or its number
    pub job: String,
}

/// The id of the job of this name, or the id itself.
///
/// # Errors
/// There is none.
pub async fn find(client: &Client, name: &str) -> Result<String, Failure> {
    find_among(client, name, false).await
}

/// As [`find`], among the deleted jobs.
///
/// # Errors
/// There is none, or there are several.
pub async fn find_deleted(client: &Client, name: &str) -> Result<String, Failure> {
    find_among(client, name, true).await
}

async fn find_among(client: &Client, name: &str, deleted: bool) -> Result<String, Failure> {
    if let Ok(id) = name.parse::<JobId>() {
        return Ok(id.to_string());
    }
    // The broker knows names by their parts; which is the whole one is seen here.
    let query = [("name", Some(name.to_owned())), ("deleted", Some(deleted.to_string()))];
    let found = client.list(&["jobs"], &query, MOST).await?.value()?;
    let ids: Vec<&str> = items(&found).iter().filter(|job| job["name"] == name).filter_map(|job| job["id"].as_str()).collect();
    match ids[..] {
        [id] => Ok(id.to_owned()),
        // A job may be called by digits; else they are a number.
        [] if !deleted && name.parse::<Number>().is_ok() => client.numbered("jobs", name, "id").await,
        [] => Err(Failure::Refused(format!("there is no {}job `{name}`", if deleted { "deleted " } else { "" }))),
        _ => Err(Failure::Refused(format!("several deleted jobs were called `{name}`; say which by its id:\n  {}", ids.join("\n  ")))),
    }
}
