//! Explains where a URL is in a run, and why it has no result yet.

use super::fingerprint::Fingerprint;
use super::run::RunState;
use super::schedule::Answer;
use super::settings::QueueSettings;
use super::sites::Why;
use super::time::Timestamp;

/// A URL to look up in a run.
#[derive(Debug)]
pub struct Sought<'a> {
    /// The URL as requested.
    pub asked: &'a str,
    /// Its canonical form, which is used to compare requests.
    pub url: &'a str,
    /// The id that a GET request for it has.
    pub request_id: Fingerprint,
    /// The queue settings of the run.
    pub settings: &'a QueueSettings,
    /// The state of the run.
    pub state: RunState,
    /// Since when its dispatch is paused.
    pub paused_at: Option<Timestamp>,
    /// What was found: the request, then its repetition, then the repetition of that.
    pub found: &'a [Whereabouts],
    /// The current time.
    pub now: Timestamp,
}

/// The hold of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its end.
    pub until: Timestamp,
    /// The reason.
    pub why: Why,
    /// The operator that holds it.
    pub by: Option<String>,
}

/// The state of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// It waits for a node.
    Ready,
    /// It waits for its turn at its site.
    AtSite {
        /// The site.
        site: String,
        /// Earliest time of the next request to the site.
        until: Timestamp,
        /// The hold of the site.
        held: Option<Held>,
        /// Another run or block currently uses the site.
        is_taken: bool,
        /// Number of blocks before it in the queue of the site.
        ahead: usize,
    },
    /// A node has it.
    AtNode {
        /// The node.
        node: String,
        /// When the node got it.
        since: Timestamp,
        /// The attempt of its block, starting at 1.
        attempt: u32,
    },
    /// It, or its result, is being stored.
    Storing,
    /// It has no result, and the run is over.
    GivenUp,
    /// It failed.
    Failed {
        /// The kind of failure; `None`: the site answered with the status.
        kind: Option<String>,
        /// A readable message.
        message: String,
        /// The HTTP status; 0 if there was no answer.
        status: u16,
        /// Number of tries.
        tries: u32,
        /// When it failed.
        at: Option<Timestamp>,
        /// The node that reported it; `None`: the broker.
        node: Option<String>,
    },
    /// It succeeded.
    Done {
        /// The HTTP status; none: its result was acknowledged and is not kept.
        status: Option<u16>,
        /// When it succeeded.
        at: Option<Timestamp>,
        /// A worker has acknowledged it.
        is_acknowledged: bool,
    },
}

/// Explains where a URL is.
#[must_use]
pub fn explain_url(sought: &Sought<'_>) -> Answer {
    let mut because = Vec::new();
    if sought.asked != sought.url {
        because.push(format!("Its canonical form is {}.", sought.url));
    }
    let Some((last, before)) = sought.found.split_last() else {
        because.extend(unknown(sought));
        return Answer::new("unknown", "notPushed", because);
    };
    for failed in before {
        because.push(sentence(failed, sought));
        because.push("That request was queued again.".to_owned());
    }
    because.push(sentence(last, sought));
    let is_waiting = matches!(last, Whereabouts::Ready | Whereabouts::AtSite { .. });
    let paused = sought.paused_at.filter(|_| is_waiting && !sought.state.is_final());
    if let Some(at) = paused {
        because.push(format!("The run is paused since {at}: it dispatches no blocks until it is resumed."));
    }
    because.push("The same request pushed again is a duplicate and changes nothing.".to_owned());
    let (verdict, rule) = match last {
        _ if paused.is_some() => ("waiting", "paused"),
        Whereabouts::Ready => ("waiting", "node"),
        Whereabouts::AtSite { .. } => ("waiting", "site"),
        Whereabouts::AtNode { .. } => ("atNode", "lease"),
        Whereabouts::Storing => ("waiting", "storing"),
        Whereabouts::GivenUp => ("givenUp", "runOver"),
        Whereabouts::Failed { kind: Some(kind), .. } if kind == "robots" => ("forbidden", "robots"),
        Whereabouts::Failed { kind, .. } => ("failed", kind.as_deref().unwrap_or("status")),
        Whereabouts::Done { .. } => ("done", "success"),
    };
    Answer::new(verdict, rule, because)
}

fn unknown(sought: &Sought<'_>) -> Vec<String> {
    let mut because = vec![format!("The run has no GET request for it: the request id would be {}.", sought.request_id)];
    because
        .push("It was never pushed, or only with another method, a body, a key or `dontFilter`: such requests have other ids.".to_owned());
    if let Some(depth) = sought.settings.depth_limit {
        because.push(format!("Or it was pushed at a depth of more than {depth}: the run drops such requests."));
    }
    if let Some(most) = sought.settings.max_requests {
        because.push(format!("Or it was pushed after the run had its {most} requests: the run drops what comes later."));
    }
    because
}

fn sentence(place: &Whereabouts, sought: &Sought<'_>) -> String {
    let at = |at: &Option<Timestamp>| at.map(|at| format!(" at {at}")).unwrap_or_default();
    match place {
        Whereabouts::Ready => "It waits for a node with a free slot.".to_owned(),
        Whereabouts::AtSite { site, until, held, is_taken, ahead } => {
            let when = match (held, *is_taken, *until > sought.now) {
                (Some(Held { until, why, by }), ..) => {
                    let by = by.as_ref().map(|by| format!(" {by}")).unwrap_or_default();
                    format!("which is held until {until} ({}{by})", why.name())
                }
                (None, true, _) => "which another block is using".to_owned(),
                (None, false, true) => format!("which may not be used before {until}"),
                (None, false, false) => "which may be used now".to_owned(),
            };
            let before = match ahead {
                0 => String::new(),
                1 => "; 1 block to the site comes first".to_owned(),
                more => format!("; {more} blocks to the site come first"),
            };
            format!("It waits for its site {site}, {when}{before}.")
        }
        Whereabouts::AtNode { node, since, attempt } => format!("It is at node {node} since {since}, in attempt {attempt} of its block."),
        Whereabouts::Storing => "It is being stored.".to_owned(),
        Whereabouts::GivenUp => format!("It has no result: the run ended first, as {}.", sought.state.name()),
        Whereabouts::Failed { kind, message, status, tries, at: time, node } => {
            let how = match kind {
                Some(kind) if *status > 0 => format!("with status {status} ({kind}: {message})"),
                Some(kind) => format!("({kind}: {message})"),
                None => format!("with status {status}"),
            };
            let tries = match tries {
                0 => String::new(),
                1 => " after 1 try".to_owned(),
                more => format!(" after {more} tries"),
            };
            let node = node.as_deref().map(|node| format!(", reported by node {node}")).unwrap_or_default();
            format!("It failed{}{tries} {how}{node}.", at(time))
        }
        Whereabouts::Done { status, at: time, is_acknowledged } => {
            let how = match (status, is_acknowledged) {
                (Some(status), true) => format!("with status {status}, and a worker has acknowledged it"),
                (Some(status), false) => format!("with status {status}, and no worker has acknowledged it yet"),
                (None, false) => "with a status below 400; its result was given up when the run ended".to_owned(),
                (None, true) => "with a status below 400, and a worker has acknowledged it; after that the status is not kept".to_owned(),
            };
            format!("It was answered{} {how}.", at(time))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(
        found: &[Whereabouts],
        state: RunState,
        paused_at: Option<Timestamp>,
        settings: &QueueSettings,
    ) -> (String, String, String) {
        let (asked, url) = ("HTTP://a/%7ex", "http://a/~x");
        let request_id = Fingerprint::of("GET", url, b"");
        let answer = explain_url(&Sought { asked, url, request_id, settings, state, paused_at, found, now: Timestamp(5_000) });
        assert!(answer.because.iter().all(|text| text.ends_with('.')), "{answer:?}");
        assert_eq!(answer.because[0], "Its canonical form is http://a/~x.");
        (answer.verdict, answer.rule, answer.because[1..].join(" "))
    }

    #[test]
    fn each_place_is_explained() {
        let usual = QueueSettings::default();
        let see = |place: Whereabouts| explained(&[place], RunState::Running, None, &usual);
        let at_site =
            |until, is_taken, ahead| Whereabouts::AtSite { site: "a".into(), until: Timestamp(until), held: None, is_taken, ahead };
        let held = |why, by: Option<&str>| Whereabouts::AtSite {
            site: "a".into(),
            until: Timestamp(1_000),
            held: Some(Held { until: Timestamp(9_000), why, by: by.map(str::to_owned) }),
            is_taken: true,
            ahead: 0,
        };
        let failed = |kind: Option<&str>, status, tries| Whereabouts::Failed {
            kind: kind.map(str::to_owned),
            message: "m".into(),
            status,
            tries,
            at: Some(Timestamp(1_000)),
            node: Some("n (x)".into()),
        };
        let done = |status, is_acknowledged| Whereabouts::Done { status, at: Some(Timestamp(1_000)), is_acknowledged };
        for (place, verdict, rule, text) in [
            (Whereabouts::Ready, "waiting", "node", "It waits for a node with a free slot."),
            (at_site(9_000, false, 2), "waiting", "site", "not be used before 1970-01-01T00:00:09.000Z; 2 blocks to the site come first."),
            (at_site(1_000, false, 0), "waiting", "site", "its site a, which may be used now."),
            (at_site(9_000, true, 1), "waiting", "site", "which another block is using; 1 block to the site comes first."),
            (held(Why::Operator, Some("ann")), "waiting", "site", "is held until 1970-01-01T00:00:09.000Z (operator ann)."),
            (
                Whereabouts::AtNode { node: "n".into(), since: Timestamp(2_000), attempt: 3 },
                "atNode",
                "lease",
                "at node n since 1970-01-01T00:00:02.000Z, in attempt 3",
            ),
            (Whereabouts::Storing, "waiting", "storing", "It is being stored."),
            (Whereabouts::GivenUp, "givenUp", "runOver", "the run ended first, as running."),
            (
                failed(Some("robots"), 0, 0),
                "forbidden",
                "robots",
                "It failed at 1970-01-01T00:00:01.000Z (robots: m), reported by node n (x).",
            ),
            (failed(Some("body"), 200, 1), "failed", "body", "after 1 try with status 200 (body: m), "),
            (failed(None, 404, 2), "failed", "status", "after 2 tries with status 404, "),
            (done(Some(200), false), "done", "success", "with status 200, and no worker has acknowledged it yet."),
            (done(Some(301), true), "done", "success", "with status 301, and a worker has acknowledged it."),
            (done(None, false), "done", "success", "its result was given up when the run ended."),
            (done(None, true), "done", "success", "after that the status is not kept."),
        ] {
            let (is_verdict, is_rule, is_text) = see(place);
            assert_eq!((is_verdict.as_str(), is_rule.as_str()), (verdict, rule), "{is_text}");
            assert!(is_text.contains(text) && is_text.ends_with("is a duplicate and changes nothing."), "{is_text}");
        }
        let (verdict, _, text) = explained(&[failed(None, 503, 1), Whereabouts::Ready], RunState::Running, None, &usual);
        assert!(verdict == "waiting" && text.contains("status 503") && text.contains("That request was queued again. It waits"), "{text}");
    }

    #[test]
    fn a_pause_and_limits_are_reasons() {
        let usual = QueueSettings::default();
        let paused = Some(Timestamp(3_000));
        let see = |place, state| explained(&[place], state, paused, &usual);
        let (verdict, rule, text) = see(Whereabouts::Ready, RunState::Running);
        assert_eq!((verdict.as_str(), rule.as_str()), ("waiting", "paused"));
        assert!(text.contains("paused since 1970-01-01T00:00:03.000Z"), "{text}");
        let at_node = Whereabouts::AtNode { node: "n".into(), since: Timestamp(0), attempt: 1 };
        assert!(!see(at_node, RunState::Running).2.contains("paused"));
        assert!(!see(Whereabouts::Ready, RunState::Stopped).2.contains("paused"));
        let limits = QueueSettings { depth_limit: Some(3), max_requests: Some(70), ..QueueSettings::default() };
        let (verdict, rule, text) = explained(&[], RunState::Running, None, &limits);
        assert_eq!((verdict.as_str(), rule.as_str()), ("unknown", "notPushed"));
        assert!(text.contains("more than 3") && text.contains("70 requests") && text.contains("only with another method"), "{text}");
        assert!(!explained(&[], RunState::Running, None, &usual).2.contains("Or it was"));
    }
}
