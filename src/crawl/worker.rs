//! The spider: parses a page's links, decides which to follow, writes its line.

use super::depths::{Depths, Links};
use super::directives::Directives;
use super::lines::Line;
use super::links::{Found, find};
use super::options::{CrawlOptions, RobotsPolicy, class_of};
use super::outputs::Outputs;
use super::scope::Scope;
use super::sitemap::read_sitemap;
use super::summary::Tally;
use crate::domain::fingerprint::canonical;
use crate::domain::ids::JobId;
use crate::domain::redirect::{Hop, hop, is_in, is_redirect};
use crate::domain::robots::product_token;
use crate::sdk::{Abort, FetchErrorKind, FinishedBlock, Follow, Page, Request, Result, RunContext, RunState, Spider, join};
use encoding_rs::{Encoding, UTF_8};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use url::{Position, Url};

/// Bytes of a page without a content type that are checked for HTML.
const SNIFF: usize = 512;
/// Maximum number of redirects in a chain.
const MOST_REDIRECTS: u32 = 10;
/// The member of a request's `meta` with the page that links to it.
const REFERRER: &str = "referrer";
/// The member that marks a request for a sitemap.
const SITEMAP: &str = "sitemap";
/// The robots token of crawls with the agents' default user agent.
const TOKEN: &str = "webloom";

/// Follows the links of a site.
pub struct CrawlWorker {
    starts: Vec<Request>,
    class: String,
    /// Our robots token.
    token: String,
    ignores_nofollow: bool,
    scope: Scope,
    outputs: RefCell<Outputs>,
    tally: Rc<Tally>,
    depths: Option<RefCell<Depths>>,
    /// Whether links that an earlier process may not have requested must still be requested.
    is_owed: Cell<bool>,
}

impl CrawlWorker {
    /// From the options; the tally receives the counts.
    #[must_use]
    pub fn new(options: &CrawlOptions, job: JobId, outputs: Outputs, tally: Rc<Tally>) -> Self {
        Self {
            class: class_of(job),
            starts: starts(options),
            token: options.user_agent().map_or_else(|| TOKEN.to_owned(), |name| product_token(&name)),
            ignores_nofollow: options.robots == RobotsPolicy::Ignore,
            scope: Scope::new(options),
            outputs: RefCell::new(outputs),
            tally,
            depths: None,
            is_owed: Cell::new(true),
        }
    }

    /// Adds the least depths, for a crawl with a depth limit.
    #[must_use]
    pub fn with_depths(mut self, depths: Option<Depths>) -> Self {
        self.depths = depths.map(RefCell::new);
        self
    }

    fn read(&self, page: &Page, depth: u32, follow: &mut Follow<'_>) -> io::Result<Line> {
        let mut line = Line {
            url: page.url().to_owned(),
            status: page.status,
            depth,
            length: page.body.len() as u64,
            final_url: page.target_url.clone(),
            redirected_from: page.request.redirected_from.clone(),
            error: page.error.as_ref().map(|error| error.message.clone()),
            error_kind: page.error.as_ref().map(|error| error.kind.name().to_owned()),
            content_type: page.header("content-type").map(str::to_owned),
            fetched_at: page.fetched_at,
            duration_ms: page.time_ms,
            tries: page.tries,
            referrer: page.request.meta.as_ref().and_then(|meta| meta.get(REFERRER)?.as_str()).map(str::to_owned),
            ..Line::default()
        };
        let mut asks = Directives::default();
        let headers = page.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-robots-tag"));
        headers.for_each(|(_, value)| asks.read_header(value, &self.token));
        if let Some(next) = redirect(page) {
            match next {
                Ok(hop) => {
                    let target = hop.target.to_string();
                    line.location = Some(target.clone());
                    if !self.request_target(page, hop, depth, follow)? && depth == 0 {
                        let why = format!(
                            "the start redirects to {target}, which is outside of the crawl: start there, or list its host with --hosts"
                        );
                        (line.error, line.error_kind) = (Some(why), Some(FetchErrorKind::Redirect.name().to_owned()));
                    }
                }
                Err(why) => (line.error, line.error_kind) = (Some(why), Some(FetchErrorKind::Redirect.name().to_owned())),
            }
        } else if is_sitemap(page) {
            self.read_list(page, &mut line, follow)?;
        } else if is_html(page) {
            let encoding = page.encoding();
            let found = find(&encoding.decode_with_bom_removal(&page.body).0);
            line.links = found.links().len() as u64;
            found.meta.iter().for_each(|(name, content)| asks.read_meta(name, content, &self.token));
            match &self.depths {
                _ if !page.is_success() || asks.nofollow && !self.ignores_nofollow => {}
                Some(depths) => {
                    let links = self.links(page, &found, encoding);
                    let links =
                        Links { page: page.url().to_owned(), referrer: page.final_url().to_owned(), depth, links, is_redirect: false };
                    follow_all(&depths.borrow_mut().read(links)?, follow);
                }
                None if follow.is_at_the_bottom() => {}
                None => self.follow(page, &found, encoding, follow),
            }
            line.title = found.title;
        }
        (line.noindex, line.nofollow) = (asks.noindex, asks.nofollow);
        Ok(line)
    }

    /// Requests the target of a redirect: a new request of the same depth. If the target is in the scope, it is requested once, whatever leads
    /// to it. Returns false if it is not in the scope.
    fn request_target(&self, page: &Page, hop: Hop, depth: u32, follow: &mut Follow<'_>) -> io::Result<bool> {
        let Ok(answered) = Url::parse(page.final_url()) else { return Ok(true) };
        let is_list = is_sitemap(page);
        if !self.scope.takes_target(&hop.target, &answered, depth == 0, is_list) {
            return Ok(false);
        }
        if let Some(depths) = self.depths.as_ref().filter(|_| hop.key.is_none() && !is_list) {
            // The request below contains the chain of redirects.
            let links = vec![canonical(hop.target.clone()).into()];
            let links = Links { page: page.url().to_owned(), referrer: page.final_url().to_owned(), depth, links, is_redirect: true };
            let mut all = depths.borrow_mut().read(links)?;
            all.retain(|other| other.page != page.url());
            follow_all(&all, follow);
        }
        let mut meta = json!({ REFERRER: page.final_url() });
        if is_list {
            meta[SITEMAP] = json!(true);
        }
        let mut redirected_from = page.request.redirected_from.clone();
        redirected_from.push(page.url().to_owned());
        let request = Request { key: hop.key, redirected_from, meta: Some(meta), ..Request::get(hop.target) };
        // An invalid request is skipped.
        drop(follow.add(request, depth));
        Ok(true)
    }

    /// Requests the pages of a sitemap. They have depth 1, however deeply the sitemap is nested.
    fn read_list(&self, page: &Page, line: &mut Line, follow: &mut Follow<'_>) -> io::Result<()> {
        if !page.is_success() {
            return Ok(());
        }
        let (sitemap, broken) = read_sitemap(&page.body);
        line.links = (sitemap.pages.len() + sitemap.sitemaps.len()) as u64;
        line.sitemap_error = broken;
        let Ok(answered) = Url::parse(page.final_url()) else { return Ok(()) };
        let in_scope = |text: &String| Url::parse(text).ok().filter(|url| self.scope.follows(url, &answered));
        follow.from_depth(0);
        for url in sitemap.sitemaps.iter().filter_map(|text| self.scope_of_lists(text, &answered)) {
            follow.link_with(url, Some(json!({ REFERRER: page.final_url(), SITEMAP: true })));
        }
        let links: Vec<String> = sitemap.pages.iter().filter_map(in_scope).map(|url| canonical(url).into()).collect();
        let links = Links { page: page.url().to_owned(), referrer: page.final_url().to_owned(), depth: 0, links, is_redirect: false };
        match &self.depths {
            Some(depths) => follow_all(&depths.borrow_mut().read(links)?, follow),
            None => follow_all(&[links], follow),
        }
        Ok(())
    }

    /// A sitemap in a list of sitemaps: patterns apply only to pages.
    fn scope_of_lists(&self, text: &str, answered: &Url) -> Option<Url> {
        Url::parse(text).ok().filter(|url| self.scope.is_within(url, answered))
    }

    /// The followed links of a page.
    fn links(&self, page: &Page, found: &Found, encoding: &'static Encoding) -> Vec<String> {
        let Some((base, answered)) = self.base(page, found) else { return Vec::new() };
        let urls = found.links().filter_map(|link| join(&base, link, encoding).ok()).filter(|url| self.scope.follows(url, &answered));
        urls.map(|url| canonical(url).into()).collect()
    }

    fn follow(&self, page: &Page, found: &Found, encoding: &'static Encoding, follow: &mut Follow<'_>) {
        let Some((base, answered)) = self.base(page, found) else { return };
        let base = &base;
        let mut whole = String::new();
        for link in found.links() {
            // Most links are known; those need not be parsed. Text that is not ASCII depends on the encoding.
            let means_one_thing = (encoding == UTF_8 || link.is_ascii()) && is_told_apart_by_directory(base, link, &mut whole);
            whole.push('\n');
            whole.push_str(self.scope.depends_on(&answered));
            if means_one_thing && !follow.once(whole.as_bytes()) {
                continue;
            }
            if let Some(url) = join(base, link, encoding).ok().filter(|url| self.scope.follows(url, &answered)) {
                follow.link_with(url, Some(json!({ REFERRER: page.final_url() })));
            }
        }
    }

    /// The base URL of a page's links, and its final URL; `None` if they are not followed.
    fn base(&self, page: &Page, found: &Found) -> Option<(Url, Url)> {
        let (requested, answered) = (Url::parse(page.url()).ok()?, Url::parse(page.final_url()).ok()?);
        let base = found.base.as_deref().and_then(|base| answered.join(base).ok());
        self.scope.reads(&requested, &answered, page.depth()).then(|| (base.unwrap_or_else(|| answered.clone()), answered))
    }

    fn write(&self, page: &Page, line: &Line) -> io::Result<()> {
        if is_on_the_way(page, line) {
            return Ok(());
        }
        if self.outputs.borrow_mut().write(page, line)? {
            self.tally.now.borrow_mut().count(line);
        }
        Ok(())
    }
}

/// Why a crawl ends when the program that reads its output has ended.
pub const UNREAD: &str = "the program that reads the output has ended";

impl Spider for CrawlWorker {
    fn class_name(&self) -> &str {
        &self.class
    }

    async fn start(&self, _: &RunContext) -> Result<Vec<Request>> {
        Ok(self.starts.clone())
    }

    async fn block(&self, block: &FinishedBlock, follow: &mut Follow<'_>) -> Result {
        // A full disk is not the page's fault: without its line it must not be acknowledged.
        let unwritten = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe => Abort(UNREAD.to_owned()),
            _ => Abort(format!("cannot write the output: {error}")),
        };
        if let Some(depths) = self.depths.as_ref().filter(|_| self.is_owed.replace(false)) {
            follow_all(&depths.borrow_mut().owed().map_err(unwritten)?, follow);
        }
        for page in &block.pages {
            let depth = self.depths.as_ref().map_or(page.depth(), |depths| depths.borrow().of(page.url(), page.depth()));
            follow.from_depth(depth);
            let line = self.read(page, depth, follow).map_err(unwritten)?;
            self.write(page, &line).map_err(unwritten)?;
            tokio::task::yield_now().await;
        }
        self.outputs.borrow_mut().flush().map_err(unwritten)?;
        Ok(())
    }

    fn ended(&self, _: &RunContext, _: RunState) {
        self.tally.ended.notify_one();
    }
}

/// What follows from a redirect that the agent has not followed.
fn redirect(page: &Page) -> Option<std::result::Result<Hop, String>> {
    let location = page.header("location").filter(|_| page.error.is_none() && is_redirect(page.status))?;
    let answered = Url::parse(page.final_url()).ok()?;
    Some(hop(&answered, "GET", page.status, location, &page.request.redirected_from, MOST_REDIRECTS))
}

/// Whether a page is one more redirect of a URL that has redirected before: the page itself is still to come.
fn is_on_the_way(page: &Page, line: &Line) -> bool {
    let is_again = || Url::parse(page.url()).is_ok_and(|url| is_in(&url, &page.request.redirected_from));
    line.location.is_some() && is_again()
}

/// Requests the links of pages, each with its depth.
fn follow_all(pages: &[Links], follow: &mut Follow<'_>) {
    for page in pages {
        // A redirect at depth 0 was in scope as a start; its target was requested with its chain.
        let Some(depth) = page.next_depth().checked_sub(1) else { continue };
        follow.from_depth(depth);
        if follow.is_at_the_bottom() {
            continue;
        }
        for url in page.links.iter().filter_map(|link| Url::parse(link).ok()) {
            follow.link_with(url, Some(json!({ REFERRER: page.referrer })));
        }
    }
}

/// Whether a link means the same on all pages of a directory; then `whole` is set to an unresolved key for it.
fn is_told_apart_by_directory(base: &Url, link: &str, whole: &mut String) -> bool {
    whole.clear();
    let before = match link.as_bytes() {
        [b'?', ..] | [b'\\', ..] | [] => return false,
        [b'/', ..] => &base[..Position::BeforePath],
        _ if link.split(['/', '?']).next().is_some_and(|start| start.contains(':')) => "",
        _ => {
            let path = &base[..Position::AfterPath];
            &path[..path.rfind('/').map_or(0, |at| at + 1)]
        }
    };
    whole.push_str(before);
    // Distinguishes the link `http://a/b` from `b` in `http://a/`.
    whole.push('\n');
    whole.push_str(link);
    true
}

/// The first requests.
fn starts(options: &CrawlOptions) -> Vec<Request> {
    let sitemaps = options.sitemap.iter().map(|url| Request::get(url.as_str()).meta(json!({ SITEMAP: true })));
    sitemaps.chain(options.starts.iter().map(|url| Request::get(url.as_str()))).collect()
}

fn is_sitemap(page: &Page) -> bool {
    page.request.meta.as_ref().and_then(|meta| meta.get(SITEMAP)?.as_bool()).unwrap_or_default()
}

fn is_html(page: &Page) -> bool {
    match page.media_type().as_deref() {
        Some("text/html" | "application/xhtml+xml") => true,
        Some(_) => false,
        None => {
            let start = String::from_utf8_lossy(&page.body[..page.body.len().min(SNIFF)]).to_ascii_lowercase();
            let start = start.trim_start_matches('\u{feff}').trim_start();
            ["<!doctype html", "<html", "<head", "<title", "<body", "<!--"].iter().any(|tag| start.starts_with(tag))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_remembered_by_what_it_means() {
        let key = |base: &str, link: &str| {
            let mut whole = String::new();
            is_told_apart_by_directory(&Url::parse(base).expect("a url"), link, &mut whole).then_some(whole)
        };
        assert_eq!(key("http://a/d/x.html?q/r", "y"), key("http://a/d/z.html", "y"));
        assert_ne!(key("http://a/d/x.html", "y"), key("http://a/e/x.html", "y"));
        assert_eq!(key("http://a/d/x.html", "/y"), key("http://a/e/x.html", "/y"));
        assert_ne!(key("http://a/d/x.html", "/y"), key("http://b/d/x.html", "/y"));
        assert_eq!(key("http://a/d/x.html", "http://c/"), key("http://b/", "http://c/"));
        assert_eq!(key("http://a/", "?q"), None, "it means another thing on every page");
        assert_ne!(key("http://a/", "b?x=http://c"), key("http://b/", "b?x=http://c"));
    }
}
