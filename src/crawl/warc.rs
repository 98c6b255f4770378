//! WARC 1.1 (ISO 28500:2017): the pages themselves, in the format of web archives.
//!
//! A page is a `request` record, if the agent reported what it sent, and a `response` record, both with the start time of the last try; a
//! page without a response is a `metadata` record with the reason. If the file name ends in `.gz`, each record is a separate gzip member.
//! The body is stored after decompression, so the headers about its transfer are left out and `Content-Length` is replaced. The record
//! names the final URL; after redirects, `Webloom-Request-URI` names the requested one.

use super::error::CrawlError;
use super::lines::{key, key_again, key_of};
use crate::domain::time::Timestamp;
use crate::sdk::{FetchErrorKind, Page, Sent};
use awc::http::StatusCode;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::Path;
use url::{Position, Url};
use uuid::Uuid;

/// Compression level of zlib: fast enough for the rate of pages.
const LEVEL: u32 = 3;
/// Headers about the transfer of the body.
const OF_TRANSFER: [&str; 3] = ["content-encoding", "transfer-encoding", "content-length"];
/// How a record begins, and how a gzip member does.
const START: &[u8] = b"WARC/";
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The longest record head.
const MOST_HEAD: u64 = 1 << 20;

/// The header of a page that a redirect led back to: the same URL has another record, of a redirect.
const REDIRECTED_BACK: &str = "Webloom-Redirected-Back";

/// Writes a WARC file.
pub struct Warc {
    file: BufWriter<File>,
    gzip: bool,
    written: HashSet<u64>,
}

impl Warc {
    /// Writes to a file: a new one, or after the complete records of an existing one.
    ///
    /// # Errors
    /// The file cannot be written, or has other content.
    pub fn to_file(path: &Path, resume: bool) -> Result<Self, CrawlError> {
        Self::open(path, resume).map_err(CrawlError::file(path))
    }

    fn open(path: &Path, resume: bool) -> io::Result<Self> {
        let gzip = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gz"));
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(!resume).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "WARC output must be a regular file"));
        }
        let mut written = HashSet::new();
        let whole = records(&file, gzip, |record| {
            if record.header("WARC-Type") == Some("request") {
                return;
            }
            let key = if record.header(REDIRECTED_BACK).is_some() { key_again } else { key };
            written.extend(record.header("Webloom-Request-URI").or_else(|| record.header("WARC-Target-URI")).map(key));
        })?;
        if whole == 0 && file.metadata()?.len() > 0 && written.is_empty() && !begins_like_one(&file, gzip)? {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a WARC file"));
        }
        file.set_len(whole)?;
        file.seek(SeekFrom::Start(whole))?;
        let mut warc = Self { file: BufWriter::with_capacity(1 << 16, file), gzip, written };
        if whole == 0 {
            let about = concat!("software: webloom/", env!("CARGO_PKG_VERSION"), "\r\nformat: WARC File Format 1.1\r\n");
            let (id, date, more) = (Uuid::new_v4(), Timestamp::now(), String::new());
            warc.record(Head { kind: "warcinfo", id, date, more, media_type: "application/warc-fields" }, &[about.as_bytes()])?;
        }
        Ok(warc)
    }

    /// Writes a page, unless it is already in the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, page: &Page) -> io::Result<()> {
        let key = key_of(page.url(), &page.request.redirected_from);
        if !self.written.insert(key) {
            return Ok(());
        }
        // Older agents do not report it.
        let date = page.fetched_at.unwrap_or_else(Timestamp::now);
        let mut more = format!("WARC-Target-URI: {}\r\n", clean(page.final_url()));
        if page.target_url.is_some() {
            let _ = write!(more, "Webloom-Request-URI: {}\r\n", clean(page.url()));
        }
        if key == key_again(page.url()) {
            let _ = write!(more, "{REDIRECTED_BACK}: true\r\n");
        }
        if page.status == 0 {
            let error = page.error.as_ref().map_or("no answer", |error| error.message.as_str());
            let text = format!("error: {}\r\ntries: {}\r\n", clean(error), page.tries);
            let record = Head { kind: "metadata", id: Uuid::new_v4(), date, more, media_type: "application/warc-fields" };
            return self.record(record, &[text.as_bytes()]);
        }
        let (request, response) = (Uuid::new_v4(), Uuid::new_v4());
        if let Some(address) = page.remote_address {
            let _ = write!(more, "WARC-IP-Address: {address}\r\n");
        }
        // The request comes first: a complete response then always has its request, and a resume cuts off a request alone.
        if let Some(sent) = &page.sent {
            let more = format!("{more}WARC-Concurrent-To: <urn:uuid:{response}>\r\n");
            let head = request_head(sent, page);
            let body = page.request.body.as_deref().unwrap_or_default();
            let record = Head { kind: "request", id: request, date, more, media_type: "application/http;msgtype=request" };
            self.record(record, &[head.as_bytes(), body.as_bytes()])?;
        }
        if page.sent.is_some() {
            let _ = write!(more, "WARC-Concurrent-To: <urn:uuid:{request}>\r\n");
        }
        if let Some(protocol) = page.protocol.as_deref().filter(|protocol| protocol.starts_with("HTTP/2")) {
            let _ = write!(more, "WARC-Protocol: {}\r\n", if protocol == "HTTP/2.0" { "h2" } else { protocol });
        }
        match &page.error {
            Some(error) if error.kind == FetchErrorKind::TooLarge => more.push_str("WARC-Truncated: length\r\n"),
            Some(_) => more.push_str("WARC-Truncated: unspecified\r\n"),
            None => {}
        }
        let _ = write!(more, "WARC-Payload-Digest: {}\r\n", digest(&[&page.body]));
        let reason = StatusCode::from_u16(page.status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default();
        let mut head = format!("HTTP/1.1 {} {reason}\r\n", page.status);
        for (name, value) in page.headers.iter().filter(|(name, _)| !OF_TRANSFER.iter().any(|word| name.eq_ignore_ascii_case(word))) {
            let _ = write!(head, "{}: {}\r\n", clean(name), clean(value));
        }
        let _ = write!(head, "Content-Length: {}\r\n\r\n", page.body.len());
        let record = Head { kind: "response", id: response, date, more, media_type: "application/http;msgtype=response" };
        self.record(record, &[head.as_bytes(), &page.body])
    }

    /// Passes everything to the operating system.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn record(&mut self, head: Head, block: &[&[u8]]) -> io::Result<()> {
        let length: usize = block.iter().map(|part| part.len()).sum();
        let Head { kind, id, date, more, media_type } = head;
        let head = format!(
            "WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{id}>\r\nWARC-Date: {date}\r\n{more}\
             WARC-Block-Digest: {}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n",
            digest(block)
        );
        let parts = std::iter::once(head.as_bytes()).chain(block.iter().copied()).chain(std::iter::once(&b"\r\n\r\n"[..]));
        if self.gzip {
            let mut member = GzEncoder::new(&mut self.file, Compression::new(LEVEL));
            for part in parts {
                member.write_all(part)?;
            }
            member.finish()?;
        } else {
            for part in parts {
                self.file.write_all(part)?;
            }
        }
        Ok(())
    }
}

/// The head of a record.
struct Head {
    kind: &'static str,
    id: Uuid,
    date: Timestamp,
    /// Additional lines.
    more: String,
    media_type: &'static str,
}

/// The head of a request in HTTP/1.1 form.
fn request_head(sent: &Sent, page: &Page) -> String {
    let url = Url::parse(page.final_url()).ok();
    let target = url.as_ref().map_or("/", |url| &url[Position::BeforePath..Position::AfterQuery]);
    let mut head = format!("{} {target} HTTP/1.1\r\n", clean(&sent.method));
    for (name, value) in &sent.headers {
        let _ = write!(head, "{}: {}\r\n", clean(name), clean(value));
    }
    if let Some(body) = &page.request.body {
        let _ = write!(head, "content-length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    head
}

fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Removes line breaks from a value.
fn clean(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// A parsed record.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its block.
    pub block: Vec<u8>,
}

impl Record {
    /// The first header with this name, ignoring case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Reads all complete records of a file.
///
/// # Errors
/// It cannot be read.
#[cfg(test)]
pub fn read_warc(path: &Path) -> io::Result<Vec<Record>> {
    let gzip = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gz"));
    let mut all = Vec::new();
    records(&File::open(path)?, gzip, |record| all.push(record))?;
    Ok(all)
}

/// Reads records until the end or the first incomplete one. Returns the end of the complete ones, without a request that has no response.
fn records(file: &File, gzip: bool, mut take: impl FnMut(Record)) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    reader.seek(SeekFrom::Start(0))?;
    let mut whole = 0;
    while !reader.fill_buf()?.is_empty() {
        let record = if gzip {
            let mut member = BufReader::new(GzDecoder::new(&mut reader));
            // The checksum is at the end of the member.
            record(&mut member).and_then(|record| io::copy(&mut member, &mut io::sink()).map(|_| record))
        } else {
            record(&mut reader)
        };
        match record {
            Ok(record) => {
                // A request belongs to the response after it.
                let is_complete = record.header("WARC-Type") != Some("request");
                take(record);
                if is_complete {
                    whole = reader.stream_position()?;
                }
            }
            Err(error) if is_cut(error.kind()) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(whole)
}

fn is_cut(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

fn record(reader: &mut impl BufRead) -> io::Result<Record> {
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (mut headers, mut line) = (Vec::new(), String::new());
    let mut head = reader.take(MOST_HEAD);
    if head.read_line(&mut line)? == 0 || !line.as_bytes().starts_with(START) {
        return Err(cut());
    }
    loop {
        line.clear();
        head.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None if line == "\r\n" => break,
            None => return Err(cut()),
        }
    }
    let mut record = Record { headers, block: Vec::new() };
    let length = record.header("Content-Length").and_then(|text| text.parse().ok()).ok_or_else(cut)?;
    let read = reader.take(length).read_to_end(&mut record.block)? as u64;
    let mut end = [0; 4];
    reader.read_exact(&mut end)?;
    if read < length || &end != b"\r\n\r\n" {
        return Err(cut());
    }
    Ok(record)
}

/// Whether a file begins like a record, as far as it goes.
fn begins_like_one(mut file: &File, gzip: bool) -> io::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    let mut start = Vec::new();
    let mut reader = BufReader::new(file);
    if gzip {
        let head = reader.fill_buf()?;
        if !GZIP.starts_with(&head[..head.len().min(GZIP.len())]) {
            return Ok(false);
        }
        // It fails at the cut, and keeps what is before it.
        let _ = GzDecoder::new(reader).take(START.len() as u64).read_to_end(&mut start);
    } else {
        reader.take(START.len() as u64).read_to_end(&mut start)?;
    }
    Ok(START.starts_with(&start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdk::{FetchError, Request};

    fn page(url: &str, status: u16, body: &'static [u8]) -> Page {
        let headers = [("Content-Type", "text/html"), ("Content-Encoding", "gzip"), ("Content-Length", "7"), ("X", "a\r\nb")];
        Page {
            request: Request::get(url),
            status,
            error: (status == 0).then(|| FetchError { kind: FetchErrorKind::Connect, message: "refused".into(), retryable: true }),
            tries: 3,
            time_ms: 1,
            target_url: (status == 203).then(|| format!("{url}/target")),
            headers: headers.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec(),
            body: body.into(),
            fetched_at: Some(Timestamp(1_767_323_045_678)),
            remote_address: Some([127, 0, 0, 1].into()),
            protocol: None,
            sent: (status == 203).then(|| Sent { method: "GET".into(), headers: vec![("host".into(), "a".into())] }),
        }
    }

    #[test]
    fn a_capture_is_a_request_and_a_response_of_one_instant() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.warc");
        let mut warc = Warc::to_file(&path, false).expect("a new file");
        warc.write(&page("http://a/2?x", 203, b"two")).expect("written");
        warc.flush().expect("flushed");
        let records = read_warc(&path).expect("records");
        let kinds: Vec<_> = records.iter().filter_map(|r| r.header("WARC-Type")).collect();
        assert_eq!(kinds, ["warcinfo", "request", "response"]);
        let [_, request, response] = &records[..] else { panic!("three") };
        for (record, other) in [(request, response), (response, request)] {
            assert_eq!(record.header("WARC-Date"), Some("2026-01-02T03:04:05.678Z"));
            assert_eq!(record.header("WARC-IP-Address"), Some("127.0.0.1"));
            assert_eq!(record.header("WARC-Target-URI"), Some("http://a/2?x/target"));
            assert_eq!(record.header("WARC-Concurrent-To"), other.header("WARC-Record-ID"));
            assert_eq!(record.header("WARC-Block-Digest"), Some(digest(&[&record.block]).as_str()));
        }
        assert_eq!(String::from_utf8_lossy(&request.block), "GET /2?x/target HTTP/1.1\r\nhost: a\r\n\r\n");

        // Killed between the two: the response is cut off, and its page is written again, with its request once.
        let whole = std::fs::metadata(&path).expect("the file").len();
        File::options().write(true).open(&path).expect("the file").set_len(whole - 200).expect("cut");
        let mut warc = Warc::to_file(&path, true).expect("the same file");
        warc.write(&page("http://a/2?x", 203, b"two")).expect("written");
        warc.flush().expect("flushed");
        let kinds: Vec<_> = read_warc(&path).expect("records").iter().filter_map(|r| r.header("WARC-Type").map(str::to_owned)).collect();
        assert_eq!(kinds, ["warcinfo", "request", "response"]);
    }

    #[test]
    fn what_was_written_is_read_and_a_cut_record_is_written_again() {
        for name in ["a.warc", "a.warc.gz"] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join(name);
            let pages = [page("http://a/1", 200, b"<p>one"), page("http://a/2", 203, b""), page("http://a/3", 0, b"")];
            let mut warc = Warc::to_file(&path, false).expect("a new file");
            for page in pages.iter().chain(&pages) {
                warc.write(page).expect("written");
            }
            warc.flush().expect("flushed");
            drop(warc);
            let whole = std::fs::metadata(&path).expect("the file").len();
            File::options().write(true).open(&path).expect("the file").set_len(whole - 5).expect("cut");

            let mut warc = Warc::to_file(&path, true).expect("the same file");
            for page in &pages {
                warc.write(page).expect("written");
            }
            warc.flush().expect("flushed");
            let records = read_warc(&path).expect("records");
            let kinds: Vec<_> = records.iter().filter_map(|r| r.header("WARC-Type")).collect();
            assert_eq!(kinds, ["warcinfo", "response", "request", "response", "metadata"], "{name}");
            let text = String::from_utf8_lossy(&records[1].block);
            assert_eq!(text, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX: a  b\r\nContent-Length: 6\r\n\r\n<p>one");
            assert_eq!(
                records[1].header("warc-payload-digest"),
                // printf '<p>one' | sha256sum
                Some("sha256:6cdd0621def911531209bd14685fc4fca0c38ca0464199fa72c9496b8d9a9e91")
            );
            assert_eq!(records[3].header("WARC-Target-URI"), Some("http://a/2/target"));
            assert_eq!(records[3].header("Webloom-Request-URI"), Some("http://a/2"));
            assert!(String::from_utf8_lossy(&records[4].block).contains("error: refused"));
        }
    }

    #[test]
    fn another_file_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["letter.warc", "letter.warc.gz"] {
            let path = dir.path().join(name);
            std::fs::write(&path, "Dear reader").expect("a file");
            assert!(Warc::to_file(&path, true).is_err());
            assert_eq!(std::fs::read_to_string(&path).expect("the file"), "Dear reader");
        }
        let packed = |text: &str| {
            let mut member = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
            member.write_all(text.as_bytes()).expect("packed");
            member.finish().expect("packed")
        };
        let others = [("table.csv.gz", packed("a,b\n1,2\n")), ("wages.warc", b"WAGES,2026\n".to_vec())];
        for (name, content) in others {
            let path = dir.path().join(name);
            std::fs::write(&path, &content).expect("a file");
            assert!(Warc::to_file(&path, true).is_err(), "{name}");
            assert_eq!(std::fs::read(&path).expect("the file"), content);
        }
        // Of a file that was cut within its first record, nothing is whole.
        let record = "WARC/1.1\r\nWARC-Type: warcinfo\r\n";
        for (name, content) in [("a.warc", record.as_bytes().to_vec()), ("a.warc.gz", packed(record))] {
            for length in [1, 2, 12, content.len() - 9] {
                let path = dir.path().join(name);
                std::fs::write(&path, &content[..length]).expect("a file");
                assert!(Warc::to_file(&path, true).is_ok(), "{name} {length}");
            }
        }
    }
}
