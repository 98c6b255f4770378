//! The spider: reads a page's links, says which to follow, writes its line.

use super::lines::Line;
use super::links::{Found, find};
use super::options::{CrawlOptions, class_of};
use super::outputs::Outputs;
use super::scope::Scope;
use super::summary::Tally;
use crate::domain::ids::JobId;
use crate::sdk::{Abort, FinishedBlock, Follow, Page, Request, Result, RunContext, RunState, Spider};
use std::cell::RefCell;
use std::rc::Rc;
use url::{Position, Url};

/// Bytes of a page without a type in which it may show that it is HTML.
const SNIFF: usize = 512;

/// Follows the links of a site.
pub struct CrawlWorker {
    start: Url,
    class: String,
    scope: Scope,
    outputs: RefCell<Outputs>,
    tally: Rc<Tally>,
}

impl CrawlWorker {
    /// As the options have it; counts go to the tally.
    #[must_use]
    pub fn new(options: &CrawlOptions, job: JobId, outputs: Outputs, tally: Rc<Tally>) -> Self {
        Self { class: class_of(job), start: options.url.clone(), scope: Scope::new(options), outputs: RefCell::new(outputs), tally }
    }

    fn read(&self, page: &Page, follow: &mut Follow<'_>) -> Line {
        let mut line = Line {
            url: page.url().to_owned(),
            status: page.status,
            depth: page.depth(),
            length: page.body.len() as u64,
            final_url: page.target_url.clone(),
            error: page.error.as_ref().map(|error| error.message.clone()),
            ..Line::default()
        };
        if is_html(page) {
            let found = find(&page.text());
            line.links = found.links().len() as u64;
            if page.is_success() && !follow.is_at_the_bottom() {
                self.follow(page, &found, follow);
            }
            line.title = found.title;
        }
        line
    }

    fn follow(&self, page: &Page, found: &Found, follow: &mut Follow<'_>) {
        let (Ok(requested), Ok(answered)) = (Url::parse(page.url()), Url::parse(page.final_url())) else { return };
        if !self.scope.reads(&requested, &answered, page.depth()) {
            return;
        }
        let base = found.base.as_deref().and_then(|base| answered.join(base).ok());
        let base = base.as_ref().unwrap_or(&answered);
        let mut whole = String::new();
        for link in found.links() {
            // Most links are known; then they need not be parsed.
            if is_told_apart_by_directory(base, link, &mut whole) && !follow.once(whole.as_bytes()) {
                continue;
            }
            if let Some(url) = base.join(link).ok().filter(|url| self.scope.follows(url, &answered)) {
                follow.link(url);
            }
        }
    }

    fn write(&self, page: &Page, line: &Line) -> std::io::Result<()> {
        if self.outputs.borrow_mut().write(page, line)? {
            let count = if page.is_success() { &self.tally.pages } else { &self.tally.failed };
            count.set(count.get() + 1);
            self.tally.bytes.set(self.tally.bytes.get() + line.length);
        }
        Ok(())
    }
}

impl Spider for CrawlWorker {
    fn class_name(&self) -> &str {
        &self.class
    }

    async fn start(&self, _: &RunContext) -> Result<Vec<Request>> {
        Ok(vec![Request::get(self.start.as_str())])
    }

    async fn block(&self, block: &FinishedBlock, follow: &mut Follow<'_>) -> Result {
        // No page is to blame for a full disk: without its line it must not be acknowledged.
        let unwritten = |error: std::io::Error| Abort(format!("the output cannot be written: {error}"));
        for page in &block.pages {
            follow.from_depth(page.depth());
            let line = self.read(page, follow);
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

/// Whether a link means the same on all pages of a directory; then `whole` becomes what it means, unresolved.
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
    // Keeps `http://a/b` as a link apart from `b` in `http://a/`.
    whole.push('\n');
    whole.push_str(link);
    true
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
