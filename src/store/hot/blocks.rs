//! Statements for every block.

use super::super::blocks::BlockState;
use super::super::dialect::Database;
use super::{kept, statement};
use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use diesel::connection::Connection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Integer, Nullable, SmallInt, Text};

/// Stores the results of a block without results. Changes no row if it has results, or does not exist.
#[derive(Debug)]
pub(in crate::store) struct Answer<'a> {
    pub(in crate::store) key: i64,
    pub(in crate::store) state: BlockState,
    pub(in crate::store) attempt: i32,
    pub(in crate::store) success: i32,
    pub(in crate::store) error: i32,
    pub(in crate::store) bytes: i64,
    pub(in crate::store) segment: i32,
    pub(in crate::store) seg_offset: i64,
    pub(in crate::store) seg_length: i64,
    pub(in crate::store) seg_check: Option<i64>,
    pub(in crate::store) finish_time: Timestamp,
    pub(in crate::store) node_id: Option<NodeId>,
    pub(in crate::store) exception: Option<&'a str>,
}

impl QueryFragment<Database> for Answer<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        // Only blocks that wait for a node have no results: states ready and retry.
        statement!(out,
            "UPDATE block SET state = ", SmallInt = &self.state;
            ", attempt = ", Integer = &self.attempt;
            ", success = ", Integer = &self.success;
            ", error = ", Integer = &self.error;
            ", bytes = ", BigInt = &self.bytes;
            ", segment = ", Integer = &self.segment;
            ", seg_offset = ", BigInt = &self.seg_offset;
            ", seg_length = ", BigInt = &self.seg_length;
            ", seg_check = ", Nullable<BigInt> = &self.seg_check;
            ", finish_time = ", BigInt = &self.finish_time;
            ", node_id = ", Nullable<Text> = &self.node_id;
            ", exception = ", Nullable<Text> = &self.exception;
            " WHERE \"key\" = ", BigInt = &self.key;
            " AND state IN (1, 16)";
        )
    }
}

kept!(Answer<'_>);

/// Marks a block with results as acknowledged. Returns the segment of the results; no row if it was acknowledged before or has none.
#[derive(Debug)]
pub(in crate::store) struct Acknowledge {
    pub(in crate::store) key: i64,
}

impl QueryFragment<Database> for Acknowledge {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE block SET acked = TRUE WHERE \"key\" = ", BigInt = &self.key;
            " AND acked = FALSE AND finish_time IS NOT NULL RETURNING segment";
        )
    }
}

impl QueryId for Acknowledge {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Acknowledge {
    type SqlType = Nullable<Integer>;
}

impl<C: Connection> RunQueryDsl<C> for Acknowledge {}
