//! Callback jobs: at fire time the broker makes an HTTP request.

use super::run::Run;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The maximum size of a request body and of the part of a response that is kept, in bytes.
pub const MOST_BODY: usize = 65_536;
/// Maximum number of headers in a request.
pub const MOST_HEADERS: usize = 50;
/// Headers that HTTP itself determines, or that the broker sets.
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
    /// Request headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body, sent after its placeholders are filled in; `application/json` unless a header sets another content type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Statuses that count as success; 200 to 299 if the list is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<u16>,
    /// Signs each request: header `Webloom-Signature: t=<ms>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`. Never shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl Callback {
    /// The request method.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method.as_deref().unwrap_or(if self.body.is_some() { "POST" } else { "GET" })
    }

    /// For lists: the method and the URL without its query, which may contain a secret; at most 100 characters.
    #[must_use]
    pub fn title(&self) -> String {
        let url = self.url.split(['?', '#']).next().unwrap_or_default();
        format!("{} {url}", self.method()).chars().take(100).collect()
    }

    /// Checks what can be checked without making the request.
    ///
    /// # Errors
    /// The part that is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let url =
            url::Url::parse(&self.url).map_err(|_| ("url", format!("`{}` is not a URL: https://example.com/path is one", self.url)))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(("url", format!("`{}` is not a URL of http or https", self.url)));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(("url", "must not contain a user name or password: use the header `Authorization`".to_owned()));
        }
        if url.host_str().is_some_and(|host| host.contains('{')) {
            return Err(("url", "placeholders must be in the path or the query, not in the host".to_owned()));
        }
        if self.url.chars().count() > 2_000 {
            return Err(("url", "must be at most 2000 characters".to_owned()));
        }
        if !["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"].contains(&self.method()) {
            return Err(("method", format!("must be GET, POST, PUT, PATCH, DELETE or HEAD, not `{}`", self.method())));
        }
        if self.headers.len() > MOST_HEADERS {
            return Err(("headers", format!("must be at most {MOST_HEADERS} headers")));
        }
        for (name, value) in &self.headers {
            let is_token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
            if !is_token || value.bytes().any(|b| b < 0x20 && b != b'\t' || b == 0x7f) || name.len() + value.len() > 8_192 {
                return Err(("headers", format!("`{name}` is not a valid header")));
            }
            if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
                return Err(("headers", format!("`{name}` is set by the broker")));
            }
        }
        if self.body.as_ref().is_some_and(|body| body.len() > MOST_BODY) {
            return Err(("body", format!("must be at most {MOST_BODY} bytes")));
        }
        if let Some(status) = self.expect.iter().find(|status| !(100..=599).contains(*status)) {
            return Err(("expect", format!("must be an HTTP status from 100 to 599, not {status}")));
        }
        if self.secret.as_ref().is_some_and(|secret| secret.len() > 500) {
            return Err(("secret", "must be at most 500 bytes".to_owned()));
        }
        Ok(())
    }

    /// Whether this status counts as success.
    #[must_use]
    pub fn expects(&self, status: u16) -> bool {
        if self.expect.is_empty() { (200..300).contains(&status) } else { self.expect.contains(&status) }
    }

    /// Whether the body is of this content type according to its header; JSON if there is no header.
    fn is_of(&self, kind: &str) -> bool {
        match self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            Some((_, value)) => value.to_ascii_lowercase().contains(kind),
            None => kind == "json",
        }
    }

    /// The request of a run with placeholders filled in. Values are escaped so that they cannot change the structure: percent-encoded in
    /// the URL and in a form, JSON-escaped in a JSON body, without control characters in a header.
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
    /// The URL.
    pub url: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<String>,
}

/// Values of the placeholders.
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

    /// Replaces in one pass, so placeholders inside values are not replaced. Unknown names in braces stay as they are.
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

/// Percent-encodes all but the unreserved characters of RFC 3986.
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

/// Escapes a text for use inside the quotes of a JSON string.
fn json_part(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
#[path = "callback_tests.rs"]
mod tests;
