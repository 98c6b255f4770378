//! Time series: see [`crate::domain::series`].

use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::series;
use crate::domain::series::{Point, RINGS, Ring};
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use std::collections::BTreeMap;

/// Adds what happened at a time to the step of each ring that contains it. A ring that has too many rows loses the oldest ones.
#[derive(Debug, Clone)]
pub struct AddToSeries {
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub point: Point,
}

impl WriteOp for AddToSeries {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        for ring in RINGS {
            let start = ring.start_of(self.at);
            let row = series::table.find((ring.step_ms, start));
            let stored: Option<String> = row.select(series::content).get_result(tx.conn).optional()?;
            if let Some(stored) = stored {
                let mut point = Point::of_text(&stored);
                point.merge(&self.point);
                diesel::update(row).set(series::content.eq(point.to_text())).execute(tx.conn)?;
                continue;
            }
            diesel::insert_into(series::table)
                .values((series::step.eq(ring.step_ms), series::at.eq(start), series::content.eq(self.point.to_text())))
                .execute(tx.conn)?;
            let of_ring = series::table.filter(series::step.eq(ring.step_ms));
            let surplus: Option<Timestamp> =
                of_ring.order(series::at.desc()).offset(ring.rows).select(series::at).first(tx.conn).optional()?;
            if let Some(last) = surplus {
                diesel::delete(of_ring.filter(series::at.le(last))).execute(tx.conn)?;
            }
        }
        Ok(())
    }
}

/// The points of a ring in a period, by the start of their step. A step that overlaps the period belongs to it.
#[derive(Debug, Clone, Copy)]
pub struct ReadSeries {
    /// The ring.
    pub ring: Ring,
    /// Start of the period.
    pub from: Timestamp,
    /// End of the period.
    pub to: Timestamp,
}

impl ReadOp for ReadSeries {
    type Output = BTreeMap<Timestamp, Point>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows: Vec<(Timestamp, String)> = series::table
            .filter(series::step.eq(self.ring.step_ms))
            .filter(series::at.between(self.ring.start_of(self.from), self.to))
            .select((series::at, series::content))
            .load(from.conn)?;
        Ok(rows.into_iter().map(|(at, content)| (at, Point::of_text(&content))).collect())
    }
}
