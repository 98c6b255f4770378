//! Decodes bytes to text like a browser: by external information, then by the page itself, then by a guess.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{EncoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, X_USER_DEFINED};
use std::borrow::Cow;
use url::{ParseError, Url};

/// Bytes of a page in which it may declare its encoding (WHATWG HTML, "prescan a byte stream").
const PRESCAN: usize = 1_024;
/// Bytes that are used for a guess.
const GUESS: usize = 256 << 10;

/// The text of a body.
#[must_use]
pub fn decode<'a>(body: &'a [u8], known: Option<&str>, content_type: Option<&str>) -> Cow<'a, str> {
    encoding_of(body, known, content_type).decode_with_bom_removal(body).0
}

/// The encoding of a body: the one that is `known`, else its byte order mark, else the `Content-Type`, else a `<meta>` in its first 1024
/// bytes, else UTF-8 if it is valid, else a guess.
#[must_use]
pub fn encoding_of(body: &[u8], known: Option<&str>, content_type: Option<&str>) -> &'static Encoding {
    let labelled = |label: &str| Encoding::for_label(label.trim().as_bytes());
    known
        .and_then(labelled)
        .or_else(|| Encoding::for_bom(body).map(|(encoding, _)| encoding))
        .or_else(|| content_type.and_then(charset_parameter).and_then(labelled))
        .or_else(|| named_in_page(body))
        .unwrap_or_else(|| guess(body))
}

/// Resolves a link on a page in this encoding (WHATWG URL): its query is encoded in the page's encoding, the rest in UTF-8. For a page in
/// UTF-16 or `x-user-defined` the query is in UTF-8 as well.
///
/// # Errors
/// It is not a valid URL.
pub fn join(base: &Url, link: &str, encoding: &'static Encoding) -> Result<Url, ParseError> {
    let encoding = query_encoding(encoding);
    if encoding == UTF_8 || link.is_ascii() {
        return base.join(link);
    }
    let encode: &dyn Fn(&str) -> Cow<'_, [u8]> = &|text| Cow::Owned(encoded(text, encoding));
    Url::options().base_url(Some(base)).encoding_override(Some(encode)).parse(link)
}

/// The encoding of the query of a link on a page in this encoding.
fn query_encoding(page: &'static Encoding) -> &'static Encoding {
    // `output_encoding` is UTF-8 for UTF-16 and for encodings without an encoder.
    if page == X_USER_DEFINED { UTF_8 } else { page.output_encoding() }
}

/// Encodes a text. A character missing in the encoding becomes its number, `&#960;`, percent-encoded as in browsers.
fn encoded(text: &str, encoding: &'static Encoding) -> Vec<u8> {
    let (mut encoder, mut rest, mut out) = (encoding.new_encoder(), text, Vec::new());
    loop {
        out.reserve(encoder.max_buffer_length_from_utf8_without_replacement(rest.len()).unwrap_or(rest.len() * 4 + 16));
        let (result, read) = encoder.encode_from_utf8_to_vec_without_replacement(rest, &mut out, true);
        rest = &rest[read..];
        match result {
            EncoderResult::InputEmpty => return out,
            EncoderResult::OutputFull => {}
            EncoderResult::Unmappable(character) => out.extend_from_slice(format!("%26%23{}%3B", u32::from(character)).as_bytes()),
        }
    }
}

/// The charset of `text/html; charset="x"`.
fn charset_parameter(content_type: &str) -> Option<&str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches(['"', '\'']))
    })
}

fn named_in_page(body: &[u8]) -> Option<&'static Encoding> {
    let start = body[..body.len().min(PRESCAN)].to_ascii_lowercase();
    let start = String::from_utf8_lossy(&start);
    let mut rest = &*start;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = &comment[comment.find("-->")?..];
        } else if let Some(tag) = rest.strip_prefix("<meta") {
            let end = tag.find('>').unwrap_or(tag.len());
            if let Some(encoding) = named_in_tag(&tag[..end]) {
                // The declaration was read as ASCII, so it cannot be true (the same rule as in the standard).
                return Some(if encoding == UTF_16LE || encoding == UTF_16BE { UTF_8 } else { encoding });
            }
            rest = &tag[end..];
        } else {
            rest = &rest[1..];
        }
    }
    None
}

fn named_in_tag(tag: &str) -> Option<&'static Encoding> {
    tag.match_indices("charset").find_map(|(at, word)| {
        let value = tag[at + word.len()..].trim_start().strip_prefix('=')?.trim_start();
        let value = value.trim_start_matches(['"', '\'']);
        let end = value.find(|c: char| c.is_ascii_whitespace() || "\"';/>".contains(c)).unwrap_or(value.len());
        Encoding::for_label(&value.as_bytes()[..end])
    })
}

fn guess(body: &[u8]) -> &'static Encoding {
    if std::str::from_utf8(body).is_ok() {
        return UTF_8;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(&body[..body.len().min(GUESS)], true);
    detector.guess(None, Utf8Detection::Allow)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body, its known encoding, its content type, the expected text.
    type Case<'a> = (&'a [u8], Option<&'a str>, Option<&'a str>, &'a str);

    #[test]
    fn each_word_about_the_encoding_counts_in_its_turn() {
        let html = Some("text/html");
        let latin = Some("text/html; Charset=\"ISO-8859-1\"");
        let meta = b"<!-- <meta charset=koi8-r> --><meta charset = 'windows-1251'>\xe0";
        let old_meta = b"<META http-equiv=Content-Type content='text/html; charset=koi8-r'>\xc1";
        let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain("né".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        let late = [&[b' '; PRESCAN][..], b"<meta charset=koi8-r>\xc3\xa9"].concat();
        let cases: [Case<'_>; 13] = [
            (b"caf\xc3\xa9", None, None, "café"),
            (b"caf\xe9", None, latin, "café"),
            (b"caf\xc3\xa9", Some("utf-8"), latin, "café"),
            (b"caf\xe9", Some("no such thing"), latin, "café"),
            (b"\xef\xbb\xbfcaf\xc3\xa9", None, latin, "café"),
            (&utf16, None, html, "né"),
            (meta, None, html, "<!-- <meta charset=koi8-r> --><meta charset = 'windows-1251'>а"),
            (old_meta, None, html, "<META http-equiv=Content-Type content='text/html; charset=koi8-r'>а"),
            (b"<meta charset=utf-16>\xc3\xa9", None, html, "<meta charset=utf-16>é"),
            (b"<meta charset=", None, html, "<meta charset="),
            (b"<p>caf\xe9 cr\xe8me, d\xe9j\xe0 vu", None, html, "<p>café crème, déjà vu"),
            (b"\x83\x65\x83\x58\x83\x67\x82\xc5\x82\xb7", Some("shift_jis"), html, "テストです"),
            (b"", None, None, ""),
        ];
        for (body, known, content_type, text) in cases {
            assert_eq!(decode(body, known, content_type), text, "{known:?} {content_type:?}");
        }
        assert!(decode(&late, None, html).ends_with('é'), "a late meta does not count");
    }

    #[test]
    fn the_query_of_a_link_is_in_the_encoding_of_its_page() {
        let base = Url::parse("http://a/d/?é").expect("a url");
        let cases = [
            // The bytes are Python's: "日本語".encode("shift_jis").
            ("shift_jis", "日本語?k=日本語", "/d/%E6%97%A5%E6%9C%AC%E8%AA%9E?k=%93%FA%96{%8C%EA"),
            ("gbk", "q?k=中文", "/d/q?k=%D6%D0%CE%C4"),
            ("euc-kr", "q?k=한글", "/d/q?k=%C7%D1%B1%DB"),
            ("windows-1251", "?к=Я&b=c d", "/d/?%EA=%DF&b=c%20d"),
            ("iso-8859-1", "?π=é€☃", "/d/?%26%23960%3B=%E9%80%26%239731%3B"),
            ("iso-2022-jp", "?日π", "/d/?%1B$BF|&P%1B(B"),
            ("utf-16le", "?é", "/d/?%C3%A9"),
            ("x-user-defined", "?é", "/d/?%C3%A9"),
            ("replacement", "?é", "/d/?%C3%A9"),
            ("utf-8", "?é", "/d/?%C3%A9"),
            ("shift_jis", "/x?a=%93%FA&b", "/x?a=%93%FA&b"),
        ];
        for (label, link, wanted) in cases {
            let encoding = Encoding::for_label(label.as_bytes()).unwrap_or(encoding_rs::REPLACEMENT);
            let url = join(&base, link, encoding).expect(link);
            assert_eq!(&url[url::Position::BeforePath..], wanted, "{label} {link}");
        }
        let other = join(&base, "wss://b/?é", encoding_rs::WINDOWS_1252).expect("a url");
        assert_eq!(other.query(), Some("%C3%A9"), "a WebSocket's is always UTF-8");
    }

    #[test]
    fn text_without_a_word_is_guessed() {
        let text = "Съешь ещё этих мягких французских булок, да выпей чаю. ".repeat(4);
        let (bytes, _, _) = encoding_rs::WINDOWS_1251.encode(&text);
        assert_eq!(decode(&bytes, None, None), text);
    }
}
