//! Migrations by a command. A broker applies what is pending when it begins to lead; this is for those who want to do it, or to see it,
//! before.

use super::candidate::Tables;
use super::custody::Custody;
use super::dialect::{self, Conn};
use super::error::StoreError;
use super::files;
use crate::domain::database::DatabaseAddress;

/// The names of the migrations that this store lacks. Changes nothing.
///
/// # Errors
/// The store cannot be read, or a later version has changed its tables.
pub fn pending(address: &DatabaseAddress) -> Result<Vec<String>, StoreError> {
    if let Some(path) = address.file() {
        files::check_for_reading(path)?;
    }
    let mut conn = open(address)?;
    if dialect::tables(&mut conn)? == Tables::Newer {
        let why = "a later version of webloom has changed its tables. Use that version, or a later one";
        return Err(StoreError::Unusable(format!("Cannot use {address}: {why}.")));
    }
    dialect::pending(&mut conn)
}

/// diesel makes its table if it is missing, which a read-only connection to a server refuses even if it is there.
fn open(address: &DatabaseAddress) -> Result<Conn, StoreError> {
    match address {
        DatabaseAddress::File(_) => dialect::observer(address),
        DatabaseAddress::Server(_) => dialect::seat(address),
    }
}

/// Fails if a later version has added tables or columns, which this version does not know.
pub(super) fn check_all_known(address: &DatabaseAddress) -> Result<(), StoreError> {
    if dialect::tables(&mut open(address)?)? != Tables::Extended {
        return Ok(());
    }
    let why = "a later version of webloom has added to its tables. Use that version, or a later one";
    Err(StoreError::Unusable(format!("Cannot copy {address}: {why}.")))
}

/// Applies what is pending, creating the store if it does not exist. Returns the names of what it applied.
///
/// # Errors
/// A broker leads the store and something is pending; or it cannot be used.
pub fn apply(address: &DatabaseAddress) -> Result<Vec<String>, StoreError> {
    let is_new = address.file().is_some_and(|path| !path.exists());
    let mut before = if is_new { Vec::new() } else { pending(address)? };
    if !is_new && before.is_empty() {
        return Ok(before);
    }
    let custody = Custody::take(address)?;
    let mut conn = dialect::writer(address)?;
    if is_new {
        before = dialect::known(&conn)?;
    }
    custody.release(&mut conn, 0)?;
    dialect::settle(&mut conn)?;
    Ok(before)
}
