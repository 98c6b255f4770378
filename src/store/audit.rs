//! The audit: calls that change something, and their results.

use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::audit_event;
use diesel::prelude::*;

/// Rows that one step deletes.
const ROWS: i64 = 200;

/// A call as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = audit_event)]
pub struct AuditRow {
    /// 32 hexadecimal digits, in the order of time.
    pub id: String,
    /// When it was made, in milliseconds.
    pub at: i64,
    /// The name of the token, or of its role.
    pub caller: Option<String>,
    /// The role.
    pub role: Option<String>,
    /// The address that the connection came from.
    pub address: Option<String>,
    /// What a proxy or a standby says of the caller's address.
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
    /// Only those on this object.
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
            query = query.filter(audit_event::object.eq(object));
        }
        if let Some(operation) = &self.operation {
            query = query.filter(audit_event::operation.eq(operation));
        }
        if let Some(begin) = self.from {
            query = query.filter(audit_event::at.ge(begin));
        }
        if let Some(end) = self.to {
            query = query.filter(audit_event::at.le(end));
        }
        if let Some(before) = &self.before {
            query = query.filter(audit_event::id.lt(before));
        }
        Ok(query.limit(self.limit as i64).load(from.conn)?)
    }
}

/// Deletes some of the oldest calls: those before a time, and those beyond a number. Returns how many.
#[derive(Debug, Clone, Copy)]
pub struct PruneAudit {
    /// The time, in milliseconds.
    pub before: i64,
    /// Maximum number of calls to keep.
    pub most: i64,
}

impl WriteOp for PruneAudit {
    type Output = usize;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<usize, StoreError> {
        let oldest = || audit_event::table.select(audit_event::id).order(audit_event::id);
        let mut old: Vec<String> = oldest().filter(audit_event::at.lt(self.before)).limit(ROWS).load(tx.conn)?;
        if old.is_empty() {
            let count: i64 = audit_event::table.count().get_result(tx.conn)?;
            let beyond = (count - self.most).clamp(0, ROWS);
            old = if beyond > 0 { oldest().limit(beyond).load(tx.conn)? } else { Vec::new() };
        }
        Ok(diesel::delete(audit_event::table.filter(audit_event::id.eq_any(old))).execute(tx.conn)?)
    }
}
