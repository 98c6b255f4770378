//! Outcomes of requests: all sorts of responses, all kinds of errors, retries.

use super::site::{Gate, Reply, Site, answer, raw};
use super::{config, fetch, get, kind, rules};
use crate::agent::download::Downloader;
use crate::config::agent::AgentConfig;
use crate::domain::settings::DownloadSettings;
use crate::protocol::node::FetchErrorKind as Kind;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: u64 = 100_000;

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(data).expect("memory");
    out.finish().expect("memory")
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut out = ZlibEncoder::new(Vec::new(), Compression::fast());
    out.write_all(data).expect("memory");
    out.finish().expect("memory")
}

/// A brotli stream of one stored piece (RFC 7932, section 9.2) and an empty last one.
fn brotli(data: &[u8]) -> Vec<u8> {
    let header = u32::try_from(data.len() - 1).expect("short") << 4 | 1 << 20;
    [&header.to_le_bytes()[..3], data, &[3]].concat()
}

fn encoded(name: &str, body: impl AsRef<[u8]>) -> Reply {
    answer(200, &format!("Content-Encoding: {name}\r\n"), body)
}

fn once() -> DownloadSettings {
    DownloadSettings { retry_download: Some(0), timeout: 10_000, max_body: LIMIT, ..DownloadSettings::default() }
}

#[actix_rt::test]
async fn every_kind_of_error_is_told_from_the_others() {
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |hit| match hit.path.as_str() {
        "/silent" => {
            held.wait(Duration::from_secs(30));
            raw("")
        }
        "/stalled" => {
            // The head is sent and the body never follows: the connection stays open.
            Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec(), false)
        }
        "/announced" => Reply(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", LIMIT + 1).into_bytes(), false),
        "/endless" => raw([&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![b'x'; LIMIT as usize + 1]].concat()),
        "/bomb" => encoded("gzip", gzip(&vec![0; 50 << 20])),
        "/zstd-bomb" => encoded("zstd", zstd::bulk::compress(&vec![0; 50 << 20], 1).expect("memory")),
        "/cut" => raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"),
        "/cut-chunk" => raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nonly this"),
        "/bad-chunk" => raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nonly this\r\n"),
        "/bad-gzip" => encoded("gzip", "this is no gzip"),
        "/cut-gzip" => encoded("gzip", &gzip(&[7; 5_000])[..30]),
        "/loop" => answer(302, "Location: /loop\r\n", ""),
        "/ftp" => answer(302, "Location: ftp://127.0.0.1/\r\n", ""),
        "/no-http" => raw("220 mail.example ESMTP\r\n\r\n"),
        "/nothing" => raw(""),
        other => panic!("{other}"),
    });
    let cases = [
        ("/announced", Kind::TooLarge, 200),
        ("/endless", Kind::TooLarge, 200),
        ("/bomb", Kind::TooLarge, 200),
        ("/zstd-bomb", Kind::TooLarge, 200),
        ("/cut", Kind::Body, 200),
        ("/cut-chunk", Kind::Body, 200),
        ("/bad-chunk", Kind::Body, 200),
        ("/bad-gzip", Kind::Body, 200),
        ("/cut-gzip", Kind::Body, 200),
        ("/loop", Kind::Redirect, 302),
        ("/ftp", Kind::Redirect, 302),
        ("/no-http", Kind::Protocol, 0),
        ("/nothing", Kind::Connect, 0),
    ];
    for (path, expected, status) in cases {
        let outcome = fetch(once(), &site.url(path)).await;
        assert_eq!((kind(&outcome), outcome.answer.status, outcome.tries), (Some(expected), status, 1), "{path}: {:?}", outcome.answer);
        assert!(outcome.answer.body.is_empty(), "{path}");
    }
    for (path, status) in [("/silent", 0), ("/stalled", 200)] {
        let outcome = fetch(DownloadSettings { timeout: 1_000, ..once() }, &site.url(path)).await;
        assert_eq!((kind(&outcome), outcome.answer.status), (Some(Kind::Timeout), status), "{path}: {:?}", outcome.answer);
    }
    gate.open();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port that is closed again");
    let elsewhere = [
        // An empty label: no resolver accepts such a name.
        ("http://a..b/".to_owned(), Kind::Dns, 1),
        (format!("http://{closed}/"), Kind::Connect, 1),
        (format!("https://{}/", site.address), Kind::Tls, 1),
        ("ftp://127.0.0.1/".to_owned(), Kind::Invalid, 0),
    ];
    for (url, expected, tries) in elsewhere {
        let outcome = fetch(once(), &url).await;
        assert_eq!((kind(&outcome), outcome.tries), (Some(expected), tries), "{url}: {:?}", outcome.answer);
        assert!(!outcome.answer.error.expect("an error").message.is_empty());
    }
}

#[actix_rt::test]
async fn bodies_of_all_sorts_come_whole() {
    let text = "a page ".repeat(2_000);
    let body = text.clone();
    let site = Site::new(move |hit| match hit.path.as_str() {
        "/plain" => answer(200, "", &body),
        "/gzip" => encoded("gzip", gzip(body.as_bytes())),
        "/deflate" => encoded("deflate", zlib(body.as_bytes())),
        "/br" => encoded("br", brotli(body.as_bytes())),
        "/zstd" => encoded("zstd", zstd::bulk::compress(body.as_bytes(), 1).expect("memory")),
        "/close" => raw(format!("HTTP/1.1 200 OK\r\n\r\n{body}")),
        "/close-old" => raw(format!("HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n{body}")),
        "/chunked" => raw(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())),
        "/exactly" => answer(200, "", vec![b'x'; LIMIT as usize]),
        other => panic!("{other}"),
    });
    for path in ["/plain", "/gzip", "/deflate", "/br", "/zstd", "/close", "/close-old", "/chunked"] {
        let outcome = fetch(once(), &site.url(path)).await;
        assert_eq!(outcome.answer.error, None, "{path}");
        assert_eq!((outcome.answer.status, outcome.tries), (200, 1));
        assert!(outcome.answer.body == text, "{path}: {} bytes", outcome.answer.body.len());
        assert_eq!(outcome.answer.head.target_url, None);
    }
    assert_eq!(fetch(once(), &site.url("/exactly")).await.answer.body.len() as u64, LIMIT);
    let offered = site.hits()[0].header("accept-encoding").map(str::to_owned).unwrap_or_default();
    for name in ["gzip", "br", "zstd", "deflate"] {
        assert!(offered.contains(name), "{offered}");
    }
}

#[actix_rt::test]
async fn bodies_are_bytes_and_odd_heads_are_understood() {
    let many = (0..200).fold(String::new(), |all, i| format!("{all}X-{i}: {i}\r\n"));
    let site = Site::new(move |hit| match hit.path.as_str() {
        "/latin" => raw(b"HTTP/1.1 200 OK\r\nX-Name: caf\xe9\r\nContent-Length: 4\r\n\r\ncaf\xe9"),
        "/folded" => answer(200, "X-A: one\r\n two\r\n", "b"),
        "/blank" => answer(200, "X-A : one\r\n", "b"),
        "/invalid" => answer(200, "X(: one\r\nX-A: one\r\n", "b"),
        "/many" => answer(200, &many, "b"),
        "/twice" => answer(200, "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n", "b"),
        "/head" => Reply(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 77\r\n\r\n".to_vec(), false),
        "/unchanged" => Reply(b"HTTP/1.1 304 Not Modified\r\nContent-Encoding: gzip\r\n\r\n".to_vec(), false),
        other => panic!("{other}"),
    });
    let latin = fetch(once(), &site.url("/latin")).await.answer;
    assert_eq!(&latin.body[..], b"caf\xe9");
    assert!(latin.head.headers.contains(&("x-name".into(), "caf\u{fffd}".into())));
    for path in ["/folded", "/blank", "/invalid"] {
        let answer = fetch(once(), &site.url(path)).await.answer;
        assert_eq!((answer.error.as_ref(), answer.status), (None, 200), "{path}");
        assert!(answer.head.headers.iter().any(|(name, value)| name == "x-a" && value.starts_with("one")), "{path}: {:?}", answer.head);
    }
    assert!(fetch(once(), &site.url("/many")).await.answer.head.headers.len() > 200);
    let twice = fetch(once(), &site.url("/twice")).await.answer.head.headers;
    assert_eq!(twice.iter().filter(|(name, _)| name == "set-cookie").count(), 2);
    assert_eq!(fetch(once(), &site.url("/unchanged")).await.answer.error, None);
    let head = serde_json::json!({ "url": site.url("/head"), "method": "HEAD" }).to_string();
    let head = Downloader::new(&config()).fetch(&rules(once()), &head).await;
    assert_eq!((head.answer.error, head.answer.status), (None, 200));
    let headers = &head.answer.head.headers;
    assert!(headers.contains(&("content-length".into(), "77".into())), "the length of the body that was not sent: {headers:?}");
}

#[actix_rt::test]
async fn a_request_is_sent_as_it_is_written() {
    let site = Site::new(|_| answer(200, "", ""));
    let mut settings = once();
    let own = [("X-Site", "s"), ("X-Both", "site"), ("Content-Length", "5"), ("Transfer-Encoding", "chunked")];
    settings.site.headers = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let json = serde_json::json!({ "url": site.url("/p?q=1#f"), "method": "post", "headers": { "X-Both": "own" }, "body": "data=é" });
    let downloader = Downloader::new(&config());
    downloader.fetch(&rules(settings.clone()), &json.to_string()).await;
    settings.site.user_agent = Some("other/1".to_owned());
    downloader.fetch(&rules(settings), &get(&site.url("/"))).await;
    let hits = site.hits();
    assert!(hits[0].head.starts_with("POST /p?q=1 HTTP/1.1"), "{}", hits[0].head);
    assert_eq!(hits[0].body, "data=é".as_bytes());
    assert_eq!((hits[0].header("x-site"), hits[0].header("x-both")), (Some("s"), Some("own")));
    assert_eq!(hits[0].header("user-agent"), Some(concat!("webloom/", env!("CARGO_PKG_VERSION"))));
    assert_eq!(hits[1].header("user-agent"), Some("other/1"));
    assert_eq!((hits[1].header("content-length"), hits[1].header("transfer-encoding")), (None, None), "there is no body");
    let config = AgentConfig { contact: Some("https://example.com/bot".to_owned()), ..config() };
    Downloader::new(&config).fetch(&rules(once()), &get(&site.url("/"))).await;
    let with_contact = concat!("webloom/", env!("CARGO_PKG_VERSION"), " (+https://example.com/bot)");
    assert_eq!(site.hits().last().expect("a hit").header("user-agent"), Some(with_contact));
}

#[actix_rt::test]
async fn redirects_are_followed_to_their_limit() {
    let site = Site::new(|hit| match hit.path.as_str() {
        "/a" => answer(301, "Location: /b\r\n", "moved"),
        "/b" => answer(302, "Location: c?x\r\n", "moved"),
        "/c?x" => answer(200, "", "here"),
        other => panic!("{other}"),
    });
    let at_most = |max_redirects| DownloadSettings { max_redirects, ..once() };
    let followed = fetch(at_most(2), &site.url("/a")).await.answer;
    assert_eq!((followed.status, &followed.body[..]), (200, &b"here"[..]));
    assert_eq!(followed.head.target_url, Some(site.url("/c?x")));
    assert_eq!(kind(&fetch(at_most(1), &site.url("/a")).await), Some(Kind::Redirect));
    let returned = fetch(at_most(0), &site.url("/a")).await.answer;
    assert_eq!((returned.status, &returned.body[..], returned.error), (301, &b"moved"[..], None));
    assert!(returned.head.headers.contains(&("location".into(), "/b".into())));
}

#[actix_rt::test]
async fn what_may_pass_is_tried_again_and_the_last_answer_is_kept() {
    let site = Site::new(|hit| match (hit.path.as_str(), hit.nth) {
        ("/recovers", 0) => answer(500, "", "broken"),
        ("/recovers", 1) => answer(429, "Retry-After: 0\r\n", "slowly"),
        ("/recovers", 2) => raw(""),
        ("/recovers", _) => answer(200, "", "well"),
        ("/never", _) => answer(503, "X-A: b\r\n", "busy"),
        ("/cut", _) => raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"),
        ("/missing", _) => answer(404, "", "no"),
        (other, _) => panic!("{other}"),
    });
    let settings = || DownloadSettings { retry_download: None, ..once() };
    let outcome = fetch(settings(), &site.url("/recovers")).await;
    assert_eq!((outcome.answer.status, outcome.tries, kind(&outcome)), (200, 4, None));
    let outcome = fetch(settings(), &site.url("/never")).await;
    assert_eq!((outcome.answer.status, outcome.tries, kind(&outcome)), (503, 4, None));
    assert_eq!((&outcome.answer.body[..], outcome.answer.head.headers.len()), (&b"busy"[..], 2));
    let outcome = fetch(settings(), &site.url("/cut")).await;
    assert_eq!((outcome.tries, kind(&outcome)), (4, Some(Kind::Body)));
    let outcome = fetch(settings(), &site.url("/missing")).await;
    assert_eq!((outcome.answer.status, outcome.tries, &outcome.answer.body[..]), (404, 1, &b"no"[..]));
    let of_the_job = DownloadSettings { retry_download: Some(1), ..once() };
    assert_eq!(fetch(of_the_job, &site.url("/never")).await.tries, 2);
}

#[actix_rt::test]
async fn a_site_that_says_when_is_asked_then() {
    let site = Site::new(|hit| if hit.nth == 0 { answer(429, "Retry-After: 1\r\n", "") } else { answer(200, "", "") });
    let start = Instant::now();
    let outcome = fetch(DownloadSettings { retry_download: Some(1), ..once() }, &site.url("/")).await;
    assert_eq!((outcome.answer.status, outcome.tries), (200, 2));
    assert!(start.elapsed() >= Duration::from_secs(1));
}
