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

/// The causes as text, without repetitions and without the URL, which the result already has.
fn words(error: &reqwest::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    for cause in causes(error).skip(1) {
        let text = cause.to_string();
        if !words.iter().any(|known| known.contains(&text)) {
            words.push(text);
        }
    }
    if words.is_empty() { error.to_string() } else { words.join(": ") }
}
