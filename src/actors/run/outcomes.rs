//! What a report reveals about the site of its block.

use crate::domain::fingerprint::Fingerprint;
use crate::domain::sites::{Ended, Outcome};
use crate::protocol::node::{FetchError, FetchErrorKind, GivenBack};
use crate::protocol::pack::{Entry, Index};

/// How a try ended that gave this error, and this status if there was a response.
fn ended(error: &FetchError, status: u16) -> Ended {
    match error.kind {
        FetchErrorKind::Timeout => Ended::TimedOut,
        // A body that cannot be decoded is no failure of the connection: it is not worth another try.
        FetchErrorKind::Body if error.retryable => Ended::Refused,
        _ if status > 0 => Ended::Answered(status),
        FetchErrorKind::Connect | FetchErrorKind::Protocol => Ended::Refused,
        FetchErrorKind::Dns => Ended::Dns,
        FetchErrorKind::Tls => Ended::Tls,
        _ => Ended::Unknown,
    }
}

/// How the try of a request ended that was given back. `None`: there was no try, or the pause that the site requested counts instead.
fn given_back(back: &GivenBack, is_pause: bool) -> Option<Outcome> {
    let (error, status) = (back.error.as_ref()?, back.status.unwrap_or(0));
    let ended = match (error.kind, status) {
        (FetchErrorKind::Other, 0 | 429 | 503) if is_pause => return None,
        // Nodes that do not report the status have this kind for it. They report no duration either.
        (FetchErrorKind::Other, 0) if back.time.is_none() => Ended::Answered(500),
        _ => ended(error, status),
    };
    Some(Outcome { ended, elapsed_ms: back.time.unwrap_or(0), retry_after_ms: None }).filter(|outcome| outcome.ended != Ended::Unknown)
}

/// The outcomes of the requests of a report of a site with a pace. Those that failed and were given back came last: they ended the turn.
pub(super) fn outcomes(index: &Index) -> Vec<Outcome> {
    outcomes_of(index, |_| true)
}

/// The outcomes of some of the requests of a report. A pause counts if the response to one of them requested it, or if it is not known which response did.
pub(super) fn outcomes_of(index: &Index, is_chosen: impl Fn(Fingerprint) -> bool) -> Vec<Outcome> {
    let retry_after = index.site.as_ref().and_then(|news| news.retry_after).map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
    let of_entry = |entry: &Entry| {
        let ended = entry.error.as_ref().map_or(Ended::Answered(entry.status), |error| ended(error, entry.status));
        Outcome { ended, elapsed_ms: entry.time, retry_after_ms: None }
    };
    let results = index.results.iter().filter(|entry| is_chosen(entry.request_id));
    let back = || index.back.iter().filter(|back| is_chosen(back.request_id));
    let mut all: Vec<Outcome> = results.map(of_entry).filter(|outcome| outcome.ended != Ended::Unknown).collect();
    all.extend(back().filter_map(|back| given_back(back, retry_after.is_some())));
    let of_results = index.results.iter().filter(|entry| matches!(entry.status, 429 | 503)).map(|entry| entry.request_id);
    let is_asker = |back: &&GivenBack| back.tries > 0 && (back.error.is_none() || matches!(back.status, Some(429 | 503)));
    let askers: Vec<_> = of_results.chain(index.back.iter().filter(is_asker).map(|back| back.request_id)).collect();
    let asks = askers.is_empty() || askers.iter().any(|print| is_chosen(*print));
    let asked = |retry_after_ms| Outcome { ended: Ended::Answered(429), elapsed_ms: 0, retry_after_ms };
    if retry_after.is_some() && asks {
        // 0 means that the site requested a pause without a duration.
        all.push(asked(retry_after.filter(|ms| *ms > 0)));
    } else if all.is_empty() && back().any(|back| back.tries > 0 && back.error.is_none()) {
        all.push(asked(None));
    }
    all
}

/// Whether a node has sent a request of this report to the site, although its outcome may not be known: then the delay counts.
pub(super) fn has_begun(index: &Index) -> bool {
    let is_known = index.site.as_ref().is_some_and(|news| news.last_began.is_some());
    is_known || index.results.iter().any(|entry| entry.tries > 0) || index.back.iter().any(|back| back.error.is_some())
}

/// What the requests of a report show about sites without a pace, each with its request: whether the sites request a pause, do not answer, or
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
    // An error that another node may not have shows nothing about the site.
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
    let mut unanswered = index.back.iter().rev().filter(|back| back.status.is_none());
    let of_back = unanswered.find_map(|back| Some((back.error.as_ref()?, back.tries)));
    of_back.or_else(|| index.results.iter().rev().find_map(|entry| Some((entry.error.as_ref()?, entry.tries))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{BlockId, Identity, NodeId};
    use crate::protocol::node::{Paused, SiteNews};

    #[test]
    fn only_what_the_site_did_counts() {
        let identity = Identity::random();
        let of = |kind: Option<FetchErrorKind>| {
            let error = kind.map(|kind| FetchError { kind, message: "m".into(), retryable: true });
            let back = vec![GivenBack { error, ..GivenBack::new(Fingerprint::of_key("a"), 1) }];
            let index = Index { back, ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
            outcomes(&index).into_iter().map(|outcome| outcome.ended).collect::<Vec<_>>()
        };
        assert_eq!(of(Some(FetchErrorKind::Connect)), [Ended::Refused]);
        assert_eq!(of(Some(FetchErrorKind::Refused)), [], "the node refused it, not the site");
        assert_eq!(of(None), [Ended::Answered(429)], "a node that names no reason");
        let error = FetchError { kind: FetchErrorKind::Dns, message: "m".into(), retryable: true };
        let back = vec![GivenBack { error: Some(error.clone()), ..GivenBack::new(Fingerprint::of_key("a"), 2) }];
        let mut index = Index { back, ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
        assert_eq!(last_error(&index), Some((&error, 2)));
        let entry = Entry { error: None, status: 404, ..super::super::parts::failed(Fingerprint::of_key("b"), error.kind, "m") };
        index.results.push(entry);
        assert_eq!(last_error(&index), None, "the site has answered");
    }

    #[test]
    fn failures_of_requests_that_are_given_back_count_once() {
        let identity = Identity::random();
        let [a, b, c] = ["a", "b", "c"].map(Fingerprint::of_key);
        let error = |kind| Some(FetchError { kind, message: "m".into(), retryable: true });
        let other = error(FetchErrorKind::Other);
        let failed = GivenBack { error: other.clone(), status: Some(502), time: Some(30), ..GivenBack::new(a, 1) };
        let of = |back: Vec<GivenBack>, retry_after| {
            let site = Some(SiteNews { retry_after, last_began: Some(5), ..SiteNews::default() });
            let index = Index { back, site, ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
            outcomes(&index).into_iter().map(|one| (one.ended, one.elapsed_ms, one.retry_after_ms)).collect::<Vec<_>>()
        };
        let untried = GivenBack::new(b, 0);
        assert_eq!(of(vec![untried.clone(), failed.clone()], None), [(Ended::Answered(502), 30, None)]);
        let older = GivenBack { error: other.clone(), ..GivenBack::new(c, 2) };
        assert_eq!(of(vec![older.clone()], None), [(Ended::Answered(500), 0, None)], "an older node does not report the status");
        let unanswered = GivenBack { error: other.clone(), time: Some(9), ..GivenBack::new(c, 2) };
        assert_eq!(of(vec![unanswered], None), [], "there was no response");
        assert_eq!(of(vec![older], Some(7_000)), [(Ended::Answered(429), 0, Some(7_000))], "it asked for the pause");
        let asked = GivenBack { error: other, status: Some(503), ..GivenBack::new(c, 1) };
        let expected = [(Ended::Answered(502), 30, None), (Ended::Answered(429), 0, None)];
        assert_eq!(of(vec![asked, untried, failed], Some(0)), expected);
    }

    #[test]
    fn an_answer_that_is_cut_short_is_a_failure_and_an_unknown_outcome_has_begun() {
        let identity = Identity::random();
        let index = |kind, status, retryable| {
            let error = Some(FetchError { kind, message: "m".into(), retryable });
            let entry = Entry { error, status, tries: 1, ..super::super::parts::failed(Fingerprint::of_key("a"), kind, "m") };
            Index { results: vec![entry], ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) }
        };
        let of = |kind, status, retryable| outcomes(&index(kind, status, retryable)).first().map(|outcome| outcome.ended);
        assert_eq!(of(FetchErrorKind::Body, 200, true), Some(Ended::Refused));
        assert_eq!(of(FetchErrorKind::Timeout, 200, true), Some(Ended::TimedOut));
        assert_eq!(of(FetchErrorKind::Body, 200, false), Some(Ended::Answered(200)), "it cannot be decoded");
        assert_eq!(of(FetchErrorKind::TooLarge, 200, false), Some(Ended::Answered(200)));
        assert_eq!(of(FetchErrorKind::Other, 0, true), None, "the fault may be the agent's");
        assert_eq!((of(FetchErrorKind::ChangeIp, 0, true), has_begun(&index(FetchErrorKind::ChangeIp, 0, true))), (None, true));
        let none =
            Index { results: Vec::new(), back: vec![GivenBack::new(Fingerprint::of_key("a"), 1)], ..index(FetchErrorKind::Dns, 0, true) };
        assert!(!has_begun(&none));
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
            let back = vec![GivenBack { error, ..GivenBack::new(a, 1) }];
            let index = Index { back, ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
            unpaced_outcomes(&index).len()
        };
        assert_eq!((of_back(FetchErrorKind::Timeout), of_back(FetchErrorKind::Connect)), (1, 0), "another node may have a route");
    }
}
