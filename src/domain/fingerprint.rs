//! Request identity: which requests count as the same.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest, Sha256};
use std::{borrow::Cow, fmt, str::FromStr};
use url::Url;

/// 96 bits that stand for a request within its run; as text, 24 hexadecimal digits: the `requestId`.
///
/// The first 12 bytes of a SHA-256. Among ten million requests the chance that two different ones collide is about 6e-16 (n²/2 / 2^96).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 12]);

impl Fingerprint {
    /// Bytes of one fingerprint.
    pub const LEN: usize = 12;

    /// Fingerprint of a request from its content: `method LF canonical-url LF body`.
    #[must_use]
    pub fn of(method: &str, canonical_url: &str, body: &[u8]) -> Self {
        Self::hash(&[method.as_bytes(), canonical_url.as_bytes(), body])
    }

    /// Fingerprint of a request whose sender supplies its unique key: `key LF text`.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        Self::hash(&[b"key", key.as_bytes()])
    }

    /// A fingerprint that equals no other, for a request that must not be deduplicated.
    #[must_use]
    pub fn unique() -> Self {
        Self::hash(&[b"unique", uuid::Uuid::new_v4().as_bytes()])
    }

    /// Fingerprint of a deliberate repetition of this request. It is deterministic, so that nothing is repeated twice.
    #[must_use]
    pub fn repeated(self) -> Self {
        Self::hash(&[b"again", &self.0])
    }

    fn hash(parts: &[&[u8]]) -> Self {
        let mut sha = Sha256::new();
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                sha.update(b"\n");
            }
            sha.update(part);
        }
        let mut bytes = [0; Self::LEN];
        bytes.copy_from_slice(&sha.finalize()[..Self::LEN]);
        Self(bytes)
    }

    /// The 24 digits, without an allocation.
    #[must_use]
    pub fn hex(self) -> [u8; 24] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut out = [0; 24];
        for (pair, byte) in out.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        out
    }
}

/// The URL as sent: parsed by the WHATWG rules (lower-case scheme and host, no default port, dot segments resolved), without its
/// fragment. Nothing else changes: not the order of the query, a trailing slash, or the case of the path. Requests are compared
/// by its [`normalized`] text.
#[must_use]
pub fn canonical(mut url: Url) -> Url {
    url.set_fragment(None);
    url
}

/// The text of a canonical URL with normalised percent-encodings (RFC 3986, section 6.2.2): upper-case digits, and unreserved
/// characters (letters, digits, `-._~`) decoded. Both spellings mean the same everywhere in a URL.
#[must_use]
pub fn normalized(url: &str) -> Cow<'_, str> {
    let escapes = || url.match_indices('%').map(|(at, _)| &url.as_bytes()[at..]);
    // If a `%` does not start an escape, decoding what follows could create one.
    if escapes().all(escape_stands) || escapes().any(|text| escaped(text).is_none()) {
        return Cow::Borrowed(url);
    }
    let mut parts = url.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Each part begins with two hexadecimal digits, because every `%` starts an escape.
        let byte = escaped(format!("%{part}").as_bytes()).unwrap_or_default();
        if is_unreserved(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&part[..2].to_ascii_uppercase());
        }
        out.push_str(&part[2..]);
    }
    Cow::Owned(out)
}

/// The byte that an escape at the start of the text encodes.
fn escaped(text: &[u8]) -> Option<u8> {
    let digit = |i: usize| text.get(i).and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    Some(digit(1)? << 4 | digit(2)?)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Whether the text, which begins with `%`, is already as [`normalized`] would write it.
fn escape_stands(text: &[u8]) -> bool {
    escaped(text).is_none_or(|byte| !is_unreserved(byte) && !text[1..3].iter().any(u8::is_ascii_lowercase))
}

/// Whether a text is certainly an `http` or `https` URL in canonical and [`normalized`] form, so that parsing would not change
/// it. Most links are, and this check is several times cheaper than parsing. `false` means unknown.
#[must_use]
pub fn is_canonical(text: &str) -> bool {
    let (rest, default_port) = match text.strip_prefix("http://") {
        Some(rest) => (rest, 80),
        None => match text.strip_prefix("https://") {
            Some(rest) => (rest, 443),
            None => return false,
        },
    };
    let Some(slash) = rest.find('/') else { return false };
    let (authority, path) = rest.split_at(slash);
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let port_stands = port.is_none_or(|port| {
        let digits = !port.starts_with('0') && port.bytes().all(|b| b.is_ascii_digit());
        digits && port.parse::<u16>().is_ok_and(|port| port != default_port)
    });
    port_stands && is_canonical_host(host) && is_canonical_path(path.as_bytes())
}

fn is_canonical_host(host: &str) -> bool {
    let name = host.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.');
    let last = host.rsplit('.').next().unwrap_or("");
    if !name || host.contains("..") || host.starts_with('.') {
        return false;
    }
    if last.starts_with(|c: char| c.is_ascii_lowercase()) {
        // Punycode has its own rules.
        return !host.split('.').any(|label| label.starts_with("xn--"));
    }
    host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.to_string() == host)
}

/// The bytes that stand for themselves everywhere in a path and a query.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let bytes = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~!$&()*+,;=:@/";
    let mut i = 0;
    while i < bytes.len() {
        plain[bytes[i] as usize] = true;
        i += 1;
    }
    plain
};

fn is_canonical_path(path: &[u8]) -> bool {
    let mut in_query = false;
    path.iter().enumerate().all(|(i, &byte)| {
        PLAIN[usize::from(byte)]
            || match byte {
                // A segment that begins with a dot, or that hides one, may be a dot segment that parsing removes.
                b'.' => in_query || i == 0 || path[i - 1] != b'/',
                b'%' => escape_stands(&path[i..]),
                // Parsing percent-encodes quotes in a query, but not in a path.
                b'\'' => !in_query,
                b'?' => {
                    in_query = true;
                    true
                }
                _ => false,
            }
    })
}

#[cfg(feature = "broker")]
impl schemars::JsonSchema for Fingerprint {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Fingerprint".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-fA-F]{24}$" })
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).expect("hexadecimal digits are ASCII"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("`{}` is not a request id: expected 24 hexadecimal digits", text.chars().take(80).collect::<String>());
        let digits = text.as_bytes();
        if digits.len() != 24 {
            return Err(invalid());
        }
        let mut bytes = [0; Self::LEN];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Err(invalid()) };
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.hex()).expect("hexadecimal digits are ASCII"))
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_url(text: &str) -> Fingerprint {
        Fingerprint::of("GET", &normalized(canonical(Url::parse(text).expect("a url")).as_str()), b"")
    }

    #[test]
    fn what_is_the_same_address_is_the_same_request() {
        assert_eq!(of_url("HTTP://Example.com:80/a/../b#part"), of_url("http://example.com/b"));
        assert_ne!(of_url("http://example.com/b"), of_url("http://example.com/b/"));
        assert_ne!(of_url("http://example.com/?a=1&b=2"), of_url("http://example.com/?b=2&a=1"));
        assert_ne!(Fingerprint::of("POST", "http://a/", b"x"), Fingerprint::of("POST", "http://a/", b"y"));
        assert_ne!(Fingerprint::unique(), Fingerprint::unique());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: 4_000, ..Default::default() })]

        /// The check must never accept a URL that parsing would change.
        #[test]
        fn what_looks_canonical_is(
            text in "https?://([a-z0-9.-]{0,6}|[a-z]{1,3}\\.[a-z]{2}|[0-9]{1,3}(\\.[0-9x]{1,3}){1,3}|xn--[a-z]{2,4})(:[0-9]{0,5})?/[a-zA-Z0-9%2eE./?'#:@!~ \\\\|^`{}\"<>é-]{0,12}"
        ) {
            if is_canonical(&text) {
                let parsed = Url::parse(&text).map(|url| normalized(canonical(url).as_str()).into_owned());
                proptest::prop_assert_eq!(parsed, Ok(text));
            }
        }

        /// Normalising is idempotent, also after the result is parsed again.
        #[test]
        fn normalising_comes_to_an_end(path in "[a-zA-Z0-9%2eE./?~-]{0,20}") {
            if let Ok(url) = Url::parse(&format!("http://a/{path}")) {
                let once = normalized(url.as_str()).into_owned();
                proptest::prop_assert_eq!(&normalized(&once), &once);
                proptest::prop_assert_eq!(Url::parse(&once).map(String::from), Ok(once));
            }
        }
    }

    #[test]
    fn common_links_need_no_parsing() {
        for text in ["http://127.0.0.1:8080/", "https://docs.example.com/a/b_c.html?x=1&y=%20#".trim_end_matches('#'), "http://a.b/~c/(d)"]
        {
            assert!(is_canonical(text), "{text}");
        }
        for text in
            ["http://a.b", "http://a.b:80/", "http://A.b/", "http://a.b/../c", "http://a.b/#x", "http://a.b/ü", "http://1.2/", "ftp://a.b/"]
        {
            assert!(!is_canonical(text), "{text}");
        }
    }

    #[test]
    fn the_text_form_goes_there_and_back() {
        let print = Fingerprint::of_key("k");
        assert_eq!(print.to_string().parse(), Ok(print));
        assert!("zz".parse::<Fingerprint>().is_err());
        assert!("é".repeat(12).parse::<Fingerprint>().is_err());
    }
}
