//! A web of many hosts in one process, for what must be seen from outside: how often and when each host is asked.
//!
//! Every loopback address 127.x.y.z is a host; names count as hosts too, by the header `Host`. The server listens at all
//! addresses and closes what does not come from a loopback address. Each request goes into the log that
//! [`access_log`](super::access_log) reads.

use super::access_log::Entry;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// Bytes of the head of a request.
const MOST_HEAD: usize = 64 << 10;

/// A request, as far as it decides its answer.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The host, without its port.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// Requests to this host before this one.
    pub before: u64,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// How long the site thinks before it answers.
    pub after: Duration,
    /// It never answers: the connection stays open until the client closes it.
    pub hangs: bool,
    /// It answers when this is true.
    pub until: Option<watch::Receiver<bool>>,
}

impl Answer {
    /// A page of HTML.
    pub fn html(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: vec![("content-type", "text/html".into())], body: body.into(), ..Self::default() }
    }

    /// A text.
    pub fn text(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: vec![("content-type", "text/plain".into())], body: body.into(), ..Self::default() }
    }

    /// A status without a body.
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// With one more header.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// When the test allows it.
    pub fn until(mut self, released: &watch::Receiver<bool>) -> Self {
        self.until = Some(released.clone());
        self
    }

    /// After a while.
    pub fn after(mut self, while_: Duration) -> Self {
        self.after = while_;
        self
    }
}

type Behaviour = dyn Fn(&Asked) -> Answer + Send + Sync;

#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    counts: std::collections::HashMap<String, u64>,
}

struct Shared {
    began: Instant,
    log: Mutex<Log>,
    behaviour: Box<Behaviour>,
}

/// A web that is up as long as this is kept.
pub struct Web {
    /// The port of all hosts.
    pub port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The address of the host of this number: 127.1.0.1 and those that follow.
pub fn host(number: u32) -> String {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + number).to_string()
}

impl Web {
    /// Serves, from a thread of its own, what `behaviour` says.
    ///
    /// # Errors
    /// There is no port or no thread to be had.
    pub fn serve(behaviour: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared { began: Instant::now(), log: Mutex::default(), behaviour: Box::new(behaviour) });
        let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let (stop, stopped) = oneshot::channel();
        let web = shared.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("web".into()).spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = accept(listener, web) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { port, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// A URL at the host of this number.
    pub fn url(&self, number: u32, path: &str) -> String {
        format!("http://{}:{}{path}", host(number), self.port)
    }

    /// Microseconds since the web was made: the clock of its log.
    pub fn now_us(&self) -> u64 {
        micros(self.shared.began.elapsed())
    }

    /// Hosts that were asked at least so often.
    pub fn hosts_asked(&self, times: u64) -> usize {
        lock(&self.shared).counts.values().filter(|count| **count >= times).count()
    }

    /// The number of entries in the log.
    pub fn requests(&self) -> usize {
        lock(&self.shared).entries.len()
    }

    /// The log so far.
    pub fn log(&self) -> Vec<Entry> {
        lock(&self.shared).entries.clone()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn lock(shared: &Shared) -> std::sync::MutexGuard<'_, Log> {
    shared.log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}

async fn accept(listener: TcpListener, web: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, SocketAddr::V4(from))) if from.ip().is_loopback() => {
                tokio::spawn(talk(stream, web.clone()));
            }
            Ok(_) => {}
            // Too many files are open: some will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn talk(mut stream: TcpStream, web: Arc<Shared>) {
    let mut read = Vec::new();
    while let Some(head) = head(&mut stream, &mut read).await {
        let begin = web.began.elapsed();
        let Some(mut asked) = parse(&head) else { return };
        {
            let mut log = lock(&web);
            let count = log.counts.entry(asked.host.clone()).or_default();
            asked.before = *count;
            *count += 1;
        }
        let answer = (web.behaviour)(&asked);
        let written = respond(&mut stream, &answer).await;
        let retry_after = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
        let entry = Entry {
            host: asked.host,
            path: asked.path,
            begin: micros(begin),
            end: micros(web.began.elapsed()),
            status: if written { answer.status } else { 0 },
            retry_after: retry_after.filter(|_| written).and_then(|(_, seconds)| seconds.parse().ok()),
            is_coarse: false,
        };
        lock(&web).entries.push(entry);
        if !written {
            return;
        }
    }
}

/// The head of the next request; what was read beyond it stays in `read`.
async fn head(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let rest = read.split_off(end + 4);
            let head = std::mem::replace(read, rest);
            return String::from_utf8(head).ok();
        }
        if read.len() > MOST_HEAD || stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}

fn parse(head: &str) -> Option<Asked> {
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let (_, host) = headers.iter().find(|(name, _)| name == "host")?;
    let host = host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host).to_owned();
    Some(Asked { host, path, headers, before: 0 })
}

/// False if the client went away before the answer was written.
async fn respond(stream: &mut TcpStream, answer: &Answer) -> bool {
    if answer.hangs || !answer.after.is_zero() || answer.until.is_some() {
        let wait = if answer.hangs { Duration::MAX } else { answer.after };
        let mut released = answer.until.clone();
        let wait = async {
            tokio::time::sleep(wait).await;
            if let Some(released) = &mut released {
                // If the test is over, nobody reads the answer.
                let _ = released.wait_for(|is_released| *is_released).await;
            }
        };
        let mut more = [0; 1];
        tokio::select! {
            () = wait => {}
            // Nothing more is asked before the answer; if something comes, it is the end.
            _ = stream.peek(&mut more) => return false,
        }
    }
    let mut head = format!("HTTP/1.1 {} x\r\ncontent-length: {}\r\n", answer.status, answer.body.len());
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let whole = [head.as_bytes(), &answer.body].concat();
    stream.write_all(&whole).await.is_ok()
}

/// How the hosts of a web behave, by their numbers: each is a mixture of the kinds that the open web has.
#[derive(Debug, Clone, Copy)]
pub struct Mixed {
    /// Hosts, from number 0.
    pub hosts: u32,
    /// Pages of each.
    pub pages: u32,
    /// How long a slow host thinks.
    pub slow: Duration,
    /// Seconds of `Retry-After`.
    pub rest_s: u64,
}

/// What kind of host a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It answers at once.
    Quick,
    /// It thinks.
    Slow,
    /// Each tenth request is answered with 429, and each eleventh with 503, and a rest.
    Busy,
    /// Its robots.txt forbids /private and asks for a delay of two seconds.
    Robots,
    /// It has no robots.txt to be had: 503.
    Broken,
    /// It never answers.
    Hanging,
}

impl Mixed {
    /// Of twenty hosts eight are quick.
    pub fn kind(number: u32) -> Kind {
        match number % 20 {
            0..=3 => Kind::Slow,
            4..=6 => Kind::Busy,
            7..=9 => Kind::Robots,
            10 => Kind::Broken,
            11 => Kind::Hanging,
            _ => Kind::Quick,
        }
    }

    /// The number of a host.
    pub fn number(host: &str) -> Option<u32> {
        let address: Ipv4Addr = host.parse().ok()?;
        address.to_bits().checked_sub(Ipv4Addr::new(127, 1, 0, 1).to_bits())
    }

    /// The answer to a request: /0 links to all pages of its host, one of them private.
    pub fn answer(self, asked: &Asked) -> Answer {
        let Some(number) = Self::number(&asked.host).filter(|number| *number < self.hosts) else { return Answer::status(404) };
        let kind = Self::kind(number);
        if kind == Kind::Hanging {
            return Answer { hangs: true, ..Answer::default() };
        }
        if kind == Kind::Busy && asked.before % 10 == 9 {
            let status = if asked.before % 20 == 9 { 429 } else { 503 };
            return Answer::status(status).with("retry-after", self.rest_s.to_string());
        }
        let answer = match (asked.path.as_str(), kind) {
            ("/robots.txt", Kind::Broken) => Answer::status(503),
            ("/robots.txt", Kind::Robots) => Answer::text("User-agent: *\nDisallow: /private\nCrawl-delay: 2\n"),
            ("/robots.txt", _) => Answer::status(404),
            ("/0", _) => {
                let links: String = (1..self.pages).map(|page| format!("<a href=/{page}>x</a>")).collect();
                Answer::html(format!("<title>{number}</title>{links}<a href=/private/x>y</a>"))
            }
            _ => Answer::html("<p>text"),
        };
        if kind == Kind::Slow { answer.after(self.slow) } else { answer }
    }

    /// What a host allows to who is to ask at most once in so many milliseconds.
    pub fn allowed(host: &str, delay_ms: u64) -> super::access_log::Allowed {
        let is_robots = Self::number(host).is_some_and(|number| Self::kind(number) == Kind::Robots);
        let is_broken = Self::number(host).is_some_and(|number| Self::kind(number) == Kind::Broken);
        let mut disallowed = if is_robots { vec!["/private".to_owned()] } else { Vec::new() };
        if is_broken {
            // All but robots.txt itself.
            disallowed.extend((0..10).map(|digit| format!("/{digit}")));
            disallowed.push("/private".into());
        }
        super::access_log::Allowed { delay_ms: if is_robots { delay_ms.max(2_000) } else { delay_ms }, connections: 1, disallowed }
    }
}
