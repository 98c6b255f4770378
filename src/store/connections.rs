//! The connections of nodes, now and in the past.

use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{node, node_connection};
use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// Connections of a node that are kept.
const KEPT: i64 = 100;

fn close(conn: &mut Conn, node: Option<NodeId>, reason: &str, now: Timestamp) -> Result<(), StoreError> {
    let open = node_connection::table.filter(node_connection::disconnect_time.is_null());
    let end = (node_connection::disconnect_time.eq(now), node_connection::reason.eq(reason));
    match node {
        Some(node) => diesel::update(open.filter(node_connection::node_id.eq(node))).set(end).execute(conn)?,
        None => diesel::update(open).set(end).execute(conn)?,
    };
    Ok(())
}

/// A node connects. An open connection of it ends now: the node came again before it was missed.
pub(super) fn open(conn: &mut Conn, node: NodeId, ip_address: &str, now: Timestamp) -> Result<(), StoreError> {
    close(conn, Some(node), "the node connected again", now)?;
    let columns = (
        node_connection::node_id.eq(node),
        node_connection::connect_time.eq(now),
        node_connection::ip_address.eq(ip_address),
        node_connection::disconnect_time.eq(None::<i64>),
    );
    let rule = "(node_id, connect_time) DO UPDATE SET disconnect_time = NULL, reason = NULL";
    diesel::insert_into(node_connection::table).values(columns).with_conflict_rule(rule).execute(conn)?;
    let of_node = node_connection::table.filter(node_connection::node_id.eq(node));
    let newest = of_node.order(node_connection::connect_time.desc());
    let oldest: Option<i64> = newest.offset(KEPT).select(node_connection::connect_time).first(conn).optional()?;
    if let Some(oldest) = oldest {
        diesel::delete(of_node.filter(node_connection::connect_time.le(oldest))).execute(conn)?;
    }
    Ok(())
}

/// When a broker starts, no node is connected.
pub(super) fn close_all(conn: &mut Conn, now: Timestamp) -> Result<(), StoreError> {
    close(conn, None, "the broker ended", now)
}

pub(super) fn forget(conn: &mut Conn, node: NodeId) -> Result<(), StoreError> {
    diesel::delete(node_connection::table.filter(node_connection::node_id.eq(node))).execute(conn)?;
    Ok(())
}

/// A node is gone.
#[derive(Debug, Clone)]
pub struct NodeDisconnected {
    /// The node.
    pub node: NodeId,
    /// Why.
    pub reason: String,
    /// When its last message came.
    pub last_seen: Timestamp,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for NodeDisconnected {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        diesel::update(node::table.find(self.node)).set(node::last_online_time.eq(self.last_seen)).execute(tx.conn)?;
        close(tx.conn, Some(self.node), &self.reason, self.now)
    }
}

/// The connections of a node, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct ListConnections {
    /// The node.
    pub node: NodeId,
    /// At most this many.
    pub limit: usize,
}

/// A connection of a node.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = node_connection)]
pub struct ConnectionRow {
    /// When it began.
    pub connect_time: Timestamp,
    /// When it ended; `None` if it is open.
    pub disconnect_time: Option<Timestamp>,
    /// The address that the node reported.
    pub ip_address: String,
    /// Why it ended.
    pub reason: Option<String>,
}

impl ReadOp for ListConnections {
    type Output = Vec<ConnectionRow>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        Ok(node_connection::table
            .filter(node_connection::node_id.eq(self.node))
            .order(node_connection::connect_time.desc())
            .limit(self.limit as i64)
            .select(ConnectionRow::as_select())
            .load(from.conn)?)
    }
}
