//! Values as people write them on a command line, and files that hold jobs.

use super::remote::Failure;
use crate::domain::time::Timestamp;
use chrono::DateTime;
use serde_json::Value;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes.
const MOST: u64 = 64 << 20;

/// A span of time in milliseconds: `500ms`, `30s`, `1h 30m`, `1d`, `0`.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let wrong = |why: String| format!("{why}; 500ms, 30s, 5m, 2h or 1d is expected");
    if text.trim() == "0" {
        return Ok(0);
    }
    let span = humantime::parse_duration(text.trim()).map_err(|e| wrong(e.to_string()))?;
    match u64::try_from(span.as_millis()) {
        Ok(ms) if ms > 0 || span.is_zero() => Ok(ms),
        _ => Err(wrong("whole milliseconds are counted".to_owned())),
    }
}

/// An instant: RFC 3339, `now`, or a span of time from now (`+2h`, `-30m`).
pub fn instant(text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    let now = Timestamp::now();
    let moved = |span: &str, sign: i64| duration_ms(span).map(|ms| now.plus_ms(sign * i64::try_from(ms).unwrap_or(i64::MAX)));
    match (text, text.strip_prefix('+'), text.strip_prefix('-')) {
        ("now", _, _) => Ok(now),
        (_, Some(span), _) => moved(span, 1),
        (_, _, Some(span)) => moved(span, -1),
        _ => DateTime::parse_from_rfc3339(text)
            .map(|time| Timestamp(time.timestamp_millis()))
            .map_err(|e| format!("{e}; 2026-12-24T18:00:00Z, now, +2h or -30m is expected")),
    }
}

/// `KEY=VALUE`.
pub fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("KEY=VALUE is expected".to_owned()),
    }
}

/// `Name: value`.
pub fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err("`Name: value` is expected".to_owned()),
    }
}

/// A text, or with `@` in front the file that holds it (`@-`: standard input).
pub fn text_or_file(text: &str) -> Result<String, Failure> {
    match text.strip_prefix('@') {
        Some(path) => read(Path::new(path)),
        None => Ok(text.to_owned()),
    }
}

/// A file of a line of flags; `-` is standard input.
pub fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let result = if path == Path::new("-") {
        std::io::stdin().lock().take(MOST).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MOST).read_to_string(&mut text))
    };
    result.map_err(|e| Failure::Usage(format!("{}: {e}", path.display())))?;
    Ok(text)
}

/// It is JSON by its first character; everything else is YAML.
pub fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// What a file of YAML or JSON says; none: nothing.
pub fn document(path: Option<&PathBuf>) -> Result<Option<Value>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let text = read(path)?;
    let value = if is_json(&text) {
        serde_json::from_str(&text).map_err(|e| e.to_string())
    } else {
        serde_saphyr::from_str::<Value>(&text).map_err(|e| e.to_string())
    };
    match value {
        Ok(value @ Value::Object(_)) => Ok(Some(value)),
        Ok(_) => Err(Failure::Usage(format!("{}: one document with names and values is expected", path.display()))),
        Err(why) => Err(Failure::Usage(format!("{}: {why}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h 30m", 5_400_000), ("1d", 86_400_000), ("0", 0)] {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "30", "1us", "-5s", "5 apples"] {
            assert!(duration_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn instants_are_read() {
        assert_eq!(instant("1970-01-01T01:00:00+01:00"), Ok(Timestamp(0)));
        let (before, now) = (Timestamp::now(), instant("now").unwrap());
        assert!(before <= now && now <= Timestamp::now());
        let ahead = instant("+2h").unwrap().since_ms(instant("-30m").unwrap());
        assert!((9_000_000..9_005_000).contains(&ahead), "{ahead}");
        assert!(instant("tomorrow").is_err() && instant("2026-01-01").is_err());
    }

    #[test]
    fn pairs_are_read() {
        assert_eq!(property("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(header("A: b:c"), Ok(("A".into(), "b:c".into())));
        assert!(property("A").is_err() && property("=b").is_err() && header(":").is_err());
    }

    #[test]
    fn yaml_and_json_say_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            document(Some(&path)).map_err(|_| ())
        };
        let yaml = file("a", "name: nightly\nschedule:\n  triggers:\n    - cron: '0 2 * * *'\n");
        assert_eq!(yaml, file("b", r#"{"name": "nightly", "schedule": {"triggers": [{"cron": "0 2 * * *"}]}}"#));
        assert!(yaml.is_ok_and(|value| value.is_some()));
        assert!(file("c", "- 1\n").is_err() && file("d", "a: [").is_err());
    }
}
