//! Parses a robots.txt.

use super::pattern::escaped;
use super::rules::{Line, Robots};

/// Maximum number of bytes of a file that are parsed; the rest is ignored (RFC 9309, section 2.5: at least 500 KiB).
pub const MOST_BYTES: usize = 500 << 10;
/// Maximum number of bytes of a line; as in Google's parser.
const MOST_LINE: usize = 2_083 * 8 - 1;
/// The maximum `Crawl-delay`: one day.
const MOST_DELAY_S: f64 = 86_400.0;

/// The name of a program in robots.txt, in lower case: the letters, `-` and `_` at the start of its user agent. Of `Mozilla/5.0 (compatible;
/// FooBot/2.1; …)` it is `foobot`, since `mozilla` names no program.
#[must_use]
pub fn product_token(user_agent: &str) -> String {
    let all = leading_token(user_agent);
    let named = user_agent.split_once("(compatible;").filter(|_| all == "mozilla").map(|(_, rest)| leading_token(rest));
    named.filter(|token| !token.is_empty()).unwrap_or(all)
}

fn leading_token(text: &str) -> String {
    let text = text.trim_start();
    let end = text.find(|c: char| !is_token(c)).unwrap_or(text.len());
    text[..end].to_ascii_lowercase()
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '-' || c == '_'
}

/// The agents that the current lines apply to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Agents {
    ours: bool,
    all: bool,
}

/// Lines and delay of the groups for one agent.
#[derive(Debug, Default)]
struct Group {
    lines: Vec<Line>,
    crawl_delay_ms: Option<u32>,
}

enum Key {
    UserAgent,
    Allow,
    Disallow,
    CrawlDelay,
}

impl Robots {
    /// The rules for a product token ([`product_token`]), or for all agents if no group names the token.
    #[must_use]
    pub fn parse(body: &[u8], token: &str) -> Self {
        let (mut ours, mut all) = (Group::default(), Group::default());
        let (mut agents, mut is_named, mut has_rules) = (Agents::default(), false, false);
        for (line, text) in lines(body) {
            let Some((key, value)) = key_and_value(text) else { continue };
            let group = if agents.ours { Some(&mut ours) } else { agents.all.then_some(&mut all) };
            match key {
                Key::UserAgent => {
                    if std::mem::take(&mut has_rules) {
                        agents = Agents::default();
                    }
                    match value {
                        [b'*'] | [b'*', b' ' | b'\t', ..] => agents.all = true,
                        _ => agents.ours |= !token.is_empty() && product_token(&String::from_utf8_lossy(value)) == token,
                    }
                    is_named |= agents.ours;
                }
                Key::Allow | Key::Disallow => {
                    has_rules = true;
                    if let Some(group) = group {
                        let is_allow = matches!(key, Key::Allow);
                        let pattern = escaped(value, true);
                        if is_allow {
                            group.lines.extend(folder(&pattern).map(|pattern| Line { is_allow, line, pattern }));
                        }
                        group.lines.push(Line { is_allow, line, pattern });
                    }
                }
                // Other records do not end a group (section 2.2.4), and a delay applies to the agents named before it.
                Key::CrawlDelay => {
                    if let Some(group) = group {
                        group.crawl_delay_ms = group.crawl_delay_ms.max(delay_ms(value));
                    }
                }
            }
        }
        let Group { lines, crawl_delay_ms } = if is_named { ours } else { all };
        Self::of_lines(lines, crawl_delay_ms)
    }
}

/// The lines with their numbers from 1. They end with LF, CR LF or CR.
fn lines(body: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let whole = if body.len() > MOST_BYTES {
        // A truncated line could forbid something else.
        let cut = &body[..MOST_BYTES];
        &cut[..cut.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(0)]
    } else {
        body
    };
    // Some files begin with a byte order mark, or a part of one.
    let mark = whole.iter().zip(b"\xef\xbb\xbf").take_while(|(a, b)| a == b).count();
    let mut rest = Some(&whole[mark..]);
    let mut number = 0;
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        rest = end.map(|at| if text[at..].starts_with(b"\r\n") { &text[at + 2..] } else { &text[at + 1..] });
        number += 1;
        let line = &text[..end.unwrap_or(text.len())];
        Some((number, &line[..line.len().min(MOST_LINE)]))
    })
}

/// Splits `key: value` without its comment. If the colon is missing, exactly two words are accepted as well.
fn key_and_value(line: &[u8]) -> Option<(Key, &[u8])> {
    let line = line.split(|byte| *byte == b'#').next()?.trim_ascii();
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let (name, value) = match line.iter().position(|byte| *byte == b':') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => {
            let (name, value) = line.split_at(line.iter().position(is_blank)?);
            (name, value.trim_ascii())
        }
    };
    let has_colon = name.len() < line.len() && line[name.len()] == b':';
    if !has_colon && value.iter().any(is_blank) {
        return None;
    }
    Some((key(name.trim_ascii())?, value.trim_ascii()))
}

/// As in Google's parser the start of the word decides, and common spelling mistakes are accepted.
fn key(name: &[u8]) -> Option<Key> {
    let begins = |starts: &[&str]| starts.iter().any(|s| name.get(..s.len()).is_some_and(|n| n.eq_ignore_ascii_case(s.as_bytes())));
    if begins(&["user-agent", "useragent", "user agent"]) {
        Some(Key::UserAgent)
    } else if begins(&["allow"]) {
        Some(Key::Allow)
    } else if begins(&["disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"]) {
        Some(Key::Disallow)
    } else if begins(&["crawl-delay", "crawldelay", "crawl delay"]) {
        Some(Key::CrawlDelay)
    } else {
        None
    }
}

/// An `Allow` of `/x/index.html` also allows `/x/`, but nothing else below it.
fn folder(pattern: &str) -> Option<String> {
    let slash = pattern.rfind('/')?;
    pattern[slash..].starts_with("/index.htm").then(|| format!("{}$", &pattern[..=slash]))
}

/// Parses a number of seconds, optionally with a fraction.
fn delay_ms(value: &[u8]) -> Option<u32> {
    let seconds: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    // The value is bounded, so it fits.
    (seconds >= 0.0).then(|| (seconds.min(MOST_DELAY_S) * 1_000.0).ceil() as u32)
}
