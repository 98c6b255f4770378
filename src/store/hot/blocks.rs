//! Statements for every block.

use super::super::dialect::Database;
use diesel::connection::Connection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Integer, Nullable, SmallInt, Text};

/// Stores the results of a block without results. Changes no row if it has results, or does not exist.
#[derive(Debug)]
pub(in crate::store) struct Answer<'a> {
    pub(in crate::store) key: i64,
    pub(in crate::store) state: i16,
    pub(in crate::store) attempt: i32,
    pub(in crate::store) success: i32,
    pub(in crate::store) error: i32,
    pub(in crate::store) bytes: i64,
    pub(in crate::store) segment: i32,
    pub(in crate::store) seg_offset: i64,
    pub(in crate::store) seg_length: i64,
    pub(in crate::store) seg_check: Option<i64>,
    pub(in crate::store) finish_time: i64,
    pub(in crate::store) node_id: Option<&'a str>,
    pub(in crate::store) exception: Option<&'a str>,
}

impl QueryFragment<Database> for Answer<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        out.push_sql("UPDATE block SET state = ");
        out.push_bind_param::<SmallInt, _>(&self.state)?;
        out.push_sql(", attempt = ");
        out.push_bind_param::<Integer, _>(&self.attempt)?;
        out.push_sql(", success = ");
        out.push_bind_param::<Integer, _>(&self.success)?;
        out.push_sql(", error = ");
        out.push_bind_param::<Integer, _>(&self.error)?;
        out.push_sql(", bytes = ");
        out.push_bind_param::<BigInt, _>(&self.bytes)?;
        out.push_sql(", segment = ");
        out.push_bind_param::<Integer, _>(&self.segment)?;
        out.push_sql(", seg_offset = ");
        out.push_bind_param::<BigInt, _>(&self.seg_offset)?;
        out.push_sql(", seg_length = ");
        out.push_bind_param::<BigInt, _>(&self.seg_length)?;
        out.push_sql(", seg_check = ");
        out.push_bind_param::<Nullable<BigInt>, _>(&self.seg_check)?;
        out.push_sql(", finish_time = ");
        out.push_bind_param::<BigInt, _>(&self.finish_time)?;
        out.push_sql(", node_id = ");
        out.push_bind_param::<Nullable<Text>, _>(&self.node_id)?;
        out.push_sql(", exception = ");
        out.push_bind_param::<Nullable<Text>, _>(&self.exception)?;
        // Only blocks that wait for a node have no results: states ready and retry.
        out.push_sql(" WHERE \"key\" = ");
        out.push_bind_param::<BigInt, _>(&self.key)?;
        out.push_sql(" AND state IN (1, 16)");
        Ok(())
    }
}

impl QueryId for Answer<'_> {
    type QueryId = Answer<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<C: Connection> RunQueryDsl<C> for Answer<'_> {}

/// Marks a block with results as acknowledged. Returns the segment of the results; no row if it was acknowledged before or has none.
#[derive(Debug)]
pub(in crate::store) struct Acknowledge {
    pub(in crate::store) key: i64,
}

impl QueryFragment<Database> for Acknowledge {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        out.push_sql("UPDATE block SET acked = TRUE WHERE \"key\" = ");
        out.push_bind_param::<BigInt, _>(&self.key)?;
        out.push_sql(" AND acked = FALSE AND finish_time IS NOT NULL RETURNING segment");
        Ok(())
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
