//! Parses a request of a block and makes it ready to send.

use super::failure::fetch_error;
use crate::domain::fingerprint::Fingerprint;
use crate::protocol::node::{FetchError, FetchErrorKind};
use crate::protocol::push::check_url;
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use reqwest::{Method, Url};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The members of a request that the agent needs; it ignores the rest, such as `meta` and unknown members.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text<'a> {
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    headers: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(borrow, default)]
    body: Option<Cow<'a, str>>,
    #[serde(default)]
    idempotent: Option<bool>,
    #[serde(borrow, default)]
    proxy: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OnlyId {
    request_id: Fingerprint,
}

/// The id of a request, even if the rest cannot be parsed; `None` if there is no readable id.
#[must_use]
pub fn request_id(json: &str) -> Option<Fingerprint> {
    serde_json::from_str::<OnlyId>(json).ok().map(|only| only.request_id)
}

#[derive(Deserialize)]
struct OnlyTries {
    #[serde(default)]
    tries: u32,
}

/// How often earlier nodes have tried a request, according to the broker.
#[must_use]
pub fn earlier_tries(json: &str) -> u32 {
    serde_json::from_str::<OnlyTries>(json).map_or(0, |only| only.tries)
}

/// A request that can be sent, any number of times.
#[derive(Debug)]
pub struct Asked {
    /// The HTTP method.
    pub method: Method,
    /// The target, without a fragment.
    pub url: Url,
    /// Its own headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Option<String>,
    /// A proxy for this request alone.
    pub proxy: Option<String>,
    idempotent: bool,
}

impl Asked {
    /// Parses a request.
    ///
    /// # Errors
    /// Kind *invalid*: it cannot be parsed or cannot be sent.
    pub fn read(json: &str) -> Result<Self, FetchError> {
        let invalid = |why: String| fetch_error(FetchErrorKind::Invalid, why);
        let text: Text<'_> = serde_json::from_str(json).map_err(|e| invalid(format!("cannot parse the request: {e}")))?;
        let url = check_url(&text.url).map_err(|problem| invalid(problem.detail))?;
        let method = match text.method.as_deref() {
            None | Some("GET") => Method::GET,
            Some(other) => Method::from_bytes(other.to_ascii_uppercase().as_bytes())
                .map_err(|_| invalid(format!("`{}` is not an HTTP method", other.chars().take(40).collect::<String>())))?,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in text.headers.iter().flatten() {
            let (name, value) = header(name, value).map_err(invalid)?;
            if !is_of_framing(&name) {
                headers.append(name, value);
            }
        }
        let idempotent = text.idempotent.unwrap_or_else(|| method.is_idempotent());
        let (body, proxy) = (text.body.map(Cow::into_owned), text.proxy.map(Cow::into_owned));
        Ok(Self { method, url, headers, body, proxy, idempotent })
    }

    /// Whether it may be sent again when the outcome of a try is unknown (RFC 9110, section 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }
}

/// Parses a header.
///
/// # Errors
/// The message names the header that cannot be sent.
pub fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let shown = || name.chars().take(80).collect::<String>();
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{}` is not a valid header name", shown()))?;
    let value =
        HeaderValue::from_bytes(value.as_bytes()).map_err(|_| format!("the value of the header `{}` is not valid in HTTP", shown()))?;
    Ok((parsed, value))
}

/// Whether the agent sets a header itself, because it computes the length of the body.
pub fn is_of_framing(name: &HeaderName) -> bool {
    [CONTENT_LENGTH, TRANSFER_ENCODING].contains(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_sent_is_invalid_and_says_why() {
        let cases = [
            ("5", "cannot parse"),
            (r#"{"requestId":"x"}"#, "url"),
            (r#"{"url":"ftp://a/"}"#, "ftp"),
            (r#"{"url":"http://a/","method":"G T"}"#, "G T"),
            (r#"{"url":"http://a/","headers":{"a b":"c"}}"#, "a b"),
            (r#"{"url":"http://a/","headers":{"a":"b\nc"}}"#, "`a`"),
        ];
        for (json, word) in cases {
            let error = Asked::read(json).expect_err(json);
            assert_eq!(error.kind, FetchErrorKind::Invalid);
            assert!(error.message.contains(word), "{json}: {}", error.message);
        }
        assert!(request_id(r#"{"requestId":"0123456789abcdef01234567","url":5}"#).is_some());
        assert!(request_id("{}").is_none());
    }

    #[test]
    fn a_request_is_taken_as_it_is_written() {
        let json = r##"{"requestId":"0123456789abcdef01234567","url":"HTTP://A/x#y","method":"post","headers":{"X-A":"é","cookie":"a=b",
            "Content-Length":"7"},"body":"b","meta":{"any":[1]},"more":1}"##;
        let asked = Asked::read(json).expect("a request");
        assert_eq!((asked.url.as_str(), asked.method.as_str()), ("http://a/x", "POST"));
        assert_eq!(asked.headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-a", "cookie"]);
        assert_eq!(asked.body.as_deref(), Some("b"));
        assert_eq!(asked.headers["cookie"], "a=b");
    }

    #[test]
    fn the_method_says_whether_a_request_may_be_repeated_unless_the_request_does() {
        let may = |more: &str| Asked::read(&format!(r#"{{"url":"http://a/"{more}}}"#)).expect("a request").is_idempotent();
        for method in ["GET", "head", "OPTIONS", "TRACE", "PUT", "delete"] {
            assert!(may(&format!(r#","method":"{method}""#)), "{method}");
            assert!(!may(&format!(r#","method":"{method}","idempotent":false"#)), "{method}");
        }
        for method in ["POST", "PATCH", "post", "PURGE"] {
            assert!(!may(&format!(r#","method":"{method}""#)), "{method}");
            assert!(may(&format!(r#","method":"{method}","idempotent":true"#)), "{method}");
        }
        assert!(may(r#","idempotent":null"#));
    }
}
