//! The audit of calls that change something.
//!
//! A call is put into the write queue before its handler runs, also if the queue is full: each connection has one call at a time. The
//! writer keeps the order, so a change is never on disk without its call: both are in one transaction, or the call is in an earlier one.
//! The result follows after the handler.

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::time::Timestamp;
use crate::protocol::api::Page;
use crate::protocol::audit::AuditOutput;
use crate::protocol::problem::Problem;
use crate::store::{AuditRow, FinishAudit, InsertAudit, ListAudit, StoreError};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A call that begins.
#[derive(Debug, Clone)]
pub struct AuditedCall {
    /// The name of the token, or of its role.
    pub caller: Option<String>,
    /// The role of the token.
    pub role: Option<&'static str>,
    /// The address that the connection came from.
    pub address: Option<String>,
    /// The caller's address according to a proxy or a standby.
    pub forwarded_for: Option<String>,
    /// The operation.
    pub operation: &'static str,
    /// The kind of the object.
    pub kind: &'static str,
    /// The object.
    pub object: Option<String>,
}

/// Selects calls.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only those of this caller.
    pub caller: Option<String>,
    /// Only those on objects of this kind.
    pub kind: Option<String>,
    /// Only those on this object.
    pub object: Option<String>,
    /// Only this operation.
    pub operation: Option<String>,
    /// Only those from this time on.
    pub from: Option<Timestamp>,
    /// Only those up to this time.
    pub to: Option<Timestamp>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of items in the answer.
    pub limit: usize,
}

fn output(row: AuditRow) -> AuditOutput {
    AuditOutput {
        id: row.id,
        at: row.at,
        caller: row.caller,
        role: row.role,
        address: row.address,
        forwarded_for: row.forwarded_for,
        operation: row.operation,
        kind: row.kind,
        object: row.object,
        members: row.members,
        status: row.status.and_then(|status| u16::try_from(status).ok()),
    }
}

impl Service {
    /// Stores that a call begins; it is in the write queue when this returns. Returns the id for [`Service::audit_end`].
    ///
    /// # Errors
    /// The database cannot be reached: the call would be rejected anyway, and what waits for the database must not grow with each call.
    pub fn audit_begin(&self, call: AuditedCall) -> Result<String, Problem> {
        self.context.store.check_reachable().map_err(|e| problem_of(&e))?;
        let now = Timestamp::now();
        let random = uuid::Uuid::new_v4().simple().to_string();
        let id = format!("{:012x}{:08x}{}", now.0.max(0), NUMBER.fetch_add(1, Relaxed), &random[..12]);
        let AuditedCall { caller, role, address, forwarded_for, operation, kind, object } = call;
        let (role, operation, kind) = (role.map(str::to_owned), operation.to_owned(), kind.to_owned());
        let row = AuditRow {
            id: id.clone(),
            at: now,
            caller,
            role,
            address,
            forwarded_for,
            operation,
            kind,
            object,
            members: None,
            status: None,
        };
        log_failure(self.context.store.write_unbounded(InsertAudit(row)), "begin");
        Ok(id)
    }

    /// Stores the result of a call.
    pub fn audit_end(&self, id: String, status: u16, object: Option<String>, members: Option<String>) {
        log_failure(self.context.store.write_unbounded(FinishAudit { id, object, members, status: i32::from(status) }), "result");
    }

    /// Calls that change something, the newest first.
    ///
    /// # Errors
    /// The store fails.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Page<AuditOutput>, Problem> {
        let AuditFilter { caller, kind, object, operation, from, to, cursor, limit } = filter;
        let (from, to) = (from.map(|at| at.0), to.map(|at| at.0));
        let query = ListAudit { caller, kind, object, operation, from, to, before: cursor, limit: limit + 1 };
        let mut rows = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.id.clone());
        Ok(Page { items: rows.into_iter().map(output).collect(), next_cursor })
    }
}

fn log_failure(written: impl Future<Output = Result<(), StoreError>> + 'static, what: &'static str) {
    actix::spawn(async move {
        if let Err(error) = written.await {
            log::warn!("failed to store an audited call part={what} error={error}");
        }
    });
}
