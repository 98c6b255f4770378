//! Watched answers: paths whose answers windows of the portal get whenever they change.
//!
//! A path is called like by any other client, with the token of those who watch it: as a request to the same routes, within this process.
//! So its handler, its rights and its limits are those of the API. All who watch a path with the same token share one task.

use super::Edge;
use crate::actors::budget::Budget;
use crate::config::tokens::TokenKey;
use crate::domain::live::{self, Change};
use crate::protocol::exposition::Exposition;
use crate::protocol::problem::Problem;
use actix_http::{HttpMessage as _, Request};
use actix_web::body::to_bytes_limited;
use actix_web::dev::ServiceResponse;
use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode, Uri};
use futures_util::future::LocalBoxFuture;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OnceCell, watch};

/// Paths that are watched at once, by all windows.
const MOST_PATHS: usize = 2_000;
/// … and by the windows of one token, so that it cannot block the others.
const MOST_PATHS_OF_TOKEN: usize = MOST_PATHS / 4;
/// The longest path.
const MOST_PATH: usize = 4_096;
/// The longest answer.
const MOST_ANSWER: usize = 1 << 20;
/// An answer in memory needs up to this many times its length: its text, its value and the last difference.
const FACTOR: usize = 6;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
const TOKEN: HeaderName = HeaderName::from_static("token");

/// Marks a request of this module. Only operations that are marked in the route table answer it.
#[derive(Debug, Clone, Copy)]
pub struct IsWatched;

/// What is known of a watched path.
#[derive(Debug, Clone)]
pub enum State {
    /// The first answer has not come.
    Unknown,
    /// The last answer.
    Answer(Change),
    /// It is no longer watched.
    Over(Problem),
}

/// Paths with equal keys have equal answers.
type Key = (String, Option<TokenKey>);

/// The watched paths of a broker; clones share them.
#[derive(Debug, Clone)]
pub struct Live(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    paths: Mutex<HashMap<Key, Arc<watch::Sender<State>>>>,
    /// For the answers, which stay for long: what is received and sent has a budget of its own.
    budget: Budget,
    windows: AtomicUsize,
    looks: AtomicU64,
    /// Looks that are under way.
    under_way: AtomicUsize,
}

/// A look that is under way.
struct Turn<'a> {
    under_way: &'a AtomicUsize,
    at_first: usize,
}

impl<'a> Turn<'a> {
    fn begin(under_way: &'a AtomicUsize) -> Self {
        Self { under_way, at_first: under_way.fetch_add(1, Relaxed) + 1 }
    }

    /// How many looks were made at once.
    fn at_once(&self) -> usize {
        self.at_first.max(self.under_way.load(Relaxed))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Relaxed);
    }
}

/// An open window; it is closed when this is dropped.
#[derive(Debug)]
pub struct Window(Live);

impl Drop for Window {
    fn drop(&mut self) {
        self.0.0.windows.fetch_sub(1, Relaxed);
    }
}

/// Calls the routes within this process.
type Call = Rc<dyn Fn(Request) -> LocalBoxFuture<'static, Result<ServiceResponse, actix_web::Error>>>;

/// The routes of a thread of the server for calls within the process. They are made when the first window opens.
pub struct Inside {
    make: Box<dyn Fn() -> LocalBoxFuture<'static, Option<Call>>>,
    call: OnceCell<Option<Call>>,
}

impl Inside {
    /// `make` makes the routes.
    pub fn new(make: impl Fn() -> LocalBoxFuture<'static, Option<Call>> + 'static) -> Self {
        Self { make: Box::new(make), call: OnceCell::new() }
    }

    async fn call(&self, request: Request) -> Result<ServiceResponse, Problem> {
        let call = self.call.get_or_init(|| (self.make)()).await.as_ref().ok_or_else(Problem::internal)?;
        match call(request).await {
            Ok(response) => Ok(response),
            Err(error) => Err(problem_in(error.error_response().status(), b"")),
        }
    }
}

/// In whose name a window watches.
#[derive(Clone)]
pub struct Viewer {
    /// The routes of the thread that serves the window.
    pub inside: Rc<Inside>,
    /// The token, if the broker needs one.
    pub token: Option<HeaderValue>,
    /// Its key.
    pub key: Option<TokenKey>,
    /// The address of the window.
    pub peer: Option<SocketAddr>,
}

impl Live {
    /// Nothing is watched. The answers take at most this number of bytes.
    #[must_use]
    pub fn new(most_bytes: usize) -> Self {
        Self(Arc::new(Inner {
            paths: Mutex::default(),
            budget: Budget::new(most_bytes),
            windows: AtomicUsize::new(0),
            looks: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
        }))
    }

    fn paths(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<watch::Sender<State>>>> {
        self.0.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A window opens.
    #[must_use]
    pub fn open(&self) -> Window {
        self.0.windows.fetch_add(1, Relaxed);
        Window(self.clone())
    }

    /// Watches a path.
    ///
    /// # Errors
    /// It is no path, or too many are watched.
    pub fn watch(&self, edge: &Edge, viewer: &Viewer, path: String) -> Result<watch::Receiver<State>, Problem> {
        let is_path = path.len() <= MOST_PATH && path.starts_with('/') && !path.starts_with("//");
        let uri = is_path.then(|| path.parse::<Uri>().ok()).flatten();
        let uri = uri.ok_or_else(|| Problem::invalid("path", "a path with its query is expected, for example `/api/v1/runs?limit=10`"))?;
        let mut paths = self.paths();
        let key = (path, viewer.key);
        if let Some(sender) = paths.get(&key) {
            return Ok(sender.subscribe());
        }
        if paths.len() >= MOST_PATHS {
            return Err(Problem::busy(format!("{MOST_PATHS} paths are watched already; request this one instead, or retry later")));
        }
        // Where no token is needed, all windows are of one kind.
        if viewer.key.is_some() && paths.keys().filter(|(_, of)| *of == viewer.key).count() >= MOST_PATHS_OF_TOKEN {
            let detail =
                format!("{MOST_PATHS_OF_TOKEN} paths are watched with this token; request this one instead, or close other windows");
            return Err(Problem::busy(detail));
        }
        let (sender, receiver) = watch::channel(State::Unknown);
        let sender = Arc::new(sender);
        paths.insert(key.clone(), Arc::clone(&sender));
        // If the task is dropped at once, it takes the lock.
        drop(paths);
        let followed = Followed { live: self.clone(), key, sender };
        actix_web::rt::spawn(follow(edge.clone(), viewer.clone(), uri, followed));
        Ok(receiver)
    }

    /// Writes the counters as Prometheus metrics.
    pub fn write(&self, page: &mut Exposition) {
        let paths = self.paths().len() as f64;
        page.metric("webloom_live_windows", "gauge", "Open windows of the portal, or other clients of `/live`.");
        page.sample("webloom_live_windows", &[], self.0.windows.load(Relaxed) as f64);
        page.metric("webloom_live_paths", "gauge", "Paths whose answers windows watch. The same path counts once for each token.");
        page.sample("webloom_live_paths", &[], paths);
        page.metric("webloom_live_looks_total", "counter", "Answers that were made to find out whether they have changed.");
        page.sample("webloom_live_looks_total", &[], self.0.looks.load(Relaxed) as f64);
    }
}

/// A path that is being followed. Dropped, it is watched no more, also after a panic.
struct Followed {
    live: Live,
    key: Key,
    sender: Arc<watch::Sender<State>>,
}

impl Followed {
    /// Ends if no window watches it. Decided together with [`Live::watch`], so that no window joins a path that ends.
    fn is_left(&self) -> bool {
        let mut paths = self.live.paths();
        let is_left = self.sender.receiver_count() == 0;
        if is_left {
            self.remove(&mut paths);
        }
        is_left
    }

    fn remove(&self, paths: &mut HashMap<Key, Arc<watch::Sender<State>>>) {
        if paths.get(&self.key).is_some_and(|sender| Arc::ptr_eq(sender, &self.sender)) {
            paths.remove(&self.key);
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.remove(&mut self.live.paths());
    }
}

/// Looks at a path again and again, until no window watches it, or it has no answer.
async fn follow(edge: Edge, viewer: Viewer, uri: Uri, followed: Followed) {
    let mut answer = live::Answer::default();
    let mut held = followed.live.0.budget.share(viewer.key).nothing();
    let mut was_changed = false;
    while !followed.is_left() && !edge.traffic.is_ending() {
        let (began, turn) = (Instant::now(), Turn::begin(&followed.live.0.under_way));
        followed.live.0.looks.fetch_add(1, Relaxed);
        let look = async {
            let text = look(&viewer, &uri).await?;
            held.set(FACTOR * text.len()).map_err(|_| no_room())?;
            answer.take(&text).map_err(|_| not_json())
        };
        let looked = tokio::select! {
            looked = tokio::time::timeout(PATIENCE, look) => looked,
            // It ends, unless a window has come since.
            () = followed.sender.closed() => continue,
        };
        let (took, at_once) = (began.elapsed(), turn.at_once());
        drop(turn);
        let is_changed = match looked {
            Ok(Ok(None)) => false,
            Ok(Ok(Some(change))) => {
                followed.sender.send_replace(State::Answer(change));
                true
            }
            Ok(Err(problem)) => {
                followed.remove(&mut followed.live.paths());
                followed.sender.send_replace(State::Over(problem));
                return;
            }
            Err(_) => {
                followed.remove(&mut followed.live.paths());
                let seconds = PATIENCE.as_secs();
                followed.sender.send_replace(State::Over(Problem::busy(format!("the answer took longer than {seconds} s; retry later"))));
                return;
            }
        };
        let paths = followed.live.paths().len();
        tokio::select! {
            () = tokio::time::sleep(live::pause(took, is_changed && !was_changed, paths, at_once)) => {}
            () = followed.sender.closed() => {}
        }
        was_changed = is_changed;
    }
}

/// Calls the path once.
async fn look(viewer: &Viewer, uri: &Uri) -> Result<String, Problem> {
    let mut request = Request::new();
    let head = request.head_mut();
    (head.method, head.uri, head.peer_addr) = (Method::GET, uri.clone(), viewer.peer);
    if let Some(token) = &viewer.token {
        head.headers.insert(TOKEN, token.clone());
    }
    request.extensions_mut().insert(IsWatched);
    let response = viewer.inside.call(request).await?;
    let status = response.status();
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let body = match to_bytes_limited(response.into_body(), MOST_ANSWER).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return Err(Problem::internal()),
        Err(_) => {
            let detail = format!("the answer is longer than {MOST_ANSWER} bytes; request it instead, or request a part of it");
            return Err(Problem::invalid("path", detail));
        }
    };
    if !status.is_success() {
        return Err(problem_in(status, &body));
    }
    String::from_utf8(body.into()).ok().filter(|_| is_json).ok_or_else(not_json)
}

fn no_room() -> Problem {
    Problem::busy("the watched answers use the maximum number of bytes; request this one instead, or retry later")
}

fn not_json() -> Problem {
    Problem::invalid("path", "the answer is not JSON; request it instead")
}

/// The problem in an answer.
fn problem_in(status: StatusCode, body: &[u8]) -> Problem {
    serde_json::from_slice(body).unwrap_or_else(|_| match status {
        StatusCode::NOT_FOUND => Problem::not_found("nothing is at this path"),
        _ => Problem::internal(),
    })
}
