//! Requests that are pushed into a run: their format, parsing and checks.

use super::borrowed::{CheckedHeaders, Text};
use super::parser_errors::{unread_json, why_not_json};
use super::problem::Problem;
use crate::domain::fingerprint::{Fingerprint, canonical, is_canonical, normalized};
use crate::domain::guards::Shape;
use crate::domain::ids::BlockId;
use crate::domain::origin::{MOST_ORIGINS, Origin};
use crate::domain::request::{MOST_PRIORITY, NewRequest, RequestBatch, or_default, priority};
use crate::domain::settings::check_proxy;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of requests in one call.
pub const MOST_REQUESTS: usize = 100_000;
/// Maximum bytes of a URL.
pub const MOST_URL: usize = 8_192;
/// Maximum characters of a key.
pub const MOST_KEY: usize = 1_024;
/// Maximum bytes of one request's JSON.
pub const MOST_REQUEST: usize = 1 << 20;

/// A request, written by a worker and read by a node. Unknown members are kept and come back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema), schemars(extend("required" = ["url"], "examples" = [{ "url": "http://localhost/", "depth": 1 }])))]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// Set by the broker; a value in the input is ignored.
    #[cfg_attr(feature = "broker", schemars(schema_with = "request_id"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Fingerprint>,
    /// Set by the broker: number of tries by nodes that gave it back. A value in the input is ignored.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "or_default")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<u32>"))]
    pub tries: u32,
    /// `http` or `https`.
    #[cfg_attr(feature = "broker", schemars(length(min = 1, max = MOST_URL)))]
    pub url: String,
    /// The method; GET by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(regex(pattern = "^[A-Za-z-]{1,20}$")))]
    pub method: Option<String>,
    /// Headers of this request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_default")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<BTreeMap<String, String>>"))]
    pub headers: BTreeMap<String, String>,
    /// A body as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Number of links between it and a first request.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "or_default")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<u32>"))]
    pub depth: u32,
    /// From -100 to 100: a request with a higher priority is dispatched first. Default: 0.
    #[serde(skip_serializing_if = "is_usual", deserialize_with = "priority")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<i8>", range(min = -MOST_PRIORITY, max = MOST_PRIORITY)))]
    pub priority: i8,
    /// The text that makes it unique in its run, instead of method, URL and body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(length(max = MOST_KEY)))]
    pub key: Option<String>,
    /// A deliberate repetition: it is not compared with the seen requests of the run, except by its key.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "or_default")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<bool>"))]
    pub dont_filter: bool,
    /// Whether it may be sent more than once. By default only for GET, HEAD, OPTIONS, TRACE, PUT and DELETE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// A proxy for this request, instead of the job's proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The character encoding, if it is known better than from the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The URLs that redirected to it, in order, if the run requested the targets of redirects.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<Vec<String>>"))]
    pub redirected_from: Vec<String>,
    /// A custom value of the worker; returned unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<serde_json::Value>,
}

/// The schema of the id: any value, because it is ignored.
#[cfg(feature = "broker")]
fn request_id(schemas: &mut schemars::SchemaGenerator) -> schemars::Schema {
    if schemas.contract().is_serialize() { schemas.subschema_for::<Fingerprint>() } else { true.into() }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if hands a reference")]
fn is_usual(priority: &i8) -> bool {
    *priority == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if hands a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The members to check, borrowed from the input.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Checked<'a> {
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(borrow, default)]
    method: Option<Text<'a>>,
    #[serde(borrow, default)]
    headers: Option<CheckedHeaders<'a>>,
    #[serde(borrow, default)]
    body: Option<Text<'a>>,
    #[serde(default)]
    depth: Option<u32>,
    #[serde(default)]
    priority: Option<i64>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(default)]
    dont_filter: Option<bool>,
    #[serde(default)]
    #[expect(dead_code, reason = "checked to be true or false")]
    idempotent: Option<bool>,
    #[serde(borrow, default)]
    proxy: Option<Text<'a>>,
    #[serde(default)]
    redirected_from: Option<Vec<String>>,
    #[serde(borrow, default)]
    #[expect(dead_code, reason = "checked to be text")]
    encoding: Option<Text<'a>>,
    #[serde(borrow, default)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tries: Option<&'a RawValue>,
}

/// The body of an acknowledgement: completed blocks, and their follow-up requests.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AckCall<R> {
    /// The blocks.
    #[serde(default)]
    pub blocks: Vec<BlockId>,
    /// The follow-up requests.
    #[serde(default = "Vec::<R>::new")]
    pub requests: Vec<R>,
}

#[derive(Deserialize)]
struct AckText<'a> {
    #[serde(default)]
    blocks: Vec<BlockId>,
    #[serde(borrow, default)]
    requests: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct PushText<'a> {
    #[serde(borrow)]
    requests: Vec<&'a RawValue>,
}

/// The response to a push or an acknowledgement: it is on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pushed {
    /// The blocks that contain the requests.
    pub block_ids: Vec<BlockId>,
    /// Number of accepted requests.
    pub accepted: u64,
    /// Number of requests that the run had already seen.
    pub duplicates: u64,
    /// Number of requests beyond the depth limit of the run.
    pub too_deep: u64,
    /// Number of requests beyond the limit of the run, in total or for their site.
    pub over_limit: u64,
    /// Number of requests whose URL is too long, or whose path repeats itself.
    #[serde(default)]
    pub trapped: u64,
    /// Number of blocks in an acknowledgement that were already acknowledged.
    #[serde(default)]
    pub already: u64,
}

/// Parses any JSON body; the error names the position.
///
/// # Errors
/// It is not JSON, or a value does not match its type.
pub fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|e| {
        let path = e.path().to_string();
        unread_json(body, if path == "." { "" } else { &path }, e.inner())
    })?;
    json.end().map_err(|e| Problem::malformed(why_not_json(&e)))?;
    Ok(value)
}

/// Parses a JSON object. Serde would also accept an array, with its items as the members in order: no wire format here uses that, and its
/// meaning would change when a member is added.
///
/// # Errors
/// It is not an object, or a member does not match its type.
pub fn read_object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    refuse_array(body)?;
    read_json(body)
}

fn refuse_array(body: &[u8]) -> Result<(), Problem> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Err(Problem::malformed("an object is expected, not an array")),
        _ => Ok(()),
    }
}

/// Parses and checks the body of a push: an array of requests, or an object whose member `requests` is one.
///
/// # Errors
/// Names the first request that is not allowed; then no request is accepted.
pub fn read_push(body: Bytes) -> Result<RequestBatch, Problem> {
    let is_object = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    let raw =
        if is_object { serde_json::from_slice::<PushText<'_>>(&body).map(|text| text.requests) } else { serde_json::from_slice(&body) };
    let raw: Vec<&RawValue> = raw.map_err(|e| {
        let why = if e.is_data() { String::new() } else { format!(": {}", why_not_json(&e)) };
        Problem::malformed(format!("an array of requests is expected{why}"))
    })?;
    check_all(&body, &raw)
}

/// Parses and checks the body of an acknowledgement.
///
/// # Errors
/// Same as [`read_push`].
pub fn read_ack(body: Bytes) -> Result<(Vec<BlockId>, RequestBatch), Problem> {
    refuse_array(&body)?;
    let text: AckText<'_> = serde_json::from_slice(&body).map_err(|_| {
        // Parse again with the slow parser, to find the position.
        read_json::<AckCall<Box<RawValue>>>(&body).err().unwrap_or_else(|| Problem::malformed("not an acknowledgement"))
    })?;
    if text.blocks.len() > MOST_REQUESTS {
        return Err(Problem::invalid("blocks", format!("must be at most {MOST_REQUESTS} blocks per call")));
    }
    let batch = check_all(&body, &text.requests)?;
    Ok((text.blocks, batch))
}

fn check_all(body: &Bytes, raw: &[&RawValue]) -> Result<RequestBatch, Problem> {
    if raw.len() > MOST_REQUESTS {
        return Err(Problem::invalid("requests", format!("must be at most {MOST_REQUESTS} requests per call")));
    }
    let base = body.as_ptr() as usize;
    let (mut rewritten, mut origins) = (Vec::new(), Origins::default());
    let mut requests = Vec::with_capacity(raw.len());
    for (i, value) in raw.iter().enumerate() {
        let text = value.get();
        let at = |problem: Problem| {
            let field = problem.field.as_deref().map_or(String::new(), |f| format!(".{f}"));
            problem.at(format!("requests[{i}]{field}"))
        };
        let (checked, id, shape) = check(text, &mut origins).map_err(at)?;
        let (start, length) = if checked.request_id.is_some() || checked.tries.is_some() {
            // A request that came back and is pushed again: it gets a new id, and its tries count from 0.
            let mut members: serde_json::Map<String, serde_json::Value> = read_json(text.as_bytes())?;
            members.remove("requestId");
            members.remove("tries");
            let start = body.len() + rewritten.len();
            serde_json::to_writer(&mut rewritten, &members).expect("it was JSON before");
            (start, body.len() + rewritten.len() - start)
        } else {
            (text.as_ptr() as usize - base, text.len())
        };
        let (depth, origin) = (checked.depth.unwrap_or(0), origins.last);
        let priority = checked.priority.unwrap_or(0) as i8;
        requests.push(NewRequest { id, span: start as u32..(start + length) as u32, depth, priority, shape, origin });
    }
    let text = if rewritten.is_empty() { body.clone() } else { Bytes::from([&body[..], &rewritten].concat()) };
    Ok(RequestBatch { text, requests, origins: origins.first, all_origins: origins.all })
}

/// Collects the origins of a batch.
#[derive(Default)]
struct Origins {
    first: Vec<Box<str>>,
    all: Vec<Box<str>>,
    places: HashMap<Box<str>, u32>,
    /// The index of the last one.
    last: u32,
}

impl Origins {
    fn add(&mut self, origin: &str, is_first: bool) {
        // Requests to one site usually come together.
        if self.all.get(self.last as usize).is_none_or(|last| **last != *origin) {
            self.last = self.places.get(origin).copied().unwrap_or_else(|| {
                let place = self.all.len() as u32;
                self.all.push(origin.into());
                self.places.insert(origin.into(), place);
                place
            });
        }
        let is_new = || self.first.last().is_none_or(|last| **last != *origin) && !self.first.iter().any(|known| **known == *origin);
        if is_first && self.first.len() < MOST_ORIGINS && is_new() {
            self.first.push(origin.into());
        }
    }
}

fn check<'a>(text: &'a str, origins: &mut Origins) -> Result<(Checked<'a>, Fingerprint, Shape), Problem> {
    if !text.starts_with('{') {
        return Err(Problem::malformed("a request must be an object"));
    }
    if text.len() > MOST_REQUEST {
        return Err(Problem::invalid("", format!("a request must be at most {MOST_REQUEST} bytes")));
    }
    let checked: Checked<'_> = serde_json::from_str(text).map_err(|_| why_not(text))?;
    let method = checked.method.as_deref().unwrap_or("GET");
    if method.is_empty() || method.len() > 20 || !method.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-') {
        return Err(Problem::invalid("method", "must be a word of at most 20 letters"));
    }
    if let Some(name) = checked.headers.as_ref().and_then(|headers| headers.invalid.as_deref()) {
        return Err(Problem::invalid(format!("headers.{name}"), "not a valid header"));
    }
    if checked.priority.is_some_and(|priority| priority.unsigned_abs() > MOST_PRIORITY as u64) {
        return Err(Problem::invalid("priority", format!("must be a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}")));
    }
    if let Some(proxy) = &checked.proxy {
        check_proxy(proxy).map_err(|detail| Problem::invalid("proxy", detail))?;
    }
    let url = canonical_url(&checked.url)?;
    // A site led to the target of a redirect, whatever its depth.
    let is_start = checked.depth.unwrap_or(0) == 0 && checked.redirected_from.as_ref().is_none_or(Vec::is_empty);
    origins.add(Origin::text_of(&url), is_start);
    let id = match (&checked.dont_filter, &checked.key) {
        (Some(true), None) => Fingerprint::unique(),
        (_, Some(key)) if key.chars().count() > MOST_KEY => {
            return Err(Problem::invalid("key", format!("must be at most {MOST_KEY} characters")));
        }
        (_, Some(key)) => Fingerprint::of_key(key),
        _ => print_of(method, &url, checked.body.as_deref()),
    };
    // No guard stops a request that no site led to.
    let shape = if is_start { Shape::default() } else { Shape::of(&url) };
    Ok((checked, id, shape))
}

pub(super) fn print_of(method: &str, url: &str, body: Option<&str>) -> Fingerprint {
    let is_upper = !method.bytes().any(|b| b.is_ascii_lowercase());
    let upper = if is_upper { Cow::Borrowed(method) } else { Cow::Owned(method.to_ascii_uppercase()) };
    Fingerprint::of(&upper, url, body.unwrap_or("").as_bytes())
}

/// The text by which a URL is compared: as in [`check_url`], with its percent-encodings [`normalized`]. Most URLs need no parsing for
/// that.
///
/// # Errors
/// Same as [`check_url`].
pub fn canonical_url(text: &str) -> Result<Cow<'_, str>, Problem> {
    if text.len() <= MOST_URL && is_canonical(text) {
        return Ok(Cow::Borrowed(text));
    }
    check_url(text).map(|url| Cow::Owned(normalized(url.as_str()).into_owned()))
}

/// The canonical form of a URL that may be crawled.
///
/// # Errors
/// It is too long, not a valid URL, without a host, or not `http` or `https`.
pub fn check_url(text: &str) -> Result<url::Url, Problem> {
    if text.len() > MOST_URL {
        return Err(Problem::invalid("url", format!("must be at most {MOST_URL} bytes")));
    }
    let url = url::Url::parse(text).map_err(|error| {
        let why = match error {
            url::ParseError::RelativeUrlWithoutBase => "it begins with neither http:// nor https://".to_owned(),
            other => other.to_string(),
        };
        Problem::invalid("url", format!("`{}` is not a valid URL: {why}", shorten(text)))
    })?;
    match url.scheme() {
        "http" | "https" => Ok(canonical(url)),
        other => Err(Problem::invalid("url", format!("the scheme `{other}` is not supported: http or https is expected"))),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Parses an invalid request again with the slow parser, to find the position.
fn why_not(text: &str) -> Problem {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its types count")]
    struct Owned {
        url: String,
        method: Option<String>,
        headers: Option<BTreeMap<String, String>>,
        body: Option<String>,
        depth: Option<u32>,
        priority: Option<i64>,
        key: Option<String>,
        dont_filter: Option<bool>,
        idempotent: Option<bool>,
        proxy: Option<String>,
        redirected_from: Option<Vec<String>>,
        encoding: Option<String>,
    }
    match read_json::<Owned>(text.as_bytes()) {
        Err(problem) => problem,
        Ok(_) => Problem::malformed("a member occurs twice"),
    }
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
