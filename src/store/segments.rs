//! Result packs on disk: appended to shared segment files `<n>.seg`, so that a batch of results costs one write and one sync. A file
//! is deleted as a whole when everything in it is acknowledged.
//!
//! The database stores the location of a pack, and is committed only after the file is synced: data that a crash leaves at the end
//! of a file is never referenced. Each start begins a new file, and a number is never reused. The database also stores a checksum
//! of each pack: a lost, truncated or changed file is detected when it is read.

use super::dialect::Conn;
use super::error::StoreError;
use super::persistence::Slot;
use super::segment_tables::{self, SegmentTables};
use crate::domain::ids::BrokerId;
use crate::private;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file or table of this size is not appended to any more.
pub(super) const ROLL_BYTES: u64 = 64 << 20;
/// The system's error number for I/O errors.
const EIO: i32 = 5;
/// Maximum number of slices per system call.
const MOST_SLICES: usize = 512;

/// The location of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: i32,
    pub(super) offset: i64,
    pub(super) length: i64,
    /// The CRC-32 of the pack; `None` if it was stored before checksums were introduced.
    pub(super) check: Option<u32>,
}

/// What was found at the location of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// The pack.
    Whole(Bytes),
    /// Something else, or nothing, with the reason.
    Damaged(String),
}

/// The changes of a transaction to the segments.
#[derive(Debug, Default)]
pub(super) struct Settlement {
    changes: Vec<(i32, i64)>,
    /// Brokers that append to no segment any more.
    ended: Vec<BrokerId>,
}

impl Settlement {
    /// A pack in this segment waits for a worker.
    pub(super) fn keep(&mut self, segment: i32) {
        self.changes.push((segment, 1));
    }

    /// This many packs in this segment no longer wait.
    pub(super) fn release(&mut self, segment: i32, packs: i64) {
        self.changes.push((segment, -packs));
    }

    /// This broker has no right to append to segments any more.
    pub(super) fn end(&mut self, broker: BrokerId) {
        self.ended.push(broker);
    }

    /// The changes so far, summed up, in the order of the segments.
    pub(super) fn changes(&self) -> BTreeMap<i32, i64> {
        let mut sums = BTreeMap::new();
        for (segment, change) in &self.changes {
            *sums.entry(*segment).or_insert(0) += change;
        }
        sums.retain(|_, change| *change != 0);
        sums
    }

    pub(super) fn ended(&self) -> &[BrokerId] {
        &self.ended
    }

    pub(super) fn clear(&mut self) {
        self.changes.clear();
        self.ended.clear();
    }
}

/// Where a writer puts results.
#[derive(Debug)]
pub(super) enum Segments {
    /// Beside an SQLite file.
    Files(SegmentFiles),
    /// In a PostgreSQL database.
    Tables(SegmentTables),
}

impl Segments {
    /// The highest number in use, if this writer counts it.
    pub(super) fn last(&self) -> Option<i32> {
        match self {
            Self::Files(files) => Some(files.last),
            Self::Tables(_) => None,
        }
    }

    /// The last statement of a transaction: counts what it has changed, if that is counted in the database.
    pub(super) fn count(&mut self, conn: &mut Conn, settlement: &Settlement) -> Result<(), StoreError> {
        match self {
            Self::Files(_) => Ok(()),
            Self::Tables(tables) => tables.count(conn, settlement),
        }
    }

    /// The transaction with these changes is committed: deletes segments that are not needed any more.
    pub(super) fn committed(&mut self, conn: Option<&mut Conn>, settlement: &Settlement) {
        match (self, conn) {
            (Self::Files(files), _) => files.settle(settlement),
            (Self::Tables(tables), Some(conn)) => tables.drop_unneeded(conn),
            (Self::Tables(_), None) => {}
        }
    }

    /// A transaction was rolled back. What was appended to a file stays there; rows are gone.
    pub(super) fn rolled_back(&mut self, slots: &mut [Slot]) {
        if let Self::Tables(tables) = self {
            tables.rolled_back();
            slots.iter_mut().for_each(|slot| slot.place = None);
        }
    }

    #[cfg(test)]
    pub(super) fn roll_at(&mut self, bytes: u64) {
        match self {
            Self::Files(files) => files.roll = bytes,
            Self::Tables(tables) => tables.roll_at(bytes),
        }
    }
}

/// The folder of segments.
#[derive(Debug)]
pub(super) struct SegmentFiles {
    folder: PathBuf,
    current: Option<Current>,
    last: i32,
    /// Number of packs that wait for a worker, by segment.
    live: HashMap<i32, i64>,
    roll: u64,
}

#[derive(Debug)]
struct Current {
    number: i32,
    file: File,
    length: u64,
}

impl SegmentFiles {
    /// Opens the folder, creating it if necessary. `live` contains the needed segments; the others are deleted. `last` is the highest
    /// number in the database.
    pub(super) fn open(folder: &Path, live: HashMap<i32, i64>, last: i32) -> io::Result<Self> {
        private::make_folder(folder)?;
        let mut this = Self { folder: folder.to_owned(), current: None, last, live, roll: ROLL_BYTES };
        this.last = this.live.keys().copied().fold(this.last, i32::max);
        let known = this.last;
        let mut missing = this.live.clone();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(number) = number_of(&path) else { continue };
            this.last = this.last.max(number);
            missing.remove(&number);
            if !this.live.contains_key(&number) {
                fs::remove_file(path)?;
            }
        }
        for (number, blocks) in missing {
            log::error!(
                "results segment missing path={} blocks={blocks}: their requests are downloaded again",
                path_of(folder, number).display()
            );
        }
        if this.last > known + 1 {
            // A transaction that a crash interrupted may have begun one.
            log::warn!(
                "results segments newer than the database newest={} known={known}: the database may be an older copy, or its -wal file was lost",
                this.last
            );
        }
        Ok(this)
    }

    /// Appends packs and syncs; returns their locations in the same order.
    pub(super) fn append(&mut self, packs: &[&Bytes]) -> io::Result<Vec<Place>> {
        let outcome = self.try_append(packs);
        if outcome.is_err() {
            // After a failed write or sync the content of the file is undefined: do not append to it any more.
            self.close_current();
        }
        outcome
    }

    fn try_append(&mut self, packs: &[&Bytes]) -> io::Result<Vec<Place>> {
        let current = self.writable()?;
        let mut places = Vec::with_capacity(packs.len());
        let mut end = current.length;
        for pack in packs {
            let check = Some(crc32fast::hash(pack));
            places.push(Place { segment: current.number, offset: end as i64, length: pack.len() as i64, check });
            end += pack.len() as u64;
        }
        for some in packs.chunks(MOST_SLICES) {
            let mut slices: Vec<IoSlice<'_>> = some.iter().map(|pack| IoSlice::new(pack)).collect();
            write_all(&mut current.file, &mut slices)?;
        }
        current.file.sync_data()?;
        current.length = end;
        Ok(places)
    }

    fn writable(&mut self) -> io::Result<&mut Current> {
        if self.current.as_ref().is_some_and(|current| current.length >= self.roll) {
            self.close_current();
        }
        if let Some(current) = self.current.take_if(|current| is_deleted(&current.file)) {
            log::error!("results segment was deleted while in use path={}", path_of(&self.folder, current.number).display());
        }
        if self.current.is_none() {
            if !self.folder.exists() {
                log::error!("results folder is missing and is created again path={}", self.folder.display());
                private::make_folder(&self.folder)?;
            }
            let (number, file) = loop {
                let number = self.last + 1;
                match private::options().write(true).create_new(true).open(path_of(&self.folder, number)) {
                    // Created before, when a later step failed: for example, the limit of open files was reached.
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.last = number,
                    opened => break (number, opened?),
                }
            };
            // The name of the file must be on disk as well.
            #[cfg(unix)]
            File::open(&self.folder)?.sync_all()?;
            self.last = number;
            self.current = Some(Current { number, file, length: 0 });
        }
        self.current.as_mut().ok_or_else(|| io::Error::other("no segment"))
    }

    /// Applies the changes of a committed transaction.
    fn settle(&mut self, settlement: &Settlement) {
        for (segment, change) in settlement.changes() {
            let live = self.live.entry(segment).or_insert(0);
            *live += change;
            if *live <= 0 && self.current.as_ref().is_none_or(|current| current.number != segment) {
                self.live.remove(&segment);
                self.delete(segment);
            }
        }
    }

    fn close_current(&mut self) {
        if let Some(Current { number, .. }) = self.current.take()
            && self.live.get(&number).is_none_or(|live| *live <= 0)
        {
            self.live.remove(&number);
            self.delete(number);
        }
    }

    fn delete(&self, segment: i32) {
        let path = path_of(&self.folder, segment);
        if let Err(e) = fs::remove_file(&path) {
            // The next start tries again.
            log::warn!("could not delete a segment without results path={} error={e}", path.display());
        }
    }
}

/// Whether the file has no name any more: data appended to it is lost when it is closed.
#[cfg(unix)]
fn is_deleted(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|found| found.nlink() == 0)
}

#[cfg(not(unix))]
fn is_deleted(_: &File) -> bool {
    false
}

pub(super) fn path_of(folder: &Path, number: i32) -> PathBuf {
    folder.join(format!("{number}.seg"))
}

pub(super) fn number_of(path: &Path) -> Option<i32> {
    path.file_name()?.to_str()?.strip_suffix(".seg")?.parse().ok()
}

fn write_all(file: &mut File, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0); // skip empty ones
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads packs; keeps the last file open, because packs that are read together are usually in the same file.
#[derive(Debug)]
pub(super) struct PackReader<'a> {
    folder: &'a Path,
    open: Option<(i32, File)>,
}

impl<'a> PackReader<'a> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self { folder, open: None }
    }

    /// Reads a pack.
    ///
    /// # Errors
    /// It cannot be read now, for a reason unrelated to the file.
    pub(super) fn read(&mut self, conn: &mut Conn, place: Place) -> Result<Found, StoreError> {
        let damaged = |why: &str| Ok(Found::Damaged(format!("segment {} {why}", place.segment)));
        let bytes = match conn {
            Conn::Sqlite(_) => self.bytes(place),
            conn => segment_tables::read(conn, place)?.ok_or_else(|| io::ErrorKind::NotFound.into()),
        };
        match bytes {
            Err(e) if e.kind() == io::ErrorKind::NotFound => damaged("is missing"),
            Err(e) if e.raw_os_error() == Some(EIO) => damaged(&format!("cannot be read: {e}")),
            Err(e) => Err(e.into()),
            Ok(bytes) if bytes.len() as i64 != place.length => damaged("is cut short"),
            Ok(bytes) if place.check.is_some_and(|check| crc32fast::hash(&bytes) != check) => {
                damaged("was changed: a checksum does not match")
            }
            Ok(bytes) => Ok(Found::Whole(bytes.into())),
        }
    }

    fn bytes(&mut self, place: Place) -> io::Result<Vec<u8>> {
        let file = match &mut self.open {
            Some((number, file)) if *number == place.segment => file,
            none => &mut none.insert((place.segment, File::open(path_of(self.folder, place.segment))?)).1,
        };
        let (offset, length) = (place.offset.max(0) as u64, place.length.max(0) as u64);
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        // Do not allocate memory beyond the size of the file.
        bytes.reserve_exact(length.min(file.metadata()?.len().saturating_sub(offset)) as usize);
        file.take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
