//! One try of a request: sends it and reads the whole response, within the limits of time and size.

use super::content::{codings, decode};
use super::failure::{before_the_head, fetch_error, in_the_body};
use super::memory::{FREE, Share};
use crate::domain::redirect::is_redirect;
use crate::protocol::node::{FetchError, FetchErrorKind};
use crate::protocol::pack::Head;
use bytes::Bytes;
use reqwest::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Request, Response, Url, Version};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A body whose buffer has more unused bytes than this is copied to a smaller one.
const MOST_UNUSED: usize = 64 << 10;

/// The result of a try. After an error in the body, the status and the head are kept, but the partial body is not.
#[derive(Debug, Default)]
pub struct Answer {
    /// The HTTP status; 0 if there was no response.
    pub status: u16,
    /// The headers, and the final URL after redirects.
    pub head: Head,
    /// The body, decompressed.
    pub body: Bytes,
    /// The request certainly did not reach the site.
    pub unsent: bool,
    /// It did not begin or was not continued, because the turn at its site had ended.
    pub is_stopped: bool,
    /// The wait that the site asks for.
    pub retry_after: Option<Duration>,
    /// The target of a redirect; empty if it names none.
    pub location: Option<String>,
    /// Why there is no response, or no complete one.
    pub error: Option<FetchError>,
    /// The memory reserved for the body.
    pub share: Option<Share>,
}

impl From<FetchError> for Answer {
    fn from(error: FetchError) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
}

impl Answer {
    /// From a response whose body is not read yet. `asked` is the requested URL, `answered` the final one after redirects.
    #[must_use]
    pub fn head(response: &Response, asked: &Url, answered: &Url) -> Self {
        Self {
            status: response.status().as_u16(),
            head: Head {
                target_url: target_url(asked, answered),
                headers: text_headers(response.headers()),
                remote_address: response.remote_addr().map(|address| address.ip()),
                protocol: (response.version() != Version::HTTP_11).then(|| format!("{:?}", response.version())),
                ..Head::default()
            },
            retry_after: retry_after(response.headers()),
            location: is_redirect(response.status().as_u16()).then(|| location(response.headers(), answered)),
            ..Self::default()
        }
    }
}

fn late(what: &str, timeout: Duration) -> FetchError {
    fetch_error(FetchErrorKind::Timeout, format!("{what} within {} ms", timeout.as_millis()))
}

/// Sends a request. `timeout` is the time from which `deadline` was computed.
///
/// # Errors
/// The outcome, if there is no response.
pub async fn send(client: &Client, request: Request, deadline: Instant, timeout: Duration) -> Result<Response, Answer> {
    match timeout_at(deadline, client.execute(request)).await {
        Err(_) => Err(late("no answer", timeout).into()),
        Ok(Err(error)) => Err(Answer { unsent: error.is_connect(), ..before_the_head(&error).into() }),
        Ok(Ok(response)) => Ok(response),
    }
}

/// Limits and memory for reading a body.
pub struct Reading {
    /// When the body must be complete. Waiting for memory is not the site's fault, so it moves the deadline.
    pub deadline: Instant,
    /// The time from which the deadline was computed.
    pub timeout: Duration,
    /// The limit of the decompressed body, in bytes.
    pub max_body: u64,
    /// The reserved memory.
    pub share: Share,
}

impl Reading {
    /// Fails when the deadline has passed.
    pub async fn in_time<T>(&self, step: impl Future<Output = Result<T, FetchError>>) -> Result<T, FetchError> {
        timeout_at(self.deadline, step).await.unwrap_or_else(|_| Err(late("no whole answer", self.timeout)))
    }

    /// Waits for memory for `size` bytes of a body, and for a step ahead. `expected`: no more bytes than this will come.
    pub async fn reserve(&mut self, size: usize, expected: u64) {
        if size <= FREE || size <= self.share.bytes() {
            return;
        }
        let expected = usize::try_from(expected).unwrap_or(usize::MAX);
        let step = self.share.bytes().max(FREE).saturating_mul(2).min(expected).max(size);
        let wait = Instant::now();
        self.share.grow(step).await;
        self.deadline += wait.elapsed();
    }
}

/// Reads the rest of a response; `answer` holds its head.
pub async fn read(response: Response, mut answer: Answer, mut reading: Reading) -> Answer {
    match read_body(response, &mut reading).await {
        Err(error) => answer.error = Some(error),
        Ok((body, decoded)) => {
            if reading.share.bytes() > 0 {
                reading.share.shrink(body.len());
                answer.share = Some(reading.share);
            }
            answer.body = body;
            if decoded {
                // These headers describe the packed body, not the unpacked one that is reported.
                answer.head.headers.retain(|(name, _)| *name != CONTENT_ENCODING.as_str() && *name != CONTENT_LENGTH.as_str());
            }
        }
    }
    answer
}

/// The body, and whether content codings were undone.
async fn read_body(mut response: Response, reading: &mut Reading) -> Result<(Bytes, bool), FetchError> {
    if response.headers().contains_key(CONTENT_ENCODING) {
        // A response without a body, for example to HEAD, may name any coding: its headers describe a body that was not sent.
        let Some(first) = reading.in_time(next_chunk(&mut response)).await? else { return Ok((Bytes::new(), false)) };
        let codings = codings(response.headers())?;
        return Ok((decode(&mut response, first, &codings, reading).await?, true));
    }
    read_plain(response, reading).await.map(|body| (body, false))
}

async fn read_plain(mut response: Response, reading: &mut Reading) -> Result<Bytes, FetchError> {
    let max_body = reading.max_body;
    let too_large = || fetch_error(FetchErrorKind::TooLarge, format!("the body must be at most {max_body} bytes"));
    let announced = response.content_length();
    if announced.is_some_and(|announced| announced > max_body) {
        return Err(too_large());
    }
    let Some(first) = reading.in_time(next_chunk(&mut response)).await? else { return Ok(Bytes::new()) };
    if first.len() as u64 > max_body {
        return Err(too_large());
    }
    // Most pages come in one piece, which is not copied.
    let Some(second) = reading.in_time(next_chunk(&mut response)).await? else { return Ok(first) };
    let announced = announced.and_then(|announced| usize::try_from(announced).ok());
    let mut body = Vec::with_capacity(announced.unwrap_or(0).min(FREE).max(first.len() + second.len()));
    body.extend_from_slice(&first);
    drop(first);
    let mut next = Some(second);
    while let Some(chunk) = next {
        let size = body.len() + chunk.len();
        if size as u64 > max_body {
            return Err(too_large());
        }
        reading.reserve(size, announced.map_or(max_body, |announced| announced as u64)).await;
        if size > body.capacity() {
            // The announced length may be wrong, but memory that is reserved and not used costs nothing.
            let capacity = announced.unwrap_or(body.capacity() * 2).max(size);
            body.reserve_exact(capacity - body.len());
        }
        body.extend_from_slice(&chunk);
        drop(chunk);
        next = reading.in_time(next_chunk(&mut response)).await?;
    }
    if body.capacity() - body.len() > MOST_UNUSED {
        body.shrink_to_fit();
    }
    Ok(body.into())
}

async fn next_chunk(response: &mut Response) -> Result<Option<Bytes>, FetchError> {
    response.chunk().await.map_err(|error| in_the_body(&error))
}

fn target_url(asked: &Url, answered: &Url) -> Option<String> {
    (asked != answered).then(|| {
        let mut url = answered.clone();
        // A password is only for the site; removing it works for any URL with a host.
        let _ = (url.set_username(""), url.set_password(None));
        url.into()
    })
}

/// The target that a response from this URL names. Bytes that are not UTF-8 are percent-encoded, as they would be in a URL.
pub fn location(headers: &HeaderMap, answered: &Url) -> String {
    let Some(bytes) = headers.get(LOCATION).map(HeaderValue::as_bytes) else { return String::new() };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| if byte.is_ascii() { char::from(*byte).to_string() } else { format!("%{byte:02X}") }).collect(),
    };
    // What cannot be resolved is shown as it is.
    answered.join(&text).map_or(text, String::from)
}

fn text_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())).collect()
}

/// Parses both forms of RFC 9110: seconds or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = chrono::DateTime::parse_from_rfc2822(text).ok()?;
    let now = crate::domain::time::Timestamp::now();
    Some(Duration::from_millis(u64::try_from(date.timestamp_millis() - now.0).unwrap_or(0)))
}
