//! As much of HTTP/1.1 as the load needs: one kept connection, blocking, no copies that a real client would not make.
//! The load shares two cores with the broker, so it has to be lean.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

type Result<T> = std::io::Result<T>;

/// A connection.
pub struct Http {
    stream: TcpStream,
    input: Vec<u8>,
    /// Where the next answer begins in `input`.
    at: usize,
    output: Vec<u8>,
}

/// An answer; its body lies in the connection's buffer until the next call.
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

impl Http {
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(90)))?;
        Ok(Self { stream, input: Vec::new(), at: 0, output: Vec::new() })
    }

    /// A call. `head` is the request line and headers, each with its CRLF, without `Content-Length`.
    pub fn call(&mut self, head: &str, body: &[&[u8]]) -> Result<Answer<'_>> {
        let length: usize = body.iter().map(|part| part.len()).sum();
        self.output.clear();
        write!(self.output, "{head}Host: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n")?;
        for part in body {
            self.output.extend_from_slice(part);
        }
        self.stream.write_all(&self.output)?;
        let (status, body) = self.answer()?;
        Ok(Answer { status, body: &self.input[body] })
    }

    /// A call with a body of JSON, or none.
    pub fn json(&mut self, line: &str, body: &str) -> Result<(u16, serde_json::Value)> {
        let answer = self.call(&format!("{line} HTTP/1.1\r\nContent-Type: application/json\r\n"), &[body.as_bytes()])?;
        let value = if answer.body.is_empty() { serde_json::Value::Null } else { serde_json::from_slice(answer.body)? };
        Ok((answer.status, value))
    }

    fn answer(&mut self) -> Result<(u16, Range<usize>)> {
        // What was answered before is no longer looked at.
        self.input.drain(..self.at);
        self.at = 0;
        let head = loop {
            if let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.more(16 << 10)?;
        };
        let text = String::from_utf8_lossy(&self.input[..head]).to_ascii_lowercase();
        let status = text.get(9..12).and_then(|s| s.parse().ok()).ok_or_else(|| bad(&text))?;
        let header = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
        if header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            return self.chunks(head).map(|body| (status, body));
        }
        let length: usize = header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        while self.input.len() < head + length {
            self.more(head + length - self.input.len())?;
        }
        self.at = head + length;
        Ok((status, head..head + length))
    }

    /// Moves the chunks together, so that they are one body.
    fn chunks(&mut self, start: usize) -> Result<Range<usize>> {
        let (mut from, mut end) = (start, start);
        loop {
            let line = loop {
                if let Some(at) = self.input[from..].windows(2).position(|two| two == b"\r\n") {
                    break from + at;
                }
                self.more(16 << 10)?;
            };
            let digits = std::str::from_utf8(&self.input[from..line]).unwrap_or_default();
            let length = usize::from_str_radix(digits.split(';').next().unwrap_or_default().trim(), 16).map_err(|_| bad(digits))?;
            let begin = line + 2;
            while self.input.len() < begin + length + 2 {
                self.more(begin + length + 2 - self.input.len())?;
            }
            self.input.copy_within(begin..begin + length, end);
            end += length;
            from = begin + length + 2;
            if length == 0 {
                self.at = from;
                return Ok(start..end);
            }
        }
    }

    fn more(&mut self, wanted: usize) -> Result<()> {
        let before = self.input.len();
        self.input.resize(before + wanted, 0);
        let read = self.stream.read(&mut self.input[before..])?;
        self.input.truncate(before + read);
        if read == 0 { Err(Error::new(ErrorKind::UnexpectedEof, "the broker closed the connection")) } else { Ok(()) }
    }
}

fn bad(text: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("no HTTP: {}", text.chars().take(80).collect::<String>()))
}
