//! What a fetch of robots.txt means, and how long that holds (RFC 9309, sections 2.3.1 and 2.4).

use super::rules::Robots;
use crate::domain::time::Timestamp;
use chrono::DateTime;
use url::Url;

/// Redirects in a row that are followed.
pub const MOST_REDIRECTS: u32 = 5;
/// The longest time that a file is used without being asked for again, a day.
pub const MOST_CACHE_MS: u32 = 86_400_000;
/// The shortest, also if the site forbids caching: else each request would be two.
pub const LEAST_CACHE_MS: u32 = 10_000;
/// For how long a site that answers 429 is taken not to have the file.
const BUSY_MS: u32 = 600_000;
/// How soon a file that could not be had is asked for again, at first and at most.
const FIRST_RETRY_MS: u32 = 60_000;
const MOST_RETRY_MS: u32 = 3_600_000;

/// What came of asking for a robots.txt, redirects included.
#[derive(Debug, Clone, Copy)]
pub enum Fetched<'a> {
    /// An answer that is no redirect, or a redirect that leads nowhere.
    Answer {
        /// Its status.
        status: u16,
        /// Its body, decoded.
        body: &'a [u8],
        /// How long it may be kept ([`cache_ms`]).
        cache_ms: u32,
    },
    /// There were more redirects than [`MOST_REDIRECTS`].
    TooManyRedirects,
    /// There was no answer: no name, no connection, no TLS, no time.
    Unreachable,
}

/// The rules, and when they are to be asked for again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The rules.
    pub robots: Robots,
    /// Until when they hold.
    pub until: Timestamp,
    /// Times in a row that the file could not be had.
    pub failures: u32,
}

/// Where the robots.txt for a URL is; `None` if it is not of http or https.
#[must_use]
pub fn robots_url(url: &Url) -> Option<Url> {
    let mut robots = matches!(url.scheme(), "http" | "https").then(|| url.clone())?;
    robots.set_path("/robots.txt");
    robots.set_query(None);
    robots.set_fragment(None);
    // They cannot fail: the URL has a host.
    let _ = robots.set_username("");
    let _ = robots.set_password(None);
    Some(robots)
}

/// What a fetch means for a product token, after so many failures in a row: the file counts (2xx), all is allowed (3xx that lead
/// nowhere, 4xx), nothing is allowed for a while that grows (5xx, no answer).
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
            let ms = FIRST_RETRY_MS.saturating_mul(1 << failures.min(16)).min(MOST_RETRY_MS);
            Judgement { robots: Robots::unreachable(), until: now.plus_ms(ms.into()), failures: failures.saturating_add(1) }
        }
    }
}

/// How long an answer may be kept by its headers `Cache-Control`, `Expires` and `Age` (RFC 9111): from [`LEAST_CACHE_MS`] to
/// [`MOST_CACHE_MS`], and a day if it does not say.
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
        // What is no number is stale (section 4.2.1).
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
