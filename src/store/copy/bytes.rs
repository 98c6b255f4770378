//! Result packs and packages: files beside SQLite, rows in PostgreSQL. Packs keep their places.

use super::rows::Sum;
use crate::domain::backup::hex;
use crate::domain::database::DatabaseAddress;
use crate::fault;
use crate::private;
use crate::store::beside;
use crate::store::custody::Custody;
use crate::store::dialect::Conn;
use crate::store::error::StoreError;
use crate::store::packages::PackageFiles;
use crate::store::results::needed_packs;
use crate::store::schema::{package, package_piece};
use crate::store::segment_tables;
use crate::store::segments::{Found, PackReader, Place, path_of};
use diesel::prelude::*;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Bytes of a piece of a package, as brokers make them.
const PIECE: u64 = 1 << 20;
/// Bytes of packs that are written in one transaction, or synced together, unless one pack has more.
const BATCH: i64 = 4 << 20;

pub(super) struct Bytes<'a> {
    pub(super) from: &'a DatabaseAddress,
    pub(super) to: &'a DatabaseAddress,
}

fn folder(of: &DatabaseAddress, suffix: &str) -> PathBuf {
    beside(of.file().unwrap_or(Path::new("")), suffix)
}

fn add(sum: &mut Sum, place: Place, pack: &[u8]) {
    sum.add_parts(&[&place.segment.to_be_bytes(), &place.offset.to_be_bytes(), pack]);
}

impl Bytes<'_> {
    /// Removes what an interrupted copy left at the target.
    pub(super) fn clear(&self, output: &mut Conn) -> Result<(), StoreError> {
        if self.to.file().is_none() {
            for number in segment_tables::numbers(output)? {
                segment_tables::delete(output, number)?;
            }
            diesel::delete(package_piece::table).execute(output)?;
            return Ok(());
        }
        for suffix in ["-results", "-packages"] {
            match fs::remove_dir_all(folder(self.to, suffix)) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Copies the packs that wait for a worker.
    pub(super) fn copy_results(
        &self,
        input: &mut Conn,
        output: &mut Conn,
        target: &Custody,
        warnings: &mut Vec<String>,
    ) -> Result<Sum, StoreError> {
        let (mut sum, results) = (Sum::default(), folder(self.from, "-results"));
        let mut reader = PackReader::new(&results);
        let places = needed_packs(input)?;
        for segment in places.chunk_by(|one, other| one.segment == other.segment) {
            let mut first = true;
            for batch in batches(segment) {
                let mut packs = Vec::new();
                for place in batch {
                    match reader.read(input, *place)? {
                        Found::Whole(pack) => {
                            add(&mut sum, *place, &pack);
                            packs.push((*place, pack));
                        }
                        Found::Damaged(why) => warnings.push(format!("results that the source has lost are not copied: {why}")),
                    }
                }
                self.put(output, target, &packs, std::mem::take(&mut first))?;
                fault::point("copy.step");
            }
        }
        Ok(sum)
    }

    /// Writes packs of one segment.
    fn put(&self, output: &mut Conn, target: &Custody, packs: &[(Place, bytes::Bytes)], first: bool) -> Result<(), StoreError> {
        let Some((Place { segment, .. }, _)) = packs.first() else { return Ok(()) };
        if self.to.file().is_none() {
            return target.write(output, |conn| {
                if first || !segment_tables::numbers(conn)?.contains(segment) {
                    segment_tables::create(conn, *segment)?;
                }
                let (places, packs): (Vec<_>, Vec<_>) = packs.iter().map(|(place, pack)| (*place, pack)).unzip();
                segment_tables::put(conn, *segment, &places, &packs)
            });
        }
        let folder = folder(self.to, "-results");
        private::make_folder(&folder)?;
        let mut file = private::options().write(true).create(true).truncate(false).open(path_of(&folder, *segment))?;
        for (place, pack) in packs {
            // What is acknowledged leaves holes.
            file.seek(SeekFrom::Start(place.offset.max(0) as u64))?;
            file.write_all(pack)?;
        }
        file.sync_all()?;
        Ok(File::open(&folder)?.sync_all()?)
    }

    /// Reads the packs of the target again.
    pub(super) fn sum_results(&self, copied: &mut Conn) -> Result<Sum, StoreError> {
        let (mut sum, results) = (Sum::default(), folder(self.to, "-results"));
        let mut reader = PackReader::new(&results);
        for place in needed_packs(copied)? {
            if let Found::Whole(pack) = reader.read(copied, place)? {
                add(&mut sum, place, &pack);
            }
        }
        Ok(sum)
    }

    /// Copies the bytes of all packages.
    pub(super) fn copy_packages(
        &self,
        input: &mut Conn,
        output: &mut Conn,
        target: &Custody,
        warnings: &mut Vec<String>,
    ) -> Result<Sum, StoreError> {
        let mut sum = Sum::default();
        for sha256 in names(input)? {
            if hash_of(self.from, input, &sha256)?.as_ref() != Some(&sha256) {
                warnings.push(format!("a package that is missing or damaged at the source is not copied: {sha256}"));
                continue;
            }
            if self.to.file().is_some() {
                let mut upload = PackageFiles::of(self.to).begin()?;
                pieces(self.from, input, &sha256, |_, bytes| Ok(upload.write(bytes).map(drop)?))?;
                upload.finish()?;
            } else {
                pieces(self.from, input, &sha256, |piece, bytes| {
                    let row = (package_piece::sha256.eq(&sha256), package_piece::piece.eq(piece), package_piece::bytes.eq(bytes));
                    target.write(output, |conn| Ok(diesel::insert_into(package_piece::table).values(row).execute(conn).map(drop)?))
                })?;
            }
            sum.add_parts(&[sha256.as_bytes()]);
            fault::point("copy.step");
        }
        Ok(sum)
    }

    /// Reads the packages of the target again.
    pub(super) fn sum_packages(&self, copied: &mut Conn) -> Result<Sum, StoreError> {
        let mut sum = Sum::default();
        for sha256 in names(copied)? {
            if hash_of(self.to, copied, &sha256)?.as_ref() == Some(&sha256) {
                sum.add_parts(&[sha256.as_bytes()]);
            }
        }
        Ok(sum)
    }
}

/// Places in groups of few bytes.
fn batches(mut places: &[Place]) -> impl Iterator<Item = &[Place]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |place: &&Place| {
            bytes += place.length;
            bytes <= BATCH
        };
        let (batch, rest) = places.split_at(places.iter().take_while(fits).count().clamp(1.min(places.len()), places.len()));
        places = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

fn names(conn: &mut Conn) -> Result<Vec<String>, StoreError> {
    Ok(package::table.order(package::sha256).select(package::sha256).load(conn)?)
}

/// The SHA-256 of the bytes of a package; `None` if they are missing.
fn hash_of(store: &DatabaseAddress, conn: &mut Conn, sha256: &str) -> Result<Option<String>, StoreError> {
    let mut hash = Sha256::new();
    let is_there = pieces(store, conn, sha256, |_, bytes| {
        hash.update(bytes);
        Ok(())
    })?;
    Ok(is_there.then(|| hex(&hash.finalize())))
}

/// Reads the bytes of a package; whether they are there.
fn pieces(
    store: &DatabaseAddress,
    conn: &mut Conn,
    sha256: &str,
    mut each: impl FnMut(i32, &[u8]) -> Result<(), StoreError>,
) -> Result<bool, StoreError> {
    if store.file().is_none() {
        for piece in 0.. {
            let found = package_piece::table.find((sha256, piece)).select(package_piece::bytes);
            let Some(bytes) = found.get_result::<Vec<u8>>(conn).optional()? else { return Ok(piece > 0) };
            each(piece, &bytes)?;
        }
    }
    let mut file = match PackageFiles::of(store).open(sha256) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let mut bytes = Vec::with_capacity(PIECE as usize);
    for piece in 0.. {
        bytes.clear();
        std::io::Read::by_ref(&mut file).take(PIECE).read_to_end(&mut bytes)?;
        if bytes.is_empty() && piece > 0 {
            break;
        }
        each(piece, &bytes)?;
    }
    Ok(true)
}
