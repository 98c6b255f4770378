//! Calls of a broker over HTTP. What may go better the next time is repeated here, with growing pauses; what is final
//! is told.

use super::backoff::Backoff;
use super::error::Error;
use crate::config::addresses::Addresses;
use crate::domain::ids::{Identity, WorkerId};
use crate::domain::run::RunState;
use crate::protocol::problem::Problem;
use crate::protocol::push::{Pushed, read_json};
use crate::protocol::token::own;
use crate::protocol::{BULK, RUN_STATE_HEADER};
use awc::http::{Method, StatusCode, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Seconds that a poll of the queue waits at the broker.
const POLL_WAIT_S: u64 = 30;
/// The longest pause between two tries, where one of several brokers is about to lead.
const BRIEF_PAUSE: Duration = Duration::from_secs(1);
/// The longest that anything else may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer: a block is as large as its pages.
const MOST_ANSWER: usize = 1 << 30;
/// Bodies from this size on are compressed, if they have a network to cross.
const COMPRESS: usize = 1 << 10;

/// An answer with a status of 2xx.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The state of the run, on answers about its queue.
    pub state: Option<RunState>,
    /// The body.
    pub body: Bytes,
}

/// Why there is none.
#[derive(Debug)]
pub enum Failure {
    /// The same call may go well later: no connection, a busy broker.
    Again {
        /// The broker asks for this pause.
        after: Option<Duration>,
        /// In words.
        reason: String,
    },
    /// It will not.
    Final(Problem),
}

/// A broker's addresses, and connections to it.
#[derive(Clone)]
pub struct Client {
    http: awc::Client,
    brokers: Addresses,
    token: Option<String>,
    compresses: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("brokers", &self.brokers).finish_non_exhaustive()
    }
}

impl Client {
    /// For the broker at `http://host:port`, or for several of which one leads, with commas between them; with the feature `tls`
    /// also at `https://`. To be made within an actix runtime.
    ///
    /// # Errors
    /// The address is none.
    pub fn new(broker: &str, token: Option<&str>) -> Result<Self, Error> {
        let wrong = |reason: String| Error::Address { address: broker.to_owned(), reason };
        let brokers: Addresses = broker.parse().map_err(wrong)?;
        if !cfg!(feature = "tls") && brokers.all().any(|url| url.scheme() != "http") {
            return Err(wrong("http:// is expected: the crate was compiled without its feature `tls`".to_owned()));
        }
        let token = token.map(|text| own(text, &["worker", "admin", "readonly", "agent"]).1.to_owned());
        if token.as_deref().is_some_and(|token| header::HeaderValue::from_str(token).is_err()) {
            return Err(wrong("the token for it holds what no header can".to_owned()));
        }
        // awc counts WebSockets among its 100 connections, and hangs at the next one: no limit. Its time-outs of five
        // seconds are shorter than a poll.
        let connector = awc::Connector::new().limit(0).timeout(Duration::from_secs(5));
        #[cfg(feature = "tls")]
        let connector = connector.max_http_version(awc::http::Version::HTTP_11).rustls_0_23(std::sync::Arc::new(crate::tls::client()));
        let http = awc::Client::builder().connector(connector).disable_timeout().disable_redirects().finish();
        let compresses = !brokers.all().all(is_local);
        Ok(Self { http, brokers, token, compresses })
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

    /// One call, tried once. `path` begins with a slash; `accept` asks for a media type.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn call(&self, method: Method, path: &str, body: Option<Bytes>, accept: &str, limit: Duration) -> Result<Answer, Failure> {
        let (number, broker) = self.brokers.current();
        let mut request = self.http.request(method, address(broker, path)).insert_header((header::ACCEPT, accept));
        if let Some(token) = &self.token {
            request = request.insert_header(("Token", token.as_str()));
        }
        let sent = match body {
            None => request.send(),
            Some(body) => {
                request = request.insert_header((header::CONTENT_TYPE, "application/json"));
                let small = (self.compresses && body.len() >= COMPRESS).then(|| zstd::bulk::compress(&body, 1));
                match small {
                    Some(Ok(small)) => request.insert_header((header::CONTENT_ENCODING, "zstd")).send_body(small),
                    _ => request.send_body(body),
                }
            }
        };
        let again = |reason: String| {
            self.brokers.leave(number);
            Failure::Again { after: None, reason }
        };
        let whole = async {
            let mut response = sent.await.map_err(|e| again(e.to_string()))?;
            let state = response.headers().get(RUN_STATE_HEADER).and_then(|value| RunState::named(value.to_str().ok()?));
            let after = response.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok()).map(Duration::from_secs);
            let body = response.body().limit(MOST_ANSWER).await.map_err(|e| again(e.to_string()))?;
            Ok((response.status(), state, after, body))
        };
        let (status, state, after, body) = tokio::select! {
            answered = tokio::time::timeout(limit, whole) => answered.map_err(|_| again(format!("no answer in {} s", limit.as_secs())))??,
            // A broker that hangs holds on to what it was sent; its silence was noticed elsewhere.
            () = self.brokers.left(number) => return Err(again("another broker may lead".to_owned())),
        };
        if status.is_success() {
            return Ok(Answer { status: status.as_u16(), state, body });
        }
        let problem = problem(status, &body);
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Err(Failure::Again { after, reason: problem.to_string() }),
            _ if problem.is_standby() && self.brokers.are_several() => Err(again(problem.to_string())),
            _ if status.is_server_error() => Err(Failure::Again { after, reason: problem.to_string() }),
            _ => Err(Failure::Final(problem)),
        }
    }

    /// One call, repeated until it is answered or finally refused. To end it earlier, drop it.
    ///
    /// # Errors
    /// The broker's refusal.
    pub async fn send_until_answered(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        accept: &str,
        limit: Duration,
    ) -> Result<Answer, Error> {
        let mut backoff = Backoff::default();
        let mut told = false;
        loop {
            match self.call(method.clone(), path, body.clone(), accept, limit).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(problem)) => return Err(refusal(problem)),
                Err(Failure::Again { after, reason }) => {
                    if !std::mem::replace(&mut told, true) {
                        log::warn!("call fails and is repeated method={method} path={path}: {reason}");
                    }
                    let pause = backoff.pause(after);
                    let pause = if self.brokers.are_several() && after.is_none() { pause.min(BRIEF_PAUSE) } else { pause };
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Sends and reads JSON, as [`Client::send_until_answered`] does.
    ///
    /// # Errors
    /// The broker's refusal, or an answer that cannot be read.
    pub async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<&serde_json::Value>) -> Result<T, Error> {
        let body = body.map(|value| Bytes::from(value.to_string()));
        let answer = self.send_until_answered(method, path, body, "application/json", CALL_TIMEOUT).await?;
        read(&answer)
    }

    pub(crate) async fn push(&self, run: Identity, requests: Bytes) -> Result<Pushed, Error> {
        let answer = self
            .send_until_answered(Method::POST, &format!("/requestqueue/{run}"), Some(requests), "application/json", CALL_TIMEOUT)
            .await?;
        read(&answer)
    }

    pub(crate) async fn acknowledge(&self, run: Identity, body: Bytes) -> Result<Pushed, Error> {
        let path = format!("/requestqueue/{run}/ack");
        read(&self.send_until_answered(Method::POST, &path, Some(body), "application/json", CALL_TIMEOUT).await?)
    }

    /// Waits for finished blocks, at most `most` of them.
    pub(crate) async fn poll(&self, run: Identity, worker: WorkerId, most: usize) -> Result<Answer, Error> {
        let path = format!("/requestqueue/{run}?wait={POLL_WAIT_S}&max={most}&worker={worker}");
        self.send_until_answered(Method::GET, &path, None, BULK, CALL_TIMEOUT + Duration::from_secs(POLL_WAIT_S)).await
    }

    /// Says that the first requests of a run are pushed, or why they are not.
    pub(crate) async fn start_returned(&self, run: Identity, error: Option<&str>) -> Result<(), Error> {
        let path = format!("/api/v1/runs/{run}/start-returned");
        let body = serde_json::json!({ "error": error }).to_string();
        self.send_until_answered(Method::POST, &path, Some(Bytes::from(body)), "application/json", CALL_TIMEOUT).await.map(drop)
    }
}

/// A path, which begins with a slash, at a broker.
fn address(broker: &url::Url, path: &str) -> String {
    format!("{}{path}", broker.as_str().trim_end_matches('/'))
}

fn is_local(url: &url::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    read_json(&answer.body).map_err(|problem| Error::Answer(problem.to_string()))
}

fn refusal(problem: Problem) -> Error {
    // A run that is gone is as over as one that ended.
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
