//! What a report reveals about the site of its block.

use crate::domain::fingerprint::Fingerprint;
use crate::domain::sites::{Ended, Outcome};
use crate::protocol::node::{FetchError, FetchErrorKind};
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

/// What the requests of a report say about sites without a pace, each with its request: whether they ask for a pause, do not answer, or
/// answer. Other errors of theirs, 5xx among them, hold off no site that its job does not pace.
pub(super) fn unpaced_outcomes(index: &Index) -> Vec<(Fingerprint, Outcome)> {
    let plain = |ended| Outcome { ended, elapsed_ms: 0, retry_after_ms: None };
    let news = index.site.as_ref();
    let paused: Vec<_> = news.map(|news| news.paused.as_slice()).unwrap_or_default().iter().collect();
    let mut all: Vec<(Fingerprint, Outcome)> = Vec::with_capacity(paused.len() + index.results.len());
    let of_error = |error: &FetchError| match error.kind {
        FetchErrorKind::Timeout => Some(Ended::TimedOut),
        FetchErrorKind::Connect => Some(Ended::Refused),
        _ => None,
    };
    for entry in &index.results {
        let ended = match (&entry.error, entry.status) {
            (Some(error), 0) => of_error(error),
            (_, status) => Some(Ended::Answered(status)).filter(|ended| ended.is_well() || status == 429),
        };
        let is_known = paused.iter().any(|one| one.request_id == entry.request_id);
        all.extend(ended.filter(|_| !is_known).map(|ended| (entry.request_id, plain(ended))));
    }
    // What another node may do better says nothing about the site.
    let back = index.back.iter().filter_map(|back| {
        let error = back.error.as_ref().filter(|error| !error.kind.is_of_node())?;
        Some((back.request_id, plain(of_error(error)?)))
    });
    all.extend(back);
    // After the answers, which came before: they show that the site was well until then.
    for one in &paused {
        let retry_after_ms = one.retry_after.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
        all.push((one.request_id, Outcome { retry_after_ms, ..plain(Ended::Answered(429)) }));
    }
    // A fetch of robots.txt has the pace of its turn, even if its site has none.
    if let Some(ms) = news.and_then(|news| news.retry_after) {
        let retry_after_ms = u32::try_from(ms).ok().filter(|ms| *ms > 0);
        let of_back = index.back.first().map(|back| back.request_id);
        let asked = of_back.or_else(|| index.results.first().map(|entry| entry.request_id));
        all.extend(asked.map(|print| (print, Outcome { retry_after_ms, ..plain(Ended::Answered(429)) })));
    }
    all
}

/// The last error without a response in a report, and the tries of its request. `None` if the site has answered, or nothing was sent.
pub(super) fn last_error(index: &Index) -> Option<(&FetchError, u32)> {
    if index.results.iter().any(|entry| entry.status > 0) {
        return None;
    }
    let of_back = index.back.iter().rev().find_map(|back| Some((back.error.as_ref()?, back.tries)));
    of_back.or_else(|| index.results.iter().rev().find_map(|entry| Some((entry.error.as_ref()?, entry.tries))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BlockId, Identity, NodeId};
    use crate::protocol::node::{GivenBack, Paused, SiteNews};

    #[test]
    fn only_what_the_site_did_counts() {
        let identity = Identity::random();
        let of = |kind: Option<FetchErrorKind>| {
            let error = kind.map(|kind| FetchError { kind, message: "m".into(), retryable: true });
            let back = vec![GivenBack { request_id: Fingerprint::of_key("a"), tries: 1, error }];
            let index = Index { back, ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
            outcomes(&index).into_iter().map(|outcome| outcome.ended).collect::<Vec<_>>()
        };
        assert_eq!(of(Some(FetchErrorKind::Connect)), [Ended::Refused]);
        assert_eq!(of(Some(FetchErrorKind::Refused)), [], "the node refused it, not the site");
        assert_eq!(of(None), [Ended::Answered(429)], "a node that names no reason");
        let error = FetchError { kind: FetchErrorKind::Dns, message: "m".into(), retryable: true };
        let back = vec![GivenBack { request_id: Fingerprint::of_key("a"), tries: 2, error: Some(error.clone()) }];
        let mut index = Index { back, ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
        assert_eq!(last_error(&index), Some((&error, 2)));
        let entry = Entry { error: None, status: 404, ..super::super::parts::failed(Fingerprint::of_key("b"), error.kind, "m") };
        index.results.push(entry);
        assert_eq!(last_error(&index), None, "the site has answered");
    }

    #[test]
    fn a_site_without_a_pace_asks_for_a_pause_or_does_not_answer() {
        let identity = Identity::random();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(Fingerprint::of_key);
        let failed = |print, kind| super::super::parts::failed(print, kind, "m");
        let answered = |print, status| Entry { error: None, status, ..failed(print, FetchErrorKind::Other) };
        let paused = vec![Paused { request_id: a, retry_after: Some(7_000) }];
        let results =
            vec![answered(a, 429), answered(b, 200), answered(c, 500), failed(d, FetchErrorKind::Connect), failed(c, FetchErrorKind::Tls)];
        let site = Some(SiteNews { paused, ..SiteNews::default() });
        let index = Index { results, site, ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
        let all: Vec<_> =
            unpaced_outcomes(&index).into_iter().map(|(print, outcome)| (print, outcome.ended, outcome.retry_after_ms)).collect();
        let expected = [(b, Ended::Answered(200), None), (d, Ended::Refused, None), (a, Ended::Answered(429), Some(7_000))];
        assert_eq!(all, expected);
        let of_back = |kind| {
            let error = Some(FetchError { kind, message: "m".into(), retryable: true });
            let back = vec![GivenBack { request_id: a, tries: 1, error }];
            let index = Index { back, ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
            unpaced_outcomes(&index).len()
        };
        assert_eq!((of_back(FetchErrorKind::Timeout), of_back(FetchErrorKind::Connect)), (1, 0), "another node may have a route");
    }
}
