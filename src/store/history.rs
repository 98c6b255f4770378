//! The changes of jobs: for people, and to verify that ledger and plan agree.

use super::columns::json;
use super::dialect::Conn;
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::job_history;
use crate::domain::ids::JobId;
use crate::domain::job::Job;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The job was created.
    Created,
    /// Some of its settings changed.
    Updated,
    /// The job was enabled.
    Enabled,
    /// The job was disabled.
    Disabled,
    /// The job was deleted; its history stays.
    Deleted,
    /// The deletion was undone.
    Restored,
}

impl Action {
    /// The name as stored and sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Deleted => "deleted",
            Self::Restored => "restored",
        }
    }
}

/// A stored change.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable)]
#[diesel(table_name = job_history)]
pub struct StoredChange {
    /// Sequence number of the change.
    pub id: i64,
    /// The job.
    pub job_id: JobId,
    /// The version after the change.
    pub version: i64,
    /// See [`Action`].
    pub action: String,
    /// Who made the change.
    pub by: Option<String>,
    /// The time of the change.
    pub at: Timestamp,
    /// The job after the change, as JSON.
    pub job: String,
}

/// The changes of a job, or of all, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct ListChanges {
    /// The job; `None`: all jobs.
    pub job_id: Option<JobId>,
    /// Only those before this one.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListChanges {
    type Output = Vec<StoredChange>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let mut query =
            job_history::table.select(StoredChange::as_select()).order(job_history::id.desc()).limit(self.limit as i64).into_boxed();
        if let Some(job) = self.job_id {
            query = query.filter(job_history::job_id.eq(job));
        }
        if let Some(before) = self.before {
            query = query.filter(job_history::id.lt(before));
        }
        Ok(query.load(from.conn)?)
    }
}

/// The clock went back to `to`: changes with a later time get this time.
pub(super) fn set_back(conn: &mut Conn, job: JobId, to: Timestamp) -> Result<(), StoreError> {
    let later = job_history::table.filter(job_history::job_id.eq(job)).filter(job_history::at.gt(to));
    let rows: Vec<(i64, Timestamp, String)> = later.select((job_history::id, job_history::at, job_history::job)).load(conn)?;
    for (id, at, text) in rows {
        let mut text = text;
        if let Ok(mut job) = serde_json::from_str::<serde_json::Value>(&text)
            && let Some(schedule) = job.get_mut("schedule").filter(|schedule| schedule.is_object())
        {
            let moved = super::jobs::set_back_schedule(&schedule.to_string(), to, at)?;
            *schedule = serde_json::from_str(&moved).unwrap_or_default();
            text = json(&job)?;
        }
        diesel::update(job_history::table.find(id)).set((job_history::at.eq(to), job_history::job.eq(text))).execute(conn)?;
    }
    Ok(())
}

pub(super) fn record_change(conn: &mut Conn, job: &Job, action: Action, by: Option<&str>) -> Result<(), StoreError> {
    diesel::insert_into(job_history::table)
        .values((
            job_history::job_id.eq(job.id),
            job_history::version.eq(job.version),
            job_history::action.eq(action.name()),
            job_history::by.eq(by),
            job_history::at.eq(job.update_time),
            job_history::job.eq(json(&job.clone().without_secrets())?),
        ))
        .execute(conn)?;
    Ok(())
}
