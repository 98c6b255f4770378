//! The packages that the broker stores, for the service: files beside the database or pieces in it, with a lock for changes.

use super::context::BrokerContext;
use super::reply::problem_of;
use crate::domain::application::PACKAGES;
use crate::domain::database::DatabaseAddress;
use crate::domain::time::Timestamp;
use crate::package::{Bounds, check};
use crate::protocol::packages::{MAX_PACKAGE, PackageOutput};
use crate::protocol::problem::Problem;
use crate::store::{
    DeletePackage, DeleteStrayPieces, GetPackage, InsertPackage, InsertPiece, ListPackages, PackageFiles, PackageRow, ReadPiece, Store,
    StoreError, Upload,
};
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Read as _};
use tokio::sync::Mutex;

/// Bytes of a piece in the database.
const PIECE: u64 = 1 << 20;

/// See the module documentation.
#[derive(Debug)]
pub struct Packages {
    files: PackageFiles,
    /// Held while a file and its row are created or deleted together.
    names: Mutex<()>,
}

impl Default for Packages {
    fn default() -> Self {
        Self::of(&DatabaseAddress::from("webloom.db"))
    }
}

/// A package during its upload.
#[derive(Debug)]
pub struct Incoming(Upload);

fn failed(error: &io::Error) -> Problem {
    log::error!("failed to store a package: {error}");
    problem_of(&StoreError::Failed(error.to_string()))
}

/// Runs blocking work outside the actor threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(io::Error::other("the file operation panicked"))).map_err(|e| failed(&e))
}

fn output(row: PackageRow) -> PackageOutput {
    PackageOutput {
        url: format!("{PACKAGES}{}", row.sha256),
        sha256: row.sha256,
        size: row.size as u64,
        name: row.name,
        media_type: row.media_type,
        create_by: row.create_by,
        creation_time: row.creation_time,
    }
}

impl Packages {
    /// The packages of this database.
    #[must_use]
    pub fn of(database: &DatabaseAddress) -> Self {
        Self { files: PackageFiles::of(database), names: Mutex::new(()) }
    }

    /// Begins an upload.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn begin(&self) -> Result<Incoming, Problem> {
        let files = self.files.clone();
        blocking(move || files.begin()).await.map(Incoming)
    }

    /// Checks and stores an uploaded package.
    ///
    /// # Errors
    /// The file is not a valid package, or the disk or the store fails.
    pub async fn finish(
        &self,
        context: &BrokerContext,
        incoming: Incoming,
        name: Option<String>,
        media_type: String,
        create_by: Option<String>,
    ) -> Result<PackageOutput, Problem> {
        let (file, packed) = incoming.0.written().map_err(|e| failed(&e))?;
        let read = blocking(move || Ok(check(file, Bounds::new(packed, MAX_PACKAGE)))).await?;
        read.map_err(|error| Problem::invalid("package", error.message))?;
        let _names = self.names.lock().await;
        let (sha256, size) = blocking(move || incoming.0.finish()).await?;
        crate::fault::point("package.named");
        if self.files.is_in_transit() {
            self.store_pieces(&context.store, &sha256).await?;
        }
        let creation_time = Timestamp::now();
        let row = PackageRow { sha256, size: size as i64, name, media_type, create_by, creation_time };
        context.store.write(InsertPackage(row)).await.map(output).map_err(|e| problem_of(&e))
    }

    /// All packages, the newest first.
    ///
    /// # Errors
    /// The store fails.
    pub async fn list(&self, context: &BrokerContext) -> Result<Vec<PackageOutput>, Problem> {
        let rows = context.store.read(ListPackages).await.map_err(|e| problem_of(&e))?;
        Ok(rows.into_iter().map(output).collect())
    }

    /// A package and its file.
    ///
    /// # Errors
    /// No package has this hash.
    pub async fn open(&self, context: &BrokerContext, sha256: &str) -> Result<(PackageOutput, File), Problem> {
        let sha256 = sha256.to_ascii_lowercase();
        let row = context.store.read(GetPackage(sha256.clone())).await.map_err(|e| problem_of(&e))?;
        let row = row.ok_or_else(|| unknown(&sha256))?;
        let files = self.files.clone();
        let file = if files.is_in_transit() {
            self.load_pieces(&context.store, &row).await?
        } else {
            blocking(move || files.open(&sha256)).await?
        };
        Ok((output(row), file))
    }

    /// Moves an uploaded file into the database.
    async fn store_pieces(&self, store: &Store, sha256: &str) -> Result<(), Problem> {
        let (files, name) = (self.files.clone(), sha256.to_owned());
        let mut file = blocking(move || files.open(&name)).await?;
        for piece in 0.. {
            let (bytes, rest) = blocking(move || {
                let mut bytes = Vec::new();
                (&mut file).take(PIECE).read_to_end(&mut bytes)?;
                Ok((bytes, file))
            })
            .await?;
            if bytes.is_empty() {
                break;
            }
            file = rest;
            let insert = InsertPiece { sha256: sha256.to_owned(), piece, bytes: bytes.into() };
            store.write(insert).await.map_err(|e| problem_of(&e))?;
        }
        let (files, name) = (self.files.clone(), sha256.to_owned());
        blocking(move || files.remove(&name)).await
    }

    /// A file without a name with a package from the database.
    async fn load_pieces(&self, store: &Store, row: &PackageRow) -> Result<File, Problem> {
        let files = self.files.clone();
        let mut upload = blocking(move || files.begin()).await?;
        for piece in 0.. {
            let read = store.read(ReadPiece { sha256: row.sha256.clone(), piece }).await.map_err(|e| problem_of(&e))?;
            let Some(bytes) = read else { break };
            upload = blocking(move || upload.write(&bytes).map(|_| upload)).await?;
        }
        let (file, size) = upload.written().map_err(|e| failed(&e))?;
        // It may have been deleted meanwhile.
        if size == row.size as u64 { Ok(file) } else { Err(unknown(&row.sha256)) }
    }

    /// Deletes a package that is not in use.
    ///
    /// # Errors
    /// No package has this hash, or a job or an active run uses it.
    pub async fn remove(&self, context: &BrokerContext, sha256: &str) -> Result<(), Problem> {
        let sha256 = sha256.to_ascii_lowercase();
        let _names = self.names.lock().await;
        match context.store.write(DeletePackage(sha256.clone())).await {
            Err(StoreError::NotFound) => return Err(unknown(&sha256)),
            Err(StoreError::Conflict(why)) => return Err(Problem::conflict("package-used", why)),
            other => other.map_err(|e| problem_of(&e))?,
        }
        let files = self.files.clone();
        blocking(move || files.remove(&sha256)).await
    }

    /// Deletes files without a row in the store. Returns their number.
    ///
    /// # Errors
    /// The disk or the store fails.
    pub async fn remove_strays(&self, store: &Store) -> Result<usize, StoreError> {
        let _names = self.names.lock().await;
        if self.files.is_in_transit() {
            return store.write(DeleteStrayPieces).await;
        }
        let known = store.read(ListPackages).await?;
        let files = self.files.clone();
        let now = Timestamp::now();
        let done = tokio::task::spawn_blocking(move || files.remove_strays(&known, now)).await;
        Ok(done.unwrap_or_else(|_| Err(io::Error::other("the file operation panicked")))?)
    }
}

impl Incoming {
    /// Appends the next bytes and returns the upload.
    ///
    /// # Errors
    /// The upload is too large or the disk fails. The bytes received so far are deleted.
    pub async fn take(self, bytes: Bytes) -> Result<Self, Problem> {
        let Self(mut upload) = self;
        let (upload, size) = blocking(move || upload.write(&bytes).map(|size| (upload, size))).await?;
        if size > MAX_PACKAGE {
            return Err(Problem::too_large(MAX_PACKAGE as usize));
        }
        Ok(Self(upload))
    }
}

fn unknown(sha256: &str) -> Problem {
    Problem::not_found(format!("there is no package {sha256}"))
}
