//! Packages that the broker stores: a row each, and a file beside an SQLite database. In a PostgreSQL database they are stored in pieces, and
//! files hold them only while they are uploaded and downloaded.
//!
//! A file is complete before it gets its name, and has its name before its row exists. So there is never a row without a file, and
//! a file without a row is a stray.

use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::run_lists::IS_OPEN;
use super::schema::{job, job_property, package, package_piece, run};
use crate::domain::database::DatabaseAddress;
use crate::domain::time::Timestamp;
use crate::private;
use bytes::Bytes;
use diesel::prelude::*;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

/// Prefix of a file that has no final name yet.
const UNFINISHED: &str = "unfinished-";
/// A younger stray, in milliseconds, may get its row soon.
const YOUNG_MS: i64 = 3_600_000;

/// A package as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = package)]
pub struct PackageRow {
    /// SHA-256 of its bytes: 64 hexadecimal digits.
    pub sha256: String,
    /// Size in bytes.
    pub size: i64,
    /// Its original name.
    pub name: Option<String>,
    /// Its media type.
    pub media_type: String,
    /// Who uploaded it.
    pub create_by: Option<String>,
    /// When.
    pub creation_time: Timestamp,
}

/// Stores a package whose file exists. For known bytes it returns the stored row unchanged.
#[derive(Debug, Clone)]
pub struct InsertPackage(pub PackageRow);

impl WriteOp for InsertPackage {
    type Output = PackageRow;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<PackageRow, StoreError> {
        diesel::insert_into(package::table).values(&self.0).with_conflict_rule("DO NOTHING").execute(tx.conn)?;
        Ok(package::table.find(&self.0.sha256).select(PackageRow::as_select()).get_result(tx.conn)?)
    }
}

/// Deletes a package. [`StoreError::Conflict`] contains a text with the job or the run that uses it.
#[derive(Debug, Clone)]
pub struct DeletePackage(pub String);

impl WriteOp for DeletePackage {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let found = package::table.find(&self.0).select(package::sha256).get_result::<String>(tx.conn).optional()?;
        found.ok_or(StoreError::NotFound)?;
        let named = format!("%{}%", self.0);
        let of_jobs = job_property::table.filter(job_property::value.like(&named)).select(job_property::job_id);
        let of_jobs: Vec<String> = of_jobs.load(tx.conn)?;
        let user = job::table.filter(job::id.eq_any(of_jobs)).filter(job::is_deleted.eq(false)).select(job::name);
        if let Some(name) = user.first::<String>(tx.conn).optional()? {
            return Err(StoreError::Conflict(format!("the job `{name}` uses it")));
        }
        let is_open = diesel::dsl::sql::<diesel::sql_types::Bool>(IS_OPEN);
        let open = run::table.filter(is_open).filter(run::rules.like(&named)).select(run::identity);
        if let Some(identity) = open.first::<String>(tx.conn).optional()? {
            return Err(StoreError::Conflict(format!("run {identity} uses it, and is not over")));
        }
        diesel::delete(package::table.find(&self.0)).execute(tx.conn)?;
        if matches!(tx.conn, Conn::Postgres(_)) {
            diesel::delete(package_piece::table.filter(package_piece::sha256.eq(&self.0))).execute(tx.conn)?;
        }
        Ok(())
    }
}

/// Stores a piece of a package in the database, before its row.
#[derive(Debug, Clone)]
pub struct InsertPiece {
    /// The package.
    pub sha256: String,
    /// Counts from 0.
    pub piece: i32,
    /// The bytes.
    pub bytes: Bytes,
}

impl WriteOp for InsertPiece {
    type Output = ();

    fn weight(&self) -> usize {
        self.bytes.len()
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        diesel::insert_into(package_piece::table)
            .values((
                package_piece::sha256.eq(&self.sha256),
                package_piece::piece.eq(self.piece),
                package_piece::bytes.eq(self.bytes.as_ref()),
            ))
            .with_conflict_rule("DO NOTHING")
            .execute(tx.conn)?;
        Ok(())
    }
}

/// A piece of a package in the database; `None` after the last one.
#[derive(Debug, Clone)]
pub struct ReadPiece {
    /// The package.
    pub sha256: String,
    /// Counts from 0.
    pub piece: i32,
}

impl ReadOp for ReadPiece {
    type Output = Option<Vec<u8>>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let found = package_piece::table.find((&self.sha256, self.piece)).select(package_piece::bytes);
        Ok(found.get_result(from.conn).optional()?)
    }
}

/// Deletes the pieces in the database that belong to no package. Returns their number.
#[derive(Debug, Clone, Copy)]
pub struct DeleteStrayPieces;

impl WriteOp for DeleteStrayPieces {
    type Output = usize;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<usize, StoreError> {
        let known: Vec<String> = package::table.select(package::sha256).load(tx.conn)?;
        Ok(diesel::delete(package_piece::table).filter(package_piece::sha256.ne_all(known)).execute(tx.conn)?)
    }
}

/// All packages, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct ListPackages;

impl ReadOp for ListPackages {
    type Output = Vec<PackageRow>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let newest = package::table.order((package::creation_time.desc(), package::sha256));
        Ok(newest.select(PackageRow::as_select()).load(from.conn)?)
    }
}

/// A package.
#[derive(Debug, Clone)]
pub struct GetPackage(pub String);

impl ReadOp for GetPackage {
    type Output = Option<PackageRow>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        Ok(package::table.find(&self.0).select(PackageRow::as_select()).get_result(from.conn).optional()?)
    }
}

/// The folder of the files. Its calls block.
#[derive(Debug, Clone)]
pub struct PackageFiles {
    folder: PathBuf,
    /// The packages themselves are in the database.
    is_in_transit: bool,
}

impl PackageFiles {
    /// The folder beside this file, or a folder for what is on its way to or from a server.
    #[must_use]
    pub fn of(database: &DatabaseAddress) -> Self {
        match database {
            DatabaseAddress::File(path) => Self { folder: super::beside(path, "-packages"), is_in_transit: false },
            DatabaseAddress::Server(_) => {
                let name = format!("webloom-packages-{}", uuid::Uuid::new_v4().simple());
                Self { folder: std::env::temp_dir().join(name), is_in_transit: true }
            }
        }
    }

    /// Whether the packages themselves are in the database.
    #[must_use]
    pub fn is_in_transit(&self) -> bool {
        self.is_in_transit
    }

    /// Begins a file.
    ///
    /// # Errors
    /// The system reports an error; the same for the calls below.
    pub fn begin(&self) -> io::Result<Upload> {
        private::make_folder(&self.folder)?;
        let path = self.folder.join(format!("{UNFINISHED}{}", uuid::Uuid::new_v4().simple()));
        let file = private::options().write(true).create_new(true).open(&path)?;
        Ok(Upload { file, path, folder: self.folder.clone(), hash: Sha256::new(), size: 0 })
    }

    /// Opens the file of a package.
    pub fn open(&self, sha256: &str) -> io::Result<File> {
        File::open(self.folder.join(sha256))
    }

    /// Removes the file of a package, if it is there.
    pub fn remove(&self, sha256: &str) -> io::Result<()> {
        match fs::remove_file(self.folder.join(sha256)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes old files that belong to none of these packages. Returns the number of files.
    pub fn remove_strays(&self, known: &[PackageRow], now: Timestamp) -> io::Result<usize> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut removed = 0;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let is_known = known.iter().any(|row| name == row.sha256.as_str());
            if !is_known && now.since_ms(entry.metadata()?.modified()?.into()) > YOUNG_MS {
                fs::remove_file(entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// A file that is being written. Removed when dropped.
#[derive(Debug)]
pub struct Upload {
    file: File,
    path: PathBuf,
    folder: PathBuf,
    hash: Sha256,
    size: u64,
}

impl Upload {
    /// Appends to it, and returns its size.
    ///
    /// # Errors
    /// The disk is full or reports an error.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<u64> {
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
        Ok(self.size)
    }

    /// Opens the written part for reading; also returns its size.
    ///
    /// # Errors
    /// As above.
    pub fn written(&self) -> io::Result<(File, u64)> {
        Ok((File::open(&self.path)?, self.size))
    }

    /// Syncs it to disk and gives it its name: its hash. Also returns its size.
    ///
    /// # Errors
    /// As above.
    pub fn finish(self) -> io::Result<(String, u64)> {
        self.file.sync_all()?;
        let sha256: String = self.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        fs::rename(&self.path, self.folder.join(&sha256))?;
        // The name is on disk only after the folder is synced.
        File::open(&self.folder)?.sync_all()?;
        Ok((sha256, self.size))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // A finished file no longer has this name.
        let _ = fs::remove_file(&self.path);
    }
}
