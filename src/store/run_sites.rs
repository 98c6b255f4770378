//! The sites of a run as stored: how many of their requests have results.

use super::columns::block_keys;
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::block;
use diesel::dsl::sum;
use diesel::prelude::*;

/// The sites of a run, by name, with the numbers of their requests. Reads all blocks of the run.
#[derive(Debug, Clone)]
pub struct ListRunSites {
    /// The run.
    pub no: i64,
    /// Only sites after this name; empty: all.
    pub after: String,
    /// At most this many.
    pub limit: usize,
}

/// A site of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRunSite {
    /// Its name.
    pub name: String,
    /// All requests to it.
    pub requests: u64,
    /// Requests that succeeded.
    pub success: u64,
    /// Requests that failed.
    pub error: u64,
}

impl ReadOp for ListRunSites {
    type Output = Vec<StoredRunSite>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (Option<String>, Option<i64>, Option<i64>, Option<i64>);
        let (first, last) = block_keys(self.no);
        let rows: Vec<Row> = block::table
            .filter(block::key.between(first, last))
            .filter(block::site.gt(&self.after))
            .group_by(block::site)
            .order(block::site)
            .limit(self.limit as i64)
            .select((block::site, sum(block::requests), sum(block::success), sum(block::error)))
            .load(from.conn)?;
        let count = |sum: Option<i64>| sum.unwrap_or(0) as u64;
        let site = |(name, requests, success, error): Row| {
            Some(StoredRunSite { name: name?, requests: count(requests), success: count(success), error: count(error) })
        };
        Ok(rows.into_iter().filter_map(site).collect())
    }
}
