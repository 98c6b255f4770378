//! Where a job may contain secrets, how they are masked for readers, and how they survive a round trip.
//!
//! Callers that may read but not change get [`MASK`] instead of secrets. When a document with masks is sent back, each mask
//! keeps the stored value; a mask without a stored value is an error.

use super::callback::Callback;
use super::job::Properties;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use url::Url;

/// Replaces a secret.
pub const MASK: &str = "**hidden**";

/// Headers that are never secret.
const PLAIN_HEADERS: [&str; 7] = ["accept", "accept-encoding", "accept-language", "cache-control", "content-type", "referer", "user-agent"];
/// A property whose key contains one of these words is a secret.
const SECRET_WORDS: [&str; 10] =
    ["password", "passwd", "secret", "token", "apikey", "accesskey", "privatekey", "credential", "authorization", "cookie"];
/// Exceptions: property keys that begin with one of these are not secret.
const PLAIN_KEYS: [&str; 1] = ["cookiemode"];

/// The error: the path of a mask without a stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown(pub String);

/// Which part of a text is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The whole text.
    Whole,
    /// The password or the query values of a URL.
    InUrl,
}

impl Kind {
    fn mask(self, text: &str) -> String {
        match self {
            Self::Whole => MASK.to_owned(),
            Self::InUrl => mask_url(text),
        }
    }
}

type Visit<'a> = &'a mut dyn FnMut(&str, Kind, &mut String);

/// The secrets of a job.
#[derive(Debug)]
pub struct Secrets<'a> {
    /// The request of a callback job.
    pub callback: Option<&'a mut Callback>,
    /// The properties of the job.
    pub properties: &'a mut Properties,
}

impl Secrets<'_> {
    /// Replaces each secret with the mask.
    pub fn hide(&mut self) {
        self.visit(&mut |_, kind, text| *text = kind.mask(text));
    }

    /// Replaces each mask with the stored value. The stored headers and body of a callback are kept for the host that they were stored
    /// for: a caller that may not read them cannot send them to another one.
    ///
    /// # Errors
    /// A mask has no stored value.
    pub fn restore(&mut self, mut stored: Secrets<'_>) -> Result<(), Unknown> {
        if !self.has_mask() {
            return Ok(());
        }
        // A property that comes back unchanged keeps the exact stored text, including whitespace.
        for (key, text) in &mut self.properties.0 {
            if let Some(old) = stored.properties.0.get(key).filter(|_| text.contains(MASK)) {
                let mut hidden = old.clone();
                visit_property(key, &mut hidden, &mut |_, kind, text| *text = kind.mask(text));
                if hidden == *text {
                    text.clone_from(old);
                }
            }
        }
        let is_moved = origin(self.callback.as_deref()) != origin(stored.callback.as_deref());
        let mut by_path: BTreeMap<String, String> = BTreeMap::new();
        stored.visit(&mut |path, _, text| {
            if !(is_moved && path.starts_with("callback.")) {
                by_path.insert(path.to_owned(), text.clone());
            }
        });
        let mut unknown = None;
        self.visit(&mut |path, kind, text| {
            if !text.contains(MASK) {
                return;
            }
            match by_path.get(path).filter(|old| kind.mask(old) == *text) {
                // The stored text can contain the mask itself only if it was stored before masks existed.
                Some(old) => text.clone_from(old),
                None => drop(unknown.get_or_insert_with(|| path.to_owned())),
            }
        });
        unknown.map_or(Ok(()), |path| Err(Unknown(path)))
    }

    fn has_mask(&self) -> bool {
        let has = |text: &String| text.contains(MASK);
        let in_callback = |callback: &Callback| has(&callback.url) || callback.body.iter().chain(callback.headers.values()).any(has);
        self.properties.0.values().any(has) || self.callback.as_deref().is_some_and(in_callback)
    }

    fn visit(&mut self, visit: Visit<'_>) {
        if let Some(callback) = self.callback.as_deref_mut() {
            visit("callback.url", Kind::InUrl, &mut callback.url);
            visit_headers("callback.headers", &mut callback.headers, visit);
            if let Some(body) = &mut callback.body {
                visit("callback.body", Kind::Whole, body);
            }
        }
        for (key, text) in &mut self.properties.0 {
            visit_property(key, text, visit);
        }
    }
}

fn visit_headers(path: &str, headers: &mut BTreeMap<String, String>, visit: Visit<'_>) {
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if !PLAIN_HEADERS.contains(&name.as_str()) {
            visit(&format!("{path}.{name}"), Kind::Whole, value);
        }
    }
}

/// A name without what separates its words.
fn letters_of(key: &str) -> String {
    key.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn is_secret(letters: &str) -> bool {
    SECRET_WORDS.iter().any(|word| letters.contains(word)) && !PLAIN_KEYS.contains(&letters)
}

fn visit_property(key: &str, text: &mut String, visit: Visit<'_>) {
    let letters = letters_of(key);
    let path = format!("properties.{key}");
    match letters.as_str() {
        _ if text.is_empty() => {}
        "environment" | "files" => visit_json(text, &path, visit, |members, path, visit| {
            for (name, value) in members {
                if let Value::String(text) = value {
                    visit(&format!("{path}.{name}"), Kind::Whole, text);
                }
            }
        }),
        "site" => visit_json(text, &path, visit, visit_site),
        // The seeds misspell it.
        "package" | "pacakge" => visit(&path, Kind::InUrl, text),
        key if is_secret(key) => visit(&path, Kind::Whole, text),
        _ => {}
    }
}

fn visit_site(members: &mut Map<String, Value>, path: &str, visit: Visit<'_>) {
    for (name, value) in members {
        match (name.to_ascii_lowercase().as_str(), value) {
            ("headers", Value::Object(headers)) => {
                for (name, value) in headers {
                    let name = name.to_ascii_lowercase();
                    if let Value::String(text) = value
                        && !PLAIN_HEADERS.contains(&name.as_str())
                    {
                        visit(&format!("{path}.headers.{name}"), Kind::Whole, text);
                    }
                }
            }
            ("proxy", Value::String(text)) => visit(&format!("{path}.proxy"), Kind::InUrl, text),
            _ => {}
        }
    }
}

/// Visits a property that is a JSON object. If the text cannot be parsed, it is a secret as a whole.
fn visit_json(text: &mut String, path: &str, visit: Visit<'_>, members: impl FnOnce(&mut Map<String, Value>, &str, Visit<'_>)) {
    let Ok(Value::Object(mut object)) = serde_json::from_str(text) else { return visit(path, Kind::Whole, text) };
    let before = object.clone();
    members(&mut object, path, visit);
    if object != before {
        *text = Value::Object(object).to_string();
    }
}

/// A URL without its password and the values of its query; placeholders stay. A text that is not a URL is masked as a whole if it
/// may contain either.
#[must_use]
pub fn mask_url(text: &str) -> String {
    let (before, query) = text.split_once('?').map_or((text, None), |(before, query)| (before, Some(query)));
    let (query, fragment) = query.map_or((None, None), |query| match query.split_once('#') {
        Some((query, fragment)) => (Some(query), Some(fragment)),
        None => (Some(query), None),
    });
    let mut out = match before.split_once("://").map(|(scheme, rest)| (scheme, rest, rest.split(['/', '#']).next().unwrap_or(rest))) {
        Some((scheme, rest, authority)) => match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = user.split_once(':').map_or_else(|| MASK.to_owned(), |(name, _)| format!("{name}:{MASK}"));
                format!("{scheme}://{user}@{host}{}", &rest[authority.len()..])
            }
            None => before.to_owned(),
        },
        None if before.contains('@') => MASK.to_owned(),
        None => before.to_owned(),
    };
    if let Some(query) = query {
        let parts = query.split('&').map(|part| match part.split_once('=') {
            Some((name, value)) if !is_placeholder(value) => format!("{name}={MASK}"),
            None if !is_placeholder(part) => MASK.to_owned(),
            _ => part.to_owned(),
        });
        out = format!("{out}?{}", parts.collect::<Vec<_>>().join("&"));
    }
    fragment.map_or(out.clone(), |_| format!("{out}#{MASK}"))
}

fn is_placeholder(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphabetic()))
}

/// The method and the URL of a callback, as a run shows them.
#[must_use]
pub fn mask_request(text: &str) -> String {
    match text.split_once(' ') {
        Some((method, url)) => format!("{method} {}", mask_url(url)),
        None => mask_url(text),
    }
}

/// Masks the stored response of a callback: what its receiver answered is as secret as what was sent to it. Its status and its times
/// stay, and where it came from.
pub fn mask_response(response: &mut Value) {
    for (name, value) in response.as_object_mut().into_iter().flatten() {
        match (name.as_str(), value) {
            ("body", value) => *value = MASK.into(),
            ("url", Value::String(url)) => *url = mask_url(url),
            ("headers", Value::Object(headers)) => {
                for (name, value) in headers {
                    match (name.to_ascii_lowercase().as_str(), value) {
                        ("location", Value::String(url)) => *url = mask_url(url),
                        ("content-type" | "date" | "retry-after" | "x-request-id", _) => {}
                        (_, value) => *value = MASK.into(),
                    }
                }
            }
            ("headers", value) => *value = MASK.into(),
            _ => {}
        }
    }
}

/// Masks the arguments of a run: the members at any depth whose names are those of secret properties.
pub fn mask_arguments(arguments: &mut Value) {
    match arguments {
        Value::Object(members) => {
            for (name, value) in members {
                if is_secret(&letters_of(name)) && !value.is_null() {
                    *value = MASK.into();
                } else {
                    mask_arguments(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask_arguments),
        _ => {}
    }
}

/// A webhook URL for display: only its host, because the path is often the secret.
#[must_use]
pub fn mask_webhook(text: &str) -> String {
    match Url::parse(text) {
        Ok(url) if url.has_host() => format!("{}/{MASK}", url.origin().ascii_serialization()),
        _ => MASK.to_owned(),
    }
}

/// Scheme, host and port of a callback.
fn origin(callback: Option<&Callback>) -> Option<url::Origin> {
    Url::parse(&callback?.url).ok().map(|url| url.origin())
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
