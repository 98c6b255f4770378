//! Calls to a broker over HTTP. Temporary failures are retried with growing pauses; final ones are returned.

use super::error::Error;
use crate::config::addresses::Addresses;
use crate::domain::backoff::Backoff;
use crate::domain::ids::{BlockId, Identity, WorkerId};
use crate::domain::run::RunState;
use crate::executors::{Executors, dies, is_local};
use crate::protocol::problem::Problem;
use crate::protocol::push::{Pushed, read_json};
use crate::protocol::token::own;
use crate::protocol::zstd_frame;
use crate::protocol::{BULK, EXECUTOR_HEADER, HOLDS_HEADER, RUN_STATE_HEADER};
use awc::http::{Method, StatusCode, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Seconds that a poll of the queue waits at the broker.
const POLL_WAIT_S: u64 = 30;
/// The longest pause between two tries if there are several brokers, one of which will soon lead.
const BRIEF_PAUSE: Duration = Duration::from_secs(1);
/// A header with more ids is too long for some proxies.
const MOST_HOLDS: usize = 200;
const JSON: &[(&str, &str)] = &[("accept", "application/json")];
/// The pauses between two tries of a call, and the longest one that a broker may ask for.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MOST_PAUSE: Duration = Duration::from_secs(10);
const MOST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Timeout of all other calls.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest response: a block is as large as its pages.
const MOST_ANSWER: usize = 1 << 30;
/// Bodies from this size on are compressed, except to a broker on this machine.
const COMPRESS: usize = 1 << 10;

/// A response with a 2xx status.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The state of the run, on responses about its queue.
    pub state: Option<RunState>,
    /// The body.
    pub body: Bytes,
}

/// Why there is no successful response.
#[derive(Debug)]
pub enum Failure {
    /// The same call may succeed later: no connection, or a busy broker.
    Again {
        /// The pause that the broker asks for.
        after: Option<Duration>,
        /// A text for people.
        reason: String,
    },
    /// The same call would fail again.
    Final(Problem),
}

/// A call that may be repeated.
struct Call<'a> {
    /// It is about this run: the broker that executes the run may be called.
    run: Option<Identity>,
    method: Method,
    path: &'a str,
    body: Option<Bytes>,
    headers: &'a [(&'a str, &'a str)],
    limit: Duration,
}

/// A broker's addresses, and connections to it.
#[derive(Clone)]
pub struct Client {
    http: awc::Client,
    brokers: Addresses,
    executors: Executors,
    token: Option<String>,
    compresses: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("brokers", &self.brokers).finish_non_exhaustive()
    }
}

impl Client {
    /// A client for the broker at `http://host:port`, or for several of which one leads, separated by commas; with the feature `tls` also
    /// at `https://`. Create it within an actix runtime.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn new(broker: &str, token: Option<&str>) -> Result<Self, Error> {
        let wrong = |reason: String| Error::Address { address: broker.to_owned(), reason };
        let brokers: Addresses = broker.parse().map_err(wrong)?;
        if !cfg!(feature = "tls") && brokers.all().any(|url| url.scheme() != "http") {
            return Err(wrong("http:// is expected: this crate was compiled without its feature `tls`".to_owned()));
        }
        let token = token.map(|text| own(text, &["worker", "admin", "readonly", "agent"]).1.to_owned());
        if token.as_deref().is_some_and(|token| header::HeaderValue::from_str(token).is_err()) {
            return Err(wrong("the token contains a character that is not valid in a header".to_owned()));
        }
        // awc counts WebSockets among its 100 connections and hangs at the next one: use no limit. Its default timeouts of five seconds
        // are shorter than a poll.
        let connector = awc::Connector::new().limit(0).timeout(Duration::from_secs(5));
        #[cfg(feature = "tls")]
        let connector = connector.max_http_version(awc::http::Version::HTTP_11).rustls_0_23(std::sync::Arc::new(crate::tls::client()));
        let http = awc::Client::builder().connector(connector).disable_timeout().disable_redirects().finish();
        let compresses = !brokers.all().all(is_local);
        Ok(Self { http, brokers, executors: Executors::default(), token, compresses })
    }

    /// The addresses of the broker.
    pub(crate) fn brokers(&self) -> &Addresses {
        &self.brokers
    }

    pub(crate) fn socket(&self, broker: &url::Url, path: &str) -> awc::ws::WebsocketsRequest {
        let request = self.http.ws(address(broker, path)).max_frame_size(crate::protocol::MAX_FRAME);
        match &self.token {
            Some(token) => request.header("Token", token.as_str()),
            None => request,
        }
    }

    /// Makes one call without retries. `path` begins with a slash.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        headers: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Answer, Failure> {
        self.once(&Call { run: None, method, path, body, headers, limit }).await
    }

    async fn once(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        let executor = call.run.and_then(|run| self.executors.of(run));
        let (number, leader) = self.brokers.current();
        let broker = executor.as_ref().unwrap_or(leader);
        let mut request = self.http.request(call.method.clone(), address(broker, call.path));
        for header in call.headers {
            request = request.insert_header(*header);
        }
        if let Some(token) = &self.token {
            request = request.insert_header(("Token", token.as_str()));
        }
        let sent = match call.body.clone() {
            None => request.send(),
            Some(body) => {
                request = request.insert_header((header::CONTENT_TYPE, "application/json"));
                let small = (self.compresses && body.len() >= COMPRESS).then(|| zstd_frame::compress(&body));
                match small {
                    Some(Ok(small)) => request.insert_header((header::CONTENT_ENCODING, "zstd")).send_body(small),
                    _ => request.send_body(body),
                }
            }
        };
        let again = |reason: String| {
            match &executor {
                Some(url) => self.executors.tried(url, false),
                None => drop(self.brokers.leave(number)),
            }
            Failure::Again { after: None, reason }
        };
        let whole = async {
            let mut response = sent.await.map_err(|e| again(e.to_string()))?;
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            let state = header(RUN_STATE_HEADER).and_then(RunState::named);
            let after = header(header::RETRY_AFTER.as_str()).and_then(|text| text.parse().ok()).map(Duration::from_secs);
            let executor = header(EXECUTOR_HEADER).map(str::to_owned);
            let body = response.body().limit(MOST_ANSWER).await.map_err(|e| again(e.to_string()))?;
            Ok((response.status(), state, after, executor, body))
        };
        let is_lost = async {
            match &executor {
                Some(url) => dies(&self.http, url.clone()).await,
                // Another task has noticed the silence of the broker.
                None => self.brokers.left(number).await,
            }
        };
        let (status, state, after, named, body) = tokio::select! {
            answered = tokio::time::timeout(call.limit, whole) => {
                answered.map_err(|_| again(format!("no response in {} s", call.limit.as_secs())))??
            }
            // A broker that hangs would keep the call.
            () = is_lost => return Err(again("the broker is silent, and another one may have its work".to_owned())),
        };
        if let Some(run) = call.run {
            self.executors.note(&self.http, run, broker, named.as_deref());
        }
        if status.is_success() {
            return Ok(Answer { status: status.as_u16(), state, body });
        }
        let problem = problem(status, &body);
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Err(Failure::Again { after, reason: problem.to_string() }),
            // The leader may know a newer token.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if executor.is_some() => Err(again(problem.to_string())),
            // The socket of the worker was accepted with this token, which may come back to the token file.
            StatusCode::UNAUTHORIZED if call.run.is_some() => Err(Failure::Again { after, reason: problem.to_string() }),
            _ if problem.is_standby() && self.brokers.are_several() => Err(again(problem.to_string())),
            _ if status.is_server_error() => Err(Failure::Again { after, reason: problem.to_string() }),
            _ => Err(Failure::Final(problem)),
        }
    }

    /// Makes one call and retries it until it succeeds or is finally rejected. To end it earlier, drop it.
    ///
    /// # Errors
    /// The broker's rejection.
    pub async fn send_until_answered(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        headers: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Answer, Error> {
        self.until_answered(Call { run: None, method, path, body, headers, limit }).await
    }

    async fn until_answered(&self, call: Call<'_>) -> Result<Answer, Error> {
        let mut backoff = Backoff::new(FIRST_PAUSE, MOST_PAUSE);
        let mut told = false;
        loop {
            match self.once(&call).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(problem)) => return Err(refusal(problem)),
                Err(Failure::Again { after, reason }) => {
                    if !std::mem::replace(&mut told, true) {
                        log::warn!("call failed, retrying method={} path={}: {reason}", call.method, call.path);
                    }
                    let pause = backoff.next_wait().max(after.unwrap_or_default().min(MOST_RETRY_AFTER));
                    let pause = if self.brokers.are_several() && after.is_none() { pause.min(BRIEF_PAUSE) } else { pause };
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Sends and receives JSON, with retries like [`Client::send_until_answered`].
    ///
    /// # Errors
    /// The broker's rejection, or a response that cannot be parsed.
    pub async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<&serde_json::Value>) -> Result<T, Error> {
        let body = body.map(|value| Bytes::from(value.to_string()));
        let answer = self.send_until_answered(method, path, body, JSON, CALL_TIMEOUT).await?;
        read(&answer)
    }

    async fn of_run(&self, run: Identity, method: Method, path: &str, body: Option<Bytes>) -> Result<Answer, Error> {
        self.until_answered(Call { run: Some(run), method, path, body, headers: JSON, limit: CALL_TIMEOUT }).await
    }

    pub(crate) async fn push(&self, run: Identity, requests: Bytes) -> Result<Pushed, Error> {
        read(&self.of_run(run, Method::POST, &format!("/requestqueue/{run}"), Some(requests)).await?)
    }

    pub(crate) async fn acknowledge(&self, run: Identity, body: Bytes) -> Result<Pushed, Error> {
        read(&self.of_run(run, Method::POST, &format!("/requestqueue/{run}/ack"), Some(body)).await?)
    }

    /// Waits for finished blocks, at most `most` of them. `holds` are the blocks that the worker has: it did not receive others.
    pub(crate) async fn poll(&self, run: Identity, worker: WorkerId, most: usize, holds: &[BlockId]) -> Result<Answer, Error> {
        let path = format!("/requestqueue/{run}?wait={POLL_WAIT_S}&max={most}&worker={worker}");
        let holds = (holds.len() <= MOST_HOLDS).then(|| holds.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        let headers = [Some(("accept", BULK)), holds.as_deref().map(|holds| (HOLDS_HEADER, holds))];
        let headers: Vec<(&str, &str)> = headers.into_iter().flatten().collect();
        let limit = CALL_TIMEOUT + Duration::from_secs(POLL_WAIT_S);
        self.until_answered(Call { run: Some(run), method: Method::GET, path: &path, body: None, headers: &headers, limit }).await
    }

    /// Reports that the first requests of a run are pushed, or why they are not.
    pub(crate) async fn start_returned(&self, run: Identity, error: Option<&str>) -> Result<(), Error> {
        let path = format!("/api/v1/runs/{run}/start-returned");
        let body = serde_json::json!({ "error": error }).to_string();
        self.of_run(run, Method::POST, &path, Some(Bytes::from(body))).await.map(drop)
    }
}

/// The URL of a path, which begins with a slash, at a broker.
fn address(broker: &url::Url, path: &str) -> String {
    format!("{}{path}", broker.as_str().trim_end_matches('/'))
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    read_json(&answer.body).map_err(|problem| Error::Answer(problem.to_string()))
}

fn refusal(problem: Problem) -> Error {
    // A removed run counts as ended.
    match (problem.status, problem.kind.as_str()) {
        (409, "/problems/run-over") => Error::RunOver,
        _ => Error::Refused(problem),
    }
}

fn problem(status: StatusCode, body: &[u8]) -> Problem {
    serde_json::from_slice(body).unwrap_or_else(|_| Problem {
        kind: "about:blank".to_owned(),
        title: status.to_string(),
        status: status.as_u16(),
        detail: String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned(),
        field: None,
    })
}
