//! Which links belong to the crawl.
//!
//! A link does if it leads to the host and port of the start or of the page that it stands on, where `http` and `https`
//! on their own ports count as the same port: many sites lead from one to the other. Whatever was asked for belongs to
//! the crawl, and the start may lead elsewhere (`example.com` to `www.example.com`), so the page's own address counts.

use super::options::CrawlOptions;
use regex::Regex;
use url::{Position, Url};

/// The rules.
#[derive(Debug, Clone)]
pub struct Scope {
    start: Url,
    include: Vec<Regex>,
    exclude: Vec<Regex>,
}

impl Scope {
    /// As the options have it.
    #[must_use]
    pub fn new(options: &CrawlOptions) -> Self {
        Self { start: options.url.clone(), include: options.include.clone(), exclude: options.exclude.clone() }
    }

    /// Whether the links of a page are followed: not those of a page that a redirect led away to, unless it is the first.
    #[must_use]
    pub fn reads(&self, requested: &Url, answered: &Url, depth: u32) -> bool {
        depth == 0 || self.is_site(answered, requested)
    }

    /// Whether a link, found on a page that answered at `page`, is followed.
    #[must_use]
    pub fn follows(&self, link: &Url, page: &Url) -> bool {
        let text = &link[..Position::AfterQuery];
        matches!(link.scheme(), "http" | "https")
            && self.is_site(link, page)
            && (self.include.is_empty() || self.include.iter().any(|pattern| pattern.is_match(text)))
            && !self.exclude.iter().any(|pattern| pattern.is_match(text))
    }

    fn is_site(&self, url: &Url, page: &Url) -> bool {
        same_site(url, &self.start) || same_site(url, page)
    }
}

/// Same host, same port; a scheme's own port is the same as the other scheme's own port.
fn same_site(a: &Url, b: &Url) -> bool {
    a.host() == b.host() && a.port() == b.port()
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
