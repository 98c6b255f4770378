//! The programs as their users run them: the examples, the demo, and `webloom crawl` with its options.

use crate::support::api::Api;
use crate::support::crawl::{Crawl, urls};
use crate::support::process::{Broker, Process, WEBLOOM};
use crate::support::site::Site;
use crate::support::{journey, until};
use actix_web::{App, HttpResponse, HttpServer, web};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// An example in Python, whose lines go to a file.
fn python(name: &str, broker: &str, out: &Path) -> Process {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    let file = std::fs::File::create(out).expect("a file");
    let mut command = Command::new("python3");
    command.arg(script).arg(broker).stdin(Stdio::null()).stdout(file).env_remove("http_proxy").env_remove("HTTP_PROXY");
    Process(command.spawn().expect("the examples need python3"))
}

#[test]
fn the_examples_in_python_carry_out_a_run() {
    const PAGES: usize = 40;
    journey(async {
        let (broker, site, folder) = (Broker::start(&[], ""), Site::serve(PAGES), tempfile::tempdir().expect("a folder"));
        let api = Api::new(&broker.url);
        let (said, done) = (folder.path().join("worker"), folder.path().join("node"));
        let _worker = python("http_worker.py", &broker.url, &said);
        let _node = python("http_node.py", &broker.url, &done);
        let job = api.job("python", "demo.Python", &json!({ "Arguments": site.url, "BlockSize": "8" })).await;
        until("the worker", || async { api.get("/api/v1/workers").await.1["items"][0].is_object().then_some(()) }).await;
        let run = api.trigger(&job).await;
        let state = until("the end", || async { Some(api.state(&run).await).filter(|run| !run["finishTime"].is_null()) }).await;
        let counts = ["left", "success", "error", "total"].map(|key| state[key].as_u64());
        assert_eq!(
            (state["state"].as_str(), counts),
            (Some("success"), [Some(0), Some(PAGES as u64), Some(0), Some(PAGES as u64)]),
            "{state}"
        );
        let lines = std::fs::read_to_string(&said).expect("its lines");
        let pages: BTreeSet<String> =
            lines.lines().filter_map(|line| line.strip_prefix("200 ")?.split(' ').next().map(str::to_owned)).collect();
        assert_eq!(pages, site.all());
        assert_eq!(lines.lines().count(), PAGES, "each once");
        assert!(std::fs::read_to_string(&done).expect("its lines").lines().all(|line| line.contains(": 200 ")));
        site.stop().await;
    });
}

#[test]
fn the_demo_finds_its_site() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(WEBLOOM);
    command.args(["demo", "--exit", "--listen", "127.0.0.1:0", "--output", "pages.jsonl"]).current_dir(folder.path());
    let output = command.stdin(Stdio::null()).env("TMPDIR", folder.path()).output().expect("it runs");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("pages were found"), "{said}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("a file").file_name()).collect();
    assert_eq!(left, ["pages.jsonl"], "nothing else is left behind");
}

/// Crawls to the end; its lines.
async fn crawled(url: &str, folder: &Path, args: &[&str]) -> Vec<Value> {
    let mut crawl = Crawl::start(url, folder, args);
    crawl.succeeds().await;
    crawl.lines()
}

/// What a crawl of `Site` must find: by the rule of its links, in breadth.
fn reachable(site: &Site, most: u32, follows: impl Fn(usize) -> bool) -> BTreeMap<String, u32> {
    let mut depths = BTreeMap::from([(0, 0)]);
    let mut queue = VecDeque::from([0]);
    while let Some(n) = queue.pop_front() {
        let depth = depths[&n] + 1;
        let links = (1..=3).map(|i| n * 3 + i).filter(|n| *n < site.pages);
        let across = [n / 3, n / 2, (n * 7 + 1) % site.pages, (n * 13 + 5) % site.pages];
        for link in links.chain(across) {
            if depth <= most && follows(link) && !depths.contains_key(&link) {
                depths.insert(link, depth);
                queue.push_back(link);
            }
        }
    }
    let base = site.url.trim_end_matches('0');
    depths.into_iter().map(|(n, depth)| (format!("{base}{n}"), depth)).collect()
}

fn depths(lines: &[Value]) -> BTreeMap<String, u32> {
    let depth = |line: &Value| line["depth"].as_u64().expect("a depth") as u32;
    lines.iter().map(|line| (line["url"].as_str().expect("a url").to_owned(), depth(line))).collect()
}

#[test]
fn a_crawl_goes_as_far_as_it_is_told() {
    journey(async {
        let site = Site::serve(120);
        let folder = |name: &str| tempfile::Builder::new().prefix(name).tempdir().expect("a folder");
        let (all, depth, limit, some, others) = (folder("a"), folder("d"), folder("l"), folder("i"), folder("x"));

        // One at a time, so that breadth first is exact.
        let lines = crawled(&site.url, depth.path(), &["--depth", "2", "--threads", "1"]).await;
        let wanted = reachable(&site, 2, |_| true);
        assert!(wanted.len() < site.pages);
        assert_eq!((depths(&lines), lines.len()), (wanted.clone(), wanted.len()));

        let lines = crawled(&site.url, limit.path(), &["--limit", "37"]).await;
        assert_eq!((lines.len(), urls(&lines).into_iter().collect::<BTreeSet<_>>().len()), (37, 37));
        assert!(lines.iter().all(|line| line["status"] == 200));

        let lines = crawled(&site.url, some.path(), &["--include", "/[0-9]$", "--include", "/[12][0-9]$"]).await;
        let wanted = reachable(&site, u32::MAX, |n| n < 30);
        assert_eq!((urls(&lines), wanted.len() > 10), (wanted.into_keys().collect(), true));

        let lines = crawled(&site.url, others.path(), &["--exclude", "/[0-9]*[37]$"]).await;
        let wanted = reachable(&site, u32::MAX, |n| !matches!(n % 10, 3 | 7));
        assert_eq!((urls(&lines), wanted.len() > 10), (wanted.into_keys().collect(), true));

        let lines = crawled(&site.url, all.path(), &["--warc", &all.path().join("x.warc.gz").display().to_string()]).await;
        assert_eq!(urls(&lines), site.all().into_iter().collect::<Vec<_>>());
        let records = records(&all.path().join("x.warc.gz"));
        let mut responses: Vec<_> = records.iter().filter(|record| record.kind == "response").collect();
        responses.sort_by(|a, b| a.target.cmp(&b.target));
        assert_eq!(responses.iter().map(|record| record.target.clone()).collect::<Vec<_>>(), urls(&lines), "a record for each page");
        let zero = responses.iter().find(|record| record.target == site.url).expect("the first page");
        let text = String::from_utf8(zero.block.clone()).expect("text");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("<title>Page 0</title>"), "{text}");
        site.stop().await;
    });
}

struct Record {
    kind: String,
    target: String,
    block: Vec<u8>,
}

/// Reads a WARC file by its standard: a head, as many bytes as it says, two empty lines.
fn records(path: &Path) -> Vec<Record> {
    let mut all = Vec::new();
    MultiGzDecoder::new(std::fs::File::open(path).expect("the file")).read_to_end(&mut all).expect("gzip members");
    let (mut rest, mut records) = (&all[..], Vec::new());
    while !rest.is_empty() {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("the end of a head") + 4;
        let head = String::from_utf8(rest[..end].to_vec()).expect("a head is text");
        assert!(head.starts_with("WARC/1.1\r\n"), "{head}");
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default().to_owned();
        let length: usize = field("Content-Length").parse().expect("a length");
        let block = rest[end..end + length].to_vec();
        assert_eq!(&rest[end + length..end + length + 4], b"\r\n\r\n");
        records.push(Record { kind: field("WARC-Type"), target: field("WARC-Target-URI"), block });
        rest = &rest[end + length + 4..];
    }
    records
}

#[test]
fn a_crawl_that_was_interrupted_goes_on() {
    journey(async {
        let site = Site::serve(1_200);
        let folder = tempfile::tempdir().expect("a folder");
        let warc = folder.path().join("x.warc.gz");
        let mut crawl = Crawl::start(&site.url, folder.path(), &["--threads", "4", "--warc", &warc.display().to_string()]);
        for wanted in [150, 600] {
            until("some pages", || {
                let there = crawl.count();
                async move { (there >= wanted).then_some(()) }
            })
            .await;
            // What a terminal sends at Ctrl-C.
            let sent = Command::new("kill").arg("-INT").arg(crawl.process.0.id().to_string()).status().expect("kill runs");
            assert!(sent.success());
            let status = crawl.over().await;
            assert_eq!(status.code(), Some(130), "it was asked to end");
            let there = crawl.count();
            assert!((wanted..site.pages).contains(&there), "in the middle: {there}");
            crawl.resume();
        }
        crawl.succeeds().await;
        let wanted: Vec<String> = site.all().into_iter().collect();
        assert_eq!(urls(&crawl.lines()), wanted, "every page once");
        let mut archived: Vec<String> = records(&warc).into_iter().filter(|r| r.kind == "response").map(|r| r.target).collect();
        archived.sort();
        assert_eq!(archived, wanted, "in the archive, too");
        site.stop().await;
    });
}

/// A site of everything that is not a plain page.
fn odd_site() -> (String, actix_web::dev::ServerHandle) {
    const LINKS: [&str; 9] = ["moved", "loop", "latin", "packed", "broken", "missing", "late", "never", "endless"];
    let html = || HttpResponse::Ok().content_type("text/html; charset=utf-8").take();
    let server = HttpServer::new(move || {
        let start = move || async move {
            let links: String = LINKS.iter().map(|name| format!("<a href={name}>{name}</a>")).collect();
            html().body(format!("<title>Odd</title>{links}"))
        };
        let packed = move || async move {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
            gzip.write_all(b"<title>Packed</title><a href=/from-packed>x</a>").expect("in memory");
            html().insert_header(("Content-Encoding", "gzip")).body(gzip.finish().expect("in memory"))
        };
        let late = move |seconds: f64, name: &'static str| async move {
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            html().body(format!("<title>{name}</title>"))
        };
        let endless = || async {
            let chunks = futures_util::stream::repeat_with(|| Ok::<_, actix_web::Error>(Bytes::from_static(&[b'x'; 4096])));
            HttpResponse::Ok().content_type("text/plain").streaming(chunks)
        };
        let moved = |to: &'static str| move || async move { HttpResponse::Found().insert_header(("Location", to)).finish() };
        App::new()
            .route("/", web::get().to(start))
            .route("/moved", web::get().to(moved("/target")))
            .route("/loop", web::get().to(moved("/loop")))
            .route("/target", web::get().to(move || async move { html().body("<title>Target</title><a href=/from-target>x</a>") }))
            .route("/from-target", web::get().to(move || async move { html().body("<title>From target</title>") }))
            .route("/from-packed", web::get().to(move || async move { html().body("<title>From packed</title>") }))
            .route(
                "/latin",
                web::get().to(|| async {
                    HttpResponse::Ok().content_type("text/html; charset=iso-8859-1").body(&b"<title>Gr\xfc\xdfe</title>"[..])
                }),
            )
            .route("/packed", web::get().to(packed))
            .route(
                "/broken",
                web::get().to(move || async move { html().insert_header(("Content-Encoding", "gzip")).body("no gzip at all") }),
            )
            .route("/late", web::get().to(move || late(0.5, "Late")))
            .route("/never", web::get().to(move || late(3_600.0, "Never")))
            .route("/endless", web::get().to(endless))
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
fn an_odd_site_is_crawled_to_the_end() {
    journey(async {
        let (url, server) = odd_site();
        let folder = tempfile::tempdir().expect("a folder");
        let lines = crawled(&url, folder.path(), &["--timeout-s", "1", "--max-body", "100000"]).await;
        let by_path: BTreeMap<String, &Value> =
            lines.iter().map(|line| (line["url"].as_str().expect("a url").replacen(&url, "/", 1), line)).collect();
        assert_eq!(by_path.len() + 1, lines.len(), "each once, and the page that redirects to itself: the redirect, and its end");
        let paths: Vec<&str> = by_path.keys().map(String::as_str).collect();
        let all = [
            "/",
            "/broken",
            "/endless",
            "/from-packed",
            "/from-target",
            "/late",
            "/latin",
            "/loop",
            "/missing",
            "/moved",
            "/never",
            "/packed",
            "/target",
        ];
        assert_eq!(paths, all);
        let line = |path: &str| by_path[path];
        for (path, title) in
            [("/target", "Target"), ("/latin", "Grüße"), ("/packed", "Packed"), ("/late", "Late"), ("/from-target", "From target")]
        {
            let line = line(path);
            assert_eq!((&line["status"], &line["title"], &line["error"]), (&json!(200), &json!(title), &Value::Null), "{path}");
        }
        let (moved, target) = (line("/moved"), line("/target"));
        assert_eq!((&moved["status"], &moved["location"]), (&json!(302), &json!(format!("{url}target"))));
        assert_eq!((&target["redirectedFrom"], &target["depth"]), (&json!([format!("{url}moved")]), &moved["depth"]));
        assert!(line("/loop")["error"].as_str().is_some_and(|text| text.contains("too many redirects")), "{}", line("/loop"));
        assert_eq!((&line("/missing")["status"], &line("/missing")["error"]), (&json!(404), &Value::Null));
        for path in ["/loop", "/broken", "/never", "/endless"] {
            assert!(line(path)["error"].is_string(), "{path}: {}", line(path));
        }
        assert_eq!(line("/never")["status"], 0);
        assert!(line("/endless")["length"].as_u64() <= Some(100_000), "{}", line("/endless"));
        assert!(line("/endless")["error"].as_str().is_some_and(|text| text.contains("100000")), "the limit that was asked for");
        server.stop(false).await;
    });
}
