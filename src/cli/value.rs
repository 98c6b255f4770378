//! Parses values of the command line, and files that contain jobs.

use super::failure::Failure;
use crate::domain::time::Timestamp;
use crate::domain::zone::Zone;
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use serde_json::Value;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// The largest accepted file, in bytes.
const MOST: u64 = 64 << 20;

/// A duration in milliseconds: `500ms`, `30s`, `1h 30m`, `1d`, `0`.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    const EXPECTED: &str = "a time with its unit is expected: 500ms, 30s, 5m, 2h or 1d";
    let text = text.trim();
    if text == "0" {
        return Ok(0);
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("it needs a unit: {text}s, {text}m, {text}h or {text}d"));
    }
    if text.contains('M') {
        return Err(format!("`M` is not a unit: write m for minutes, or days such as 30d; {EXPECTED}"));
    }
    let span = humantime::parse_duration(text).map_err(|_| EXPECTED.to_owned())?;
    match u64::try_from(span.as_millis()) {
        Ok(ms) if ms > 0 || span.is_zero() => Ok(ms),
        Ok(_) => Err("the shortest time is 1ms".to_owned()),
        Err(_) => Err("it is too long".to_owned()),
    }
}

const INSTANT: &str = "an instant is expected: 2026-12-24T18:00:00Z, 2026-12-24 (its midnight), now, +2h or -30m";

/// A time: RFC 3339, a date (its midnight in UTC), `now`, or a duration from now (`+2h`, `-30m`).
pub fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse::<When>().and_then(|when| when.at(None))
}

/// A time as written: the meaning of a date depends on the zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// An exact time.
    At(Timestamp),
    /// The midnight of a date.
    Date(String),
}

impl std::str::FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let now = Timestamp::now();
        let moved = |span: &str, sign: i64| duration_ms(span).map(|ms| Self::At(now.plus_ms(sign * i64::try_from(ms).unwrap_or(i64::MAX))));
        match (text, text.strip_prefix('+'), text.strip_prefix('-')) {
            ("now", _, _) => Ok(Self::At(now)),
            (_, Some(span), _) => moved(span, 1),
            (_, _, Some(span)) => moved(span, -1),
            _ if NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok() => Ok(Self::Date(text.to_owned())),
            _ if text.len() > 10 && NaiveDateTime::parse_from_str(text.replacen(' ', "T", 1).as_str(), "%Y-%m-%dT%H:%M:%S").is_ok() => {
                Err(format!("it has no zone: write {}Z for UTC, or an offset like +01:00", text.replacen(' ', "T", 1)))
            }
            _ => {
                DateTime::parse_from_rfc3339(text).map(|time| Self::At(Timestamp(time.timestamp_millis()))).map_err(|_| INSTANT.to_owned())
            }
        }
    }
}

impl When {
    /// The time; for a date, the midnight in this zone, or in UTC.
    ///
    /// # Errors
    /// It is out of range.
    pub fn at(&self, zone: Option<&str>) -> Result<Timestamp, String> {
        match self {
            Self::At(at) => Ok(*at),
            // An unknown zone is reported where it is given.
            Self::Date(text) => zone.and_then(|name| Zone::named(name).ok()).unwrap_or_else(Zone::utc).instant(text),
        }
    }
}

/// The name of a time zone.
pub fn zone(text: &str) -> Result<String, String> {
    Zone::named(text).map(|_| text.to_owned()).map_err(|e| format!("{e}; Europe/Berlin, America/New_York and UTC are some"))
}

/// `KEY=VALUE`.
pub fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("KEY=VALUE is expected, for example ThreadNum=4".to_owned()),
    }
}

/// `Name: value`.
pub fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err("`Name: value` is expected, for example `Accept: text/html`".to_owned()),
    }
}

/// A text, or with a leading `@` the content of this file (`@-`: standard input).
pub fn text_or_file(text: &str) -> Result<String, Failure> {
    match text.strip_prefix('@') {
        Some(path) => read(Path::new(path)),
        None => Ok(text.to_owned()),
    }
}

/// Reads a file that a flag names; `-` is standard input.
pub fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let result = if path == Path::new("-") {
        std::io::stdin().lock().take(MOST).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MOST).read_to_string(&mut text))
    };
    result.map_err(|e| unreadable(path, &e))?;
    Ok(text)
}

/// The error for an unreadable file.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(why_unreadable(path, error))
}

/// Why a file cannot be read.
pub fn why_unreadable(path: &Path, error: &std::io::Error) -> String {
    let why = match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::PermissionDenied => "there is no permission to read it".to_owned(),
        ErrorKind::IsADirectory => "it is a folder, and a file is expected".to_owned(),
        ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    };
    format!("cannot read {}: {why}", path.display())
}

/// Whether the text is JSON, by its first character; otherwise it is YAML.
pub fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// Parses a file of YAML or JSON; `None` without a path.
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
        Ok(_) => {
            Err(Failure::Usage(format!("{}: one document with names and values is expected, for example `name: nightly`", path.display())))
        }
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
        for (text, why) in [
            ("", "500ms"),
            ("30", "30s, 30m, 30h or 30d"),
            ("1us", "1ms"),
            ("-5s", "500ms"),
            ("5 apples", "its unit"),
            ("10M", "m for minutes"),
        ] {
            assert!(duration_ms(text).is_err_and(|error| error.contains(why)), "{text}");
        }
    }

    #[test]
    fn instants_are_read() {
        assert_eq!(instant("1970-01-01T01:00:00+01:00"), Ok(Timestamp(0)));
        let (before, now) = (Timestamp::now(), instant("now").unwrap());
        assert!(before <= now && now <= Timestamp::now());
        let ahead = instant("+2h").unwrap().since_ms(instant("-30m").unwrap());
        // The second "now" is read later than the first.
        assert!((8_995_000..=9_000_000).contains(&ahead), "{ahead}");
        assert_eq!(instant("2026-01-01"), Ok(Timestamp(1_767_225_600_000)));
        let date: When = "2026-01-01".parse().unwrap();
        assert_eq!(date.at(Some("Europe/Berlin")), Ok(Timestamp(1_767_222_000_000)));
        for (text, why) in [
            ("tomorrow", "2026-12-24T18:00:00Z"),
            ("2026-13-01", "+2h"),
            ("2026-01-01T10:00:00", "write 2026-01-01T10:00:00Z"),
            ("+5", "+2h"),
        ] {
            let error = instant(text).unwrap_err();
            assert!(error.contains(why) || text == "+5" && error.contains("unit"), "{text}: {error}");
        }
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
