//! Decides which links belong to the crawl.
//!
//! A link belongs to it if it leads to the host and port of a start or of its own page, where `http` and `https` on their default ports
//! count as the same port: many sites redirect from one to the other. Every requested page belongs to the crawl, and the start may
//! redirect to another host of its domain (`example.com` to `www.example.com`), so the page's own address counts. If hosts are listed, only the
//! list counts.

use super::options::{CrawlOptions, Hosts};
use crate::domain::sites::{SiteBy, site_key};
use regex::Regex;
use std::collections::HashMap;
use url::{Position, Url};

/// The rules.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Ports of the starts by host; `None`: the scheme's default port.
    starts: HashMap<Box<str>, Vec<Option<u16>>>,
    /// The listed hosts, if any.
    hosts: Vec<Hosts>,
    include: Vec<Regex>,
    exclude: Vec<Regex>,
}

impl Scope {
    /// The rules from the options.
    #[must_use]
    pub fn new(options: &CrawlOptions) -> Self {
        let mut starts = HashMap::<Box<str>, Vec<Option<u16>>>::new();
        for url in options.begins_at() {
            let ports = starts.entry(url.host_str().unwrap_or_default().into()).or_default();
            if !ports.contains(&url.port()) {
                ports.push(url.port());
            }
        }
        Self { starts, hosts: options.hosts.clone(), include: options.include.clone(), exclude: options.exclude.clone() }
    }

    /// What decides, besides a link itself, whether it is followed: the site of the page at `page`, unless hosts are listed.
    #[must_use]
    pub fn depends_on<'a>(&self, page: &'a Url) -> &'a str {
        if self.hosts.is_empty() { &page[Position::BeforeHost..Position::AfterPort] } else { "" }
    }

    /// Whether the links of a page are followed: not those of a page after a redirect to another site, unless it is a start.
    #[must_use]
    pub fn reads(&self, requested: &Url, answered: &Url, depth: u32) -> bool {
        depth == 0 || self.is_site(answered, requested)
    }

    /// Whether a link on the page at `page` is followed.
    #[must_use]
    pub fn follows(&self, link: &Url, page: &Url) -> bool {
        let text = &link[..Position::AfterQuery];
        self.is_within(link, page)
            && (self.include.is_empty() || self.include.iter().any(|pattern| pattern.is_match(text)))
            && !self.exclude.iter().any(|pattern| pattern.is_match(text))
    }

    /// Whether the target of a redirect is requested. The target of a start need not match the patterns, and may be another host of the same
    /// domain. `is_list`: it is a sitemap.
    #[must_use]
    pub fn takes_target(&self, target: &Url, answered: &Url, is_start: bool, is_list: bool) -> bool {
        let is_near = || same_site(target, answered) || self.hosts.is_empty() && same_domain(target, answered);
        match is_start {
            true => self.is_within(target, answered) || is_near(),
            false if is_list => self.is_within(target, answered),
            false => self.follows(target, answered),
        }
    }

    /// Whether a URL is on a site of the crawl, whatever the patterns say.
    #[must_use]
    pub fn is_within(&self, url: &Url, page: &Url) -> bool {
        matches!(url.scheme(), "http" | "https") && self.is_site(url, page)
    }

    fn is_site(&self, url: &Url, page: &Url) -> bool {
        if !self.hosts.is_empty() {
            let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
            return self.hosts.iter().any(|hosts| match hosts {
                Hosts::Any => true,
                Hosts::Like(rule) => rule.is_written(host, port),
            });
        }
        let is_start = || {
            let ports = self.starts.get(url.host_str().unwrap_or_default());
            ports.is_some_and(|ports| ports.contains(&url.port()))
        };
        same_site(url, page) || is_start()
    }
}

/// Same host and same port; the default ports of both schemes count as the same.
fn same_site(a: &Url, b: &Url) -> bool {
    a.host() == b.host() && a.port() == b.port()
}

/// Same registrable domain and same port.
fn same_domain(a: &Url, b: &Url) -> bool {
    site_key(a, SiteBy::Domain, None) == site_key(b, SiteBy::Domain, None) && a.port() == b.port()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a url")
    }

    #[test]
    fn the_same_site_is_host_and_port() {
        let scope = Scope::new(&CrawlOptions::new(url("http://example.com/")));
        let page = url("http://example.com/a");
        let cases = [
            ("http://example.com/b", true),
            ("https://EXAMPLE.com/b", true),
            ("https://example.com:443/b", true),
            ("http://example.com:8080/b", false),
            ("http://www.example.com/b", false),
            ("http://example.com.evil.net/", false),
            ("ftp://example.com/b", false),
        ];
        for (link, follows) in cases {
            assert_eq!(scope.follows(&url(link), &page), follows, "{link}");
        }
    }

    #[test]
    fn the_start_may_lead_elsewhere_and_other_pages_may_not() {
        let scope = Scope::new(&CrawlOptions::new(url("http://example.com/")));
        let (www, other) = (url("https://www.example.com/"), url("http://other.net/"));
        assert!(scope.reads(&url("http://example.com/"), &www, 0));
        assert!(scope.follows(&url("https://www.example.com/a"), &www));
        assert!(scope.reads(&url("https://www.example.com/a"), &url("https://www.example.com/b"), 1));
        assert!(!scope.reads(&url("http://example.com/away"), &other, 1));
        assert!(!scope.follows(&other, &www));
    }

    #[test]
    fn the_target_of_a_start_stays_in_its_domain() {
        let mut options = CrawlOptions::new(url("http://example.com/"));
        options.include = vec![Regex::new("/docs/").expect("a pattern")];
        let takes = |options: &CrawlOptions, is_start| {
            let targets =
                ["/en/", "https://www.example.com/", "http://example.com:81/", "http://other.net/docs/", "http://example.com/docs/x"];
            let (scope, page) = (Scope::new(options), url("http://example.com/"));
            targets.map(|target| scope.takes_target(&page.join(target).expect("a url"), &page, is_start, false))
        };
        assert_eq!(takes(&options, true), [true, true, false, false, true]);
        assert_eq!(takes(&options, false), [false, false, false, false, true]);
        options.hosts = vec!["other.net".parse().expect("a host")];
        assert_eq!(takes(&options, true), [true, false, false, true, true], "the list counts, and the host of the start");
    }

    #[test]
    fn several_starts_make_one_crawl_and_a_list_of_hosts_counts_alone() {
        let mut options = CrawlOptions::new(url("http://a.example/x"));
        options.starts.push(url("http://b.example:81/"));
        options.sitemap.push(url("http://c.example/s.xml"));
        let follows = |options: &CrawlOptions| {
            let links = ["http://a.example/", "http://b.example:81/y", "http://b.example/", "https://c.example/", "http://x.d.example/"];
            links.map(|link| Scope::new(options).follows(&url(link), &url("http://a.example/")))
        };
        assert_eq!(follows(&options), [true, true, false, true, false]);
        options.hosts = vec!["b.example".parse().expect("a host"), "*.d.example".parse().expect("hosts")];
        assert_eq!(follows(&options), [false, true, true, false, true]);
        let scope = Scope::new(&options);
        assert!(scope.reads(&url("http://a.example/"), &url("http://a.example/"), 0), "what was asked for is read");
        assert!(!scope.reads(&url("http://b.example/x"), &url("http://e.example/"), 1));
        options.hosts = vec!["any".parse().expect("hosts")];
        assert_eq!(follows(&options), [true; 5]);
        assert!(!Scope::new(&options).follows(&url("ftp://a.example/"), &url("http://a.example/")));
    }

    #[test]
    fn patterns_choose_among_the_links() {
        let mut options = CrawlOptions::new(url("http://a/"));
        options.include = vec![Regex::new("/docs/").expect("a pattern"), Regex::new(r"\.html$").expect("a pattern")];
        options.exclude = vec![Regex::new(r"\?print").expect("a pattern")];
        let scope = Scope::new(&options);
        for (link, follows) in [("/docs/x", true), ("/x.html#y", true), ("/x", false), ("/docs/x?print=1", false)] {
            let page = url("http://a/");
            assert_eq!(scope.follows(&page.join(link).expect("a link"), &page), follows, "{link}");
        }
    }
}
