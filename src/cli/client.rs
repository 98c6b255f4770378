//! A small client of the REST API: sends requests, parses problems, follows cursors.

use super::connect::{self, Stage};
use super::failure::Failure;
use super::say_error;
use crate::config::addresses::Addresses;
use crate::protocol::problem::Problem;
use crate::tls;
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;
use url::Url;

/// The API's largest page.
const PAGE: usize = 1_000;
const CONNECT: Duration = Duration::from_secs(5);
/// Response timeout: longer than the broker lets any caller wait.
const ANSWER: Duration = Duration::from_secs(90);
/// After this time without a response the command prints that it waits.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of the liveness check.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);
/// Response timeout of a call with a large body.
const LONG_ANSWER: Duration = Duration::from_secs(3_600);

/// Names and values of a query; names without a value are omitted.
pub type Query<'a> = &'a [(&'a str, Option<String>)];

/// A broker's API.
#[derive(Debug)]
pub struct Client {
    brokers: Addresses,
    token: Option<String>,
    http: reqwest::Client,
}

/// A response as received; empty without a body.
#[derive(Debug)]
pub struct Answer {
    /// JSON, unless another format was requested.
    pub text: String,
    /// The broker that sent it.
    broker: Url,
}

impl Answer {
    /// The parsed body.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn value(&self) -> Result<Value, Failure> {
        if self.text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&self.text).map_err(|_| no_broker(&self.broker, "its response is not JSON"))
    }
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    items: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Whether a part of a path arrives as it is: the URL standard resolves dots and drops line breaks, also percent-encoded dots.
fn fits_into_url(part: &str) -> bool {
    !matches!(part, "" | "." | "..") && !part.contains(['\t', '\n', '\r'])
}

impl Client {
    /// A client of this broker, or of several of which one leads. It uses no proxy: a broker is near. It follows no redirect: that would
    /// pass the token to another server, and turn a POST into a GET.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(brokers: Addresses, token: Option<String>) -> Result<Self, Failure> {
        let http = reqwest::Client::builder().tls_backend_preconfigured(tls::client()).no_proxy().redirect(Policy::none());
        let http = http.connect_timeout(CONNECT).timeout(ANSWER);
        let http = http.build().map_err(|e| Failure::Refused(format!("cannot build an HTTP client: {e}")))?;
        Ok(Self { brokers, token, http })
    }

    /// Sends a GET. A path is below `/api/v1`, or, if its first part is empty, below the broker's own URL.
    ///
    /// # Errors
    /// The broker rejects the call or cannot be reached; the same holds for all methods below.
    pub async fn get(&self, path: &[&str], query: Query<'_>) -> Result<Answer, Failure> {
        self.send(Method::GET, path, query, |request| request).await
    }

    /// Sends a GET for another format than JSON.
    pub async fn get_as(&self, media_type: &str, path: &[&str], query: Query<'_>) -> Result<Answer, Failure> {
        self.send(Method::GET, path, query, |request| request.header(ACCEPT, media_type)).await
    }

    /// Sends a POST.
    pub async fn post(&self, path: &[&str], query: Query<'_>, body: &Value) -> Result<Answer, Failure> {
        self.post_text("application/json", path, query, body.to_string()).await
    }

    /// Sends a POST in another format than JSON.
    pub async fn post_text(&self, media_type: &str, path: &[&str], query: Query<'_>, body: String) -> Result<Answer, Failure> {
        self.send(Method::POST, path, query, |request| request.header(CONTENT_TYPE, media_type).body(body.clone())).await
    }

    /// Sends a POST of bytes, without a short timeout.
    pub async fn post_bytes(&self, path: &[&str], query: Query<'_>, body: Vec<u8>) -> Result<Answer, Failure> {
        let body = bytes::Bytes::from(body);
        let with_body =
            |request: RequestBuilder| request.header(CONTENT_TYPE, "application/octet-stream").timeout(LONG_ANSWER).body(body.clone());
        self.send(Method::POST, path, query, with_body).await
    }

    /// Sends a PUT.
    pub async fn put(&self, path: &[&str], body: &Value) -> Result<Answer, Failure> {
        let body = body.to_string();
        self.send(Method::PUT, path, &[], |request| request.header(CONTENT_TYPE, "application/json").body(body.clone())).await
    }

    /// Sends a DELETE.
    pub async fn delete(&self, path: &[&str]) -> Result<Answer, Failure> {
        self.delete_with(path, &[]).await
    }

    /// Sends a DELETE with a query.
    pub async fn delete_with(&self, path: &[&str], query: Query<'_>) -> Result<Answer, Failure> {
        self.send(Method::DELETE, path, query, |request| request).await
    }

    /// The id, in the member `key`, of the entry with this number.
    ///
    /// # Errors
    /// No entry has it, or several do.
    pub async fn numbered(&self, noun: &str, number: &str, key: &str) -> Result<String, Failure> {
        let found = self.get(&[noun, number], &[]).await?.value()?;
        let id = found[key].as_str().map(str::to_owned);
        id.ok_or_else(|| Failure::Refused(format!("the broker's response has no {key} for {number}")))
    }

    /// Reads a list page by page, at most `limit` items, into one document.
    pub async fn list(&self, path: &[&str], query: Query<'_>, limit: usize) -> Result<Answer, Failure> {
        let mut all = Page { items: Vec::new(), next_cursor: None };
        let broker = loop {
            let mut asked = query.to_vec();
            asked.push(("limit", Some((limit - all.items.len()).clamp(1, PAGE).to_string())));
            asked.push(("cursor", all.next_cursor.take()));
            let answer = self.get(path, &asked).await?;
            let page: Page = serde_json::from_str(&answer.text).map_err(|_| no_broker(&answer.broker, "its response is not a list"))?;
            let is_empty = page.items.is_empty();
            all.items.extend(page.items);
            all.next_cursor = page.next_cursor;
            if is_empty || all.next_cursor.is_none() || all.items.len() >= limit {
                break answer.broker;
            }
        };
        // Lists that the broker returns whole may be longer than requested.
        all.items.truncate(limit);
        let text = serde_json::to_string(&all).expect("raw JSON is JSON");
        Ok(Answer { text, broker })
    }

    fn request(&self, broker: &Url, method: Method, path: &[&str], query: Query<'_>) -> Result<RequestBuilder, Failure> {
        let mut url = broker.clone();
        // Only the first part may be empty, and a URL cannot have the others.
        if let Some(part) = path.iter().skip(1).find(|part| !fits_into_url(part)) {
            return Err(Failure::Usage(format!("`{}` is not a name or an id", part.escape_debug())));
        }
        if let Ok(mut segments) = url.path_segments_mut() {
            match path {
                ["", path @ ..] => segments.pop_if_empty().extend(path),
                path => segments.pop_if_empty().extend(["api", "v1"]).extend(path),
            };
        }
        url.set_query(None);
        for (name, value) in query.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            url.query_pairs_mut().append_pair(name, value);
        }
        let request = self.http.request(method, url);
        Ok(match &self.token {
            Some(token) => request.header("Token", token),
            None => request,
        })
    }

    /// With several brokers, a broker that hangs must be skipped. It would accept a connection and an order, and a broker that may have
    /// received an order is never skipped: so a liveness check comes first.
    async fn see_life(&self, broker: &Url) -> Result<(), Failure> {
        if !self.brokers.are_several() {
            return Ok(());
        }
        let mut url = broker.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("healthz");
        }
        let asked = self.http.get(url).timeout(SIGN_OF_LIFE).send().await;
        match asked {
            Ok(_) => Ok(()),
            Err(error) => Err(unreachable(broker, &error).await),
        }
    }

    /// Sends to one broker after the other until one answers that is not a standby. A call that may have been carried out is not sent to
    /// another broker: only brokers that were not reached, or that reject the call as a standby, are skipped.
    async fn send(
        &self,
        method: Method,
        path: &[&str],
        query: Query<'_>,
        finish: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer, Failure> {
        let mut refused = None;
        for _ in self.brokers.all() {
            let (number, broker) = self.brokers.current();
            if let Err(failure) = self.see_life(broker).await {
                self.brokers.leave(number);
                refused = refused.or(Some(failure));
                continue;
            }
            let answer = finish(self.request(broker, method.clone(), path, query)?).send();
            // Some calls ask the broker to wait for something.
            let is_patient = query.iter().any(|(name, value)| *name == "wait" && value.is_some());
            let answer = match if is_patient { answer.await } else { with_notice(broker, answer).await } {
                Ok(answer) => answer,
                Err(error) => {
                    let failure = unreachable(broker, &error).await;
                    if !error.is_connect() {
                        return Err(failure);
                    }
                    self.brokers.leave(number);
                    // A standby's response is more useful than an unreachable broker.
                    refused = refused.or(Some(failure));
                    continue;
                }
            };
            let status = answer.status();
            if status.is_redirection() {
                let target = answer.headers().get(LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
                return Err(Failure::Refused(redirected(broker, status, target.as_deref())));
            }
            let text = match answer.text().await {
                Ok(text) => text,
                Err(error) => return Err(unreachable(broker, &error).await),
            };
            if status.is_success() {
                return Ok(Answer { text, broker: broker.clone() });
            }
            if status == StatusCode::UNAUTHORIZED {
                return Err(Failure::Refused(unauthorized(broker, self.token.is_some())));
            }
            let problem: Problem = match serde_json::from_str(&text) {
                Ok(problem) => problem,
                Err(_) => return Err(no_broker(broker, &format!("it responded with status {status}"))),
            };
            let is_standby = problem.is_standby();
            let failure = Failure::of(problem);
            if !is_standby {
                return Err(failure);
            }
            self.brokers.leave(number);
            refused = Some(failure);
        }
        Err(refused.unwrap_or_else(|| Failure::Refused("no broker is configured".to_owned())))
    }
}

/// Waits for a response. Prints a line on standard error if it takes long.
async fn with_notice<T>(broker: &Url, answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    match tokio::time::timeout(PATIENCE, &mut answer).await {
        Ok(answer) => answer,
        Err(_) => {
            say_error(&format!(
                "the broker at {} has not answered for {} s: waiting",
                broker.as_str().trim_end_matches('/'),
                PATIENCE.as_secs()
            ));
            answer.await
        }
    }
}

async fn unreachable(broker: &Url, error: &reqwest::Error) -> Failure {
    if error.is_builder() {
        return Failure::Usage("the token holds a character that cannot be sent in a header: check --token or WEBLOOM_TOKEN".to_owned());
    }
    let stage = match (error.is_timeout(), error.is_connect()) {
        (true, _) => Stage::TimedOut,
        (_, true) => Stage::Connecting,
        _ => Stage::Talking,
    };
    connect::unreachable(broker, stage, error).await
}

/// Another server listens there.
fn no_broker(address: &Url, why: &str) -> Failure {
    let base = address.as_str().trim_end_matches('/');
    Failure::Refused(format!("the server at {base} is not a Webloom broker: {why}. Check --broker or WEBLOOM_BROKER"))
}

/// The server sends callers elsewhere, as a proxy does that leads from `http` to `https`.
fn redirected(broker: &Url, status: StatusCode, target: Option<&str>) -> String {
    let base = broker.as_str().trim_end_matches('/');
    let target = target.map_or_else(String::new, |target| format!(" to {}", target.escape_debug()));
    format!(
        "the server at {base} redirects{target} (status {status}), which is not followed. Give the broker's own address with --broker or WEBLOOM_BROKER"
    )
}

/// The token is unknown or missing.
fn unauthorized(broker: &Url, has_token: bool) -> String {
    let broker = broker.as_str().trim_end_matches('/');
    if has_token {
        format!("The broker at {broker} did not accept the token. Check --token or WEBLOOM_TOKEN.")
    } else {
        format!("The broker at {broker} needs a token. Give one with --token or WEBLOOM_TOKEN.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let broker = format!("http://{}", listener.local_addr().expect("an address"));
        let answers = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            assert!(stream.read(&mut [0; 4096]).await.expect("a request") > 0);
            let answer = b"HTTP/1.1 301 Moved Permanently\r\nlocation: /elsewhere\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).await.expect("an answer");
            // A second request would wait here for its answer.
            listener.accept().await
        };
        let client = Client::new(broker.parse().expect("an address"), Some("secret".to_owned())).expect("a client");
        let body = Value::Null;
        let failure = tokio::select! {
            answer = client.post(&["jobs"], &[], &body) => answer.expect_err("a redirect"),
            _ = answers => panic!("it was followed"),
        };
        let Failure::Refused(why) = failure else { panic!("{failure:?}") };
        assert!(why.contains("redirects to /elsewhere (status 301") && why.contains("--broker"), "{why}");
    }

    #[test]
    fn an_address_is_put_together() {
        let client = Client::new("http://h:1/behind/".parse().unwrap(), None).unwrap();
        let (_, broker) = client.brokers.current();
        let request = client.request(broker, Method::GET, &["jobs", "a/b"], &[("name", Some("x y".into())), ("kind", None)]);
        assert_eq!(request.expect("a request").build().unwrap().url().as_str(), "http://h:1/behind/api/v1/jobs/a%2Fb?name=x+y");
    }
}
