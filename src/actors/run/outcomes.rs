//! What a report reveals about the site of its block.

use crate::domain::sites::{Ended, Outcome};
use crate::protocol::node::FetchErrorKind;
use crate::protocol::pack::{Entry, Index};

/// The outcomes of the requests of a report, in order.
pub(super) fn outcomes(index: &Index) -> Vec<Outcome> {
    let ended = |kind: FetchErrorKind| match kind {
        FetchErrorKind::Timeout => Ended::TimedOut,
        FetchErrorKind::Connect | FetchErrorKind::Protocol => Ended::Refused,
        FetchErrorKind::Dns => Ended::Dns,
        FetchErrorKind::Tls => Ended::Tls,
        _ => Ended::Unknown,
    };
    let of_entry = |entry: &Entry| match (&entry.error, entry.status) {
        (Some(error), 0) => ended(error.kind),
        (_, status) => Ended::Answered(status),
    };
    let mut all: Vec<Outcome> = index
        .results
        .iter()
        .map(|entry| Outcome { ended: of_entry(entry), elapsed_ms: entry.time, retry_after_ms: None })
        .filter(|outcome| outcome.ended != Ended::Unknown)
        .collect();
    let plain = |ended| Outcome { ended, elapsed_ms: 0, retry_after_ms: None };
    let tried: Vec<_> = index.back.iter().filter_map(|back| back.error.as_ref()).map(|error| ended(error.kind)).collect();
    all.extend(tried.iter().filter(|ended| **ended != Ended::Unknown).map(|ended| plain(*ended)));
    let retry_after = index.site.as_ref().and_then(|news| news.retry_after).map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
    if retry_after.is_some() {
        // 0 means that the site asked for a pause without a duration.
        all.push(Outcome { retry_after_ms: retry_after.filter(|ms| *ms > 0), ..plain(Ended::Answered(429)) });
    } else if all.is_empty() && index.back.iter().any(|back| back.tries > 0 && back.error.is_none()) {
        all.push(plain(Ended::Answered(429)));
    }
    all
}
