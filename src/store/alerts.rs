//! What happened that somebody may want to hear of: written in the transaction of what happened, sent afterwards.

use super::dialect::Conn;
use super::error::StoreError;
use super::schema::alert_event;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// failed, missed, late, silent, recovered, disabled.
    pub event: &'static str,
    /// The job.
    pub job_id: JobId,
    /// The run, if it is about one.
    pub identity: Option<Identity>,
    /// When.
    pub at: Timestamp,
    /// For people and programs: `{"jobName":…,"reason":…}` as JSON.
    pub detail: String,
}

pub(super) fn insert_all(conn: &mut Conn, events: &[NewEvent]) -> Result<(), StoreError> {
    for event in events {
        diesel::insert_into(alert_event::table)
            .values((
                alert_event::event.eq(event.event),
                alert_event::job_id.eq(event.job_id.to_string()),
                alert_event::run_identity.eq(event.identity.map(|run| run.to_string())),
                alert_event::at.eq(event.at.0),
                alert_event::detail.eq(&event.detail),
                alert_event::is_done.eq(false),
            ))
            .execute(conn)?;
    }
    Ok(())
}
