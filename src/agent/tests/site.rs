//! A site that responds with any bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A request as received by the site.
#[derive(Debug, Clone)]
pub struct Hit {
    /// Number of the connection, from 0.
    pub connection: usize,
    /// Number of the request, over all connections, from 0.
    pub nth: usize,
    /// The head as received.
    pub head: String,
    /// The requested path.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
    /// When it arrived.
    pub at: Instant,
}

impl Hit {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// The bytes of a response, and whether the connection is closed afterwards.
pub struct Reply(pub Vec<u8>, pub bool);

/// A complete response; the connection stays open.
pub fn answer(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {status} Word\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    Reply(bytes, false)
}

/// These bytes, then the end of the connection.
pub fn raw(bytes: impl AsRef<[u8]>) -> Reply {
    Reply(bytes.as_ref().to_vec(), true)
}

/// A gate that threads wait at.
#[derive(Default)]
pub struct Gate(Mutex<bool>, Condvar);

impl Gate {
    /// Lets all through.
    pub fn open(&self) {
        *self.0.lock().expect("unpoisoned") = true;
        self.1.notify_all();
    }

    /// Waits for the gate; false after a timeout.
    pub fn wait(&self, limit: Duration) -> bool {
        let guard = self.0.lock().expect("unpoisoned");
        let (guard, _) = self.1.wait_timeout_while(guard, limit, |is_open| !*is_open).expect("unpoisoned");
        *guard
    }
}

/// The site. Its threads end with their connections.
pub struct Site {
    /// Where it listens.
    pub address: SocketAddr,
    hits: Arc<Mutex<Vec<Hit>>>,
}

impl Site {
    /// A site that responds to each request with `reply`, which may block.
    pub fn new(reply: impl Fn(&Hit) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let hits = Arc::new(Mutex::new(Vec::new()));
        let (reply, count, all) = (Arc::new(reply), Arc::new(AtomicUsize::new(0)), hits.clone());
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().flatten().enumerate() {
                let (reply, count, all) = (reply.clone(), count.clone(), all.clone());
                std::thread::spawn(move || serve(stream, connection, &*reply, &count, &all));
            }
        });
        Self { address, hits }
    }

    /// The address of a page.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All requests so far.
    pub fn hits(&self) -> Vec<Hit> {
        self.hits.lock().expect("unpoisoned").clone()
    }
}

fn serve(mut stream: TcpStream, connection: usize, reply: &dyn Fn(&Hit) -> Reply, count: &AtomicUsize, all: &Mutex<Vec<Hit>>) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(n) if n > 0 => buffer.extend_from_slice(&piece[..n]),
                _ => return,
            }
            if buffer.first() == Some(&0x16) {
                // The client speaks TLS.
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                return;
            }
        };
        let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let nth = count.fetch_add(1, Ordering::SeqCst);
        let mut hit = Hit { connection, nth, head, path, body: Vec::new(), at: Instant::now() };
        let length = hit.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        buffer.drain(..end);
        while buffer.len() < length {
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(n) if n > 0 => buffer.extend_from_slice(&piece[..n]),
                _ => return,
            }
        }
        hit.body = buffer.drain(..length).collect();
        all.lock().expect("unpoisoned").push(hit.clone());
        let Reply(bytes, close) = reply(&hit);
        if stream.write_all(&bytes).is_err() || close {
            return;
        }
    }
}
