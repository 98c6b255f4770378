//! Reads what the broker knows about the sites of a crawl: which errors are news, and whether the crawl can reach any of its starts.

use crate::domain::sites::{host_of, host_of_name};
use crate::domain::time::Timestamp;
use serde::Deserialize;
use std::collections::HashSet;
use url::Url;

/// Maximum number of messages about sites; the summary has the rest.
const MOST_MESSAGES: usize = 50;

/// A site of the run, as the API describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunSite {
    name: String,
    #[serde(default)]
    held: Option<Held>,
    #[serde(default)]
    last_error: Option<SiteError>,
}

#[derive(Debug, Clone, Deserialize)]
struct Held {
    until: String,
    why: String,
}

#[derive(Debug, Clone, Deserialize)]
struct SiteError {
    kind: String,
    message: String,
    tries: u32,
    robots: bool,
    at: Timestamp,
}

impl RunSite {
    /// Drops an error from before the run: another run met it.
    pub fn drop_error_before(&mut self, begin: Timestamp) {
        self.last_error.take_if(|error| error.at < begin);
    }

    fn cause(&self) -> Option<String> {
        let SiteError { kind, message, tries, robots, .. } = self.last_error.as_ref()?;
        let what = if *robots { "robots.txt" } else { "a page" };
        Some(format!("{}: {kind}: {message} ({what}, try {tries})", self.name))
    }

    /// Whether a URL is on this site: its name is an origin, a host or a domain.
    fn has(&self, url: &Url) -> bool {
        if self.name.contains("://") {
            return self.name == url.origin().ascii_serialization();
        }
        let (name, host) = (host_of_name(&self.name), host_of(url));
        host == name || host.strip_suffix(&name).is_some_and(|rest| rest.ends_with('.'))
    }
}

/// Remembers which messages were shown.
#[derive(Debug, Default)]
pub(super) struct Reach {
    shown: HashSet<(String, String)>,
}

impl Reach {
    /// Messages that were not shown before.
    pub fn news(&mut self, sites: &[RunSite]) -> Vec<String> {
        let mut news = Vec::new();
        for site in sites {
            if let (Some(error), Some(cause)) = (&site.last_error, site.cause()) {
                self.add(&site.name, format!("{} {}", error.kind, error.tries), cause, &mut news);
            }
            if let Some(Held { until, why }) = &site.held {
                self.add(&site.name, why.clone(), format!("{}: no requests until {until} ({why})", site.name), &mut news);
            }
        }
        news
    }

    fn add(&mut self, site: &str, what: String, message: String, news: &mut Vec<String>) {
        if self.shown.len() < MOST_MESSAGES && self.shown.insert((site.to_owned(), what)) {
            news.push(message);
        }
    }
}

/// Why no start can be reached: each is on a site whose last request failed without a response.
pub(super) fn unreachable<'a>(sites: &[RunSite], starts: impl Iterator<Item = &'a Url>) -> Option<String> {
    let mut first = None;
    for start in starts {
        // The host itself before its domain.
        let site = sites.iter().filter(|site| site.has(start)).max_by_key(|site| site.name.len());
        let cause = site.and_then(RunSite::cause)?;
        first.get_or_insert(cause);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn site(name: &str, tries: u32) -> RunSite {
        let error = (tries > 0)
            .then(|| json!({ "kind": "dns", "message": "no such host", "tries": tries, "robots": true, "at": "2026-11-25T12:00:00Z" }));
        serde_json::from_value(json!({ "name": name, "pending": 1, "lastError": error })).expect("a site")
    }

    fn time(text: &str) -> Timestamp {
        serde_json::from_value(json!(text)).expect("a time")
    }

    #[test]
    fn each_try_is_news_once() {
        let mut reach = Reach::default();
        let first = ["a.example: dns: no such host (robots.txt, try 1)"];
        assert_eq!(reach.news(&[site("a.example", 1), site("b.example", 0)]), first);
        assert!(reach.news(&[site("a.example", 1)]).is_empty());
        assert_eq!(reach.news(&[site("a.example", 2)]), ["a.example: dns: no such host (robots.txt, try 2)"]);
        let mut held = site("b.example", 0);
        held.held = Some(Held { until: "2026-11-25T12:00:00Z".into(), why: "retryAfter".into() });
        assert_eq!(reach.news(&[held]), ["b.example: no requests until 2026-11-25T12:00:00Z (retryAfter)"]);
        let many: Vec<RunSite> = (0..100).map(|n| site(&format!("{n}.example"), 1)).collect();
        assert_eq!(reach.news(&many).len(), MOST_MESSAGES - 3);
    }

    #[test]
    fn a_crawl_is_hopeless_if_all_its_starts_fail() {
        let starts = ["http://www.a.example/x", "https://b.example:8443/"].map(|text| Url::parse(text).expect("a URL"));
        let of = |sites: &[RunSite]| unreachable(sites, starts.iter());
        assert_eq!(of(&[site("a.example", 1)]), None, "nothing is known of the second");
        assert_eq!(of(&[site("a.example", 1), site("b.example", 0)]), None, "the second has not failed");
        assert_eq!(of(&[site("ww.a.example", 1), site("b.example", 1)]), None, "another host");
        let why = "a.example: dns: no such host (robots.txt, try 2)";
        assert_eq!(of(&[site("a.example", 2), site("https://b.example:8443", 1)]).as_deref(), Some(why));
        assert_eq!(of(&[site("a.example", 2), site("https://b.example", 1)]), None, "another origin");
        let of_host = [site("a.example", 2), site("www.a.example", 0), site("b.example", 1)];
        assert_eq!(of(&of_host), None, "the host has not failed, but another of its domain has");
        let mut old = site("a.example", 1);
        old.drop_error_before(time("2026-11-25T12:00:00Z"));
        assert!(old.cause().is_some(), "of this run");
        old.drop_error_before(time("2026-11-25T12:00:01Z"));
        assert_eq!(old.cause(), None, "of another run");
    }
}
