//! How values of the domain are stored in columns. Rows and filters hold such values as they are. A stored value that cannot be read is a
//! [`StoreError::Failed`] with the name of its column.

use super::blocks::BlockState;
use super::dialect::Database;
use super::error::StoreError;
use crate::domain::alert::{ChannelKind, Filter};
use crate::domain::callback::Callback;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BrokerId, ChannelId, GroupId, Identity, JobId, NodeId, Seq, WorkerId};
use crate::domain::job::{JobKind, Successor};
use crate::domain::run::{RunRules, RunState};
use crate::domain::schedule::{Kind, Policies, Schedule};
use crate::domain::settings::{DownloadSettings, QueueSettings};
use crate::domain::task::TaskSettings;
use crate::domain::time::Timestamp;
use crate::domain::worker::WorkerState;
use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow, Queryable};
use diesel::expression::AsExpression;
use diesel::pg::Pg;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{BigInt, Integer, SmallInt, Text};
use diesel::sqlite::Sqlite;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;
use uuid::Uuid;

/// Makes a type usable in statements and rows, for a column of this SQL type.
macro_rules! column {
    ($type:ty, $sql:ident) => {
        const _: () = {
            #[derive(AsExpression, FromSqlRow)]
            #[diesel(foreign_derive, sql_type = $sql)]
            #[expect(dead_code, reason = "stands for the type")]
            struct Column($type);
        };
    };
}

/// A value that is stored as a text.
trait AsText: Sized {
    fn to_text(&self) -> serde_json::Result<Cow<'static, str>>;
    /// The error is a remark on the text, or empty.
    fn from_text(text: &str) -> Result<Self, String>;
}

macro_rules! text_column {
    ($type:ty) => {
        column!($type, Text);

        impl<DB: Backend> FromSql<Text, DB> for $type
        where
            String: FromSql<Text, DB>,
        {
            fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
                read_text(&String::from_sql(value)?, Self::from_text)
            }
        }

        impl ToSql<Text, Database> for $type {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Database>) -> serialize::Result {
                // Diesel writes it by one of the functions below.
                out.set_value((Text, self));
                Ok(IsNull::No)
            }
        }

        impl ToSql<Text, Sqlite> for $type {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
                match self.to_text()? {
                    Cow::Borrowed(text) => out.set_value(text),
                    Cow::Owned(text) => out.set_value(text),
                }
                Ok(IsNull::No)
            }
        }

        impl ToSql<Text, Pg> for $type {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
                out.write_all(self.to_text()?.as_bytes())?;
                Ok(IsNull::No)
            }
        }
    };
}

fn read_text<T>(text: &str, read: impl FnOnce(&str) -> Result<T, String>) -> deserialize::Result<T> {
    read(text).map_err(|remark| format!("`{text}`{remark}").into())
}

fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| format!(" ({e})"))
}

/// Types with few values, stored by their names.
macro_rules! names {
    ($($type:ty: $named:expr;)*) => {$(
        impl AsText for $type {
            fn to_text(&self) -> serde_json::Result<Cow<'static, str>> {
                Ok(self.name().into())
            }

            fn from_text(text: &str) -> Result<Self, String> {
                $named(text).ok_or_else(String::new)
            }
        }

        text_column!($type);
    )*};
}

/// Ids, stored as 32 digits.
macro_rules! ids {
    ($($type:ty)*) => {$(
        impl AsText for $type {
            fn to_text(&self) -> serde_json::Result<Cow<'static, str>> {
                Ok(Hex::of(self.0).text().to_owned().into())
            }

            fn from_text(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| String::new())
            }
        }

        text_column!($type);
    )*};
}

/// Types stored as JSON. Some have a fixed text for their default values, which most rows have.
macro_rules! json {
    ($($type:ty $(, default $text:literal)?;)*) => {$(
        impl AsText for $type {
            fn to_text(&self) -> serde_json::Result<Cow<'static, str>> {
                $(if *self == Self::default() {
                    return Ok($text.into());
                })?
                serde_json::to_string(self).map(Cow::Owned)
            }

            fn from_text(text: &str) -> Result<Self, String> {
                read_json(text)
            }
        }

        text_column!($type);
    )*};
}

names! {
    ChannelKind: |name: &str| name.parse().ok();
    JobKind: |name: &str| name.parse().ok();
    Kind: Kind::named;
    RunState: RunState::named;
    WorkerState: WorkerState::named;
}

ids! { BrokerId ChannelId GroupId Identity JobId NodeId WorkerId }

json! {
    Callback;
    DownloadSettings, default "{}";
    Filter;
    Policies;
    // Not `{}`: that is a run of a version in which nodes followed redirects.
    QueueSettings, default r#"{"redirects":"request"}"#;
    RunRules, default "{}";
    Schedule;
    TaskSettings;
}

column!(Timestamp, BigInt);

impl<DB: Backend> FromSql<BigInt, DB> for Timestamp
where
    i64: FromSql<BigInt, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        i64::from_sql(value).map(Self)
    }
}

impl<DB: Backend> ToSql<BigInt, DB> for Timestamp
where
    i64: ToSql<BigInt, DB>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, DB>) -> serialize::Result {
        self.0.to_sql(out)
    }
}

column!(BlockState, SmallInt);

impl<DB: Backend> FromSql<SmallInt, DB> for BlockState
where
    i16: FromSql<SmallInt, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let number = i16::from_sql(value)?;
        Self::of(number).ok_or_else(|| format!("`{number}`").into())
    }
}

impl<DB: Backend> ToSql<SmallInt, DB> for BlockState
where
    i16: ToSql<SmallInt, DB>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, DB>) -> serialize::Result {
        self.number().to_sql(out)
    }
}

/// Types of other crates, for rows: read by way of a type that diesel knows.
macro_rules! read_as {
    ($($type:ty, $sql:ty: $stored:ty, $read:expr;)*) => {$(
        impl FromSql<$sql, Database> for $type {
            fn from_sql(value: <Database as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
                $read(<$stored as FromSql<$sql, Database>>::from_sql(value)?)
            }
        }
    )*};
}

read_as! {
    u32, Integer: i32, |number: i32| Ok(number as u32);
    u32, BigInt: i64, |number: i64| Ok(number as u32);
    u64, BigInt: i64, |number: i64| Ok(number as u64);
    Uuid, Text: Identity, |id: Identity| Ok(id.0);
    Vec<String>, Text: String, |text: String| read_text(&text, read_json);
    Vec<Successor>, Text: String, |text: String| read_text(&text, read_json);
}

impl Queryable<Text, Database> for Uuid {
    type Row = Self;

    fn build(id: Self) -> deserialize::Result<Self> {
        Ok(id)
    }
}

/// Makes a struct of the domain readable from the rows of a table: first its members that are columns, then the columns that its other
/// members are made of, then these members.
macro_rules! stored {
    ($type:ident from $table:ident { $($field:ident: $of:ty,)* } $({ $($part:ident: $part_of:ty,)* } $($made:ident: $make:expr,)*)?) => {
        impl diesel::Selectable<crate::store::dialect::Database> for $type {
            type SelectExpression = ($($table::$field,)* $($($table::$part,)*)?);

            fn construct_selection() -> Self::SelectExpression {
                ($($table::$field,)* $($($table::$part,)*)?)
            }
        }

        impl
            diesel::Queryable<diesel::dsl::SqlTypeOf<($($table::$field,)* $($($table::$part,)*)?)>, crate::store::dialect::Database>
            for $type
        {
            type Row = ($($of,)* $($($part_of,)*)?);

            fn build(($($field,)* $($($part,)*)?): Self::Row) -> diesel::deserialize::Result<Self> {
                Ok(Self { $($field,)* $($($made: $make,)*)? })
            }
        }
    };
}

pub(super) use stored;

/// The error for a column value that this program never wrote.
pub(super) fn damaged(what: &str, value: impl Display) -> StoreError {
    StoreError::Failed(format!("the database contains an invalid {what}: `{value}`"))
}

/// The 32 digits of an id, without an allocation.
#[derive(Debug, Clone, Copy, AsExpression)]
#[diesel(sql_type = Text)]
pub(super) struct Hex([u8; 32]);

impl<DB: Backend> ToSql<Text, DB> for Hex
where
    str: ToSql<Text, DB>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, DB>) -> serialize::Result {
        self.text().to_sql(out)
    }
}

impl Hex {
    pub(super) fn of(id: Uuid) -> Self {
        let mut digits = [0; 32];
        id.as_simple().encode_lower(&mut digits);
        Self(digits)
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hexadecimal digits are ASCII")
    }
}

/// A text from a program: without the character that PostgreSQL has no texts with.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

pub(super) fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::Failed(e.to_string()))
}

/// The key of a block.
pub(super) fn block_key(no: i64, seq: Seq) -> i64 {
    no << 32 | i64::from(seq)
}

/// The keys of all blocks of a run, both ends included.
pub(super) fn block_keys(no: i64) -> (i64, i64) {
    (block_key(no, 0), block_key(no, Seq::MAX))
}

/// The number of a block in its run.
pub(super) fn seq_of(key: i64) -> Seq {
    key as Seq // the lower half
}

pub(super) fn print_bytes(prints: &[Fingerprint]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(prints.len() * Fingerprint::LEN);
    for print in prints {
        bytes.extend_from_slice(&print.0);
    }
    bytes
}

pub(super) fn prints_in(bytes: &[u8]) -> impl Iterator<Item = Fingerprint> + '_ {
    bytes.as_chunks().0.iter().copied().map(Fingerprint)
}

pub(super) fn shared_prints(bytes: &[u8]) -> Arc<[Fingerprint]> {
    prints_in(bytes).collect()
}
