//! The audit: calls that change something, and their results.

use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::audit_event;
use crate::domain::ids::IdPart;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// Rows that are deleted at once.
const ROWS: i64 = 200;

/// A call as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = audit_event)]
pub struct AuditRow {
    /// 32 hexadecimal digits, in the order of time.
    pub id: String,
    /// When it was made.
    pub at: Timestamp,
    /// The name of the token, or of its role.
    pub caller: Option<String>,
    /// The role.
    pub role: Option<String>,
    /// The address that the connection came from.
    pub address: Option<String>,
    /// The caller's address according to a proxy or a standby.
    pub forwarded_for: Option<String>,
    /// The operation, by its name in the OpenAPI document.
    pub operation: String,
    /// The kind of the object.
    pub kind: String,
    /// The object.
    pub object: Option<String>,
    /// The names of the members in the body.
    pub members: Option<String>,
    /// The status of the answer.
    pub status: Option<i32>,
}

/// Stores a call.
#[derive(Debug, Clone)]
pub struct InsertAudit(pub AuditRow);

impl WriteOp for InsertAudit {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        diesel::insert_into(audit_event::table).values(&self.0).execute(tx.conn)?;
        Ok(())
    }
}

/// Stores the result of a call.
#[derive(Debug, Clone)]
pub struct FinishAudit {
    /// The call.
    pub id: String,
    /// The object, if it is known only now.
    pub object: Option<String>,
    /// The names of the members in the body.
    pub members: Option<String>,
    /// The status of the answer.
    pub status: i32,
}

impl WriteOp for FinishAudit {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let row = || audit_event::table.find(&self.id);
        diesel::update(row()).set((audit_event::status.eq(self.status), audit_event::members.eq(&self.members))).execute(tx.conn)?;
        if let Some(object) = &self.object {
            diesel::update(row()).set(audit_event::object.eq(object)).execute(tx.conn)?;
        }
        Ok(())
    }
}

/// Calls, the newest first.
#[derive(Debug, Clone, Default)]
pub struct ListAudit {
    /// Only those of this caller.
    pub caller: Option<String>,
    /// Only those on objects of this kind.
    pub kind: Option<String>,
    /// Only those on this object: its name, or digits that its id begins or ends with.
    pub object: Option<String>,
    /// Only this operation.
    pub operation: Option<String>,
    /// Only those from this time on.
    pub from: Option<i64>,
    /// Only those up to this time.
    pub to: Option<i64>,
    /// Only those before this one.
    pub before: Option<String>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListAudit {
    type Output = Vec<AuditRow>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let mut query = audit_event::table.select(AuditRow::as_select()).order(audit_event::id.desc()).into_boxed();
        if let Some(caller) = &self.caller {
            query = query.filter(audit_event::caller.eq(caller));
        }
        if let Some(kind) = &self.kind {
            query = query.filter(audit_event::kind.eq(kind));
        }
        if let Some(object) = &self.object {
            let part = object.parse::<IdPart>().ok().map(|part| part.digits().to_owned());
            query = match part {
                // The digits are safe in a pattern.
                Some(part) => query.filter(
                    (audit_event::object.eq(object))
                        .or(audit_event::object.like(format!("{part}%")))
                        .or(audit_event::object.like(format!("%{part}"))),
                ),
                None => query.filter(audit_event::object.eq(object)),
            };
        }
        if let Some(operation) = &self.operation {
            query = query.filter(audit_event::operation.eq(operation));
        }
        if let Some(begin) = self.from {
            query = query.filter(audit_event::id.ge(first_id(begin)));
        }
        if let Some(end) = self.to {
            query = query.filter(audit_event::id.lt(first_id(end.saturating_add(1))));
        }
        if let Some(before) = &self.before {
            query = query.filter(audit_event::id.lt(before));
        }
        Ok(query.limit(self.limit as i64).load(from.conn)?)
    }
}

/// Some of the oldest calls that are too many: those before a time, and those beyond a number.
#[derive(Debug, Clone, Copy)]
pub struct OldAudit {
    /// The time, in milliseconds.
    pub before: i64,
    /// Maximum number of calls to keep.
    pub most: i64,
}

impl ReadOp for OldAudit {
    type Output = Vec<String>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let ids = || audit_event::table.select(audit_event::id);
        let first_beyond = ids().order(audit_event::id.desc()).offset(self.most).first::<String>(from.conn).optional()?;
        let oldest = ids().order(audit_event::id).limit(ROWS).into_boxed();
        let before = audit_event::id.lt(first_id(self.before));
        Ok(match first_beyond {
            Some(last) => oldest.filter(before.or(audit_event::id.le(last))).load(from.conn)?,
            None => oldest.filter(before).load(from.conn)?,
        })
    }
}

/// Deletes these calls.
#[derive(Debug, Clone)]
pub struct DeleteAudit(pub Vec<String>);

impl WriteOp for DeleteAudit {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        diesel::delete(audit_event::table.filter(audit_event::id.eq_any(&self.0))).execute(tx.conn)?;
        Ok(())
    }
}

/// Before the id of every call that was made at this time or later: an id begins with its time, in milliseconds.
fn first_id(at: i64) -> String {
    format!("{:012x}", at.max(0))
}
