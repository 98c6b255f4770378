//! Times for people: `3 min ago`, `in 2 h`; exact ones in UTC.

use super::look::Look;
use super::table::{NOTHING, plain, some};
use crate::domain::time::Timestamp;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;

/// A time for a card, in both forms, if it is present.
pub fn some_time(value: &Value, key: &str) -> Option<String> {
    let text = value[key].as_str()?;
    let exact = exact(text);
    if Look::get().utc {
        return Some(exact);
    }
    Some(relative(text).map_or_else(|| exact.clone(), |relative| format!("{relative} ({exact})")))
}

/// A time and its author, if they are present.
pub fn since(value: &Value, at: &str, by: &str) -> Option<String> {
    let by = some(value, by).map(|by| format!(" by {by}")).unwrap_or_default();
    some_time(value, at).map(|at| format!("{at}{by}"))
}

/// A time for a cell.
pub fn time(value: &Value, key: &str) -> String {
    let Some(text) = value[key].as_str() else { return NOTHING.to_owned() };
    let relative = if Look::get().utc { None } else { relative(text) };
    relative.unwrap_or_else(|| exact(text))
}

/// An exact time for a cell that identifies something: a scheduled time, a log line.
pub fn exact_time(value: &Value, key: &str) -> String {
    value[key].as_str().map_or_else(|| NOTHING.to_owned(), exact)
}

/// A time in UTC; with milliseconds only if they are not zero, so that a copied time is exact.
pub fn exact(text: &str) -> String {
    let Ok(time) = DateTime::parse_from_rfc3339(text) else { return plain(text) };
    let form = if time.timestamp_subsec_millis() == 0 { SecondsFormat::Secs } else { SecondsFormat::Millis };
    time.with_timezone(&Utc).to_rfc3339_opts(form, true)
}

fn relative(text: &str) -> Option<String> {
    let at = DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis();
    Some(from_now(at - Timestamp::now().0))
}

/// This many milliseconds ahead or, if negative, in the past; in one unit, rounded down.
fn from_now(ms: i64) -> String {
    let seconds = ms.unsigned_abs() / 1_000;
    let (count, unit) = match seconds {
        0 => return "now".to_owned(),
        1..=119 => (seconds, "s"),
        120..=7_199 => (seconds / 60, "min"),
        7_200..=172_799 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "days"),
    };
    if ms < 0 { format!("{count} {unit} ago") } else { format!("in {count} {unit}") }
}

/// A duration as text: `1h 30m`.
pub fn span(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    humantime::format_duration(std::time::Duration::from_millis(ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exact_times_are_short() {
        assert_eq!(exact("2026-11-21T06:18:59.000Z"), "2026-11-21T06:18:59Z");
        assert_eq!(exact("2026-11-21T07:18:59.120+01:00"), "2026-11-21T06:18:59.120Z");
        assert_eq!(span(5_400_000), "1h 30m");
    }

    #[test]
    fn times_are_told_from_now() {
        for (ms, expected) in [
            (0, "now"),
            (-999, "now"),
            (-1_000, "1 s ago"),
            (90_000, "in 90 s"),
            (-180_000, "3 min ago"),
            (-5_400_000, "90 min ago"),
            (7_200_000, "in 2 h"),
            (-86_400_000, "24 h ago"),
            (-86_400_000 * 12, "12 days ago"),
            (i64::MIN, "106751991167 days ago"),
        ] {
            assert_eq!(from_now(ms), expected, "{ms}");
        }
        let value = json!({ "at": Timestamp::now().plus_ms(-200_000) });
        assert_eq!(time(&value, "at"), "3 min ago");
        assert!(some_time(&value, "at").is_some_and(|text| text.starts_with("3 min ago (20") && text.ends_with("Z)")));
        assert_eq!((time(&value, "none"), some_time(&value, "none")), ("-".to_owned(), None));
    }
}
