//! Groups: names that jobs and nodes go by.

use super::dialect::Conn;
use super::error::StoreError;
use super::schema::job_group;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// Makes a group that is named for the first time.
pub(super) fn enter(conn: &mut Conn, name: Option<&str>, by: Option<&str>, now: Timestamp) -> Result<(), StoreError> {
    let Some(name) = name else { return Ok(()) };
    diesel::insert_into(job_group::table)
        .values((
            job_group::id.eq(uuid::Uuid::new_v4().as_simple().to_string()),
            job_group::name.eq(name),
            job_group::create_by.eq(by),
            job_group::update_by.eq(by),
            job_group::creation_time.eq(now.0),
            job_group::update_time.eq(now.0),
        ))
        .on_conflict_do_nothing()
        .execute(conn)?;
    Ok(())
}
