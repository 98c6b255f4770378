//! The crawl worker on pages of the demo site, without a broker.

use super::lines::Line;
use super::links::find;
use super::options::CLASS;
use super::outputs::Outputs;
use super::scope::Scope;
use super::summary::Tally;
use super::worker::CrawlWorker;
use super::{CrawlOptions, Site, serve};
use crate::domain::ids::{BlockId, Identity, JobId};
use crate::protocol::worker::StartRun;
use crate::sdk::{Abort, Client, FetchError, FetchErrorKind, FinishedBlock, Follow, Page, Request, RunContext, Spider, decode};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::rc::Rc;
use url::Url;

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run(properties: BTreeMap<String, String>) -> RunContext {
    let (identity, job_id) = (Identity::random(), JobId::random());
    let order = StartRun {
        identity,
        job_id,
        class_name: CLASS.into(),
        arguments: None,
        properties,
        start_returned: true,
        planned_at: None,
        attempt: 1,
        trace_id: None,
    };
    RunContext::new(order, Rc::new(Client::new("http://127.0.0.1:1", None).expect("an address")))
}

fn page(url: &str, status: u16, body: &str) -> Page {
    Page {
        request: Request::get(url),
        status,
        error: (status == 0).then(|| FetchError { kind: FetchErrorKind::Dns, message: "no such host".into(), retryable: false }),
        tries: 1,
        time_ms: 1,
        target_url: None,
        headers: vec![("content-type".into(), "text/html".into())],
        body: body.to_owned().into(),
        fetched_at: None,
        remote_address: None,
        protocol: None,
        sent: None,
    }
}

fn block(pages: Vec<Page>) -> FinishedBlock {
    FinishedBlock { block_id: BlockId::new(Identity::random(), 0), exception: None, pages }
}

#[test]
fn pages_become_lines_and_links() {
    actix_rt::System::new().block_on(async {
        let (out, tally) = (Shared::default(), Rc::new(Tally::default()));
        let options = CrawlOptions::new(Url::parse("http://a/").expect("a url"));
        let worker = CrawlWorker::new(&options, JobId::random(), Outputs::lines_to(Box::new(out.clone())), Rc::clone(&tally));
        let run = run(BTreeMap::from([("DepthLimit".into(), "1".into())]));
        let mut deep = page("http://a/deep", 200, "<a href=deeper>");
        deep.request.depth = 1;
        let pages = vec![
            page("http://a/", 200, "<title>A</title><a href=b><a href='b#c'><a href=//elsewhere/><a href=http://[>"),
            page("http://a/x", 200, "<base href=/y/><a href=b>"),
            page("http://a/gone", 404, "<a href=not-from-here>"),
            page("http://none/", 0, ""),
            deep,
        ];
        let mut follow = Follow::new(&run);
        worker.block(&block(pages.clone()), &mut follow).await.expect("handled");
        assert_eq!(follow.len(), 2, "http://a/b and http://a/y/b");
        let mut again = Follow::new(&run);
        worker.block(&block(pages), &mut again).await.expect("delivered again");
        assert_eq!(again.len(), 2, "what was not acknowledged is found again");

        let text = String::from_utf8(out.0.borrow().clone()).expect("text");
        let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
        assert_eq!(lines.len(), 5, "each page once, delivered again or not");
        assert_eq!((lines[0].title.as_deref(), lines[0].links, lines[0].status), (Some("A"), 3, 200));
        assert_eq!((lines[3].status, lines[3].error.as_deref()), (0, Some("no such host")));
        let now = tally.now.borrow();
        assert_eq!((now.pages, now.failed), (3, 2));
        assert_eq!(now.first_failure.as_deref(), Some("http://a/gone responded with status 404"));
    });
}

/// Which links belong to the crawl depends on the page they are on.
#[test]
fn a_link_that_one_page_may_not_follow_is_followed_from_another() {
    actix_rt::System::new().block_on(async {
        let options = CrawlOptions::new(Url::parse("http://a.example/").expect("a url"));
        let worker = CrawlWorker::new(&options, JobId::random(), Outputs::lines_to(Box::new(Shared::default())), Rc::default());
        let run = run(BTreeMap::new());
        let pages = ["http://a.example/", "http://www.a.example/", "https://www.a.example/"];
        let pages = pages.map(|url| page(url, 200, "<a href=http://www.a.example/b>"));
        for (pages, followed) in [(&pages[..1], 0), (&pages[..], 1)] {
            let mut follow = Follow::new(&run);
            worker.block(&block(pages.to_vec()), &mut follow).await.expect("handled");
            assert_eq!(follow.len(), followed, "{} pages", pages.len());
        }
    });
}

/// A redirect to another site is reported as it is: its target is an ordinary page, with the depth of the redirect.
#[test]
fn redirects_that_the_agent_left_are_followed() {
    actix_rt::System::new().block_on(async {
        let options = CrawlOptions::new(Url::parse("http://a.example/").expect("a url"));
        let moved = |url: &str, depth: u32, to: &str| {
            let mut page = page(url, 301, "");
            page.request.depth = depth;
            page.headers.push(("Location".into(), to.into()));
            page
        };
        for (url, depth, to, followed) in [
            ("http://a.example/", 0, "https://www.a.example/", 1),
            ("http://a.example/", 0, "http://b.example/", 0),
            ("http://a.example/b", 2, "https://www.a.example/", 0),
            ("http://a.example/b", 2, "/c", 1),
            ("http://a.example/", 0, "mailto:a@a.example", 0),
        ] {
            assert_eq!(read(&options, moved(url, depth, to)).await.0, followed, "{url} {to}");
        }
        let run = run(BTreeMap::from([("DepthLimit".into(), "0".into())]));
        let worker = CrawlWorker::new(&options, JobId::random(), Outputs::lines_to(Box::new(Shared::default())), Rc::default());
        let mut follow = Follow::new(&run);
        worker.block(&block(vec![moved("http://a.example/", 0, "http://www.a.example/")]), &mut follow).await.expect("handled");
        assert_eq!(follow.len(), 1, "no deeper than the start");
    });
}

/// The number of followed links of a page, and its line.
async fn read(options: &CrawlOptions, page: Page) -> (usize, Line) {
    let out = Shared::default();
    let worker = CrawlWorker::new(options, JobId::random(), Outputs::lines_to(Box::new(out.clone())), Rc::default());
    let run = run(BTreeMap::new());
    let mut follow = Follow::new(&run);
    worker.block(&block(vec![page]), &mut follow).await.expect("handled");
    let line = serde_json::from_slice(&out.0.borrow()).expect("a line");
    (follow.len(), line)
}

#[test]
fn what_pages_ask_of_robots_is_done_and_marked() {
    actix_rt::System::new().block_on(async {
        let usual = CrawlOptions::new(Url::parse("http://a/").expect("a url"));
        let named = CrawlOptions { user_agent: Some("MyBot/1".into()), ..usual.clone() };
        let ignoring = CrawlOptions { robots: super::options::RobotsPolicy::Ignore, ..usual.clone() };
        type Case<'a> = (&'a CrawlOptions, &'a str, &'a [&'a str], (usize, bool, bool));
        let cases: [Case<'_>; 8] = [
            (&usual, "", &[], (1, false, false)),
            (&usual, "<meta name=ROBOTS content='NOFOLLOW'>", &[], (0, false, true)),
            (&usual, "<meta name=robots content=noindex>", &[], (1, true, false)),
            (&usual, "", &["other: none", "noindex, nofollow"], (0, true, true)),
            (&usual, "<meta name=mybot content=none>", &["mybot: none"], (1, false, false)),
            (&named, "<meta name=mybot content=nofollow>", &["MYBOT: noindex"], (0, true, true)),
            (&named, "<meta name=webloom content=nofollow>", &[], (1, false, false)),
            (&ignoring, "<meta name=robots content=none>", &[], (1, true, true)),
        ];
        for (options, html, headers, expected) in cases {
            let mut page = page("http://a/", 200, &format!("{html}<a href=b>"));
            page.headers.extend(headers.iter().map(|value| ("X-Robots-Tag".to_owned(), (*value).to_owned())));
            let (links, line) = read(options, page).await;
            assert_eq!((links, line.noindex, line.nofollow), expected, "{html} {headers:?}");
        }
    });
}

#[test]
fn a_sitemap_is_read_as_one() {
    actix_rt::System::new().block_on(async {
        let mut options = CrawlOptions::new(Url::parse("http://a/").expect("a url"));
        options.exclude = vec![regex::Regex::new("xml|no").expect("a pattern")];
        let list = "<sitemapindex><sitemap><loc>http://a/1.xml</loc></sitemap><sitemap><loc>http://b/2.xml</loc></sitemap></sitemapindex>";
        let pages = "http://a/x\nhttp://a/x#y\nhttp://a/no\nhttp://elsewhere/\n";
        for (body, followed, links) in [(list, 1, 2), (pages, 1, 4), ("<html>", 0, 0)] {
            let mut page = page("http://a/s.xml", 200, body);
            page.request.meta = Some(serde_json::json!({ "sitemap": true }));
            let (count, line) = read(&options, page).await;
            assert_eq!((count, line.links, line.sitemap_error.is_some()), (followed, links, links == 0), "{body}");
        }
        // The same body, but as a page.
        assert_eq!(read(&options, page("http://a/s.xml", 200, list)).await.0, 0);
    });
}

#[test]
fn without_room_for_its_line_a_page_is_not_acknowledged() {
    actix_rt::System::new().block_on(async {
        let options = CrawlOptions::new(Url::parse("http://a/").expect("a url"));
        let worker = CrawlWorker::new(&options, JobId::random(), Outputs::lines_to(Box::new(Full)), Rc::default());
        let run = run(BTreeMap::new());
        let error = worker.block(&block(vec![page("http://a/", 200, "")]), &mut Follow::new(&run)).await.expect_err("a full disk");
        assert!(error.is::<Abort>(), "{error}");
    });
}

#[test]
fn the_demo_site_has_what_it_says() {
    actix_rt::System::new().block_on(async {
        let (site, server) = serve().expect("a port");
        let handle = server.handle();
        actix_rt::spawn(server);
        let start = Url::parse(&site.url()).expect("its address");
        let scope = Scope::new(&CrawlOptions::new(start.clone()));
        let client = awc::Client::builder().disable_redirects().finish();
        let (mut seen, mut queue, mut statuses, mut titles) =
            (HashSet::from([start.clone()]), VecDeque::from([start]), BTreeMap::<u16, u64>::new(), HashSet::new());
        while let Some(url) = queue.pop_front() {
            let mut response = client.get(url.as_str()).insert_header(("accept-encoding", "identity")).send().await.expect("an answer");
            *statuses.entry(response.status().as_u16()).or_default() += 1;
            let body = response.body().await.expect("a body");
            let found = find(&decode(&body, None, None));
            for link in found.links() {
                let mut link = url.join(link).expect("a link");
                link.set_fragment(None);
                if scope.follows(&link, &url) && seen.insert(link.clone()) {
                    queue.push_back(link);
                }
            }
            titles.extend(found.title);
        }
        handle.stop(false).await;
        assert_eq!(statuses, BTreeMap::from([(200, Site::PAGES - 1), (301, 1), (404, Site::MISSING)]));
        assert!(titles.contains("Café des tisserands"), "{titles:?}");
    });
}
