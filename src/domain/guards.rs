//! Guards against endless sites: URLs that grow, or whose path repeats.

use super::origin::authority_of;
use serde::{Deserialize, Serialize};

/// Maximum length in segments of a repeated sequence.
const MOST_ROW: usize = 8;
/// The properties of a URL that the guards check. Computed once, when a request arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shape {
    length: u32,
    repetitions: u32,
}

impl Shape {
    /// The shape of a canonical URL.
    #[must_use]
    pub fn of(url: &str) -> Self {
        Self { length: u32::try_from(url.len()).unwrap_or(u32::MAX), repetitions: repetitions(path_of(url)) }
    }
}

/// The guards of a run. 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Guards {
    /// Maximum length of a URL in bytes.
    pub url_length: u32,
    /// How often a segment, or a sequence of segments, may repeat in a row in a path: `/a/b/a/b/a/b` has three repetitions.
    pub repeated_segments: u32,
}

impl Default for Guards {
    /// Ordinary sites stay far below. Scrapy also accepts URLs of up to 2,083 bytes (`URLLENGTH_LIMIT`); Heritrix rejects a
    /// path that repeats more than twice (`PathologicalPathDecideRule`).
    fn default() -> Self {
        Self { url_length: 2_083, repeated_segments: 3 }
    }
}

impl Guards {
    /// Whether a request is rejected. The default shape never is: it is that of a request that no site led to.
    #[must_use]
    pub fn stops(&self, shape: Shape) -> bool {
        let is_over = |limit: u32, count: u32| limit > 0 && count > limit;
        is_over(self.url_length, shape.length) || is_over(self.repeated_segments, shape.repetitions)
    }
}

/// The path of a canonical URL, from its first slash.
fn path_of(url: &str) -> &str {
    let rest = &url[authority_of(url)..];
    let end = memchr::memchr2(b'?', b'#', rest.as_bytes()).unwrap_or(rest.len());
    memchr::memchr(b'/', &rest.as_bytes()[..end]).map_or("", |slash| &rest[slash..end])
}

/// How often the most repeated sequence of segments follows itself.
fn repetitions(path: &str) -> u32 {
    let segments = || path.as_bytes().split(|byte| *byte == b'/').filter(|segment| !segment.is_empty());
    // Every request of a push is checked. Most paths do not even contain a segment twice.
    let mut last: [&[u8]; MOST_ROW] = [&[]; MOST_ROW];
    let is_repeated = segments().enumerate().any(|(i, segment)| {
        let is_known = last.contains(&segment);
        last[i % MOST_ROW] = segment;
        is_known
    });
    if is_repeated { most_repeated(&segments().collect::<Vec<_>>()) } else { 1 }
}

fn most_repeated(segments: &[&[u8]]) -> u32 {
    let mut most = 1;
    for row in 1..=MOST_ROW.min(segments.len() / 2) {
        // Number of consecutive segments that equal the one `row` before.
        let mut same = 0;
        for (later, earlier) in segments[row..].iter().zip(segments) {
            same = if later == earlier { same + 1 } else { 0 };
            most = most.max(same / row + 1);
        }
    }
    u32::try_from(most).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_differ_from_deep_sites() {
        let usual = Guards::default();
        let none = Guards { url_length: 0, repeated_segments: 0 };
        for (url, is_trap) in [
            ("http://a/a/b/c/d/e/f/g/h/i/j", false),
            ("http://a/2026/11/11/x", false),
            ("http://a/x/x/x/y", false),
            ("http://a/x/x/x/x", true),
            ("http://a/s/x/x/x/x/y", true),
            ("http://a/a/b/a/b/a/b", false),
            ("http://a/a/b/a/b/a/b/a/b", true),
            ("http://a/a/b/c/a/b/c/a/b/c/a/b/c?x", true),
            ("http://a/x?q=/x/x/x/x/x", false),
            ("https://u@a:81/x/x/x/x#y", true),
            ("http://a/0/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5", false),
            ("http://a/0/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7/8/9/x/x/x/x/y/z/0/1", true),
            ("http://a/0/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7/8/9/0/1/2/3/x/x/x/x", true),
            ("http://a//////", false),
            ("http://a", false),
        ] {
            let shape = Shape::of(url);
            assert_eq!(usual.stops(shape), is_trap, "{url}");
            assert!(!none.stops(shape), "{url}");
        }
        let long = format!("http://a/{}", "x".repeat(2_075));
        assert!(usual.stops(Shape::of(&long)) && !usual.stops(Shape::of(&long[..2_083])) && !usual.stops(Shape::default()));
    }
}
