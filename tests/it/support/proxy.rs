//! A proxy before a server: PostgreSQL, or a broker. It loses what a test tells it to lose, and can be cut like a cable. To lose commits, the connection
//! must not use TLS.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The server gets the commit, and its answer is lost.
    Answer,
    /// The server never gets the commit.
    Commit,
}

#[derive(Default)]
struct State {
    /// Where the server is.
    server: Mutex<String>,
    /// Both ends of the connections that were made since the last cut.
    open: Mutex<Vec<TcpStream>>,
    /// The commit of a transaction with this text is to be lost.
    planned: Mutex<Option<(Vec<u8>, Lost)>>,
    /// New connections are closed.
    refuses: AtomicBool,
    /// Number of connections that were refused.
    refused: AtomicUsize,
    /// Number of connections that were made.
    made: AtomicUsize,
    /// Connections with a lower number are silent: what is sent is swallowed.
    silent_below: AtomicUsize,
    ended: AtomicBool,
}

/// See the module documentation.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

/// `COMMIT` as a simple query of the protocol of PostgreSQL.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

impl Proxy {
    /// Starts one before the server at this address.
    pub fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State { server: Mutex::new(server), ..State::default() });
        let this = Self { port, state: Arc::clone(&state) };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { continue };
                if state.ended.load(SeqCst) {
                    return;
                }
                let address = state.server.lock().expect("locked").clone();
                // What is cut refuses connections even if there is no server.
                let server = if state.refuses.load(SeqCst) { None } else { Some(TcpStream::connect(address)) };
                let mut open = state.open.lock().expect("locked");
                if state.refuses.load(SeqCst) {
                    state.refused.fetch_add(1, SeqCst);
                    continue;
                }
                let Some(Ok(server)) = server else { continue };
                open.extend([&client, &server].map(|end| end.try_clone().expect("cloned")));
                drop(open);
                let number = state.made.fetch_add(1, SeqCst);
                Line { number, client, server, state: Arc::clone(&state) }.start();
            }
        });
        this
    }

    /// The URL of the broker behind it.
    pub fn http(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The URL of the database behind it.
    pub fn url(&self, query: &str) -> String {
        format!("postgres://webloom@127.0.0.1:{}/webloom?sslmode=disable{query}", self.port)
    }

    /// Loses the next commit of a transaction that contains this text, with its connection, and then refuses new connections.
    pub fn lose(&self, text: &str, lost: Lost) {
        *self.state.planned.lock().expect("locked") = Some((text.as_bytes().to_vec(), lost));
    }

    /// Whether what was planned has happened, and this number of connections were refused since.
    pub fn has_refused(&self, connections: usize) -> bool {
        self.state.planned.lock().expect("locked").is_none() && self.state.refused.load(SeqCst) >= connections
    }

    /// Accepts connections again.
    pub fn open(&self) {
        self.state.refuses.store(false, SeqCst);
        self.state.refused.store(0, SeqCst);
    }

    /// Ends all connections, and refuses new ones.
    pub fn cut(&self) {
        self.state.refuses.store(true, SeqCst);
        for end in self.state.open.lock().expect("locked").drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Connects to another server from now on, and ends the connections to the last one.
    pub fn redirect(&self, server: String) {
        *self.state.server.lock().expect("locked") = server;
        self.cut();
        self.open();
    }

    /// Swallows from now on what is sent on the connections that are there, as a network that drops packets. New ones work.
    pub fn silence(&self) {
        self.state.silent_below.store(self.state.made.load(SeqCst), SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// A connection through the proxy.
struct Line {
    number: usize,
    client: TcpStream,
    server: TcpStream,
    state: Arc<State>,
}

impl Line {
    fn start(self) {
        let is_cut = Arc::new(AtomicBool::new(false));
        let (number, state, cut) = (self.number, Arc::clone(&self.state), Arc::clone(&is_cut));
        let (mut from, mut to) = (self.server.try_clone().expect("cloned"), self.client.try_clone().expect("cloned"));
        std::thread::spawn(move || {
            let mut piece = [0; 65_536];
            while let Ok(length @ 1..) = from.read(&mut piece) {
                if cut.load(SeqCst) {
                    break;
                }
                let is_silent = number < state.silent_below.load(SeqCst);
                if !is_silent && to.write_all(&piece[..length]).is_err() {
                    break;
                }
            }
            end(&from, &to);
        });
        std::thread::spawn(move || self.send(&is_cut));
    }

    fn send(mut self, is_cut: &AtomicBool) {
        let (mut piece, mut transaction) = ([0; 65_536], Vec::new());
        while let Ok(length @ 1..) = self.client.read(&mut piece) {
            if self.number < self.state.silent_below.load(SeqCst) {
                continue;
            }
            let mut planned = self.state.planned.lock().expect("locked");
            if planned.is_some() {
                transaction.extend_from_slice(&piece[..length]);
            }
            if transaction.ends_with(COMMIT) {
                let is_it = planned.as_ref().is_some_and(|(text, _)| transaction.windows(text.len()).any(|part| part == text));
                transaction.clear();
                if let Some((_, lost)) = planned.take_if(|_| is_it) {
                    self.state.refuses.store(true, SeqCst);
                    is_cut.store(true, SeqCst);
                    if lost == Lost::Commit {
                        break;
                    }
                }
            }
            drop(planned);
            if self.server.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        end(&self.client, &self.server);
    }
}

fn end(one: &TcpStream, other: &TcpStream) {
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}
