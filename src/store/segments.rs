//! Result packs on disk: appended to shared segment files `<n>.seg`, so that a batch of results costs one write and one
//! sync, and thrown away a file at a time when all that is in it has been acknowledged.
//!
//! The database says where a pack stands, and is committed only after the file is synced: what a crash leaves at the end
//! of a file, nobody points to. Each start begins a new file, and a number is never used twice.

use super::error::StoreError;
use bytes::Bytes;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file that has grown to this is not appended to any more.
const ROLL_BYTES: u64 = 64 << 20;
/// What one call of the system takes.
const MOST_SLICES: usize = 512;

/// Where a pack stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: i32,
    pub(super) offset: i64,
    pub(super) length: i64,
}

/// What a transaction does to the segments, once it is committed.
#[derive(Debug, Default)]
pub(super) struct Settlement {
    changes: Vec<(i32, i64)>,
}

impl Settlement {
    /// A pack in this segment waits for a worker.
    pub(super) fn keep(&mut self, segment: i32) {
        self.changes.push((segment, 1));
    }

    /// That many packs in this segment wait no more.
    pub(super) fn release(&mut self, segment: i32, packs: i64) {
        self.changes.push((segment, -packs));
    }

    pub(super) fn clear(&mut self) {
        self.changes.clear();
    }
}

/// The folder of segments, as its one writer sees it.
#[derive(Debug)]
pub(super) struct Segments {
    folder: PathBuf,
    current: Option<Current>,
    last: i32,
    /// Packs that wait for a worker, by segment.
    live: HashMap<i32, i64>,
    roll: u64,
}

#[derive(Debug)]
struct Current {
    number: i32,
    file: File,
    length: u64,
}

impl Segments {
    /// Opens the folder, making it if need be. `live` says which segments are still wanted; the others are deleted.
    /// `last` is the highest number that the database knows of.
    pub(super) fn open(folder: &Path, live: HashMap<i32, i64>, last: i32) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut this = Self { folder: folder.to_owned(), current: None, last, live, roll: ROLL_BYTES };
        this.last = this.live.keys().copied().fold(this.last, i32::max);
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(number) = number_of(&path) else { continue };
            this.last = this.last.max(number);
            if !this.live.contains_key(&number) {
                fs::remove_file(path)?;
            }
        }
        Ok(this)
    }

    /// Appends packs and syncs; their places come in the same order.
    pub(super) fn append(&mut self, packs: &[&Bytes]) -> io::Result<Vec<Place>> {
        let outcome = self.try_append(packs);
        if outcome.is_err() {
            // What a file holds after a failed write or sync is anybody's guess: it gets no more.
            self.close_current();
        }
        outcome
    }

    fn try_append(&mut self, packs: &[&Bytes]) -> io::Result<Vec<Place>> {
        let current = self.writable()?;
        let mut places = Vec::with_capacity(packs.len());
        let mut end = current.length;
        for pack in packs {
            places.push(Place { segment: current.number, offset: end as i64, length: pack.len() as i64 });
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
        if self.current.is_none() {
            let number = self.last + 1;
            let file = OpenOptions::new().write(true).create_new(true).open(path_of(&self.folder, number))?;
            // The name of the file must be on disk as well.
            #[cfg(unix)]
            File::open(&self.folder)?.sync_all()?;
            self.last = number;
            self.current = Some(Current { number, file, length: 0 });
        }
        self.current.as_mut().ok_or_else(|| io::Error::other("no segment"))
    }

    /// The highest number in use.
    pub(super) fn last(&self) -> i32 {
        self.last
    }

    /// A transaction is committed.
    pub(super) fn settle(&mut self, settlement: &mut Settlement) {
        for (segment, change) in settlement.changes.drain(..) {
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

    #[cfg(test)]
    pub(super) fn roll_at(&mut self, bytes: u64) {
        self.roll = bytes;
    }
}

fn path_of(folder: &Path, number: i32) -> PathBuf {
    folder.join(format!("{number}.seg"))
}

fn number_of(path: &Path) -> Option<i32> {
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

/// Reads packs; keeps the last file open, since packs that are read together stand together.
#[derive(Debug)]
pub(super) struct PackReader<'a> {
    folder: &'a Path,
    open: Option<(i32, File)>,
}

impl<'a> PackReader<'a> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self { folder, open: None }
    }

    /// The bytes of a pack; `None` if its segment is gone.
    pub(super) fn read(&mut self, place: Place) -> Result<Option<Bytes>, StoreError> {
        if self.open.as_ref().is_none_or(|(number, _)| *number != place.segment) {
            match File::open(path_of(self.folder, place.segment)) {
                Ok(file) => self.open = Some((place.segment, file)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
        let Some((_, file)) = &mut self.open else { return Ok(None) };
        file.seek(SeekFrom::Start(place.offset as u64))?;
        let mut bytes = Vec::new();
        bytes.reserve_exact(place.length as usize);
        let read = file.take(place.length as u64).read_to_end(&mut bytes)?;
        if read as i64 != place.length {
            return Err(StoreError::Failed(format!("segment {} is cut short", place.segment)));
        }
        Ok(Some(bytes.into()))
    }
}
