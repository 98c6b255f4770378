//! The lease of the leader, and the registered brokers.
//!
//! The statements on `leader` and `broker` must hold for databases of later versions too: a standby of this version reads
//! what a newer leader writes.

use super::columns::stored;
use super::dialect::{self, Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::ownership;
use super::schema::{broker, leader};
use crate::domain::ids::BrokerId;
use crate::domain::leader::Lease;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// Milliseconds after which a broker that was not seen is removed.
const FORGET_MS: i64 = 3_600_000;
/// The only row.
pub(super) const ROW: i32 = 1;

/// A broker process, as other brokers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: BrokerId,
    /// Its address for clients.
    pub url: String,
    /// The program's version.
    pub version: String,
    /// When it started.
    pub started_at: Timestamp,
}

/// The lease as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLease {
    /// The current or last leader.
    pub broker: BrokerId,
    /// Its address for clients.
    pub url: String,
    /// Its process id.
    pub pid: u32,
    /// Since when it has been the leader.
    pub since: Timestamp,
    /// The last renewal, by its own clock.
    pub renewed_at: Timestamp,
    /// The fields that matter for decisions.
    pub lease: Lease,
}

/// A current or former broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBroker {
    /// Its identity.
    pub member: Member,
    /// It was the leader when it was last seen.
    pub is_leader: bool,
    /// The time of that, by its own clock.
    pub last_seen: Timestamp,
}

stored! {
    StoredLease from leader {
        broker: BrokerId,
        url: String,
        since: Timestamp,
        renewed_at: Timestamp,
    } {
        pid: i64,
        term: i64,
        renewals: i64,
        is_locked: bool,
        is_released: bool,
        ttl_ms: i64,
    }
    pid: u32::try_from(pid).unwrap_or(0),
    lease: Lease { term, renewals, ttl_ms: ttl_ms.max(1) as u64, is_locked, is_released },
}

/// The lease; `None` if there has never been a leader.
pub(super) fn stored_lease(conn: &mut Conn) -> Result<Option<StoredLease>, StoreError> {
    Ok(leader::table.find(ROW).select(StoredLease::as_select()).get_result(conn).optional()?)
}

/// Fails unless this term is current.
pub(super) fn check_term(conn: &mut Conn, term: i64) -> Result<(), StoreError> {
    if dialect::turn(conn, None)?.is_some_and(|turn| turn.term == term) { Ok(()) } else { Err(StoreError::NotLeading) }
}

/// Assigns the lease to this broker. The transaction must have checked the current holder.
pub(super) fn write_lease(conn: &mut Conn, me: &Member, lease: &Lease, now: Timestamp) -> Result<(), StoreError> {
    diesel::insert_into(leader::table)
        .values((
            leader::id.eq(ROW),
            leader::broker.eq(me.id),
            leader::url.eq(&me.url),
            leader::pid.eq(i64::from(std::process::id())),
            leader::term.eq(lease.term),
            leader::renewals.eq(lease.renewals),
            leader::is_locked.eq(lease.is_locked),
            leader::is_released.eq(lease.is_released),
            leader::since.eq(now),
            leader::renewed_at.eq(now),
            leader::ttl_ms.eq(lease.ttl_ms as i64),
        ))
        .with_conflict_rule(
            "(id) DO UPDATE SET broker = excluded.broker, url = excluded.url, pid = excluded.pid, term = excluded.term, \
            renewals = excluded.renewals, is_locked = excluded.is_locked, is_released = excluded.is_released, since = excluded.since, \
            renewed_at = excluded.renewed_at, ttl_ms = excluded.ttl_ms",
        )
        .execute(conn)?;
    write_member(conn, me, true, now)
}

/// Registers this broker.
pub(super) fn write_member(conn: &mut Conn, me: &Member, is_leader: bool, now: Timestamp) -> Result<(), StoreError> {
    diesel::insert_into(broker::table)
        .values((
            broker::id.eq(me.id),
            broker::url.eq(&me.url),
            broker::version.eq(&me.version),
            broker::role.eq(if is_leader { "leader" } else { "standby" }),
            broker::started_at.eq(me.started_at),
            broker::last_seen.eq(now),
        ))
        .with_conflict_rule(
            "(id) DO UPDATE SET url = excluded.url, version = excluded.version, role = excluded.role, started_at = excluded.started_at, \
            last_seen = excluded.last_seen",
        )
        .execute(conn)?;
    Ok(())
}

/// Removes this broker.
pub(super) fn delete_member(conn: &mut Conn, me: &Member) -> Result<(), StoreError> {
    diesel::delete(broker::table.find(me.id)).execute(conn)?;
    Ok(())
}

/// Marks the lease as released and forgets all brokers: those of a restored copy are not here.
pub(super) fn forget_brokers(conn: &mut Conn) -> Result<(), StoreError> {
    diesel::update(leader::table).set(leader::is_released.eq(true)).execute(conn)?;
    diesel::delete(broker::table).execute(conn)?;
    // A backup of an earlier version has no such table.
    if dialect::has_table(conn, "run_owner")? { ownership::revoke_all(conn) } else { Ok(()) }
}

/// Renews the lease of the leader.
#[derive(Debug, Clone)]
pub struct RenewLease {
    /// The leader.
    pub me: Member,
    /// Milliseconds without a renewal after which the leader may be replaced.
    pub ttl_ms: u64,
    /// It holds the lock.
    pub is_locked: bool,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for RenewLease {
    /// Whether other brokers stand by, or did when they were last seen.
    type Output = bool;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        // The start of the transaction has checked that the term is still ours.
        diesel::update(leader::table.find(ROW))
            .set((
                leader::renewals.eq(leader::renewals + 1),
                leader::is_locked.eq(self.is_locked),
                leader::renewed_at.eq(self.now),
                leader::ttl_ms.eq(self.ttl_ms as i64),
            ))
            .execute(tx.conn)?;
        // Before the old ones are deleted: the clock of another broker may be far behind.
        let others = broker::table.filter(broker::id.ne(self.me.id)).filter(broker::role.eq("standby"));
        let has_others = diesel::select(diesel::dsl::exists(others)).get_result(tx.conn)?;
        diesel::delete(broker::table.filter(broker::last_seen.lt(self.now.plus_ms(-FORGET_MS)))).execute(tx.conn)?;
        write_member(tx.conn, &self.me, true, self.now)?;
        Ok(has_others)
    }
}

/// The leader shuts down cleanly: a standby may take over at once. Its last write.
#[derive(Debug, Clone)]
pub struct ReleaseLease(pub Member);

impl WriteOp for ReleaseLease {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let released = (leader::renewals.eq(leader::renewals + 1), leader::is_released.eq(true));
        diesel::update(leader::table.find(ROW)).set(released).execute(tx.conn)?;
        dialect::wake_standbys(tx.conn)?;
        delete_member(tx.conn, &self.0)
    }
}

/// The lease; `None` if there has never been a leader.
#[derive(Debug, Clone, Copy)]
pub struct GetLease;

impl ReadOp for GetLease {
    type Output = Option<StoredLease>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        stored_lease(from.conn)
    }
}

/// Current and recent brokers, ordered by their start.
#[derive(Debug, Clone, Copy)]
pub struct ListBrokers;

impl ReadOp for ListBrokers {
    type Output = Vec<StoredBroker>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let columns = (broker::id, broker::url, broker::version, broker::role, broker::started_at, broker::last_seen);
        let rows = broker::table.order((broker::started_at, broker::id)).select(columns);
        let rows: Vec<(_, _, _, String, _, _)> = rows.load(from.conn)?;
        let stored = |(id, url, version, role, started_at, last_seen)| {
            let member = Member { id, url, version, started_at };
            StoredBroker { member, is_leader: role == "leader", last_seen }
        };
        Ok(rows.into_iter().map(stored).collect())
    }
}
