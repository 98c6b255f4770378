//! Maps errors of the HTTP client to the closed list of reasons.

use super::guard::{Refused, refused};
use crate::protocol::node::{FetchError, FetchErrorKind};
use std::error::Error;
use std::io;

/// An error of this kind; the kind decides whether another try is useful.
#[must_use]
pub fn fetch_error(kind: FetchErrorKind, message: impl Into<String>) -> FetchError {
    use FetchErrorKind as K;
    let retryable = matches!(kind, K::Dns | K::Connect | K::Timeout | K::Body | K::Protocol | K::ChangeIp | K::Other);
    FetchError { kind, message: message.into(), retryable }
}

/// Why there was no response head.
#[must_use]
pub fn before_the_head(error: &reqwest::Error) -> FetchError {
    if let Some(Refused(why)) = causes(error).find_map(|cause| cause.downcast_ref::<Refused>()) {
        return refused(why);
    }
    fetch_error(kind_before_the_head(error), words(error))
}

/// Why there was no complete body.
#[must_use]
pub fn in_the_body(error: &reqwest::Error) -> FetchError {
    let kind = if error.is_timeout() { FetchErrorKind::Timeout } else { FetchErrorKind::Body };
    fetch_error(kind, words(error))
}

fn kind_before_the_head(error: &reqwest::Error) -> FetchErrorKind {
    if error.is_dns() {
        return FetchErrorKind::Dns;
    }
    let causes = || causes(error);
    if causes().any(|cause| cause.is::<rustls::Error>()) {
        return FetchErrorKind::Tls;
    }
    if error.is_timeout() {
        return FetchErrorKind::Timeout;
    }
    if error.is_connect() {
        return FetchErrorKind::Connect;
    }
    if let Some(http) = causes().find_map(|cause| cause.downcast_ref::<hyper::Error>()) {
        let lost = http.is_incomplete_message() || http.is_canceled() || http.is_closed();
        let by_system = causes().any(|cause| cause.is::<io::Error>());
        return if lost || by_system { FetchErrorKind::Connect } else { FetchErrorKind::Protocol };
    }
    if causes().any(|cause| cause.is::<io::Error>()) { FetchErrorKind::Connect } else { FetchErrorKind::Other }
}

/// The chain of causes. `io::Error` hides its inner error from `source`, so that is followed as well.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    })
}

/// What layers of the HTTP client add to the cause of an error. The kind of the error says the same.
const LAYERS: [&str; 5] = ["client error (Connect)", "client error (SendRequest)", "dns error", "error resolving DNS", "tcp connect error"];

/// The causes as text, without repetitions and without the URL, which the result already has.
fn words(error: &reqwest::Error) -> String {
    let texts: Vec<String> = causes(error).skip(1).map(|cause| cause.to_string()).collect();
    joined_causes(texts).unwrap_or_else(|| error.to_string())
}

fn joined_causes(mut texts: Vec<String>) -> Option<String> {
    let last = texts.pop()?;
    let mut words: Vec<String> = Vec::new();
    for text in texts.into_iter().filter(|text| !LAYERS.contains(&text.as_str())).chain([last]) {
        if !words.iter().any(|known| known.contains(&text)) {
            words.push(text);
        }
    }
    Some(words.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_the_client_are_left_out() {
        let of = |texts: &[&str]| joined_causes(texts.iter().map(|text| (*text).to_owned()).collect());
        let causes = ["client error (Connect)", "dns error", "error resolving DNS", "there is no such name"];
        assert_eq!(of(&causes).as_deref(), Some("there is no such name"));
        assert_eq!(of(&["client error (Connect)"]).as_deref(), Some("client error (Connect)"), "there is nothing else");
        assert_eq!(of(&["a b", "b", "c"]).as_deref(), Some("a b: c"));
        assert_eq!(of(&[]), None);
    }
}
