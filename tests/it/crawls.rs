//! `webloom crawl` as its users meet it: its files, its last words, links of old pages, and what its archive says of a capture.

use crate::support::crawl::{Crawl, urls};
use crate::support::journey;
use crate::support::process::WEBLOOM;
use crate::support::site::Site;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

/// What a server was asked: the head of each request as it came.
type Asked = Arc<Mutex<Vec<(String, Vec<(String, String)>)>>>;

/// Serves these pages: a path, its type, its body. Anything else is missing.
fn serve(pages: Vec<(&'static str, &'static str, Vec<u8>)>) -> (String, Asked, actix_web::dev::ServerHandle) {
    let asked = Asked::default();
    let (log, pages) = (asked.clone(), Arc::new(pages));
    let server = HttpServer::new(move || {
        let (log, pages) = (log.clone(), pages.clone());
        App::new().default_service(web::to(move |request: HttpRequest| {
            let headers = request.headers().iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap_or_default().to_owned())).collect();
            let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            log.lock().expect("the log").push((target, headers));
            let page = pages.iter().find(|(path, _, _)| *path == request.path()).cloned();
            async move {
                match page {
                    Some((_, kind, body)) => HttpResponse::Ok().insert_header(("Content-Type", kind)).body(body),
                    None => HttpResponse::NotFound().finish(),
                }
            }
        }))
    })
    .workers(1)
    .disable_signals()
    .shutdown_timeout(0)
    .bind("127.0.0.1:0")
    .expect("a free port");
    let url = format!("http://{}/", server.addrs()[0]);
    let server = server.run();
    let handle = server.handle();
    actix_rt::spawn(server);
    (url, asked, handle)
}

/// The program run to its end in a folder.
async fn webloom(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(WEBLOOM);
    command.args(args).current_dir(folder).stdin(Stdio::null()).env("TMPDIR", folder).env_remove("RUST_LOG").env_remove("WEBLOOM_TOKEN");
    tokio::task::spawn_blocking(move || command.output()).await.expect("it is waited for").expect("it runs")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn queries_of_links_are_in_the_encoding_of_their_page() {
    journey(async {
        // "日本語" in Shift_JIS and "Я" in windows-1251; 0xa3 0xb5 is no letter of either in UTF-8.
        let japanese = b"<meta charset=shift_jis><a href='found?k=\x93\xfa\x96\x7b\x8c\xea'>x</a><a href='\x93\xfa'>y</a>".to_vec();
        let russian = b"<a href='found?k=\xdf&amp;c=&#9731;'>x</a>".to_vec();
        let pages = vec![
            ("/", "text/html", b"<a href=japanese>x</a><a href=russian>x</a><a href='found?k=\xc3\xa9'>x</a>".to_vec()),
            ("/japanese", "text/html", japanese),
            ("/russian", "text/html; charset=windows-1251", russian),
        ];
        let (url, asked, server) = serve(pages);
        let folder = tempfile::tempdir().expect("a folder");
        let mut crawl = Crawl::start(&url, folder.path(), &[]);
        crawl.succeeds().await;
        let mut targets: Vec<String> = asked.lock().expect("the log").iter().map(|(target, _)| target.clone()).collect();
        targets.sort();
        let wanted = [
            "/",
            "/%E6%97%A5",
            "/found?k=%93%FA%96{%8C%EA",
            "/found?k=%C3%A9",
            "/found?k=%DF&c=%26%239731%3B",
            "/japanese",
            "/robots.txt",
            "/russian",
        ];
        assert_eq!(targets, wanted);
        server.stop(false).await;
    });
}

#[test]
fn an_archive_has_each_request_and_the_time_of_its_capture() {
    journey(async {
        let (url, asked, server) =
            serve(vec![("/", "text/html", b"<a href=slow>x</a><a href=a?b=c>y</a>".to_vec()), ("/a", "text/plain", b"a".to_vec())]);
        let folder = tempfile::tempdir().expect("a folder");
        let warc = folder.path().join("x.warc");
        let before = chrono::Utc::now();
        let mut crawl = Crawl::start(&url, folder.path(), &["--warc", &warc.display().to_string(), "--user-agent", "me"]);
        crawl.succeeds().await;
        let text = String::from_utf8(std::fs::read(&warc).expect("the archive")).expect("text");
        let field = |record: &str, name: &str| {
            record.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default().to_owned()
        };
        let records: Vec<&str> = text.split("WARC/1.1\r\n").skip(2).collect();
        let of = |kind: &str, path: &str| {
            let target = format!("{url}{path}");
            *records.iter().find(|r| field(r, "WARC-Type") == kind && field(r, "WARC-Target-URI") == target).expect("a record")
        };
        let lines = crawl.lines();
        for (path, target) in [("", "/"), ("a?b=c", "/a?b=c"), ("slow", "/slow")] {
            let (request, response) = (of("request", path), of("response", path));
            assert_eq!(field(request, "WARC-Date"), field(response, "WARC-Date"));
            assert_eq!(field(request, "WARC-Concurrent-To"), field(response, "WARC-Record-ID"));
            assert_eq!(field(request, "WARC-IP-Address"), "127.0.0.1");
            let line = lines.iter().find(|line| line["url"] == format!("{url}{path}")).expect("a line");
            assert_eq!(line["fetchedAt"], field(response, "WARC-Date"), "{line}");
            assert!(
                chrono::DateTime::parse_from_rfc3339(&field(response, "WARC-Date")).expect("a date")
                    >= before - chrono::TimeDelta::milliseconds(1)
            );
            assert_eq!((line["tries"].as_u64(), line["durationMs"].is_u64()), (Some(1), true));
            let referrer = if path.is_empty() { serde_json::Value::Null } else { url.clone().into() };
            assert_eq!(line["referrer"], referrer);
            // What the record says was sent is what came, whatever its order.
            let head = request.split("\r\n\r\n").nth(1).expect("a head");
            assert!(head.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{head}");
            let mut said: Vec<String> = head.lines().skip(1).map(str::to_ascii_lowercase).collect();
            let asked = asked.lock().expect("the log");
            let (_, came) = asked.iter().find(|(asked, _)| *asked == target).expect("asked");
            let mut came: Vec<String> = came.iter().map(|(n, v)| format!("{n}: {v}").to_ascii_lowercase()).collect();
            said.sort();
            came.sort();
            assert_eq!(said, came);
        }
        assert_eq!(lines.iter().find(|line| line["url"] == format!("{url}a?b=c")).expect("a line")["contentType"], "text/plain");
        server.stop(false).await;
    });
}

#[test]
fn what_a_crawl_wrote_is_not_overwritten_by_chance() {
    journey(async {
        let site = Site::serve(10);
        let folder = tempfile::tempdir().expect("a folder");
        let args = ["crawl", &site.url, "--output", "pages.jsonl", "--warc", "pages.warc"];
        assert!(webloom(folder.path(), &args).await.status.success());
        let read = |name: &str| std::fs::read(folder.path().join(name)).expect("a file");
        let (pages, archive) = (read("pages.jsonl"), read("pages.warc"));

        let again = webloom(folder.path(), &args).await;
        assert_eq!(again.status.code(), Some(1));
        assert!(errors(&again).contains("pages.jsonl already exists: --overwrite replaces it"), "{}", errors(&again));
        assert!((read("pages.jsonl"), read("pages.warc")) == (pages.clone(), archive.clone()), "both are as they were");
        let one = webloom(folder.path(), &["crawl", &site.url, "--output", "new.jsonl", "--warc", "pages.warc"]).await;
        assert!(errors(&one).contains("pages.warc already exists"), "{}", errors(&one));
        assert!(!folder.path().join("new.jsonl").exists(), "nothing is begun");
        let both = webloom(folder.path(), &["crawl", &site.url, "--output", "one", "--warc", "one"]).await;
        assert!(errors(&both).contains("must be different files"), "{}", errors(&both));

        let replaced = webloom(folder.path(), &[&args[..], &["--overwrite"]].concat()).await;
        assert!(replaced.status.success(), "{}", errors(&replaced));
        assert_eq!(read("pages.jsonl").split(|b| *b == b'\n').count(), 11);
        let device = webloom(folder.path(), &["crawl", &site.url, "--output", "/dev/null"]).await;
        assert!(device.status.success(), "a device holds nothing");
        site.stop().await;
    });
}

#[test]
fn a_crawl_without_a_page_says_why() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let without_broker = ["crawl", "http://127.0.0.1:1/", "--start-timeout-s", "1", "--broker", "http://127.0.0.1:1"];
        let without_broker = webloom(folder.path(), &without_broker).await;
        assert!(errors(&without_broker).contains("cannot be reached within 1 s"), "{}", errors(&without_broker));
        // It has not begun, so the next one is not asked whether to resume it.
        // Time enough for its own broker to start on a busy machine.
        let dead = ["crawl", "http://127.0.0.1:1/", "--output", "a.jsonl", "--start-timeout-s", "4"];
        let dead = webloom(folder.path(), &dead).await;
        let (said, cause) = (errors(&dead), "http://127.0.0.1:1: connect: ");
        assert_eq!(dead.status.code(), Some(1), "{said}");
        // On a busy machine the first try may be over before the crawl looks, and lines of its progress come before.
        let first = said.lines().position(|line| line.starts_with(cause) && line.contains("(robots.txt, try "));
        let summary = said.lines().position(|line| line.starts_with("0 pages, 0 failed"));
        assert!(first.is_some() && first < summary, "the cause comes before the end: {said}");
        let last = said.lines().last().expect("a line");
        assert!(last.contains("no page came within 4 s (--start-timeout-s): http://127.0.0.1:1: connect: "), "{said:?}");
        let at_once = ["crawl", "http://127.0.0.1:1/", "--output", "a.jsonl", "--overwrite", "--robots", "ignore"];
        let at_once = webloom(folder.path(), &at_once).await;
        assert_eq!(at_once.status.code(), Some(1), "{}", errors(&at_once));
        for part in ["1 failed with connect, the first: http://127.0.0.1:1/: ", "not one page could be downloaded: http://127.0.0.1:1/: "] {
            assert!(errors(&at_once).contains(part), "{}", errors(&at_once));
        }
        let (url, _, server) = serve(Vec::new());
        let missing = webloom(folder.path(), &["crawl", &url, "--output", "b.jsonl"]).await;
        assert!(
            errors(&missing).contains(&format!("not one page could be downloaded: {url} responded with status 404")),
            "{}",
            errors(&missing)
        );
        server.stop(false).await;
    });
}

#[test]
fn the_last_line_counts_the_crawl_and_not_only_its_last_part() {
    journey(async {
        const PAGES: usize = 300;
        let site = Site::serve(PAGES);
        let folder = tempfile::tempdir().expect("a folder");
        // Slow enough to be killed in the middle.
        let mut crawl = Crawl::start(&site.url, folder.path(), &["--threads", "4", "--delay-ms", "5"]);
        crate::support::until("some pages", || {
            let there = crawl.count();
            async move { (there >= 40).then_some(()) }
        })
        .await;
        crawl.process.kill();
        let there = crawl.count();
        assert!(there < PAGES, "in the middle: {there}");
        let state = folder.path().join("state").display().to_string();
        let rest = webloom(folder.path(), &["crawl", &site.url, "--state", &state, "--output", "pages.jsonl", "--resume"]).await;
        let said = errors(&rest);
        assert!(rest.status.success() && said.contains(&format!("{PAGES} pages, 0 failed, ")), "{said}");
        assert!(said.contains(&format!("; {} of them since the crawl was resumed", PAGES - there)), "{said}");
        assert_eq!(urls(&crawl.lines()).len(), PAGES);
        site.stop().await;
    });
}

#[test]
fn an_interrupted_crawl_ends_soon_even_while_a_page_is_to_be_tried_again() {
    journey(async {
        let asked = std::sync::Arc::new(tokio::sync::Notify::new());
        let told = std::sync::Arc::clone(&asked);
        let busy = HttpServer::new(move || {
            let told = std::sync::Arc::clone(&told);
            App::new().default_service(web::to(move || {
                told.notify_one();
                async { HttpResponse::TooManyRequests().insert_header(("Retry-After", "20")).finish() }
            }))
        });
        let busy = busy.workers(1).disable_signals().shutdown_timeout(0).bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}/", busy.addrs()[0]);
        let busy = busy.run();
        let handle = busy.handle();
        actix_rt::spawn(busy);
        let folder = tempfile::tempdir().expect("a folder");
        let mut crawl = Crawl::start(&address, folder.path(), &[]);
        asked.notified().await;
        let since = std::time::Instant::now();
        assert!(Command::new("kill").arg("-INT").arg(crawl.process.0.id().to_string()).status().expect("kill runs").success());
        assert_eq!(crawl.over().await.code(), Some(130));
        let took = since.elapsed();
        assert!(took < std::time::Duration::from_secs(15), "not before the page may be tried again: {took:?}");
        handle.stop(false).await;
    });
}

#[test]
fn the_demo_ends_without_a_warning_and_in_plain_words() {
    use std::io::{BufRead as _, BufReader, Read as _};
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(WEBLOOM);
        command.args(["demo", "--listen", "127.0.0.1:0"]).current_dir(folder.path()).env("TMPDIR", folder.path()).env_remove("RUST_LOG");
        let mut demo = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let (out, mut errors) = (demo.stdout.take().expect("piped"), demo.stderr.take().expect("piped"));
        let mut process = crate::support::process::Process(demo);
        let said = tokio::task::spawn_blocking(move || {
            let mut lines = BufReader::new(out).lines().map(|line| line.expect("a line"));
            lines.find(|line| line.starts_with("open ")).expect("where to look")
        })
        .await
        .expect("read");
        assert!(said.contains("in a browser to see the crawl") && !said.contains("actor"), "{said}");
        // The broker gives a worker whose connection ended three seconds to come back.
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        assert!(process.terminate().success());
        let mut text = String::new();
        errors.read_to_string(&mut text).expect("read");
        assert!(!text.contains("WARN") && !text.contains("lost"), "{text}");
    });
}

/// A chain of pages, and a shortcut into it that answers last.
fn slow_shortcut() -> (String, actix_web::dev::ServerHandle) {
    let server = HttpServer::new(|| {
        let html = |text: &str| HttpResponse::Ok().content_type("text/html").body(text.to_owned());
        App::new()
            .route(
                "/",
                web::get().to(move || async move {
                    // They fill the block of page 1, which else would wait for the shortcut.
                    let fill: String = (1..=7).map(|n| format!("<a href=fill/{n}>x</a>")).collect();
                    html(&format!("<a href=1>x</a>{fill}<a href=shortcut>y</a>"))
                }),
            )
            .route("/fill/{n}", web::get().to(move || async move { html("") }))
            .route(
                "/shortcut",
                web::get().to(move || async move {
                    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
                    html("<a href=4>x</a>")
                }),
            )
            .route("/{n}", web::get().to(move |n: web::Path<u32>| async move { html(&format!("<a href={}>x</a>", *n + 1)) }))
    })
    .workers(1)
    .disable_signals()
    .shutdown_timeout(0)
    .bind("127.0.0.1:0")
    .expect("a free port");
    let url = format!("http://{}/", server.addrs()[0]);
    let server = server.run();
    let handle = server.handle();
    actix_rt::spawn(server);
    (url, handle)
}

#[test]
fn a_page_counts_from_its_shortest_way_however_late_that_is_found() {
    journey(async {
        let (url, server) = slow_shortcut();
        // / -> 1 -> 2 -> 3 -> 4 -> 5 …, and / -> shortcut -> 4.
        for (depth, last) in [(2, 4), (3, 5), (4, 6), (5, 7)] {
            let folder = tempfile::tempdir().expect("a folder");
            let limit = depth.to_string();
            let mut crawl = Crawl::start(&url, folder.path(), &["--depth", &limit, "--threads", "4"]);
            crawl.succeeds().await;
            let mut wanted: Vec<String> = (1..=7).map(|n| format!("{url}fill/{n}")).collect();
            wanted.extend((1..=last).filter(|n| *n <= depth || *n >= 4).map(|n| format!("{url}{n}")));
            wanted.extend([url.clone(), format!("{url}shortcut")]);
            wanted.sort();
            assert_eq!(urls(&crawl.lines()), wanted, "depth {depth}");
        }
        server.stop(false).await;
    });
}
