//! Hand-written statements for every block, fire and run. diesel parses an `UPDATE` each time it runs, and builds the text of an
//! `INSERT` each time; these statements have a fixed text per type.
//!
//! With SQLite almost none of them returns rows: it creates a table in memory for `RETURNING` each time. With PostgreSQL each statement is a
//! message and an answer, so there a statement does as much as it can.
//!
//! A statement that changes a row only if it has the expected state checks that in its `WHERE`; only if no row changed does the
//! caller look for the reason.

mod blocks;
mod fires;
pub(super) mod many;
mod runs;

pub(super) use blocks::{Acknowledge, Answer};
pub(super) use fires::{FireRun, Fired, InsertFire, MovePlanRow};
pub(super) use runs::{BeginRow, FinishRow, FinishTaskRow, InsertRow, StartReturnedRow, StateRow};

/// Writes the text of a statement, alternating with its parameters.
macro_rules! statement {
    ($out:ident, $($sql:literal $(, $kind:ty = $value:expr)?;)*) => {{
        $(
            $out.push_sql($sql);
            $($out.push_bind_param::<$kind, _>($value)?;)?
        )*
        Ok(())
    }};
}

/// Fixed text for all values: diesel caches it by the name of the type.
macro_rules! kept {
    ($name:ident <'_>) => {
        impl QueryId for $name<'_> {
            type QueryId = $name<'static>;
            const HAS_STATIC_QUERY_ID: bool = true;
        }

        impl<C: Connection> RunQueryDsl<C> for $name<'_> {}
    };
}

use {kept, statement};
