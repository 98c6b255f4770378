//! Counts what nodes downloaded: requests, bytes, times to answer and errors. The runs write it; the metrics and the time series read it.

use super::lateness::Histogram;
use crate::protocol::node::FetchErrorKind;
use crate::protocol::pack::{Entry, Index};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Downloads {
    success: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    /// Duration of requests that a site answered.
    pub answer: Histogram,
    /// Failures are rare, so a lock costs little; it is taken once for each report that has some.
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

/// Why a request failed, in one word: a kind of [`FetchErrorKind`], or the class of the status.
fn error_of(entry: &Entry) -> &'static str {
    match (&entry.error, entry.status) {
        (Some(error), _) => error.kind.name(),
        (None, 400..=499) => "http-4xx",
        (None, 500..=599) => "http-5xx",
        (None, _) => FetchErrorKind::Other.name(),
    }
}

impl Downloads {
    /// Counts the results of a block.
    pub fn count(&self, index: &Index) {
        let (mut success, mut bytes) = (0, 0);
        for entry in &index.results {
            success += u64::from(entry.is_success());
            bytes += u64::from(entry.body);
            if entry.status > 0 {
                self.answer.add(entry.time.into());
            }
        }
        let failed = index.results.len() as u64 - success;
        self.success.fetch_add(success, Relaxed);
        self.failed.fetch_add(failed, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        if failed > 0 {
            let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            for entry in index.results.iter().filter(|entry| !entry.is_success()) {
                *errors.entry(error_of(entry)).or_default() += 1;
            }
        }
    }

    /// Requests that succeeded and that failed, and bytes of bodies, since the start of the broker.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.success.load(Relaxed), self.failed.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Failed requests by reason, since the start of the broker.
    #[must_use]
    pub fn errors(&self) -> BTreeMap<&'static str, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fingerprint::Fingerprint;
    use crate::domain::ids::{BlockId, Identity, NodeId};
    use crate::protocol::node::FetchError;

    #[test]
    fn results_are_counted_by_how_they_ended() {
        let entry = |status, error: Option<FetchErrorKind>, body| Entry {
            request_id: Fingerprint::of_key("a"),
            status,
            tries: 1,
            time: 30,
            error: error.map(|kind| FetchError { kind, message: "m".into(), retryable: true }),
            location: None,
            head: 0,
            body,
        };
        let identity = Identity::random();
        let results = vec![
            entry(200, None, 10),
            entry(404, None, 5),
            entry(503, None, 0),
            entry(0, Some(FetchErrorKind::Timeout), 0),
            entry(200, Some(FetchErrorKind::TooLarge), 7),
        ];
        let index = Index { results, ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
        let downloads = Downloads::default();
        downloads.count(&index);
        assert_eq!(downloads.totals(), (1, 4, 22));
        assert_eq!(downloads.errors(), BTreeMap::from([("http-4xx", 1), ("http-5xx", 1), ("timeout", 1), ("too-large", 1)]));
        let (_, answered, ms) = downloads.answer.read();
        assert_eq!((answered, ms), (4, 120), "a timeout is no answer");
    }
}
