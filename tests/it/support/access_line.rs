//! A line of an access log of nginx or Apache: the formats *common* and *combined*, and Apache's `vhost_combined`.
//!
//! ```text
//! 203.0.113.7 - - [25/Nov/2026:18:26:18 +0000] "GET /a?b HTTP/1.1" 200 512 "http://example.org/" "webloom/0.1"
//! example.org:443 203.0.113.7 - - [25/Nov/2026:18:26:18 +0000] "GET /a?b HTTP/2.0" 503 0 "-" "webloom/0.1"
//! ```
//!
//! Such a line has a time in whole seconds, and neither a duration nor `Retry-After`.

use chrono::DateTime;

/// A request, as the line describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The virtual host without its port, if the format has it.
    pub host: Option<String>,
    /// The address of the client.
    pub client: String,
    /// Seconds since 1970.
    pub at: u64,
    pub path: String,
    pub status: u16,
    /// The header `User-Agent`, if the format has it.
    pub user_agent: Option<String>,
}

/// Reads a line.
///
/// # Errors
/// The line has another format.
pub fn read(line: &str) -> Result<Line, String> {
    let wrong = |what: &str| format!("{what}; a line of JSON or of the format common or combined is expected");
    let (before, rest) = line.split_once(" [").ok_or_else(|| wrong("there is no time in brackets"))?;
    let (time, rest) = rest.split_once(']').ok_or_else(|| wrong("the time has no end"))?;
    let at = DateTime::parse_from_str(time, "%d/%b/%Y:%H:%M:%S %z").map_err(|e| wrong(&format!("the time `{time}`: {e}")))?;
    let words: Vec<&str> = before.split_whitespace().collect();
    let (host, client) = match words[..] {
        [host, client, _, _] => (Some(host), client),
        [client, ..] => (None, client),
        [] => return Err(wrong("there is no client")),
    };
    let (request, rest) = quoted(rest).ok_or_else(|| wrong("there is no request in quotes"))?;
    let status = rest.split_whitespace().next().and_then(|word| word.parse().ok()).ok_or_else(|| wrong("there is no status"))?;
    // The referrer is between the status and the user agent.
    let user_agent = quoted(rest).and_then(|(_, rest)| quoted(rest)).map(|(text, _)| text);
    // What is no HTTP has no path.
    let path = request.split(' ').nth(1).unwrap_or(&request).to_owned();
    Ok(Line {
        host: host.map(|host| host.rsplit_once(':').map_or(host, |(host, _)| host).to_owned()),
        client: client.to_owned(),
        at: u64::try_from(at.timestamp()).map_err(|_| wrong("the time is before 1970"))?,
        path,
        status,
        user_agent,
    })
}

/// The next text in quotes, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (_, text) = text.split_once('"')?;
    let (mut found, mut is_escaped) = (String::new(), false);
    for (at, character) in text.char_indices() {
        match character {
            '"' if !is_escaped => return Some((found, &text[at + 1..])),
            '\\' if !is_escaped => is_escaped = true,
            _ => {
                found.push(character);
                is_escaped = false;
            }
        }
    }
    None
}

// A bench that has no test harness compiles this without its tests, so each imports what it needs.
#[cfg(test)]
mod tests {
    #[test]
    fn the_formats_of_nginx_and_apache_are_read() {
        use super::{Line, read};
        let common = "203.0.113.7 - ann [25/Nov/2026:19:26:18 +0100] \"GET /a?b=%20c HTTP/1.1\" 200 -";
        let expected =
            Line { host: None, client: "203.0.113.7".into(), at: 1_795_631_178, path: "/a?b=%20c".into(), status: 200, user_agent: None };
        assert_eq!(read(common), Ok(expected.clone()));
        let combined = format!("{common} \"http://x/\\\"y\\\" z\" \"Bot/1 (\\\"quoted\\\"; +http://x)\"");
        let agent = Some("Bot/1 (\"quoted\"; +http://x)".to_owned());
        assert_eq!(read(&combined), Ok(Line { user_agent: agent.clone(), ..expected.clone() }));
        let host = Some("example.org".to_owned());
        assert_eq!(read(&format!("example.org:443 {combined}")), Ok(Line { host, user_agent: agent, ..expected.clone() }));
        let garbage = "2001:db8::1 - - [25/Nov/2026:18:26:18 +0000] \"\\x16\\x03\" 400 150 \"-\" \"-\"";
        let line = read(garbage).expect("a line");
        assert_eq!((line.client.as_str(), line.path.as_str(), line.status), ("2001:db8::1", "x16x03", 400));
    }

    #[test]
    fn another_format_is_refused_with_the_reason() {
        use super::read;
        for (bad, says) in [
            ("", "no time in brackets"),
            ("a - - [25/Nov/2026:18:26:18 +0000", "has no end"),
            ("a - - [2026-11-25T18:26:18Z] \"GET / HTTP/1.1\" 200 1", "the time `2026-11-25T18:26:18Z`"),
            ("a - - [25/Nov/2026:18:26:18 +0000] GET / 200", "no request in quotes"),
            ("a - - [25/Nov/2026:18:26:18 +0000] \"GET / HTTP/1.1\" ok", "no status"),
        ] {
            assert!(read(bad).is_err_and(|why| why.contains(says) && why.contains("is expected")), "{bad}");
        }
    }
}
