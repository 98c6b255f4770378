//! Callback jobs: at fire time the broker makes an HTTP request.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest body and the longest answer that is kept, in bytes.
pub const MOST_BODY: usize = 65_536;
/// Headers of one request.
pub const MOST_HEADERS: usize = 50;

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

    /// In lists: the method and the URL, at most 100 characters.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}", self.method(), self.url).chars().take(100).collect()
    }

    /// Checks what can be checked without making the request.
    ///
    /// # Errors
    /// Which part is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let url = url::Url::parse(&self.url).map_err(|e| ("url", format!("`{}` is no absolute URL: {e}", self.url)))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(("url", format!("`{}` is no http or https URL", self.url)));
        }
        if self.url.chars().count() > 2_000 {
            return Err(("url", "at most 2000 characters are taken".to_owned()));
        }
        if !["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"].contains(&self.method()) {
            return Err(("method", format!("`{}` is none of GET, POST, PUT, PATCH, DELETE and HEAD", self.method())));
        }
        if self.headers.len() > MOST_HEADERS {
            return Err(("headers", format!("at most {MOST_HEADERS} are taken")));
        }
        for (name, value) in &self.headers {
            let is_token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
            if !is_token || value.bytes().any(|b| b < 0x20 && b != b'\t' || b == 0x7f) || name.len() + value.len() > 8_192 {
                return Err(("headers", format!("`{name}` is no header that can be sent")));
            }
        }
        if self.body.as_ref().is_some_and(|body| body.len() > MOST_BODY) {
            return Err(("body", format!("at most {MOST_BODY} bytes are taken")));
        }
        if let Some(status) = self.expect.iter().find(|status| !(100..=599).contains(*status)) {
            return Err(("expect", format!("{status} is no HTTP status")));
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
}
