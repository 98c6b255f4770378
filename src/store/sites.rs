//! Stored data of sites: states that differ from the default, and robots.txt rules.

use super::dialect::OnConflict;
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{robots, site};
use crate::domain::sites::SiteState;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use std::sync::Arc;

/// Stores the state of a site, or deletes it.
#[derive(Debug, Clone)]
pub struct KeepSite {
    /// Its name.
    pub name: Arc<str>,
    /// Its state; `None`: the default.
    pub state: Option<SiteState>,
    /// The operator that holds it.
    pub held_by: Option<Arc<str>>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for KeepSite {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        match &self.state {
            Some(state) => {
                let row = state.to_row();
                diesel::insert_into(site::table)
                    .values((
                        site::name.eq(&*self.name),
                        site::state.eq(&row[..]),
                        site::update_time.eq(self.now),
                        site::held_by.eq(self.held_by.as_deref()),
                    ))
                    .with_conflict_rule(
                        "(name) DO UPDATE SET state = excluded.state, update_time = excluded.update_time, held_by = excluded.held_by",
                    )
                    .execute(tx.conn)?;
            }
            None => drop(diesel::delete(site::table.find(&*self.name)).execute(tx.conn)?),
        }
        Ok(())
    }
}

/// All sites with a non-default state, and the operators that hold them. Invalid rows are left out.
#[derive(Debug, Clone, Copy)]
pub struct LoadSites;

impl ReadOp for LoadSites {
    type Output = Vec<(Arc<str>, SiteState, Option<Arc<str>>)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows: Vec<(String, Vec<u8>, Option<String>)> = site::table.select((site::name, site::state, site::held_by)).load(from.conn)?;
        Ok(rows.into_iter().filter_map(|(name, row, by)| Some((name.into(), SiteState::of_row(&row)?, by.map(Into::into)))).collect())
    }
}

/// Stores the robots.txt rules of an origin for a user agent.
#[derive(Debug, Clone)]
pub struct KeepRobots {
    /// The origin.
    pub origin: Arc<str>,
    /// The product token of the user agent.
    pub agent: Arc<str>,
    /// The rules as text.
    pub rules: String,
    /// The rules are valid until then.
    pub until: Timestamp,
}

impl WriteOp for KeepRobots {
    type Output = ();

    fn weight(&self) -> usize {
        self.rules.len()
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        diesel::insert_into(robots::table)
            .values((
                robots::origin.eq(&*self.origin),
                robots::agent.eq(&*self.agent),
                robots::rules.eq(&self.rules),
                robots::expire_time.eq(self.until),
            ))
            .with_conflict_rule("(origin, agent) DO UPDATE SET rules = excluded.rules, expire_time = excluded.expire_time")
            .execute(tx.conn)?;
        Ok(())
    }
}

/// The robots.txt rules of an origin for a user agent, and their expiry.
#[derive(Debug, Clone)]
pub struct RobotsOf {
    /// The origin.
    pub origin: Arc<str>,
    /// The product token of the user agent.
    pub agent: Arc<str>,
}

impl ReadOp for RobotsOf {
    type Output = Option<(String, Timestamp)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let row = robots::table.find((&*self.origin, &*self.agent)).select((robots::rules, robots::expire_time));
        Ok(row.get_result(from.conn).optional()?)
    }
}

/// Deletes some expired robots.txt rules, and some sites that have not changed for so long that any hold-off has ended. Returns
/// the number; 0: nothing is left.
#[derive(Debug, Clone, Copy)]
pub struct PruneSites {
    /// The current time.
    pub now: Timestamp,
}

impl PruneSites {
    /// Maximum rows per step.
    const ROWS: i64 = 200;
    /// The longest hold-off takes 50 days.
    const AGE_MS: i64 = 60 * 86_400_000;
}

impl WriteOp for PruneSites {
    type Output = usize;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<usize, StoreError> {
        let expired = robots::table.filter(robots::expire_time.le(self.now)).select((robots::origin, robots::agent)).limit(Self::ROWS);
        let expired: Vec<(String, String)> = expired.load(tx.conn)?;
        for (origin, agent) in &expired {
            diesel::delete(robots::table.find((origin, agent))).execute(tx.conn)?;
        }
        let old = site::table.filter(site::update_time.lt(self.now.plus_ms(-Self::AGE_MS))).select(site::name).limit(Self::ROWS);
        let old: Vec<String> = old.load(tx.conn)?;
        diesel::delete(site::table.filter(site::name.eq_any(&old))).execute(tx.conn)?;
        Ok(expired.len() + old.len())
    }
}
