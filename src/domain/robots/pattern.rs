//! Paths, and patterns of `Allow` and `Disallow`.

use std::borrow::Cow;

/// Path and query of a URL as written: always with a leading slash, without the fragment. Also accepts URLs without a scheme.
#[must_use]
pub(super) fn target(url: &str) -> Cow<'_, str> {
    let start = if url.starts_with("//") { 2 } else { 0 };
    let rest = &url[start..];
    let early = rest.find(['/', '?', ';']).unwrap_or(rest.len());
    let rest = rest.find("://").filter(|scheme| *scheme < early).map_or(rest, |scheme| &rest[scheme + 3..]);
    let whole = rest.split('#').next().unwrap_or_default();
    match whole.find(['/', '?', ';']) {
        Some(at) if whole[at..].starts_with('/') => Cow::Borrowed(&whole[at..]),
        Some(at) => Cow::Owned(format!("/{}", &whole[at..])),
        None => Cow::Borrowed("/"),
    }
}

/// Percent-encodes characters that are not allowed in a URL, and writes the digits of all encodings in upper case. Non-ASCII
/// characters are encoded in patterns only: a URL with them is not in the form that is sent.
pub(super) fn escaped(text: &[u8], is_pattern: bool) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'%' if is_escape(text, at - 1) => {
                out.extend([b'%', text[at].to_ascii_uppercase(), text[at + 1].to_ascii_uppercase()]);
                at += 2;
            }
            0..=b' ' | b'"' | b'<' | b'>' | b'`' | b'{' | b'}' | b'^' | b'|' | b'\\' | 0x7f => {
                out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
            0x80.. if is_pattern => out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
            _ => out.push(byte),
        }
    }
    // Only whole characters were left unencoded.
    String::from_utf8(out).unwrap_or_default()
}

fn is_escape(text: &[u8], at: usize) -> bool {
    text.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// Removes encodings of unreserved characters (letters, digits, `-._~`): the same resource by RFC 3986, section 6.2.2.2. The text
/// must be [`escaped`]. `None` if there are none.
pub(super) fn plain(text: &str) -> Option<String> {
    let plain = crate::domain::fingerprint::normalized(text);
    (plain != text).then(|| plain.into_owned())
}

/// Whether a text has a part that matches a pattern, with `*` and `$` as in robots.txt.
#[must_use]
pub fn has_part(pattern: &str, text: &str) -> bool {
    matches(&format!("*{pattern}"), text)
}

/// Whether a pattern matches from the start of a path. `*` matches any number of characters; a final `$` matches the end.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, is_whole) = pattern.strip_suffix('$').map_or((pattern, false), |rest| (rest, true));
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else { return false };
    let mut last = None;
    for piece in pieces {
        // The leftmost match leaves the most text for the rest; the last piece is checked below.
        if let Some(before) = last.replace(piece) {
            let Some(at) = rest.find(before) else { return false };
            rest = &rest[at + before.len()..];
        }
    }
    match (last, is_whole) {
        (None, true) => rest.is_empty(),
        (None, false) => true,
        (Some(piece), true) => rest.ends_with(piece),
        (Some(piece), false) => rest.contains(piece),
    }
}
