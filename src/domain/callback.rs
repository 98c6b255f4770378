//! Callback jobs: at fire time the broker makes an HTTP request.

use super::run::Run;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest body and the longest answer that is kept, in bytes.
pub const MOST_BODY: usize = 65_536;
/// Headers of one request.
pub const MOST_HEADERS: usize = 50;
/// Headers that the request's own form decides, or that the broker sets.
const RESERVED: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "te",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webloom-attempt",
    "webloom-run",
    "webloom-signature",
];

/// The request of a callback job. URL, header values and body may hold placeholders: `{runId}`, `{jobId}`, `{jobName}`,
/// `{fireTime}`, `{attempt}`, `{traceId}` and `{arguments}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Callback {
    /// An absolute http or https URL.
    pub url: String,
    /// GET, POST, PUT, PATCH, DELETE or HEAD. POST if there is a body, else GET.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Sent along.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Sent as it is, once its placeholders are filled in; `application/json` unless a header says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Statuses that count as success; 200 to 299 if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<u16>,
    /// Signs each request: header `Webloom-Signature: t=<ms>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`. Never shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl Callback {
    /// The method that is used.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method.as_deref().unwrap_or(if self.body.is_some() { "POST" } else { "GET" })
    }

    /// In lists: the method and the URL without its query, which may hold a secret; at most 100 characters.
    #[must_use]
    pub fn title(&self) -> String {
        let url = self.url.split(['?', '#']).next().unwrap_or_default();
        format!("{} {url}", self.method()).chars().take(100).collect()
    }

    /// Checks what can be checked without making the request.
    ///
    /// # Errors
    /// Which part is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let url =
            url::Url::parse(&self.url).map_err(|_| ("url", format!("`{}` is not a URL: https://example.com/path is one", self.url)))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(("url", format!("`{}` is not a URL of http or https", self.url)));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(("url", "a URL is shown in lists: a name and a password belong into the header `Authorization`".to_owned()));
        }
        if url.host_str().is_some_and(|host| host.contains('{')) {
            return Err(("url", "placeholders stand in the path and the query, not in the host".to_owned()));
        }
        if self.url.chars().count() > 2_000 {
            return Err(("url", "at most 2000 characters are taken".to_owned()));
        }
        if !["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"].contains(&self.method()) {
            return Err(("method", format!("must be GET, POST, PUT, PATCH, DELETE or HEAD, not `{}`", self.method())));
        }
        if self.headers.len() > MOST_HEADERS {
            return Err(("headers", format!("at most {MOST_HEADERS} are taken")));
        }
        for (name, value) in &self.headers {
            let is_token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
            if !is_token || value.bytes().any(|b| b < 0x20 && b != b'\t' || b == 0x7f) || name.len() + value.len() > 8_192 {
                return Err(("headers", format!("`{name}` is no header that can be sent")));
            }
            if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
                return Err(("headers", format!("`{name}` is set by the broker")));
            }
        }
        if self.body.as_ref().is_some_and(|body| body.len() > MOST_BODY) {
            return Err(("body", format!("at most {MOST_BODY} bytes are taken")));
        }
        if let Some(status) = self.expect.iter().find(|status| !(100..=599).contains(*status)) {
            return Err(("expect", format!("must be an HTTP status from 100 to 599, not {status}")));
        }
        if self.secret.as_ref().is_some_and(|secret| secret.len() > 500) {
            return Err(("secret", "at most 500 bytes are taken".to_owned()));
        }
        Ok(())
    }

    /// A status of this kind is success.
    #[must_use]
    pub fn expects(&self, status: u16) -> bool {
        if self.expect.is_empty() { (200..300).contains(&status) } else { self.expect.contains(&status) }
    }

    /// Whether the body is of this kind, by its header; JSON if there is none.
    fn is_of(&self, kind: &str) -> bool {
        match self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            Some((_, value)) => value.to_ascii_lowercase().contains(kind),
            None => kind == "json",
        }
    }

    /// The request of a run: placeholders filled in, so that no value can be more than a value. In the URL and in a form it
    /// is percent-encoded, in a body of JSON escaped as a part of a string, in a header without control characters.
    #[must_use]
    pub fn filled(&self, run: &Run) -> Filled {
        let values = Values::of(run);
        let body = self.body.as_deref().map(|body| {
            let escape = if self.is_of("json") {
                json_part
            } else if self.is_of("form-urlencoded") {
                percent
            } else {
                str::to_owned
            };
            values.fill(body, escape)
        });
        let header = |value: &str| value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Filled {
            url: values.fill(&self.url, percent),
            headers: self.headers.iter().map(|(name, value)| (name.clone(), values.fill(value, header))).collect(),
            body,
        }
    }
}

/// A request whose placeholders are filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Where to.
    pub url: String,
    /// Sent along.
    pub headers: Vec<(String, String)>,
    /// Sent.
    pub body: Option<String>,
}

/// What the placeholders stand for.
struct Values([(&'static str, String); 7]);

impl Values {
    fn of(run: &Run) -> Self {
        Self([
            ("{runId}", run.identity.to_string()),
            ("{jobId}", run.job_id.to_string()),
            ("{jobName}", run.job_name.clone()),
            ("{fireTime}", run.planned_at.unwrap_or(run.creation_time).to_string()),
            ("{attempt}", run.attempt.to_string()),
            ("{traceId}", run.trace_id.clone().unwrap_or_default()),
            ("{arguments}", run.arguments.clone().unwrap_or_default()),
        ])
    }

    /// In one pass: what a value holds is not looked at again. Braces around other words stay as they are.
    fn fill(&self, text: &str, escape: impl Fn(&str) -> String) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            match self.0.iter().find(|(name, _)| rest.starts_with(name)) {
                Some((name, value)) => {
                    out.push_str(&escape(value));
                    rest = &rest[name.len()..];
                }
                None => {
                    out.push('{');
                    rest = &rest[1..];
                }
            }
        }
        out + rest
    }
}

/// All but the unreserved characters of RFC 3986.
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// As it stands between the quotes of a JSON string.
fn json_part(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
#[path = "callback_tests.rs"]
mod tests;
