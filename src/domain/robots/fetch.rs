//! What a fetch of robots.txt means, and how long the result is valid (RFC 9309, sections 2.3.1 and 2.4).

use super::rules::Robots;
use crate::domain::time::Timestamp;
use chrono::DateTime;
use url::Url;

/// Maximum number of consecutive redirects.
pub const MOST_REDIRECTS: u32 = 5;
/// The maximum cache time of a file: one day.
pub const MOST_CACHE_MS: u32 = 86_400_000;
/// The minimum cache time, even if the site forbids caching: without it each request would become two.
pub const LEAST_CACHE_MS: u32 = 10_000;
/// How long a site that answers 429 counts as a site without the file.
const BUSY_MS: u32 = 600_000;
/// Delay before a failed fetch is retried: the first after a response of 5xx, the first without a response, and the maximum.
const FIRST_RETRY_MS: u32 = 60_000;
const FIRST_RETRY_UNREACHABLE_MS: u32 = 10_000;
const MOST_RETRY_MS: u32 = 3_600_000;
/// For so long after it may be fetched again, a file that could not be fetched still forbids all: the requests that waited for it fail.
pub const FORBIDS_MS: i64 = 120_000;

/// The result of fetching a robots.txt, including redirects.
#[derive(Debug, Clone, Copy)]
pub enum Fetched<'a> {
    /// A response that is not a redirect, or a redirect without a target.
    Answer {
        /// Its status.
        status: u16,
        /// Its body, decoded.
        body: &'a [u8],
        /// How long it may be cached ([`cache_ms`]).
        cache_ms: u32,
    },
    /// There were more redirects than [`MOST_REDIRECTS`].
    TooManyRedirects,
    /// There was no response: DNS, connection, TLS or timeout failure.
    Unreachable,
}

/// The rules, and when to fetch them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The rules.
    pub robots: Robots,
    /// The rules are valid until then.
    pub until: Timestamp,
    /// Number of consecutive failed fetches.
    pub failures: u32,
}

/// The URL of the robots.txt for a URL; `None` if that is not http or https.
#[must_use]
pub fn robots_url(url: &Url) -> Option<Url> {
    let mut robots = matches!(url.scheme(), "http" | "https").then(|| url.clone())?;
    robots.set_path("/robots.txt");
    robots.set_query(None);
    robots.set_fragment(None);
    // These calls cannot fail: the URL has a host.
    let _ = robots.set_username("");
    let _ = robots.set_password(None);
    Some(robots)
}

/// The rules after a fetch for a product token, given the number of consecutive failures: the file applies (2xx), everything is
/// allowed (3xx without a target, 4xx), nothing is allowed for an increasing time (5xx, no response).
#[must_use]
pub fn judge(fetched: Fetched<'_>, token: &str, now: Timestamp, failures: u32) -> Judgement {
    let known = |robots, ms: u32| Judgement { robots, until: now.plus_ms(ms.into()), failures: 0 };
    match fetched {
        Fetched::Answer { status: 200..=299, body, cache_ms } => {
            known(Robots::parse(body, token), cache_ms.clamp(LEAST_CACHE_MS, MOST_CACHE_MS))
        }
        Fetched::Answer { status: 429, .. } => known(Robots::allow_all(), BUSY_MS),
        Fetched::Answer { status: 300..=499, cache_ms, .. } => known(Robots::allow_all(), cache_ms.clamp(LEAST_CACHE_MS, MOST_CACHE_MS)),
        Fetched::TooManyRedirects => known(Robots::allow_all(), MOST_CACHE_MS),
        Fetched::Answer { .. } | Fetched::Unreachable => {
            let first = if matches!(fetched, Fetched::Unreachable) { FIRST_RETRY_UNREACHABLE_MS } else { FIRST_RETRY_MS };
            let ms = first.saturating_mul(1 << failures.min(16)).min(MOST_RETRY_MS);
            Judgement { robots: Robots::unreachable(), until: now.plus_ms(ms.into()), failures: failures.saturating_add(1) }
        }
    }
}

/// How long a response may be cached according to its headers `Cache-Control`, `Expires` and `Age` (RFC 9111): from
/// [`LEAST_CACHE_MS`] to [`MOST_CACHE_MS`], and a day without these headers.
#[must_use]
pub fn cache_ms(cache_control: Option<&str>, expires: Option<&str>, age: Option<&str>, now: Timestamp) -> u32 {
    let bounded = |ms: i64| u32::try_from(ms.clamp(LEAST_CACHE_MS.into(), MOST_CACHE_MS.into())).unwrap_or(MOST_CACHE_MS);
    let words = || cache_control.unwrap_or_default().split(',').map(str::trim);
    if words().any(|word| ["no-cache", "no-store"].iter().any(|no| word.eq_ignore_ascii_case(no))) {
        return LEAST_CACHE_MS;
    }
    let seconds = |word: &str| {
        let (name, value) = word.split_once('=')?;
        let value = value.trim().trim_matches('"');
        // A value that is not a number means stale (section 4.2.1).
        name.trim().eq_ignore_ascii_case("max-age").then(|| value.parse::<i64>().unwrap_or(if is_digits(value) { i64::MAX } else { 0 }))
    };
    if let Some(seconds) = words().find_map(seconds) {
        let age = age.and_then(|age| age.trim().parse::<i64>().ok()).unwrap_or(0).max(0);
        return bounded(seconds.saturating_sub(age).saturating_mul(1_000));
    }
    match expires.map(|text| DateTime::parse_from_rfc2822(text.trim())) {
        Some(Ok(at)) => bounded(Timestamp(at.timestamp_millis()).since_ms(now)),
        Some(Err(_)) => LEAST_CACHE_MS,
        None => MOST_CACHE_MS,
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}
