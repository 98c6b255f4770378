//! As much of a WebSocket client as the load needs: whole frames, no extensions, a mask of zeros.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// An open socket.
pub struct Socket {
    stream: TcpStream,
    input: Vec<u8>,
    filled: usize,
}

/// A message, or that none came in time.
pub enum Message {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Nothing,
}

impl Socket {
    /// Connects; later reads give up after `patience`.
    pub fn connect(address: SocketAddr, path: &str, patience: Duration) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )?;
        let mut socket = Self { stream, input: vec![0; 64 << 10], filled: 0 };
        let head = loop {
            if let Some(at) = socket.input[..socket.filled].windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            socket.more()?;
        };
        if !socket.input.starts_with(b"HTTP/1.1 101") {
            let text = String::from_utf8_lossy(&socket.input[..socket.filled]).into_owned();
            return Err(Error::new(ErrorKind::ConnectionRefused, text));
        }
        socket.take(head);
        socket.stream.set_read_timeout(Some(patience))?;
        Ok(socket)
    }

    /// From now on a read without a message returns at once.
    pub fn never_wait(&self) -> Result<()> {
        self.stream.set_nonblocking(true)
    }

    /// The next message; answers pings on the way.
    pub fn read(&mut self) -> Result<Message> {
        loop {
            if let Some((head, length)) = self.frame() {
                let (code, payload) = (self.input[0] & 15, self.input[head..head + length].to_vec());
                self.take(head + length);
                match code {
                    TEXT => return Ok(Message::Text(payload)),
                    BINARY => return Ok(Message::Binary(payload)),
                    PING => self.write(PONG, &payload)?,
                    CLOSE => return Err(Error::new(ErrorKind::ConnectionAborted, String::from_utf8_lossy(&payload).into_owned())),
                    _ => {}
                }
                continue;
            }
            match self.more() {
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(Message::Nothing),
                other => other?,
            }
        }
    }

    /// Sends a text message.
    pub fn text(&mut self, text: &str) -> Result<()> {
        self.write(TEXT, text.as_bytes())
    }

    fn write(&mut self, code: u8, payload: &[u8]) -> Result<()> {
        let mut frame = vec![0x80 | code];
        match payload.len() {
            n @ 0..126 => frame.push(0x80 | n as u8),
            n @ 126..65_536 => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&(n as u16).to_be_bytes());
            }
            n => {
                frame.push(0x80 | 127);
                frame.extend_from_slice(&(n as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame)
    }

    /// Where the payload of a whole frame begins, and its length.
    fn frame(&self) -> Option<(usize, usize)> {
        let input = &self.input[..self.filled];
        let (head, length) = match input.get(1)? & 127 {
            126 => (4, usize::from(u16::from_be_bytes(input.get(2..4)?.try_into().ok()?))),
            127 => (10, usize::try_from(u64::from_be_bytes(input.get(2..10)?.try_into().ok()?)).ok()?),
            n => (2, usize::from(n)),
        };
        (input.len() >= head + length).then_some((head, length))
    }

    fn take(&mut self, bytes: usize) {
        self.input.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }

    fn more(&mut self) -> Result<()> {
        if self.filled == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
        let read = self.stream.read(&mut self.input[self.filled..])?;
        self.filled += read;
        if read == 0 { Err(Error::new(ErrorKind::UnexpectedEof, "the broker closed the socket")) } else { Ok(()) }
    }
}
