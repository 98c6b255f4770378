//! The sites of a run as stored: how many of their requests have results, and which of these failed.

use super::columns::block_keys;
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::{block, block_failure};
use bytes::Bytes;
use diesel::dsl::sum;
use diesel::prelude::*;

/// The sites of a run, by name, with the numbers of their requests. Reads all blocks of the run.
#[derive(Debug, Clone, Copy)]
pub struct ListRunSites {
    /// The run.
    pub no: i64,
    /// Number of sites to skip.
    pub skip: usize,
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
            .filter(block::site.is_not_null())
            .group_by(block::site)
            .order(block::site)
            .offset(self.skip as i64)
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

/// The failures of the blocks of some sites of a run.
#[derive(Debug, Clone)]
pub struct FailuresAtSites {
    /// The run.
    pub no: i64,
    /// The names of the sites.
    pub sites: Vec<String>,
    /// At most this many blocks.
    pub limit: usize,
}

impl ReadOp for FailuresAtSites {
    /// The name of the site, and the failed requests of a block: see [`crate::protocol::failed`].
    type Output = Vec<(String, Bytes)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let (first, last) = block_keys(self.no);
        let rows: Vec<(Option<String>, Vec<u8>)> = block_failure::table
            .inner_join(block::table.on(block::key.eq(block_failure::key)))
            .filter(block_failure::key.between(first, last))
            .filter(block::site.eq_any(&self.sites))
            .order(block_failure::key)
            .limit(self.limit as i64)
            .select((block::site, block_failure::entries))
            .load(from.conn)?;
        Ok(rows.into_iter().filter_map(|(site, entries)| Some((site?, entries.into()))).collect())
    }
}
