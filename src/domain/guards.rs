//! Guards against endless sites: URLs that grow, or whose path repeats itself.

use serde::{Deserialize, Serialize};

/// Path segments that may repeat together.
const MOST_ROW: usize = 8;

/// What the guards look at in a URL. It is found once, when a request comes in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shape {
    length: u32,
    repetitions: u32,
}

impl Shape {
    /// Of a canonical URL.
    #[must_use]
    pub fn of(url: &str) -> Self {
        Self { length: u32::try_from(url.len()).unwrap_or(u32::MAX), repetitions: repetitions(path_of(url)) }
    }
}

/// The guards of a run. 0 stands for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Guards {
    /// Bytes of a URL.
    pub url_length: u32,
    /// How often one segment, or a row of segments, may stand in a path one after the other: `/a/b/a/b/a/b` has three.
    pub repeated_segments: u32,
}

impl Default for Guards {
    /// Sites that people read stay far below. Scrapy takes URLs of 2,083 bytes as well (`URLLENGTH_LIMIT`); Heritrix stops a
    /// path that repeats more than twice (`PathologicalPathDecideRule`).
    fn default() -> Self {
        Self { url_length: 2_083, repeated_segments: 3 }
    }
}

impl Guards {
    /// Whether a request is not let in. A request that no link led to (depth 0) always is.
    #[must_use]
    pub fn stops(&self, shape: Shape, depth: u32) -> bool {
        let is_over = |limit: u32, count: u32| limit > 0 && count > limit;
        depth > 0 && (is_over(self.url_length, shape.length) || is_over(self.repeated_segments, shape.repetitions))
    }
}

/// The path of a URL, from its first slash.
fn path_of(url: &str) -> &str {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let authority = url.find("://").map_or(0, |at| at + 3);
    url[authority..].find('/').map_or("", |slash| &url[authority + slash..])
}

/// How often the row of segments that repeats most follows itself.
fn repetitions(path: &str) -> u32 {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let mut most = 1;
    for row in 1..=MOST_ROW.min(segments.len() / 2) {
        // Segments that equal the one a row before, without a gap.
        let mut same = 0;
        for (later, earlier) in segments[row..].iter().zip(&segments) {
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
            ("http://a//////", false),
            ("http://a", false),
        ] {
            let shape = Shape::of(url);
            assert_eq!(usual.stops(shape, 1), is_trap, "{url}");
            assert!(!usual.stops(shape, 0) && !none.stops(shape, 9), "{url}");
        }
        let long = format!("http://a/{}", "x".repeat(2_075));
        assert!(usual.stops(Shape::of(&long), 1) && !usual.stops(Shape::of(&long[..2_083]), 1));
    }
}
