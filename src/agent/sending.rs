//! The data sent to a site: the headers of a request and those that its client adds.

use crate::protocol::pack::Sent;
use reqwest::Request;
use reqwest::header::{HOST, HeaderMap, HeaderValue};

/// The request as it is sent. `defaults`: what its client adds.
#[must_use]
pub fn sent(request: &Request, defaults: &HeaderMap) -> Sent {
    let (url, own) = (request.url(), request.headers());
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut headers = Vec::with_capacity(own.len() + 4);
    if !own.contains_key(HOST) {
        let host = url.host_str().unwrap_or_default();
        headers.push((HOST.as_str().to_owned(), url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))));
    }
    headers.extend(own.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))));
    let added = defaults.iter().filter(|(name, _)| !own.contains_key(*name));
    headers.extend(added.map(|(name, value)| (name.as_str().to_owned(), text(value))));
    Sent { method: request.method().to_string(), headers }
}
