//! One try: sent, answered, read to the end, within its time and its size.

use super::failure::{before_the_head, fetch_error, in_the_body};
use crate::protocol::node::{FetchError, FetchErrorKind};
use crate::protocol::pack::Head;
use bytes::Bytes;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Request, Response, Url};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What is set aside for a body before any of it has come.
const MOST_RESERVED: u64 = 1 << 20;

/// What came of a try. With an error in the body the status and the head are kept, the part of the body is not.
#[derive(Debug, Default)]
pub struct Answer {
    /// The HTTP status; 0 if there was no answer.
    pub status: u16,
    /// Headers, and where the redirects led.
    pub head: Head,
    /// The body, decompressed.
    pub body: Bytes,
    /// How long the site asks to be left alone.
    pub retry_after: Option<Duration>,
    /// Why there is no answer, or not a whole one.
    pub error: Option<FetchError>,
}

impl From<FetchError> for Answer {
    fn from(error: FetchError) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
}

/// Sends a request and reads its answer. `timeout` is for both together; `max_body` counts decompressed bytes.
pub async fn attempt(client: &Client, request: Request, asked: &Url, timeout: Duration, max_body: u64) -> Answer {
    let deadline = Instant::now() + timeout;
    let late = |what: &str| fetch_error(FetchErrorKind::Timeout, format!("{what} within {} ms", timeout.as_millis()));
    let response = match timeout_at(deadline, client.execute(request)).await {
        Err(_) => return late("no answer").into(),
        Ok(Err(error)) => return before_the_head(&error).into(),
        Ok(Ok(response)) => response,
    };
    let mut answer = Answer {
        status: response.status().as_u16(),
        head: Head { target_url: target_url(asked, response.url()), headers: text_headers(response.headers()) },
        retry_after: retry_after(response.headers()),
        ..Answer::default()
    };
    match timeout_at(deadline, read_body(response, max_body)).await {
        Err(_) => answer.error = Some(late("no whole answer")),
        Ok(Err(error)) => answer.error = Some(error),
        Ok(Ok(body)) => answer.body = body,
    }
    answer
}

async fn read_body(mut response: Response, max_body: u64) -> Result<Bytes, FetchError> {
    let too_large = || fetch_error(FetchErrorKind::TooLarge, format!("the body is over {max_body} bytes"));
    let announced = response.content_length().unwrap_or(0);
    if announced > max_body {
        return Err(too_large());
    }
    let Some(first) = next_chunk(&mut response).await? else { return Ok(Bytes::new()) };
    if first.len() as u64 > max_body {
        return Err(too_large());
    }
    // Most pages come in one piece, and then nothing is copied.
    let Some(second) = next_chunk(&mut response).await? else { return Ok(first) };
    let mut body = Vec::with_capacity((first.len() + second.len()).max(announced.min(MOST_RESERVED) as usize));
    body.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(chunk) = next {
        if (body.len() + chunk.len()) as u64 > max_body {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
        next = next_chunk(&mut response).await?;
    }
    Ok(body.into())
}

async fn next_chunk(response: &mut Response) -> Result<Option<Bytes>, FetchError> {
    response.chunk().await.map_err(|error| in_the_body(&error))
}

fn target_url(asked: &Url, answered: &Url) -> Option<String> {
    (asked != answered).then(|| answered.as_str().to_owned())
}

fn text_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())).collect()
}

/// Both forms of RFC 9110: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = chrono::DateTime::parse_from_rfc2822(text).ok()?;
    let now = crate::domain::time::Timestamp::now();
    Some(Duration::from_millis(u64::try_from(date.timestamp_millis() - now.0).unwrap_or(0)))
}
