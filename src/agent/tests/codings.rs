//! Content codings: names, order, several of them, bombs, and bodies that do not match their declared coding.

use super::site::{Reply, Site, answer};
use super::{fetch, kind};
use crate::domain::settings::DownloadSettings;
use crate::protocol::node::FetchErrorKind as Kind;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use std::io::Write;

const LIMIT: u64 = 1 << 20;

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    out.write_all(data).expect("memory");
    out.finish().expect("memory")
}

fn bare_deflate(data: &[u8]) -> Vec<u8> {
    let mut out = DeflateEncoder::new(Vec::new(), Compression::fast());
    out.write_all(data).expect("memory");
    out.finish().expect("memory")
}

fn zstd(data: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(data, 1).expect("memory")
}

fn encoded(name: &str, body: impl AsRef<[u8]>) -> Reply {
    answer(200, &format!("Content-Encoding: {name}\r\n"), body)
}

fn settings() -> DownloadSettings {
    DownloadSettings { max_body: LIMIT, ..DownloadSettings::default() }
}

#[actix_rt::test]
async fn codings_are_undone_whatever_they_are_called_and_however_many() {
    let text = "a page with some words ".repeat(3_000);
    let body = text.clone().into_bytes();
    let site = Site::new(move |hit| match hit.path.as_str() {
        "/x-gzip" => encoded("x-gzip", gzip(&body)),
        "/upper" => encoded("GZIP", gzip(&body)),
        "/bare" => encoded("deflate", bare_deflate(&body)),
        "/twice" => encoded("gzip, gzip", gzip(&gzip(&body))),
        "/mixed" => encoded("gzip, zstd", zstd(&gzip(&body))),
        "/lines" => answer(200, "Content-Encoding: zstd\r\nContent-Encoding: gzip\r\n", gzip(&zstd(&body))),
        "/identity" => encoded("identity", &body),
        "/padded" => encoded("gzip", [gzip(&body), b"more".to_vec()].concat()),
        "/empty" => encoded("gzip, br", ""),
        other => panic!("{other}"),
    });
    for path in ["/x-gzip", "/upper", "/bare", "/twice", "/mixed", "/lines", "/identity", "/padded"] {
        let answer = fetch(settings(), &site.url(path)).await.answer;
        assert_eq!((answer.error, answer.status), (None, 200), "{path}");
        assert!(answer.body == text, "{path}: {} bytes", answer.body.len());
        let described = answer.head.headers.iter().any(|(name, _)| name == "content-encoding" || name == "content-length");
        assert!(!described, "{path}: these headers are of the packed body: {:?}", answer.head.headers);
    }
    let empty = fetch(settings(), &site.url("/empty")).await.answer;
    assert_eq!((empty.error, empty.body.len()), (None, 0));
}

#[actix_rt::test]
async fn what_cannot_be_undone_is_an_error() {
    let large = vec![0; 100 << 20];
    let (bomb, noise) = (gzip(&gzip(&large)), gzip(b"words"));
    let site = Site::new(move |hit| match hit.path.as_str() {
        "/unknown" => encoded("compress", "abc"),
        "/half-known" => encoded("gzip, rot13", &noise),
        "/many" => encoded("gzip, gzip, gzip, gzip", gzip(&gzip(&gzip(&noise)))),
        "/bomb" => encoded("gzip, gzip", &bomb),
        // The inner layer is small; the one between is not.
        "/hidden-bomb" => encoded("deflate, gzip", gzip(&[bare_deflate(b"words"), vec![0; 100 << 20]].concat())),
        "/wrong" => encoded("br, gzip", &noise),
        "/not-twice" => encoded("gzip, gzip", &noise),
        "/plain" => encoded("identity", vec![b'x'; LIMIT as usize + 1]),
        other => panic!("{other}"),
    });
    let cases = [
        ("/unknown", Kind::Body, 1, "compress"),
        ("/half-known", Kind::Body, 1, "rot13"),
        ("/many", Kind::Body, 1, "4 content codings"),
        ("/bomb", Kind::TooLarge, 1, "at most"),
        ("/plain", Kind::TooLarge, 1, "at most"),
        ("/wrong", Kind::Body, 1, "cannot decode"),
        ("/not-twice", Kind::Body, 1, "cannot decode"),
    ];
    for (path, expected, tries, word) in cases {
        let outcome = fetch(DownloadSettings { retry_download: Some(1), ..settings() }, &site.url(path)).await;
        assert_eq!((kind(&outcome), outcome.tries), (Some(expected), tries), "{path}: {:?}", outcome.answer);
        let error = outcome.answer.error.expect("an error");
        assert!(error.message.contains(word) && outcome.answer.body.is_empty(), "{path}: {}", error.message);
    }
    let hidden = fetch(settings(), &site.url("/hidden-bomb")).await.answer;
    assert!(hidden.error.is_none() && &hidden.body[..] == b"words", "what follows the end of a body is not unpacked: {:?}", hidden.error);
}

#[actix_rt::test]
async fn the_connection_of_a_packed_body_is_used_again() {
    let site = Site::new(|_| {
        let body = gzip(b"words");
        let chunk = [format!("{:x}\r\n", body.len()).into_bytes(), body, b"\r\n0\r\n\r\n".to_vec()].concat();
        Reply([&b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"[..], &chunk].concat(), false)
    });
    let (downloader, rules) = (crate::agent::download::Downloader::new(&super::config()), super::rules(settings()));
    for _ in 0..3 {
        assert_eq!(&downloader.fetch(&rules, &super::get(&site.url("/"))).await.answer.body[..], b"words");
    }
    assert_eq!(site.hits().iter().map(|hit| hit.connection).max(), Some(0));
}
