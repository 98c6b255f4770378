//! Connections whose bytes a test writes one by one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A connection to a broker.
pub fn connect(broker: &str) -> TcpStream {
    let stream = TcpStream::connect(broker.trim_start_matches("http://")).expect("it connects");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    stream
}

/// The head of an answer, with what came of its body in the same piece.
pub fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while !bytes.windows(4).any(|w| w == b"\r\n\r\n") {
        let read = stream.read(&mut piece).unwrap_or_else(|e| panic!("{e} after {}", String::from_utf8_lossy(&bytes)));
        assert!(read > 0, "the connection ended after {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..read]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The status of an answer.
pub fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status: {head}"))
}

/// An open WebSocket.
pub fn socket(broker: &str, path: &str, token: &str) -> TcpStream {
    let mut stream = connect(broker);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nToken: {token}\r\n\r\n",
        broker.trim_start_matches("http://")
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    // Byte by byte: the first frame may come in one piece with the head, and is for the caller to read.
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap_or_else(|e| panic!("{e} after {}", String::from_utf8_lossy(&head)));
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    assert_eq!(status(&head), 101, "{head}");
    stream
}

/// The header of a masked frame: its first byte, and how many bytes it says that follow.
pub fn frame_header(first: u8, length: u64) -> Vec<u8> {
    let mut header = vec![first];
    match length {
        0..126 => header.push(0x80 | length as u8),
        126..65_536 => {
            header.push(0x80 | 126);
            header.extend((length as u16).to_be_bytes());
        }
        _ => {
            header.push(0x80 | 127);
            header.extend(length.to_be_bytes());
        }
    }
    header.extend([0; 4]);
    header
}

/// The code of the close frame with which the broker ends a socket; none if it just ends.
pub fn close_code(stream: &mut TcpStream) -> Option<u16> {
    let mut bytes = Vec::new();
    // A connection that is reset has ended too.
    let _ = stream.read_to_end(&mut bytes);
    let mut rest = &bytes[..];
    while let [first, length, more @ ..] = rest {
        let (length, more) = match length & 0x7f {
            126 => (usize::from(u16::from_be_bytes([more[0], more[1]])), &more[2..]),
            length => (usize::from(length), more),
        };
        if first & 0x0f == 8 {
            return Some(u16::from_be_bytes([more[0], more[1]]));
        }
        rest = more.get(length..)?;
    }
    None
}
