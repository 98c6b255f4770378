//! Converts between domain values and column values.

use super::error::StoreError;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::Seq;
use crate::domain::settings::QueueSettings;
use diesel::backend::Backend;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Text;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;
use uuid::Uuid;

/// The error for a column value that this program never wrote.
pub(super) fn damaged(what: &str, value: &str) -> StoreError {
    StoreError::Failed(format!("the database contains an invalid {what}: `{value}`"))
}

/// An id from its 32 digits.
pub(super) fn id<T: FromStr>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| damaged("id", text))
}

/// The 32 digits of an id, without an allocation.
#[derive(Debug, Clone, Copy)]
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

pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|e| damaged(&format!("settings ({e})"), text))
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

/// The settings column of a run: an empty object for default settings, which most runs have.
pub(super) fn settings<T: Serialize + Default + PartialEq>(value: &T) -> Result<Cow<'static, str>, StoreError> {
    if *value == T::default() { Ok(Cow::Borrowed("{}")) } else { json(value).map(Cow::Owned) }
}

/// The column with the settings of a run's queue. Default settings are short, and not `{}`: that is a run of a version in which nodes
/// followed redirects.
pub(super) fn queue_settings(value: &QueueSettings) -> Result<Cow<'static, str>, StoreError> {
    if *value == QueueSettings::default() { Ok(Cow::Borrowed(r#"{"redirects":"request"}"#)) } else { json(value).map(Cow::Owned) }
}
