//! A program's output: lines in segment files, written by the launcher, read by the agent, and deleted when the broker has stored them.
//!
//! A segment is named by the number of its first line. A line is one byte for its source, its time (i64) and its length (u32), both
//! little-endian, and its text. The unacknowledged output is limited: beyond the limit the launcher stops reading, so that the program
//! blocks in its next write, as at a slow terminal. Nothing is lost, and the disk does not fill up.

use super::record::OUTPUT;
use crate::domain::time::Timestamp;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SEGMENT_BYTES: u64 = 4 << 20;
const HEAD: usize = 13;
/// Interval between checks for free space in the backlog.
const PAUSE: Duration = Duration::from_millis(10);
/// Interval between writes to a disk that rejects them.
const RETRY: Duration = Duration::from_millis(500);
/// The most bytes that a reader takes at once: more than the longest line, and with every character escaped still below the MiB limit of
/// a message to the broker.
const READ_BYTES: usize = 128 << 10;

/// Which stream a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Standard output.
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
}

impl Source {
    /// The name of the source in a log line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

fn path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:020}"))
}

/// The numbers of the first lines of all segments, in order.
fn segments(folder: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut firsts: Vec<u64> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    firsts.sort_unstable();
    firsts
}

/// The launcher's side: writes lines.
pub struct Spool {
    folder: PathBuf,
    backlog_bytes: u64,
    is_over: AtomicBool,
    inner: Mutex<Writer>,
}

struct Writer {
    file: File,
    bytes: u64,
    lines: u64,
    /// Upper bound of the unacknowledged bytes; recomputed when it exceeds the limit.
    waiting_bytes: u64,
}

impl Spool {
    /// Creates a spool in a program's folder.
    ///
    /// # Errors
    /// The file system rejects it.
    pub fn create(program: &Path, backlog_bytes: u64) -> io::Result<Self> {
        let folder = program.join(OUTPUT);
        // Closed even to the program's own user, who can pass through the folder above.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let file = File::create_new(path(&folder, 0))?;
        let inner = Mutex::new(Writer { file, bytes: 0, lines: 0, waiting_bytes: 0 });
        Ok(Self { folder, backlog_bytes, is_over: AtomicBool::new(false), inner })
    }

    /// The program has ended: the rest of its pipes is read without waiting for space.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Appends lines of one stream. Waits for space in the backlog, and for a full disk.
    pub fn append(&self, source: Source, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        let now = Timestamp::now().0.to_le_bytes();
        let mut records = Vec::with_capacity(lines.iter().map(|line| HEAD + line.len()).sum());
        for line in lines {
            records.push(source as u8);
            records.extend_from_slice(&now);
            records.extend_from_slice(&u32::try_from(line.len()).unwrap_or(u32::MAX).to_le_bytes());
            records.extend_from_slice(line.as_bytes());
        }
        loop {
            let is_over = self.is_over.load(Ordering::Acquire);
            let mut writer = self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let pause = if !is_over && self.is_full(&mut writer) {
                PAUSE
            } else if self.write(&mut writer, &records, lines.len() as u64).is_ok() || is_over {
                return;
            } else {
                RETRY
            };
            drop(writer);
            std::thread::sleep(pause);
        }
    }

    fn is_full(&self, writer: &mut Writer) -> bool {
        if writer.waiting_bytes > self.backlog_bytes {
            let size = |first| std::fs::metadata(path(&self.folder, first)).map_or(0, |meta| meta.len());
            writer.waiting_bytes = segments(&self.folder).into_iter().map(size).sum();
        }
        writer.waiting_bytes > self.backlog_bytes
    }

    fn write(&self, writer: &mut Writer, records: &[u8], lines: u64) -> io::Result<()> {
        if writer.bytes >= SEGMENT_BYTES.min(self.backlog_bytes / 4) {
            writer.file = File::create(path(&self.folder, writer.lines))?;
            writer.bytes = 0;
        }
        if let Err(error) = writer.file.write_all(records) {
            // Half a line would make the rest of the file unreadable.
            writer.file.set_len(writer.bytes)?;
            writer.file.seek(SeekFrom::End(0))?;
            return Err(error);
        }
        writer.bytes += records.len() as u64;
        writer.waiting_bytes += records.len() as u64;
        writer.lines += lines;
        Ok(())
    }

    /// Number of lines so far; they are durable when this returns.
    pub fn finish(&self) -> u64 {
        let writer = self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = writer.file.sync_all();
        writer.lines
    }
}

/// A line that was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its stream.
    pub source: Source,
    /// When it was written.
    pub at: Timestamp,
    /// Its text, at most 8,192 bytes.
    pub text: String,
}

/// The agent's side: reads lines.
pub struct Tail {
    folder: PathBuf,
    file: Option<(u64, File)>,
    /// Offset of the next line in the file.
    offset: u64,
    next: u64,
    first: u64,
}

impl Tail {
    /// Reads a program's output from the first line on disk.
    #[must_use]
    pub fn new(program: &Path) -> Self {
        let folder = program.join(OUTPUT);
        let next = segments(&folder).first().copied().unwrap_or(0);
        Self { folder, file: None, offset: 0, next, first: next }
    }

    /// The number of the next line.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The number of the first line on disk, as of the creation or the last seek.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Moves to a line; if it is already deleted, to the first one on disk.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn seek(&mut self, line: u64) -> io::Result<()> {
        let segments = segments(&self.folder);
        self.file = None;
        self.offset = 0;
        self.first = segments.first().copied().unwrap_or(0);
        self.next = segments.iter().rev().find(|&&first| first <= line).or(segments.first()).copied().unwrap_or(0);
        while self.next < line && !self.read(usize::try_from(line - self.next).unwrap_or(usize::MAX))?.is_empty() {}
        Ok(())
    }

    /// Reads at most this many of the next lines; empty if there are none yet.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn read(&mut self, most: usize) -> io::Result<Vec<Line>> {
        loop {
            let (first, file) = match &mut self.file {
                Some((first, file)) => (*first, file),
                None => match File::open(path(&self.folder, self.next)) {
                    Ok(file) => {
                        self.offset = 0;
                        let (first, file) = self.file.insert((self.next, file));
                        (*first, file)
                    }
                    Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
                    Err(e) => return Err(e),
                },
            };
            // Check before reading: this file gets all its lines before the next one is created.
            let is_last = first == self.next || !path(&self.folder, self.next).exists();
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(self.offset))?;
            file.take(READ_BYTES as u64).read_to_end(&mut bytes)?;
            let (lines, used) = parse(&bytes, most);
            self.offset += used as u64;
            self.next += lines.len() as u64;
            if !lines.is_empty() || is_last {
                return Ok(lines);
            }
            self.file = None;
        }
    }

    /// Deletes the segments that contain only lines before this one.
    pub fn forget(&self, before: u64) {
        let segments = segments(&self.folder);
        for pair in segments.windows(2).filter(|pair| pair[1] <= before) {
            let _ = std::fs::remove_file(path(&self.folder, pair[0]));
        }
    }
}

/// The complete lines at the start of these bytes, and their length in bytes.
fn parse(bytes: &[u8], most: usize) -> (Vec<Line>, usize) {
    let (mut lines, mut at) = (Vec::new(), 0);
    while lines.len() < most
        && let Some((head, rest)) = bytes[at..].split_first_chunk::<HEAD>()
    {
        let [kind, t0, t1, t2, t3, t4, t5, t6, t7, l0, l1, l2, l3] = *head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let Some(text) = rest.get(..length) else { break };
        let source = if kind == Source::Stderr as u8 { Source::Stderr } else { Source::Stdout };
        let at_ms = i64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        lines.push(Line { source, at: Timestamp(at_ms), text: String::from_utf8_lossy(text).into_owned() });
        at += HEAD + length;
    }
    (lines, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: Vec<Line>) -> Vec<String> {
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn lines_are_read_back_over_segments_and_from_any_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::create(folder.path(), 4_096).expect("a spool");
        let mut tail = Tail::new(folder.path());
        assert_eq!(tail.read(9).expect("read"), []);
        let all: Vec<String> = (0..200).map(|i| format!("line {i}")).collect();
        for piece in all.chunks(7) {
            let source = if piece[0].ends_with('0') { Source::Stderr } else { Source::Stdout };
            spool.append(source, piece);
        }
        assert!(segments(&folder.path().join(OUTPUT)).len() > 3);
        let mut seen = Vec::new();
        loop {
            let lines = tail.read(9).expect("read");
            if lines.is_empty() {
                break;
            }
            seen.extend(texts(lines));
        }
        assert_eq!((seen, tail.next()), (all.clone(), 200));
        for line in [0, 1, 99, 150, 199, 200] {
            tail.seek(line).expect("there");
            assert_eq!(tail.next(), line);
            assert_eq!(texts(tail.read(1).expect("read")), all[line as usize..].iter().take(1).cloned().collect::<Vec<_>>());
        }
        tail.forget(150);
        let first = Tail::new(folder.path()).next();
        assert!(first > 100 && first <= 150, "{first}");
        tail.seek(0).expect("there");
        assert_eq!(tail.next(), first);
        assert_eq!(spool.finish(), 200);
    }

    #[test]
    fn a_full_spool_makes_its_writer_wait_until_lines_are_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::create(folder.path(), 8_192).expect("a spool");
        let line = ["x".repeat(1_000)];
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..100).for_each(|_| spool.append(Source::Stdout, &line)));
            let (mut tail, mut seen) = (Tail::new(folder.path()), 0);
            while seen < 100 {
                seen += tail.read(1_000).expect("read").len();
                let on_disk: u64 = segments(&tail.folder).iter().map(|&f| path(&tail.folder, f).metadata().map_or(0, |m| m.len())).sum();
                assert!(on_disk < 8_192 + 2 * 1_013, "{on_disk}");
                assert!(seen < 100 || writer.is_finished() || tail.next() == 100);
                tail.forget(tail.next());
            }
        });
    }
}
