//! Sitemaps (sitemaps.org): lists of pages, as XML or as text, optionally compressed, and lists of such lists.
//!
//! A malformed one is read up to its first error.

use crate::protocol::push::MOST_URL;
use flate2::read::MultiGzDecoder;
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;
use std::borrow::Cow;
use std::io::Read as _;

/// Maximum bytes of a sitemap after decompression, as the protocol allows.
const MOST_BYTES: u64 = 50 << 20;

/// The entries of a sitemap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sitemap {
    /// Pages.
    pub pages: Vec<String>,
    /// Other sitemaps.
    pub sitemaps: Vec<String>,
}

/// Parses a sitemap. The error explains why it is not a sitemap, or what is malformed; entries before the error are still returned.
#[must_use]
pub fn read_sitemap(body: &[u8]) -> (Sitemap, Option<String>) {
    let (bytes, cut) = decompressed(body);
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes));
    let (sitemap, broken) = if text.trim_start().starts_with('<') { of_xml(&text) } else { of_lines(&text) };
    (sitemap, cut.or(broken))
}

/// The decompressed bytes, and the error that ended them.
fn decompressed(body: &[u8]) -> (Cow<'_, [u8]>, Option<String>) {
    if !body.starts_with(b"\x1f\x8b") {
        return (Cow::Borrowed(body), None);
    }
    let mut bytes = Vec::new();
    let wrong = match MultiGzDecoder::new(body).take(MOST_BYTES + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > MOST_BYTES => Some(format!("the sitemap has more than {MOST_BYTES} bytes, which is the limit")),
        Ok(_) => None,
        Err(error) => Some(format!("cannot decompress the sitemap: {error}")),
    };
    (bytes.into(), wrong)
}

/// One URL on each line, or the lines `Sitemap: URL` of a robots.txt; other lines are skipped.
fn of_lines(text: &str) -> (Sitemap, Option<String>) {
    let is_url = |line: &&str| is_taken(line) && line.split_once("://").is_some_and(|(scheme, _)| scheme.len() <= 5);
    let of_robots = |line: &str| {
        let (_, rest) = line.split_once(':').filter(|(key, _)| key.trim().eq_ignore_ascii_case("sitemap"))?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let sitemaps: Vec<String> = text.lines().filter_map(of_robots).filter(|url| is_url(&url.as_str())).collect();
    let pages: Vec<String> = text.lines().map(str::trim).filter(is_url).map(str::to_owned).collect();
    let is_empty = pages.is_empty() && sitemaps.is_empty();
    let broken = is_empty.then(|| "not a sitemap: neither XML, nor one URL on each line, nor a robots.txt with `Sitemap` lines".to_owned());
    (Sitemap { pages, sitemaps }, broken)
}

fn is_taken(url: &str) -> bool {
    !url.is_empty() && url.len() <= MOST_URL
}

/// The element that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum In {
    Nothing,
    Page,
    Sitemap,
}

/// `urlset/url/loc` and `sitemapindex/sitemap/loc`, with any prefixes. `loc` of images and videos is nested deeper.
fn of_xml(text: &str) -> (Sitemap, Option<String>) {
    let mut found = Sitemap::default();
    let mut reader = Reader::from_str(text);
    let (mut depth, mut element, mut loc) = (0_u32, In::Nothing, None::<String>);
    let mut is_sitemap = false;
    let broken = loop {
        match reader.read_event() {
            Err(error) => break Some(format!("the XML of the sitemap is malformed: {error}")),
            Ok(Event::Eof) => break None,
            Ok(Event::Start(start)) => {
                depth += 1;
                match (depth, start.local_name().as_ref()) {
                    (1, name) => is_sitemap = matches!(name, "urlset" | "sitemapindex"),
                    (2, "url") => element = In::Page,
                    (2, "sitemap") => element = In::Sitemap,
                    (3, "loc") if element != In::Nothing => loc = Some(String::new()),
                    _ => {}
                }
            }
            Ok(Event::End(_)) => {
                if depth == 3
                    && let Some(url) = loc.take().map(|url| url.trim().to_owned()).filter(|url| is_taken(url))
                {
                    if element == In::Page { found.pages.push(url) } else { found.sitemaps.push(url) }
                }
                if depth == 2 {
                    element = In::Nothing;
                }
                depth = depth.saturating_sub(1);
            }
            Ok(event) => {
                if let Some(loc) = loc.as_mut().filter(|loc| depth == 3 && loc.len() <= MOST_URL) {
                    push_text(loc, &event);
                }
            }
        }
    };
    let broken = broken.or_else(|| (!is_sitemap).then(|| "not a sitemap: its first element is neither urlset nor sitemapindex".to_owned()));
    (found, broken)
}

fn push_text(loc: &mut String, event: &Event<'_>) {
    match event {
        Event::Text(text) => loc.push_str(text),
        Event::CData(text) => loc.push_str(text),
        Event::GeneralRef(name) => {
            let reference = format!("&{};", &**name);
            loc.push_str(&unescape(&reference).unwrap_or(Cow::Borrowed(&reference)));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(text).and_then(|()| out.finish()).expect("compressed")
    }

    const PAGES: &str = "<?xml version='1.0' encoding='UTF-8'?><!-- <url><loc>http://a/no</loc></url> -->
        <urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:i='http://www.google.com/schemas/sitemap-image/1.1'>
        <url><loc> http://a/1?x=1&amp;y=&#50; </loc><lastmod>2026-01-01</lastmod><i:image><i:loc>http://a/no.png</i:loc></i:image></url>
        <url><loc><![CDATA[http://a/2&3]]></loc></url><url><lastmod/></url><url><loc/></url><url><loc></loc></url>
        <url><priority>1</priority><loc>http://a/\u{e9}</loc></url></urlset>";

    #[test]
    fn lists_of_pages_are_read_in_all_their_forms() {
        let wanted = ["http://a/1?x=1&y=2", "http://a/2&3", "http://a/é"];
        for body in [PAGES.as_bytes().to_vec(), gzip(PAGES.as_bytes()), format!("\u{feff}{PAGES}").into_bytes()] {
            let (sitemap, broken) = read_sitemap(&body);
            assert_eq!((sitemap.pages, sitemap.sitemaps, broken), (wanted.map(str::to_owned).to_vec(), vec![], None));
        }
        let prefixed = "<s:urlset xmlns:s='x'><s:url><s:loc>http://a/1</s:loc></s:url></s:urlset>";
        assert_eq!(read_sitemap(prefixed.as_bytes()).0.pages, ["http://a/1"]);
        let lines = "http://a/1\r\n\r\n  https://a/2  \nnot a url\n# http comment\nhttp://a/3";
        for body in [lines.as_bytes().to_vec(), gzip(lines.as_bytes())] {
            assert_eq!(read_sitemap(&body).0.pages, ["http://a/1", "https://a/2", "http://a/3"]);
        }
    }

    #[test]
    fn lists_of_sitemaps_are_read() {
        let index = "<sitemapindex><sitemap><loc>http://a/1.xml.gz</loc><lastmod>x</lastmod></sitemap><sitemap><loc>http://a/2.xml</loc></sitemap></sitemapindex>";
        let (sitemap, broken) = read_sitemap(index.as_bytes());
        assert_eq!((sitemap.sitemaps, sitemap.pages.len(), broken), (vec!["http://a/1.xml.gz".into(), "http://a/2.xml".into()], 0, None));
    }

    #[test]
    fn what_is_broken_is_read_up_to_there_and_said() {
        let cut = PAGES.split("<url><priority>").next().expect("a beginning");
        assert_eq!(read_sitemap(cut.as_bytes()).0.pages.len(), 2);
        let wrong = "<urlset><url><loc>http://a/1</loc></url><url><loc>http://a/2</url></urlset>";
        let (sitemap, broken) = read_sitemap(wrong.as_bytes());
        assert_eq!(sitemap.pages, ["http://a/1"]);
        assert!(broken.is_some_and(|why| why.contains("malformed")));
        let mut short = gzip(PAGES.repeat(50).as_bytes());
        short.truncate(short.len() / 2);
        assert!(read_sitemap(&short).1.is_some_and(|why| why.contains("cannot decompress")));
        let (sitemap, broken) =
            read_sitemap(b"User-agent: *\nDisallow: /x\nSitemap: http://a/s.xml\r\nsitemap : https://b/t.xml # two\nSitemap: /relative");
        assert_eq!(
            (sitemap.sitemaps, sitemap.pages.len(), broken),
            (vec!["http://a/s.xml".to_owned(), "https://b/t.xml".to_owned()], 0, None)
        );
        for none in [&b""[..], b"hello", b"<html><body></body></html>", b"\xff\xfe", b"\x1f\x8b"] {
            let (sitemap, broken) = read_sitemap(none);
            assert!(broken.is_some() && sitemap == Sitemap::default(), "{none:?}");
        }
        let long = format!("<urlset><url><loc>http://a/{}</loc></url><url><loc>http://a/b</loc></url></urlset>", "x".repeat(MOST_URL));
        assert_eq!(read_sitemap(long.as_bytes()).0.pages, ["http://a/b"]);
    }

    #[test]
    fn a_bomb_is_not_unpacked() {
        let bomb = gzip(&vec![b'\n'; (MOST_BYTES + (1 << 20)) as usize]);
        assert!(read_sitemap(&bomb).1.is_some_and(|why| why.contains("more than")));
    }
}
