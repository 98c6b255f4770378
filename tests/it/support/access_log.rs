//! Reads the access log of a site and finds every breach of politeness. It knows nothing of the program that made the requests.
//!
//! A log has one line for each request, in any order: of JSON, or in a format of nginx and Apache ([`line`]). In a line of JSON times are
//! microseconds of any one clock:
//!
//! ```json
//! {"host":"127.1.2.3","path":"/a?b","begin":1000,"end":2500,"status":429,"retryAfter":2}
//! ```
//!
//! `begin` is when the site had read the request, `end` when it had written the answer or lost the connection (status 0).
//! `retryAfter` is what the answer asked for, in seconds.
//!
//! The other formats have times in whole seconds, no duration and no `Retry-After`. So of them only the delay over several requests and
//! the paths are checked: requests that may have been polite within their seconds are no breach.

#[path = "access_line.rs"]
pub mod line;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

const SECOND_US: u64 = 1_000_000;

/// One request, as the site saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub host: String,
    pub path: String,
    pub begin: u64,
    pub end: u64,
    pub status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The time is that of a whole second, and there is no duration.
    #[serde(skip)]
    pub is_coarse: bool,
}

/// What a site allows.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    /// Milliseconds between the beginnings of two requests.
    pub delay_ms: u64,
    /// Requests at a time; 0: any number.
    pub connections: usize,
    /// Beginnings of paths that robots.txt forbids.
    pub disallowed: Vec<String>,
}

/// One breach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breach {
    /// Two requests were closer than the delay.
    Gap { host: String, at: u64, gap_us: u64 },
    /// There were more requests in this time than the delay allows.
    Rate { host: String, at: u64, requests: usize, within_us: u64 },
    /// More requests at once than allowed.
    Connections { host: String, at: u64, count: usize },
    /// A path that robots.txt forbids.
    Disallowed { host: String, at: u64, path: String },
    /// A request while the site had asked to be left alone.
    Held { host: String, at: u64, until: u64 },
    /// An entry that ends before it begins.
    Unreadable { host: String, at: u64 },
}

/// What a log shows.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    pub requests: usize,
    pub hosts: usize,
    /// The least gap between the beginnings of two requests to one host, in microseconds, and that host.
    pub least_gap: Option<(u64, String)>,
    /// The most requests at once at one host, and that host.
    pub most_connections: Option<(usize, String)>,
    /// The most requests at once at all hosts.
    pub most_at_once: usize,
    pub breaches: Vec<Breach>,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} requests to {} hosts, at most {} at once", self.requests, self.hosts, self.most_at_once)?;
        if let Some((gap, host)) = &self.least_gap {
            writeln!(f, "least gap {:.3} ms at {host}", *gap as f64 / 1e3)?;
        }
        if let Some((count, host)) = &self.most_connections {
            writeln!(f, "most requests at once to one host: {count} at {host}")?;
        }
        write!(f, "{} breaches", self.breaches.len())?;
        self.breaches.iter().take(20).try_for_each(|breach| write!(f, "\n  {breach:?}"))
    }
}

/// Which lines of a log of nginx or Apache count: those of one client of a site, which has others. Empty: all.
#[derive(Debug, Clone, Default)]
pub struct Only {
    /// The address of the client.
    pub client: String,
    /// A part of its `User-Agent`.
    pub user_agent: String,
}

impl Only {
    fn counts(&self, line: &line::Line) -> bool {
        let agent = line.user_agent.as_deref().unwrap_or_default();
        (self.client.is_empty() || self.client == line.client) && agent.contains(&self.user_agent)
    }
}

/// Reads a log.
///
/// # Errors
/// A line is no entry.
pub fn read(text: &str, only: &Only) -> Result<Vec<Entry>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.filter_map(|(number, line)| entry(line, only).map_err(|e| format!("line {}: {e}", number + 1)).transpose()).collect()
}

fn entry(text: &str, only: &Only) -> Result<Option<Entry>, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map(Some).map_err(|e| e.to_string());
    }
    let line = line::read(text)?;
    let at = line.at * SECOND_US;
    Ok(only.counts(&line).then(|| Entry {
        host: line.host.unwrap_or_else(|| "-".into()),
        path: line.path,
        begin: at,
        end: at,
        status: line.status,
        retry_after: None,
        is_coarse: true,
    }))
}

/// Looks for breaches. `slack_us` is how much earlier than allowed a request may come: the way from there to here is not
/// always equally long.
pub fn check(entries: &[Entry], slack_us: u64, allowed: impl Fn(&str) -> Allowed) -> Findings {
    let mut by_host = BTreeMap::<&str, Vec<&Entry>>::new();
    for entry in entries {
        by_host.entry(&entry.host).or_default().push(entry);
    }
    let mut found = Findings { requests: entries.len(), hosts: by_host.len(), ..Findings::default() };
    for (host, mut entries) in by_host {
        entries.sort_by_key(|entry| (entry.begin, entry.end));
        check_host(host, &entries, slack_us, &allowed(host), &mut found);
    }
    found.most_at_once = at_once(entries.iter().filter(|entry| !entry.is_coarse)).map_or(0, |(count, _)| count);
    found
}

fn check_host(host: &str, entries: &[&Entry], slack_us: u64, allowed: &Allowed, found: &mut Findings) {
    let named = || host.to_owned();
    for pair in entries.windows(2).filter(|pair| !pair[1].is_coarse) {
        let (at, gap_us) = (pair[1].begin, pair[1].begin - pair[0].begin);
        if found.least_gap.as_ref().is_none_or(|(least, _)| gap_us < *least) {
            found.least_gap = Some((gap_us, named()));
        }
        if gap_us + slack_us < allowed.delay_ms * 1_000 {
            found.breaches.push(Breach::Gap { host: named(), at, gap_us });
        }
    }
    let coarse: Vec<u64> = entries.iter().filter(|entry| entry.is_coarse).map(|entry| entry.begin).collect();
    check_rate(host, &coarse, slack_us, allowed.delay_ms * 1_000, found);
    if let Some((count, at)) = at_once(entries.iter().copied().filter(|entry| !entry.is_coarse)) {
        if found.most_connections.as_ref().is_none_or(|(most, _)| count > *most) {
            found.most_connections = Some((count, named()));
        }
        if allowed.connections > 0 && count > allowed.connections {
            found.breaches.push(Breach::Connections { host: named(), at, count });
        }
    }
    for entry in entries {
        if entry.end < entry.begin {
            found.breaches.push(Breach::Unreadable { host: named(), at: entry.begin });
        }
        if allowed.disallowed.iter().any(|start| entry.path.starts_with(start.as_str())) {
            found.breaches.push(Breach::Disallowed { host: named(), at: entry.begin, path: entry.path.clone() });
        }
    }
    // The answers that asked for a rest, in the order in which they were given.
    let mut rests: Vec<(u64, u64)> =
        entries.iter().filter_map(|entry| Some((entry.end, entry.end + entry.retry_after? * 1_000_000))).collect();
    rests.sort_unstable();
    let (mut next, mut until) = (0, 0);
    for entry in entries {
        while let Some((from, to)) = rests.get(next).filter(|(from, _)| *from <= entry.begin) {
            // What was on its way when the answer was written is no breach.
            if from + slack_us <= entry.begin {
                until = until.max(*to);
                next += 1;
            } else {
                break;
            }
        }
        if entry.begin + slack_us < until {
            found.breaches.push(Breach::Held { host: named(), at: entry.begin, until });
        }
    }
}

/// Finds more requests than the delay allows, by times of whole seconds in order. A request may have come up to a second later than its
/// time. Between `n + 1` requests lie `n` delays, so the times of polite ones span at least `n` delays, less a second.
fn check_rate(host: &str, times: &[u64], slack_us: u64, delay_us: u64, found: &mut Findings) {
    let mut first = 0;
    for (last, at) in times.iter().enumerate() {
        let needed = |first: usize| (last - first) as u64 * delay_us;
        if at - times[first] >= needed(first) {
            // The requests up to now were slow enough. Their rest is no credit for later ones.
            first = last;
        } else if at - times[first] + SECOND_US + slack_us < needed(first) {
            let (requests, within_us) = (last - first + 1, at - times[first]);
            found.breaches.push(Breach::Rate { host: host.to_owned(), at: *at, requests, within_us });
            first = last;
        }
    }
}

/// The most requests at once, and when that was.
fn at_once<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<(usize, u64)> {
    // At one instant what ends goes first.
    let mut steps: Vec<(u64, i8)> = entries.flat_map(|entry| [(entry.begin, 1), (entry.end.max(entry.begin + 1), -1)]).collect();
    steps.sort_unstable();
    let (mut count, mut most) = (0_usize, None::<(usize, u64)>);
    for (at, step) in steps {
        if step < 0 {
            count -= 1;
        } else {
            count += 1;
            if most.is_none_or(|(most, _)| count > most) {
                most = Some((count, at));
            }
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(host: &str, path: &str, begin: u64, end: u64) -> Entry {
        Entry { host: host.into(), path: path.into(), begin, end, status: 200, ..Entry::default() }
    }

    fn polite(_: &str) -> Allowed {
        Allowed { delay_ms: 1_000, connections: 1, disallowed: vec!["/private".into()] }
    }

    const S: u64 = 1_000_000;

    /// Two hosts that are asked once a second, and one that asked for a rest and got it.
    fn clean() -> Vec<Entry> {
        let mut log: Vec<Entry> = (0..5).flat_map(|n| ["a", "b"].map(|host| entry(host, "/x", n * S, n * S + 900))).collect();
        log.push(Entry { status: 429, retry_after: Some(10), ..entry("c", "/y", 0, 100) });
        log.push(entry("c", "/y", 10 * S + 100, 11 * S));
        log
    }

    #[test]
    fn a_clean_log_has_no_breach() {
        let found = check(&clean(), 0, polite);
        assert_eq!((found.requests, found.hosts, found.breaches.len(), found.most_at_once), (12, 3, 0, 3), "{found}");
        assert_eq!((found.least_gap.map(|(gap, _)| gap), found.most_connections.map(|(count, _)| count)), (Some(S), Some(1)));
        assert!(check(&[], 0, polite).breaches.is_empty());
    }

    #[test]
    fn each_kind_of_breach_is_found() {
        let host = || "a".to_owned();
        let with = |extra: Entry| {
            let mut log = clean();
            // The order of the file does not matter.
            log.insert(0, extra);
            check(&log, 0, polite).breaches
        };
        assert_eq!(with(entry("a", "/x", 5 * S - 1, 5 * S)), [Breach::Gap { host: host(), at: 5 * S - 1, gap_us: S - 1 }]);
        assert_eq!(
            with(entry("a", "/private/z", 9 * S, 9 * S + 1)),
            [Breach::Disallowed { host: host(), at: 9 * S, path: "/private/z".into() }]
        );
        assert_eq!(with(entry("a", "/x", 9 * S, S)), [Breach::Unreadable { host: host(), at: 9 * S }]);
        assert_eq!(with(entry("c", "/x", 5 * S, 5 * S + 1)), [Breach::Held { host: "c".into(), at: 5 * S, until: 10 * S + 100 }]);
        let long = Entry { end: 7 * S, ..entry("a", "/x", 5 * S, 0) };
        let mut log = clean();
        log.extend([long, entry("a", "/x", 6 * S, 6 * S + 5)]);
        assert_eq!(check(&log, 0, polite).breaches, [Breach::Connections { host: host(), at: 6 * S, count: 2 }]);
    }

    #[test]
    fn what_was_on_its_way_is_not_held_and_the_longest_rest_counts() {
        let rest = |begin, end, seconds| Entry { status: 503, retry_after: Some(seconds), ..entry("a", "/", begin, end) };
        let any = |_: &str| Allowed::default();
        let log = [rest(0, 100, 10), entry("a", "/", 99, 200), rest(98, 300, 2), entry("a", "/", 9 * S, 9 * S + 1)];
        let found = check(&log, 0, any).breaches;
        assert_eq!(found, [Breach::Held { host: "a".into(), at: 9 * S, until: 10 * S + 100 }]);
        assert!(check(&log, S + 100, any).breaches.is_empty(), "within the slack");
    }

    #[test]
    fn slack_is_for_the_way_there() {
        let log = [entry("a", "/", 0, 1), entry("a", "/", S - 5_000, S)];
        assert_eq!([4_999, 5_000].map(|slack| check(&log, slack, polite).breaches.len()), [1, 0]);
    }

    #[test]
    fn a_log_is_read_or_its_bad_line_is_named() {
        let text = clean().iter().map(|entry| serde_json::to_string(entry).expect("plain data") + "\n").collect::<String>();
        let all = Only::default();
        assert_eq!(read(&text, &all), Ok(clean()));
        assert!(read("\n{}\n", &all).is_err_and(|why| why.starts_with("line 2")));
        assert!(read("\n\nx\n", &all).is_err_and(|why| why.starts_with("line 3: there is no time")));
    }

    /// A log of nginx: one line for each of these seconds.
    fn combined(seconds: &[u64], agent: &str) -> String {
        let line = |second: &u64| {
            let (minute, second) = (second / 60, second % 60);
            format!("10.0.0.1 - - [25/Nov/2026:18:{minute:02}:{second:02} +0000] \"GET /x HTTP/1.1\" 200 1 \"-\" \"{agent}\"\n")
        };
        seconds.iter().map(line).collect()
    }

    #[test]
    fn a_log_with_whole_seconds_shows_only_what_is_certain() {
        let breaches = |seconds: &[u64], delay_ms| {
            let log = read(&combined(seconds, "bot"), &Only::default()).expect("a log");
            let found = check(&log, 0, |_| Allowed { delay_ms, connections: 1, disallowed: Vec::new() });
            found
                .breaches
                .iter()
                .map(|breach| match breach {
                    Breach::Rate { requests, within_us, .. } => (*requests, within_us / S),
                    other => panic!("{other:?}"),
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(breaches(&[0, 1, 2, 3, 60, 61], 1_000), []);
        assert_eq!(breaches(&[0, 2, 2, 4, 4, 6], 1_000), [], "18:00:02.0 and 18:00:02.99 may be a second apart");
        assert_eq!(breaches(&[0, 0, 0], 1_000), [(3, 0)], "three in one second");
        assert_eq!(breaches(&[0, 10, 20, 25, 30, 40], 10_000), [(2, 5), (2, 5)], "each pair that is too close");
        assert_eq!(breaches(&[0, 100, 101, 102, 103], 2_000), [(3, 2)], "the rest before them is no credit");
        assert_eq!(breaches(&[0, 1, 3, 4, 6, 7], 2_000), [(4, 4)], "no pair shows it");
    }

    #[test]
    fn the_lines_of_other_clients_are_left_out() {
        let text = combined(&[0, 5], "webloom/1") + &combined(&[0, 0, 0, 5], "Mozilla");
        let count = |client: &str, agent: &str| {
            let only = Only { client: client.into(), user_agent: agent.into() };
            read(&text, &only).expect("a log").len()
        };
        assert_eq!([count("", ""), count("", "webloom"), count("10.0.0.1", ""), count("10.0.0.2", "webloom")], [6, 2, 6, 0]);
    }
}
