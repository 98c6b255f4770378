//! The statements that every block, fire and run goes through, as statements of their own. diesel parses an `UPDATE` anew
//! each time it runs, and puts the text of an `INSERT` together anew; these have a text that is known by their type.
//!
//! None gives rows back: for `RETURNING`, SQLite makes a table in memory each time.
//!
//! A statement that changes a row only if it is as it was taken to be says so in its `WHERE`: no row is an answer, and
//! only then somebody looks why.

mod blocks;
mod fires;
mod runs;

pub(super) use blocks::{Acknowledge, Answer};
pub(super) use fires::{InsertFire, MovePlanRow};
pub(super) use runs::{BeginRow, FinishRow, FollowRow, InsertRow, StartReturnedRow, StateRow};

/// The text of a statement and its parameters, in turn.
macro_rules! statement {
    ($out:ident, $($sql:literal $(, $kind:ty = $value:expr)?;)*) => {{
        $(
            $out.push_sql($sql);
            $($out.push_bind_param::<$kind, _>($value)?;)?
        )*
        Ok(())
    }};
}

/// One text, whatever the values are: diesel keeps it by the name of the type.
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
