//! The least depth of each page, for a crawl with a depth limit.
//!
//! Responses come in any order, so a page may first be found by a long path and later by a shorter one. A page that is too deep by the
//! first path may be within the limit by the second: then the links of the page, and of those behind it, count from the lesser depth. A redirect is a
//! link of length 0. So the links of processed pages are stored in a file beside the crawl's state, one compressed record per page, written before the page is
//! acknowledged; memory holds a hash, a depth and a file offset for each page. Pages up to the first link are never found by a shorter
//! path, and have no record: the first block holds only the start, and all its links are known before anything else. With several starts
//! this holds only for the starts.

use super::lines::key;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// Pages up to this depth are always found by a shortest path, if a single start is alone in the first block.
const ALWAYS_LEAST: u32 = 1;
/// The same for a crawl with several starts, whose responses come in any order.
const ALWAYS_LEAST_OF_SEVERAL: u32 = 0;
/// Compression level of zstd.
const LEVEL: i32 = 1;
/// The largest record that is read, decompressed.
const MOST_RECORD: usize = 1 << 30;

/// The followed links of a page.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The requested URL of the page.
    pub page: String,
    /// The referrer for the lines of its links.
    pub referrer: String,
    /// The depth at which it was processed.
    pub depth: u32,
    /// The targets of its links, without fragments.
    pub links: Vec<String>,
    /// It is a redirect: its only link is its target, which has the same depth.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_redirect: bool,
}

impl Links {
    /// The depth of its links.
    #[must_use]
    pub fn next_depth(&self) -> u32 {
        self.depth.saturating_add(u32::from(!self.is_redirect))
    }
}

#[derive(Debug, Clone, Copy)]
struct Known {
    depth: u32,
    is_read: bool,
    /// The file offset of the record of its links, if it has one.
    place: Option<u64>,
}

/// The known depths.
#[derive(Debug)]
pub struct Depths {
    limit: u32,
    always_least: u32,
    file: File,
    end: u64,
    pages: HashMap<u64, Known>,
    /// File offsets of pages for which a shorter path was found after they had been processed.
    improved: Vec<u64>,
}

impl Depths {
    /// Opens the records of this file, or starts without any.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn open(path: &Path, limit: u32, resume: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(!resume).open(path)?;
        let mut depths = Self { limit, always_least: ALWAYS_LEAST, file, end: 0, pages: HashMap::new(), improved: Vec::new() };
        depths.read_all()?;
        Ok(depths)
    }

    /// Sets the number of starts of the crawl.
    #[must_use]
    pub fn with_starts(mut self, starts: usize) -> Self {
        self.always_least = if starts > 1 { ALWAYS_LEAST_OF_SEVERAL } else { ALWAYS_LEAST };
        self
    }

    /// The least depth of a page that was delivered with this depth.
    #[must_use]
    pub fn of(&self, page: &str, came_with: u32) -> u32 {
        self.pages.get(&key(page)).map_or(came_with, |known| known.depth.min(came_with))
    }

    /// Adds the links of a processed page. Returns the pages whose links should be requested, with their least depth: this one, and those
    /// to which it makes the path shorter. Links beyond the depth limit are included.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn read(&mut self, mut page: Links) -> io::Result<Vec<Links>> {
        let this = key(&page.page);
        let was = self.pages.get(&this).copied();
        page.depth = was.map_or(page.depth, |known| known.depth.min(page.depth));
        // Delivered again: its follow-up requests may not have been accepted.
        let again = was.is_some_and(|known| known.is_read);
        let place = if page.depth > self.always_least && !again { Some(self.append(&page)?) } else { was.and_then(|known| known.place) };
        self.pages.insert(this, Known { depth: page.depth, is_read: true, place });
        let mut out = Vec::new();
        let mut queue = vec![page];
        if again {
            for place in self.improved.clone() {
                queue.push(self.record(place)?);
            }
        }
        while let Some(page) = queue.pop() {
            for link in &page.links {
                if let Some(place) = self.shorten(key(link), page.next_depth()) {
                    self.improved.push(place);
                    queue.push(self.record(place)?);
                }
            }
            out.push(page);
        }
        // A page that was reached twice gets its present depth.
        for page in &mut out {
            page.depth = self.of(&page.page, page.depth);
        }
        Ok(out)
    }

    /// Records a path of this length to a page. Returns the offset of its links, if they must be processed again.
    fn shorten(&mut self, page: u64, depth: u32) -> Option<u64> {
        if depth > self.limit {
            return None;
        }
        let known = self.pages.entry(page).or_insert(Known { depth, is_read: false, place: None });
        if depth >= known.depth {
            return None;
        }
        known.depth = depth;
        known.place
    }

    fn append(&mut self, page: &Links) -> io::Result<u64> {
        let text = zstd::bulk::compress(&serde_json::to_vec(page)?, LEVEL)?;
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        let place = self.end;
        self.file.seek(SeekFrom::Start(place))?;
        self.file.write_all(&[&length.to_le_bytes()[..], &text].concat())?;
        self.end += 4 + u64::from(length);
        Ok(place)
    }

    /// The links of a page, with its least depth.
    fn record(&mut self, place: u64) -> io::Result<Links> {
        self.file.seek(SeekFrom::Start(place))?;
        let mut page = next_record(&mut self.file)?.map(|(page, _)| page).ok_or(io::ErrorKind::UnexpectedEof)?;
        page.depth = self.of(&page.page, page.depth);
        Ok(page)
    }

    /// Reads the records of an earlier process, cuts off an incomplete one, and computes the least depths again. It is unknown which
    /// follow-up requests were accepted, so every page whose depth decreased counts as improved.
    fn read_all(&mut self) -> io::Result<()> {
        let mut reader = BufReader::new(self.file.try_clone()?);
        while let Ok(Some((page, length))) = next_record(&mut reader) {
            let known = self.pages.entry(key(&page.page)).or_insert(Known { depth: page.depth, is_read: true, place: None });
            known.depth = known.depth.min(page.depth);
            known.place = Some(self.end);
            self.end += length;
        }
        self.file.set_len(self.end)?;
        let mut queue: Vec<u64> = self.pages.values().filter_map(|known| known.place).collect();
        while let Some(place) = queue.pop() {
            let page = self.record(place)?;
            for link in &page.links {
                if let Some(place) = self.shorten(key(link), page.next_depth()) {
                    self.improved.push(place);
                    queue.push(place);
                }
            }
        }
        Ok(())
    }

    /// The pages whose links an earlier process may not have requested with their least depth.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn owed(&mut self) -> io::Result<Vec<Links>> {
        self.improved.clone().into_iter().map(|place| self.record(place)).collect()
    }
}

/// A record and its length in the file; `None` at the end.
fn next_record(reader: &mut impl io::Read) -> io::Result<Option<(Links, u64)>> {
    let mut length = [0; 4];
    if reader.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..])?;
    let length = u64::from(u32::from_le_bytes(length));
    let mut text = Vec::new();
    if reader.take(length).read_to_end(&mut text)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut json = Vec::new();
    zstd::Decoder::with_buffer(&text[..])?.take(MOST_RECORD as u64).read_to_end(&mut json)?;
    Ok(Some((serde_json::from_slice(&json)?, 4 + length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A small graph whose shortcuts get responses last, or first, or in between.
    fn graph() -> BTreeMap<&'static str, Vec<&'static str>> {
        BTreeMap::from([
            ("s", vec!["a", "x"]),
            ("a", vec!["b"]),
            ("b", vec!["c"]),
            ("c", vec!["d"]),
            ("d", vec!["e"]),
            ("e", vec!["f"]),
            ("x", vec!["y", "r"]),
            ("y", vec!["d", "s"]),
            ("f", vec![]),
            ("r", vec!["c"]),
        ])
    }

    /// Crawls in a seeded random order, with occasional restarts; returns the requested URLs.
    fn crawled(limit: u32, mut seed: u64, restarts: bool) -> BTreeSet<String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("links");
        let mut depths = Depths::open(&path, limit, false).expect("opened");
        let (mut queue, mut asked) = (vec![("s".to_owned(), 0)], BTreeSet::from(["s".to_owned()]));
        let graph = graph();
        while !queue.is_empty() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (page, depth) = queue.swap_remove((seed >> 33) as usize % queue.len());
            let links = graph[page.as_str()].iter().map(|link| (*link).to_owned()).collect();
            let read = Links { is_redirect: page == "r", page: page.clone(), referrer: page.clone(), depth, links };
            let mut follow = depths.read(read).expect("read");
            if restarts && seed.is_multiple_of(3) {
                // Killed before the acknowledgement: no follow-up request was accepted, and the page comes again.
                depths = Depths::open(&path, limit, true).expect("opened");
                follow = depths.owed().expect("read");
                queue.push((page, depth));
            }
            for page in follow {
                let next = page.next_depth();
                for link in page.links.into_iter().filter(|_| next <= limit) {
                    if asked.insert(link.clone()) {
                        queue.push((link, next));
                    }
                }
            }
        }
        asked
    }

    #[test]
    fn whatever_the_order_all_within_the_limit_are_found() {
        for limit in 0..8 {
            let wanted = crawled(limit, 0, false);
            for seed in 1..60 {
                for restarts in [false, true] {
                    assert_eq!(crawled(limit, seed, restarts), wanted, "limit {limit} seed {seed} restarts {restarts}");
                }
            }
        }
        assert_eq!(crawled(2, 7, false).into_iter().collect::<String>(), "abcrsxy");
        assert_eq!(crawled(4, 7, false).into_iter().collect::<String>(), "abcdersxy");
    }
}
