//! The rules of a robots.txt that are kept.

use super::pattern::{escaped, matches, plain, target};

/// The verdict of robots.txt for a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may be fetched.
    Allowed,
    /// It may not be fetched.
    Disallowed {
        /// The number of the line that forbids it, from 1; 0: the file could not be fetched, which forbids everything.
        line: u32,
    },
}

/// The rules of robots.txt for one product token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Robots {
    /// Longest patterns first; for equal length `Allow` first: the first match decides.
    rules: Box<[Rule]>,
    /// The concatenated patterns.
    text: Box<str>,
    crawl_delay_ms: Option<u32>,
    is_unreachable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    start: u32,
    length: u16,
    is_allow: bool,
    line: u32,
}

/// An `Allow` or `Disallow` line, with its pattern [`escaped`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub is_allow: bool,
    pub line: u32,
    pub pattern: String,
}

impl Robots {
    /// Everything is allowed: the site has no robots.txt.
    #[must_use]
    pub fn allow_all() -> Self {
        Self::default()
    }

    /// Nothing is allowed: the content of robots.txt is unknown.
    #[must_use]
    pub fn unreachable() -> Self {
        Self { is_unreachable: true, ..Self::default() }
    }

    pub(super) fn of_lines(mut lines: Vec<Line>, crawl_delay_ms: Option<u32>) -> Self {
        lines.retain(|line| !line.pattern.is_empty());
        lines.sort_by_key(|line| (std::cmp::Reverse(line.pattern.len()), !line.is_allow));
        lines.dedup_by(|later, first| later.pattern == first.pattern && later.is_allow == first.is_allow);
        let mut text = String::new();
        let mut rules = Vec::with_capacity(lines.len());
        for Line { is_allow, line, pattern } in &lines {
            let (Ok(start), Ok(length)) = (u32::try_from(text.len()), u16::try_from(pattern.len())) else { continue };
            text.push_str(pattern);
            rules.push(Rule { start, length, is_allow: *is_allow, line: *line });
        }
        Self { rules: rules.into(), text: text.into(), crawl_delay_ms, is_unreachable: false }
    }

    fn pattern(&self, rule: &Rule) -> &str {
        let start = rule.start as usize;
        &self.text[start..start + usize::from(rule.length)]
    }

    /// Whether a URL may be fetched. It must be encoded as it is sent, like the text of a [`url::Url`].
    ///
    /// Paths are compared as written and, following RFC 9309 (section 2.2.2), without needless encodings. But an `Allow` with
    /// needless encodings matches only as written: Google's published cases require that, and it is the cautious choice.
    #[must_use]
    pub fn allowed(&self, url: &str) -> Verdict {
        if self.is_unreachable {
            return Verdict::Disallowed { line: 0 };
        }
        if self.rules.is_empty() {
            return Verdict::Allowed;
        }
        let written = escaped(target(url).as_bytes(), false);
        let normal = plain(&written);
        let is_met = |rule: &&Rule| {
            let pattern = self.pattern(rule);
            let meets = |pattern: &str| matches(pattern, &written) || normal.as_deref().is_some_and(|path| matches(pattern, path));
            meets(pattern) || !rule.is_allow && pattern.contains('%') && plain(pattern).is_some_and(|pattern| meets(&pattern))
        };
        match self.rules.iter().find(is_met) {
            Some(rule) if !rule.is_allow => Verdict::Disallowed { line: rule.line },
            _ => Verdict::Allowed,
        }
    }

    /// The `Crawl-delay` in milliseconds.
    #[must_use]
    pub fn crawl_delay_ms(&self) -> Option<u32> {
        self.crawl_delay_ms
    }

    /// The file could not be fetched.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    /// Memory on the heap, in bytes.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.text.len() + self.rules.len() * size_of::<Rule>()
    }

    /// The stored form: one line for each rule, shorter than the file and with the line numbers of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = if self.is_unreachable { "unreachable\n".to_owned() } else { String::new() };
        // Writing into a `String` cannot fail.
        if let Some(ms) = self.crawl_delay_ms {
            let _ = writeln!(text, "delay {ms}");
        }
        for rule in &self.rules {
            let _ = writeln!(text, "{} {} {}", if rule.is_allow { "allow" } else { "disallow" }, rule.line, self.pattern(rule));
        }
        text
    }

    /// Parses the stored form; `None` if the text is invalid.
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        let (mut lines, mut crawl_delay_ms, mut is_unreachable) = (Vec::new(), None, false);
        for line in text.lines() {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            match name {
                "unreachable" => is_unreachable = true,
                "delay" => crawl_delay_ms = Some(rest.parse().ok()?),
                // Stored by an earlier version.
                "sitemap" => {}
                "allow" | "disallow" => {
                    let (line, pattern) = rest.split_once(' ')?;
                    lines.push(Line { is_allow: name == "allow", line: line.parse().ok()?, pattern: pattern.to_owned() });
                }
                _ => return None,
            }
        }
        Some(Self { is_unreachable, ..Self::of_lines(lines, crawl_delay_ms) })
    }
}
